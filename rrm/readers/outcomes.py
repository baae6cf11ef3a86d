"""Which field of a record says how the run ended. A field of another meaning is never taken for one.

A dataset's `label: "yes"` is a gold answer, a `result: "no"` the agent's, a `correct: 1` may be the right choice's number; only
names that say success are read, and the name that was read is kept (`Trajectory.source.outcome_field`). Any other field can be
named: `rrm … --outcome FIELD`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError

YES, NO = {"yes"}, {"no"}
TRUE, FALSE = (
    {"true", "pass", "passed", "success", "correct", "1"},
    {"false", "fail", "failed", "failure", "incorrect", "0"},
)
FIELDS = (
    "outcome",
    "correct",
    "is_correct",
    "success",
    "is_success",
    "succeeded",
    "resolved",
    "solved",
    "passed",
    "gpt4o_output",
    "reward",
    "em",
    "score",
)
"""The names that say so, most trusted first: `correct` before `reward`, which may be a partial F1."""
NUMERIC = frozenset({"reward", "em", "score"})
"""Fields of numbers: a word in them says nothing, and a number outside [0, 1] in one row says that they are marks on another
scale, on which 1 may be the worst (`Scales`)."""
CHOICES = ("choices", "options")
"""Beside one of these `correct` is the number or the text of the right choice."""
UNGRADED = {
    *("", "-", "?", "unknown", "ungraded", "not graded", "n/a", "na", "nan", "none", "null", "pending", "skipped"),
    *("timeout", "timed out", "error", "no answer"),
}
"""Words by which `correct` says nothing; any other word that is no label, or a number outside [0, 1], in one row says that it
holds answers or choices' numbers, of which 0 and 1 are two (`Scales`)."""
GRADES = (TRUE | FALSE) - {"true", "false", "1", "0"}
"""Words that say nothing but how a run ended; "true" may be the answer to a question."""
SCALED = NUMERIC | {"correct"}
"""Fields that one row may show to be no outcome in others."""
OTHERS = ("label", "result", "answer_correct", "accuracy", "f1", "pass", "status", "verdict", "grade")
"""Fields that may hold an outcome as well as something else: `rrm check` tells of them where nothing was read."""
BROKEN = re.compile(
    r"sandbox|docker|container|kubernetes|infra|rate.?limit|overloaded|quota|connection|network|unreachable|unavailable|server error"
    r"|\b(?:429|50[0234]|529)\b|cuda|out of memory|\boom\b|preempted"
    r"|(?:grader|judge|scorer|verifier|rubric|reward)[\w ]{0,20}(?:error|exception|crash|timeout|timed out|could not|failed to)"
    r"|(?:could not|failed to|cannot) (?:be )?(?:grade|score|judge|verify|verified)",
    re.IGNORECASE,
)
"""Errors beside a number that are the grader's or the surroundings' (a sandbox, an API, the hardware): the number says nothing of the agent.
An error of any other kind ("max steps exceeded") is how the run went, and the number counts."""
LONGEST = 4000
"""Characters of an error that are looked at."""
MISSING = object()


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended, in [0, 1], and the field that said so (a path in the record)."""

    value: float
    field: str
    unscored: bool = False
    """Whether the number is what a run is given whose grader or surroundings broke."""


def as_outcome(value: Any) -> float | None:
    """A value that is known to be a label as a number in [0, 1]: booleans, numbers in range, words such as "True", "no"."""
    if isinstance(value, str):
        word = value.strip().casefold()
        return 1.0 if word in TRUE | YES else 0.0 if word in FALSE | NO else None
    if isinstance(value, bool | int | float) and 0 <= value <= 1:
        return float(value)
    return None


def find_outcome(record: dict[str, Any], *more: str) -> RunOutcome | None:
    """The first field that says how the run ended; the fields themselves stay in meta.

    Args:
        more: names that are labels in this format alone, read where they hold a boolean or a number.
    """
    for name in FIELDS:
        if (value := _said(record, name)) is not None:
            return RunOutcome(value, name, name in NUMERIC and _broke(record.get("error")))
    for name in more:
        if not isinstance(record.get(name), str) and (value := as_outcome(record.get(name))) is not None:
            return RunOutcome(value, name)
    return None


def _broke(error: Any) -> bool:
    """Whether an error, or an object or a list of such, says that the grader or the surroundings broke."""
    if isinstance(error, dict | list):
        return any(map(_broke, error.values() if isinstance(error, dict) else error))
    return isinstance(error, str) and BROKEN.search(error[:LONGEST]) is not None


def _said(record: dict[str, Any], field: str) -> float | None:
    value = record.get(field)
    if field in NUMERIC and isinstance(value, str):
        return None
    if field == "correct" and (_is_choice(record) or (isinstance(value, str) and value.strip().casefold() in YES | NO)):
        return None  # "yes" is an answer, and a number or a word may be a choice's
    return as_outcome(value)


def unread(meta: dict[str, Any]) -> tuple[str, Any] | None:
    """The first field that says how a run ended, with a number that is no label in it ("0.5", 2, NaN): no outcome is read from it."""
    for name in FIELDS:
        value = meta.get(name)
        if as_outcome(value) is None and _is_number(value) and not (name == "correct" and _is_choice(meta)):
            return name, value
    return None


def _is_number(value: Any) -> bool:
    """Whether it is a number, or a text that is one; NaN, which is no JSON, comes as text (`rrm.data.jsonl`)."""
    if not isinstance(value, str):
        return isinstance(value, int | float)
    try:
        return float(value) is not None
    except ValueError:
        return False


def _is_choice(record: dict[str, Any]) -> bool:
    """Whether `correct` names a choice, by what stands beside it."""
    return any(key in record for key in CHOICES) and not isinstance(record.get("correct"), bool)


@dataclass
class Scales:
    """Which fields hold numbers outside [0, 1] (`correct`: or words that are no labels), counted as rows go by: what was read from
    such a field is no outcome.

    A number outside speaks of its own file, where another field said how its row ended: another file's field of the name may
    mean something else. Where no field did, it speaks of all files, for one may hold a single run. A word speaks of its own file.
    """

    off: Counter[str] = field(default_factory=Counter)
    """field -> rows in which it is outside [0, 1]"""
    _off: Counter[tuple[str, str]] = field(default_factory=Counter)
    """the same by (file, field); file "": rows without an outcome, of any file"""
    _taken: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(file, field) -> rows whose outcome was read from it, and may be of another scale or an answer: neither a boolean nor a grade"""

    def add(self, trajectory: Trajectory) -> None:
        """Count one row."""
        source, ended = trajectory.source, trajectory.outcome is not None
        file = source.file if source else ""
        said = source.outcome_field if source and ended else None
        for name in SCALED:
            value = trajectory.meta.get(name)
            if name == "correct" and _is_choice(trajectory.meta):
                continue  # known to be no outcome, and none was read from it
            number = isinstance(value, int | float) and not 0 <= value <= 1
            is_answer = isinstance(value, str) and value.strip().casefold() not in TRUE | FALSE | UNGRADED
            if said != name and (number or (name == "correct" and is_answer)):
                self.off[name] += 1
                self._off["" if number and not ended else file, name] += 1
        value = trajectory.meta.get(said) if said in SCALED else None
        is_grade = isinstance(value, bool) or (isinstance(value, str) and value.strip().casefold() in GRADES)
        if said in SCALED and not is_grade:
            self._taken[file, said] += 1

    def complaint(self) -> str | None:
        """The fields that outcomes were read from although they are not on [0, 1]; None where there is none."""
        found = []
        for name in FIELDS:
            wrong = {f for f, n in self._taken if n == name and (self._off["", name] or self._off[f, name])}
            if wrong:
                off = sum(self._off[file, name] for file in wrong | {""})
                taken = sum(self._taken[file, name] for file in wrong)
                what, so = ("not on [0, 1]", "are of another scale, where 1 may be the worst")
                if name == "correct":
                    what, so = ("no label (0, 1, true, false)", "may be choices' numbers, or answers")
                found.append(f"`{name}` is {what} in {off} rows, so the {taken} outcomes read from it {so}")
        if not found:
            return None
        return "; ".join(found) + (
            ": name the field that says how a run ended (--outcome FIELD, --map outcome=FIELD, data.outcome), or bring this one "
            "to [0, 1] in every row"
        )


def refuse_other_scales(trajectories: Iterable[Trajectory]) -> None:
    """Refuse rows of which some have their outcome from a field that is not on [0, 1] in others.

    Raises:
        RRMError: naming the field, and in how many rows it is outside.
    """
    scales = Scales()
    for trajectory in trajectories:
        scales.add(trajectory)
    if complaint := scales.complaint():
        raise RRMError(complaint)


def outcome_at(record: Any, path: str) -> RunOutcome | None:
    """The outcome at a path that a format (or a user) names; None where it holds null, or is absent and ends in `?`.

    Raises:
        ValueError: nothing stands there, or something that is no label in [0, 1].
    """
    value = get(record, path.removesuffix("?"))
    if value is None or (value is MISSING and path.endswith("?")):
        return None
    if value is MISSING:
        raise ValueError(f"no outcome at {path!r}; write {path + '?'!r} where some runs have none")
    found = as_outcome(value)
    if found is None:
        raise ValueError(f"outcome at {path!r} is no label in [0, 1]: {str(value)[:80]!r}")
    return RunOutcome(found, path.removesuffix("?"))


def get(value: Any, path: str) -> Any:
    """What stands at a path (`a.b[0].c`; `.` is the whole), or MISSING."""
    for part in split_path(path):
        index = part[1:-1] if part.startswith("[") and part.endswith("]") else part
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and re.fullmatch(r"-?\d{1,9}", index) and -len(value) <= int(index) < len(value):
            value = value[int(index)]
        else:
            return MISSING
    return value


def split_path(path: str) -> list[str]:
    """`a[0].b` -> `["a", "[0]", "b"]`."""
    return [] if path == "." else re.split(r"\.|(?=\[)", path)
