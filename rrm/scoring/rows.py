"""The rows of a cascade: the transcripts kept for a second reading, and the small judge's rows with the stronger judge's put in."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from rrm.data.feedback import OUTSIDE, Feedback, clear
from rrm.data.trajectory import Trajectory
from rrm.data.usage import total_of

Row = dict[str, Any]


@dataclass
class Escalation:
    """What went to the stronger judge, of all runs on the output."""

    model: str
    unsure: int = 0
    """Rows that the small judge is not sure of."""
    escalated: int = 0
    """Of these, rows that are the stronger judge's."""
    control: int = 0
    """Rows that the small judge is sure of and that are the stronger judge's."""
    left: int = 0
    """Rows that were to go to the stronger judge and have not: the money was spent, or it could not be reached any more."""
    failed: dict[str, int] = field(default_factory=dict)
    """Rows of which the stronger judge gave no score, by its status; `unsure`: a score without a verdict."""
    first_failure: str | None = None
    agreement: dict[str, Any] | None = None
    """On the control rows: `steps` to which both judges gave a verdict, how many `agree`, their `share`; `rows` with such steps, and in how
    many of them all agree (`rows_agree`). None where there is no such step."""
    usage: dict[str, Any] | None = None
    """Of the stronger judge, with its `cost` where prices are known."""


class Kept:
    """Keeps transcripts in a file as they pass, and finds them again by id; those without a step are not kept."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._places = file, dict[str, int]()

    def __contains__(self, id: str) -> bool:
        return id in self._places

    def passing(self, trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
        """The same transcripts."""
        for trajectory in trajectories:
            if trajectory.steps:
                self._places[trajectory.id] = self._file.tell()
                self._file.write(trajectory.to_json().encode("ascii") + b"\n")
            yield trajectory

    def of(self, ids: Iterable[str]) -> Iterator[Trajectory]:
        """The transcripts of these ids, in this order; KeyError for one that has not passed."""
        for id in ids:
            self._file.seek(self._places[id])
            yield Trajectory.from_json(self._file.readline().decode("ascii"))


def is_sure(feedback: Feedback) -> bool:
    """Tell whether a row needs no stronger judge: it has a score, its run is in the domain, no step is unsure."""
    unsure = any(finding.verdict == "unsure" for finding in feedback.findings)
    return feedback.status == "scored" and not feedback.out_of_domain and not unsure


def failure_of(small: Feedback, stronger: Feedback) -> tuple[str, str | None] | None:
    """(status, reason) where the small judge's row is kept: the stronger one gave no score, or abstains where the small one gave a
    score. None: its row is taken."""
    if stronger.status != "scored":
        return stronger.status, stronger.reason
    unsure = bool(stronger.findings) and all(finding.verdict == "unsure" for finding in stronger.findings)
    if small.status == "scored" and (stronger.abstains or unsure):
        return "unsure", OUTSIDE if stronger.abstains else "it is unsure of every step"
    return None


def merged_row(row: Row, theirs: Row | None) -> Row:
    """Make a row of OUT.jsonl from the small judge's and the stronger judge's; None: that has none of this transcript."""
    if theirs is None:
        return {**row, "escalated": False}
    small, stronger = feedback_of(row), feedback_of(theirs)
    usage = total_of((small.usage, stronger.usage))
    paid = {"usage": None if usage is None else usage.model_dump()}
    if failure := failure_of(small, stronger):
        failed = {"model": stronger.judge.model, "status": failure[0], "reason": failure[1]}
        return {**row, **paid, "escalated": False, "escalation_failed": failed}
    own = small.model_dump(exclude={"id"}, exclude_defaults=True)
    return {**theirs, **paid, "escalated": "control" if is_sure(small) else True, "small_judge": own}


class MergedRows:
    """Merges two files of rows, each row once, and counts on the way.

    Args:
        first: the small judge's rows.
        second: the stronger judge's; it need not exist. A row of other content is passed over.
        escalation: takes the counts.
    """

    def __init__(self, first: Path, second: Path, escalation: Escalation) -> None:
        self._first, self._second, self._counts = first, second, escalation
        self.statuses, self.tried = Counter[str](), set[str]()
        """`tried`: ids of which the stronger judge has a row."""
        self._agreed = Counter[str]()

    def __iter__(self) -> Iterator[Row]:
        places = {row["id"]: place for place, row in _with_places(self._second)} if self._second.exists() else {}
        with open(self._second if places else self._first, "rb") as second:
            for _, row in _with_places(self._first):
                theirs = None
                if row["id"] in places:
                    second.seek(places[row["id"]])
                    theirs = json.loads(second.readline())
                    theirs = theirs if theirs["source"]["digest"] == row["source"]["digest"] else None
                self._count(feedback_of(row), None if theirs is None else feedback_of(theirs))
                merged = merged_row(row, theirs)
                self.statuses[merged["status"]] += 1
                yield merged

    def _count(self, small: Feedback, stronger: Feedback | None) -> None:
        counts, sure = self._counts, is_sure(small)
        counts.unsure += not sure
        if stronger is None:
            return
        self.tried.add(small.id)
        if failure := failure_of(small, stronger):
            counts.failed[failure[0]] = counts.failed.get(failure[0], 0) + 1
            counts.first_failure = counts.first_failure or ": ".join(map(str, failure))
        elif not sure:
            counts.escalated += 1
        else:
            counts.control += 1
            self._compare(small, stronger)

    def _compare(self, small: Feedback, stronger: Feedback) -> None:
        """Compare two judges' verdicts on the steps of a control row."""
        ours, theirs = verdicts_of(small), verdicts_of(stronger)
        both = ours.keys() & theirs.keys()
        same = sum(ours[step] == theirs[step] for step in both)
        self._agreed += Counter(
            steps=len(both), agree=same, rows=bool(both), rows_agree=bool(both) and same == len(both)
        )
        if self._agreed["steps"]:
            counts = {name: self._agreed[name] for name in ("steps", "agree", "rows", "rows_agree")}
            self._counts.agreement = {**counts, "share": round(counts["agree"] / counts["steps"], 4)}


def verdicts_of(feedback: Feedback) -> dict[int, str]:
    """Steps → good or bad; a step of which both are said is bad."""
    verdicts: dict[int, str] = {}
    for finding in clear(feedback.findings):
        verdicts[finding.step] = "bad" if "bad" in (finding.verdict, verdicts.get(finding.step)) else "good"
    return verdicts


def feedback_of(row: Row) -> Feedback:
    """A row as feedback."""
    return Feedback.model_validate(row)


def rows_in(path: Path) -> Iterator[Row]:
    """The rows of a file."""
    return (row for _, row in _with_places(path))


def _with_places(path: Path) -> Iterator[tuple[int, Row]]:
    """(byte where its line begins, row)."""
    place = 0
    with open(path, "rb") as lines:
        for line in lines:
            yield place, json.loads(line)
            place += len(line)
