"""Policies' transcripts beside the judge's words on them, and the choice of shown questions.

Rows are joined by id. Two policies' attempts at a task carry the same id, so a row counts only where its digest is the transcript's."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reagent.report.runs import read_rows
from rrm.data.feedback import Feedback
from rrm.data.jsonl import read_lines
from rrm.data.questions import question_of
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError, RRMError
from rrm.report.rows import question, to_feedback

FORM = "NAME=TRANSCRIPTS.jsonl,FEEDBACK.jsonl"
SUCCESS = 0.5  # the least outcome of a success, as in `rrm eval`


@dataclass(frozen=True)
class JudgedAttempt:
    """One transcript, with the judge's row where there is one."""

    trajectory: Trajectory
    feedback: Feedback | None
    further: int = 0  # later attempts of the policy at the same question, which are not shown

    @property
    def success(self) -> bool | None:
        outcome = self.trajectory.outcome
        return None if outcome is None else outcome >= SUCCESS


@dataclass(frozen=True)
class PolicyAttempts:
    """A policy's attempts, and how its two files fit together."""

    name: str
    attempts: list[JudgedAttempt]  # every transcript, in file order
    unmatched: int  # the judge's rows that match no transcript by id
    mistaken: int  # the judge's rows written on another text under the same id; they are left out

    @property
    def by_question(self) -> dict[str, JudgedAttempt]:
        """The first attempt at each question, in file order."""
        count = Counter(question_of(a.trajectory) for a in self.attempts)
        first: dict[str, JudgedAttempt] = {}
        for attempt in self.attempts:
            key = question_of(attempt.trajectory)
            if key not in first:
                first[key] = JudgedAttempt(attempt.trajectory, attempt.feedback, count[key] - 1)
        return first


@dataclass(frozen=True)
class Example:
    """A question, and each policy's first attempt at it in the policies' order."""

    question: str
    attempts: list[JudgedAttempt]


@dataclass(frozen=True)
class ShownAttempts:
    """The shown examples, and counts of questions by outcome (first policy against last)."""

    examples: list[Example]
    shared: int  # questions that every policy attempted
    gained: int  # the last policy succeeds, the first one fails
    lost: int  # the reverse
    both: int
    neither: int
    unknown: int  # the first or the last policy's outcome is unknown


def parse_policy(text: str) -> tuple[str, Path, Path]:
    """Split `NAME=TRANSCRIPTS.jsonl,FEEDBACK.jsonl`. Raises ConfigError: anything else."""
    name, _, files = text.partition("=")
    parts = [file.strip() for file in files.split(",")]
    if not name.strip() or len(parts) != 2 or not all(parts):
        raise ConfigError(f"--policy {text!r}: write {FORM}, e.g. trained=episodes.jsonl,scored.jsonl")
    return name.strip(), Path(parts[0]), Path(parts[1])


def read_policy(name: str, transcripts: str | Path, feedback: str | Path) -> PolicyAttempts:
    """A policy's transcripts (of `reagent eval --transcripts`) with the judge's rows (of `rrm score -o`).
    Raises RRMError: a file that cannot be read or is empty, an id that occurs twice, or no row that matches any transcript."""
    trajectories = list(read_lines(transcripts, Trajectory.from_json, "a canonical trajectory"))
    if not trajectories:
        raise RRMError(f"{transcripts} has no transcripts")
    twice = [i for i, n in Counter(t.id for t in trajectories).items() if n > 1]
    if twice:
        raise RRMError(f"{transcripts}: {len(twice)} ids occur more than once, e.g. {twice[0]!r}")
    rows: dict[str, dict[str, Any]] = {}
    for row in read_rows(Path(feedback), "a row of `rrm score`"):
        if not isinstance(row.get("id"), str):
            raise RRMError(f"{feedback}: a line is not a row of `rrm score`: no text `id`")
        rows[row["id"]] = row  # of a transcript judged again the last row counts
    attempts = []
    mistaken = 0
    for trajectory in trajectories:
        row = rows.pop(trajectory.id, None)
        if row is not None and _is_of_another(row, trajectory):
            row, mistaken = None, mistaken + 1
        attempts.append(JudgedAttempt(trajectory, None if row is None else to_feedback(row)))
    if all(a.feedback is None for a in attempts):
        other = f", {mistaken} of them have its ids but were written on other texts" if mistaken else ""
        raise RRMError(
            f"none of the {len(rows) + mistaken} rows in {feedback} matches a transcript in {transcripts}{other}: "
            "Did you score another file?"
        )
    return PolicyAttempts(name, attempts, len(rows), mistaken)


def choose(policies: Sequence[PolicyAttempts], count: int) -> ShownAttempts:
    """Up to `count` questions that every policy attempted: gained ones, then lost ones, then the rest.
    Within each the questions keep the first policy's file order. Raises RRMError: no question was attempted by every policy."""
    attempts = [policy.by_question for policy in policies]
    shared = [key for key in attempts[0] if all(key in firsts for firsts in attempts[1:])]
    if not shared:
        raise RRMError(
            f"no question was attempted by all of {', '.join(repr(p.name) for p in policies)}: their transcripts share no "
            "question_id, so there is nothing to show side by side"
        )
    kinds: dict[tuple[bool | None, bool | None], list[str]] = {}
    for key in shared:
        kinds.setdefault((attempts[0][key].success, attempts[-1][key].success), []).append(key)
    gained, lost = kinds.get((False, True), []), kinds.get((True, False), [])
    ahead = {*gained, *lost}
    order = [*gained, *lost, *(key for key in shared if key not in ahead)]
    both, neither = len(kinds.get((True, True), [])), len(kinds.get((False, False), []))
    return ShownAttempts(
        examples=[
            Example(question(attempts[0][key].trajectory) or key, [firsts[key] for firsts in attempts])
            for key in order[:count]
        ],
        shared=len(shared),
        gained=len(gained),
        lost=len(lost),
        both=both,
        neither=neither,
        unknown=len(shared) - len(ahead) - both - neither,
    )


def _is_of_another(row: dict[str, Any], trajectory: Trajectory) -> bool:
    source = row.get("source")
    digest = source.get("digest") if isinstance(source, dict) else None
    return digest is not None and digest != trajectory.digest
