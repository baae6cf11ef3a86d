"""The cascade: a small judge reads every transcript, a stronger one those the small one is unsure of.

    OUT.small.jsonl       the small judge's rows: an output of `rrm.scoring.run`, appended to and resumed
    OUT.escalated.jsonl   the stronger judge's rows, likewise: no judgement is paid twice
    OUT.jsonl             a row a transcript, merged at the end of a run, also of one that stopped early

A merged row is the stronger judge's where that gave a score and does not abstain, else the small judge's (see `judge`); the small judge's
verdict stays on steps of which the stronger one is unsure. `usage` is of both. Further fields:

    escalated           true; "control": the small judge was sure; false: the row is the small judge's
    small_judge         of an escalated row: the small judge's feedback, without defaults
    escalation_failed   `model`, `status`, `reason` where the stronger judge gave no score; "unsure" where it abstains
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from rrm.data.feedback import OUTSIDE, Feedback, Mode, clear
from rrm.data.output import RowFile, differences, header_of, locked
from rrm.data.seeds import derive_seed
from rrm.data.trajectory import Trajectory
from rrm.data.usage import Usage, total_of
from rrm.errors import RRMError
from rrm.scoring.run import ScoreSummary, ScoringJudge, fingerprint_of, score_file

Row = dict[str, Any]
CONTROL_SHARE = 0.05  # of the small judge's sure rows, that go to the stronger one nevertheless
AT_ONCE = 32  # transcripts in a list to the stronger judge; within a list the order is its own


@dataclass
class Escalation:
    """Counts rows that went to the stronger judge, of all runs on the output."""

    model: str
    unsure: int = 0  # rows that the small judge is not sure of
    escalated: int = 0  # of these, rows that are the stronger judge's
    control: int = 0  # rows that the small judge is sure of and that are the stronger judge's
    left: int = 0  # rows not escalated yet: the money was spent, or the judge could not be reached any more
    failed: dict[str, int] = field(default_factory=dict)
    """Status → rows to which the stronger judge gave no score; `unsure`: a score without a verdict."""
    first_failure: str | None = None
    agreement: dict[str, Any] | None = None
    """Control rows: `steps` with two verdicts, how many `agree`, `share`; `rows`, `rows_agree`."""
    usage: dict[str, Any] | None = None  # of the stronger judge, with its `cost` where prices are known


class Kept:
    """Keeps passing transcripts with steps in a file, and finds them by id."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._places = file, dict[str, int]()

    def __contains__(self, id: str) -> bool:
        return id in self._places

    def passing(self, trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
        for trajectory in trajectories:
            if trajectory.steps:
                self._places[trajectory.id] = self._file.tell()
                self._file.write(trajectory.to_json().encode("ascii") + b"\n")
            yield trajectory

    def of(self, ids: Iterable[str]) -> Iterator[Trajectory]:
        """Yield the transcripts of ids in order; KeyError for one that has not passed."""
        for id in ids:
            self._file.seek(self._places[id])
            yield Trajectory.from_json(self._file.readline().decode("ascii"))


def is_sure(feedback: Feedback) -> bool:
    """Tell whether a row needs no stronger judge: it is scored, in the domain, and unsure of no step."""
    unsure = feedback.verdict == "unsure" or any(finding.verdict == "unsure" for finding in feedback.findings)
    return feedback.status == "scored" and not feedback.out_of_domain and not unsure


def failure_of(small: Feedback, stronger: Feedback) -> tuple[str, str | None] | None:
    """Return (status, reason) of a stronger judge without score or verdict; None: take its row."""
    if stronger.status != "scored":
        return stronger.status, stronger.reason
    unsure = bool(stronger.findings) and all(finding.verdict == "unsure" for finding in stronger.findings)
    if small.status == "scored" and (stronger.abstains or unsure):
        return "unsure", OUTSIDE if stronger.abstains else "it is unsure of every step"
    return None


def merged_row(row: Row, theirs: Row | None) -> Row:
    """Merge the small judge's row with the stronger judge's, where that has one."""
    if theirs is None:
        return {**row, "escalated": False}
    small, stronger = feedback_of(row), feedback_of(theirs)
    usage = total_of((small.usage, stronger.usage))
    paid = {"usage": None if usage is None else usage.model_dump()}
    if failure := failure_of(small, stronger):
        failed = {"model": stronger.judge.model, "status": failure[0], "reason": failure[1]}
        return {**row, **paid, "escalated": False, "escalation_failed": failed}
    own = small.model_dump(exclude={"id"}, exclude_defaults=True)
    mine = verdicts_of(small).keys() - verdicts_of(stronger).keys()  # nothing is said of these, or that it is unsure
    unsure_steps = {finding.step for finding in stronger.findings} & mine
    own_findings = [f for f in row["findings"] if f["step"] in unsure_steps and f["verdict"] != "unsure"]
    findings = sorted(
        [f for f in theirs["findings"] if f["step"] not in unsure_steps] + own_findings, key=lambda f: f["step"]
    )
    return {
        **theirs,
        **paid,
        "findings": findings,
        "escalated": "control" if is_sure(small) else True,
        "small_judge": own,
    }


class MergedRows:
    """Merges the small judge's rows (`first`) with the stronger's (`second`) of equal content; counts."""

    def __init__(self, first: Path, second: Path, escalation: Escalation) -> None:
        self._first, self._second, self._counts = first, second, escalation
        self.statuses, self.tried = Counter[str](), set[str]()  # `tried`: ids of which the stronger judge has a row
        self._agreed = Counter[str]()

    def __iter__(self) -> Iterator[Row]:
        places = {row["id"]: offset for offset, row in _with_places(self._second)} if self._second.exists() else {}
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
    """Return step → good or bad; bad where a step has both."""
    verdicts: dict[int, str] = {}
    for finding in clear(feedback.findings):
        verdicts[finding.step] = "bad" if "bad" in (finding.verdict, verdicts.get(finding.step)) else "good"
    return verdicts


def feedback_of(row: Row) -> Feedback:
    return Feedback.model_validate(row)


def rows_in(path: Path) -> Iterator[Row]:
    return (row for _, row in _with_places(path))


def _with_places(path: Path) -> Iterator[tuple[int, Row]]:
    offset = 0  # byte where a line begins
    with open(path, "rb") as lines:
        for line in lines:
            yield offset, json.loads(line)
            offset += len(line)


def sureness(feedback: Feedback) -> tuple[bool, int, float, float]:
    """Rank a row, least sure lowest: no score, most unsure steps, p_good (with a promise: or the score) nearest 0.5, lowest score."""
    unsure = sum(finding.verdict == "unsure" for finding in feedback.findings)
    probabilities = [*(f.p_good for f in feedback.findings), feedback.score if feedback.verdict else None]
    nearest = min((abs(p - 0.5) for p in probabilities if p is not None), default=0.5)
    return feedback.status == "scored", -unsure, nearest, feedback.score or 0.0


def order_of_escalation(feedbacks: Iterable[Feedback], seed: int, share: float = CONTROL_SHARE) -> list[str]:
    """Order the ids to escalate: unsure rows, the least sure first, and a sample of the sure ones.

    The sample (`share`, in [0, 1], rounded up to rows) is drawn by (seed, id) and spread evenly, so that a run stopped early has its part.
    """
    doubtful: list[tuple[tuple[bool, int, float, float], str]] = []
    sure: list[tuple[int, str]] = []
    for feedback in feedbacks:
        if is_sure(feedback):
            sure.append((derive_seed(seed, "control", feedback.id), feedback.id))
        else:
            doubtful.append((sureness(feedback), feedback.id))
    control = sorted(sure)[: math.ceil(round(share * len(sure), 6))]
    places = [(float(index), id) for index, (_, id) in enumerate(sorted(doubtful))]
    places += [((index + 0.5) * len(doubtful) / len(control), id) for index, (_, id) in enumerate(control)]
    return [id for _, id in sorted(places, key=lambda item: item[0])]


@dataclass
class CascadeSummary(ScoreSummary):
    """The small judge's summary; `statuses`, `usage`, `usage_now` and `stopped` are of both judges."""

    escalation: Escalation | None = None


def score_cascade(
    small: ScoringJudge,
    stronger: ScoringJudge,
    inputs: Iterable[Trajectory],
    output: Path,
    *,
    mode: Mode = "steps",
    stronger_mode: Mode = "full",
    samples: int = 1,
    seed: int = 0,
    share: float = CONTROL_SHARE,
    overwrite: bool = False,
    retry_errors: bool = False,
    settings: dict[str, Any] | None = None,
    total: int | None = None,
    progress: bool = True,
) -> CascadeSummary:
    """Judge every input with the small judge, then those of `order_of_escalation` with the stronger one.

    Resumes an output of the small judge alone, or of another `share` of control rows. Raises as `score_file`; OUT.jsonl is written first.
    """
    output = output.resolve() if output.is_symlink() else output
    made_by = fingerprint_of(small, mode=mode, samples=samples, seed=seed, settings=settings)
    first, second = beside(output, "small"), beside(output, "escalated")
    if not overwrite:
        _take_over(output, first, made_by)
    how: dict[str, Any] = {"samples": samples, "seed": seed, "retry_errors": retry_errors, "progress": progress}
    model = str(stronger.describe()["model"])
    made_by["escalate"] = model.rpartition("#")[2]  # a server may move
    with RowFile.open(output, made_by, overwrite=overwrite) as out, tempfile.TemporaryFile(dir=output.parent) as spool:
        store = Kept(spool)
        done = score_file(
            small, store.passing(inputs), first, mode=mode, settings=settings, total=total, overwrite=overwrite, **how
        )
        if overwrite:
            for path in (second, Path(f"{second}.run.json")):
                path.unlink(missing_ok=True)
        order = [id for id in order_of_escalation(map(feedback_of, rows_in(first)), seed, share) if id in store]
        escalation = Escalation(model)
        rows = MergedRows(first, second, escalation)
        streams = getattr(stronger, "streams", None)
        at_once = 1 if streams is not None and streams(stronger_mode) else AT_ONCE
        how |= {"mode": stronger_mode, "total": len(order), "chunk_size": at_once}
        try:
            later = score_file(stronger, store.of(order), second, **how)
        finally:
            out.replace(rows)
    escalation.left = len(set(order) - rows.tried)
    escalation.usage = later.usage
    return CascadeSummary(**{
        **vars(done),
        "output": str(output),
        "statuses": dict(sorted(rows.statuses.items())),
        "usage": _sum(done.usage, later.usage),
        "usage_now": _sum(done.usage_now, later.usage_now),
        "stopped": done.stopped or later.stopped,
        "seconds": round(done.seconds + later.seconds, 3),
        "escalation": escalation,
    })  # fmt: skip


def beside(output: Path, name: str) -> Path:
    """`OUT.jsonl` → `OUT.what.jsonl`."""
    return output.with_name(f"{output.stem if output.suffix in ('.jsonl', '.json') else output.name}.{name}.jsonl")


def _sum(*usages: dict[str, Any] | None) -> dict[str, Any] | None:
    total = total_of(None if usage is None else Usage.model_validate(usage) for usage in usages)
    return None if total is None else total.model_dump()


def _take_over(output: Path, first: Path, made_by: dict[str, Any]) -> None:
    """Move an output made without a stronger judge to the small judge's file."""
    if first.exists() or not output.is_file() or not output.stat().st_size:
        return
    with suppress(RRMError), locked(output, stays=True):  # `RowFile.open` says who has it
        if not differences(header_of(output), json.loads(json.dumps(made_by))):
            shutil.copyfile(f"{output}.run.json", f"{first}.run.json")
            os.replace(output, first)
