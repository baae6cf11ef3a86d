"""Read a record's outcome from fields whose names say success, and from no others.

A dataset's `label: "yes"` is a gold answer, a `result: "no"` the agent's, a `correct: 1` may be the right choice's number. The name
that was read is kept (`Trajectory.source.outcome_field`). Any other field can be named: `rrm … --outcome FIELD`.
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
"""Fields that say so, most trusted first: `correct` before `reward`, which may be a partial F1."""
NUMERIC = frozenset({"reward", "em", "score"})
"""Fields of numbers. Words in them say nothing; a number outside [0, 1] in one row shows another
scale, on which 1 may be the worst (`Scales`)."""
CHOICES = ("choices", "options")
"""Beside one of these `correct` is the number or text of the right choice."""
UNGRADED = {
    *("", "-", "?", "unknown", "ungraded", "not graded", "n/a", "na", "nan", "none", "null", "pending", "skipped"),
    *("timeout", "timed out", "error", "no answer"),
}
"""Words by which `correct` says nothing. Any other word, or a number outside [0, 1], in one row shows
that it holds answers or choices' numbers, of which 0 and 1 are two (`Scales`)."""
GRADES = (TRUE | FALSE) - {"true", "false", "1", "0"}
"""Words that can only grade a run; "true" may be the answer to a question."""
SCALED = NUMERIC | {"correct"}
"""Fields that one row may disqualify in others."""
OTHERS = ("label", "result", "answer_correct", "accuracy", "f1", "pass", "status", "verdict", "grade")
"""Fields that may hold an outcome or something else; `rrm check` lists them where nothing was read."""
BROKEN = re.compile(
    r"sandbox|docker|container|kubernetes|infra|rate.?limit|overloaded|quota|connection|network|unreachable|unavailable|server error"
    r"|\b(?:429|50[0234]|529)\b|cuda|out of memory|\boom\b|preempted"
    r"|(?:grader|judge|scorer|verifier|rubric|reward)[\w ]{0,20}(?:error|exception|crash|timeout|timed out|could not|failed to)"
    r"|(?:could not|failed to|cannot) (?:be )?(?:grade|score|judge|verify|verified)",
    re.IGNORECASE,
)
"""Errors of the grader or the surroundings (sandbox, API, hardware): a number beside one says nothing
of the agent. Any other error ("max steps exceeded") is how the run went, and the number counts."""
SCALE = re.compile(r":(-?\d{1,9}(?:\.\d{1,9})?)\.\.(-?\d{1,9}(?:\.\d{1,9})?)\Z")
"""End of a path that says the scale of its numbers, `rating:1..5`."""
FAILURE = re.compile(r"fail|error|trunc|tim(?:e|ed)_?out|abort|cancel|exceed", re.IGNORECASE)
"""Names of flags that are true where a run failed."""
RATING = re.compile(r"rating|stars?\b|score|grade|quality|thumb|satisf|feedback|reward", re.IGNORECASE)
"""Names of fields whose numbers may be a person's marks."""
LONGEST = 4000
"""Characters of an error that are searched."""
MISSING = object()


@dataclass(frozen=True)
class RunOutcome:
    """A run's outcome in [0, 1], and the path of the field that said so."""

    value: float
    field: str
    unscored: bool = False
    """True where the grader or the surroundings broke, so that the number says nothing."""


def as_outcome(value: Any) -> float | None:
    """Read a label as a number in [0, 1]: booleans, numbers in range, words such as "True", "no"."""
    if isinstance(value, str):
        word = value.strip().casefold()
        return 1.0 if word in TRUE | YES else 0.0 if word in FALSE | NO else None
    if isinstance(value, bool | int | float) and 0 <= value <= 1:
        return float(value)
    return None


def find_outcome(record: dict[str, Any], *more: str) -> RunOutcome | None:
    """Return the first field that says how the run ended; the fields themselves stay in meta.

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
    """Return whether an error (or one in an object or list) is the grader's or the surroundings'."""
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
    """Return the first outcome field whose number is no label ("0.5", 2, NaN): no outcome is read from it."""
    for name in FIELDS:
        value = meta.get(name)
        if as_outcome(value) is None and _is_number(value) and not (name == "correct" and _is_choice(meta)):
            return name, value
    return None


def _is_number(value: Any) -> bool:
    """Match numbers and texts that are one; NaN comes as text (`rrm.data.jsonl`)."""
    if not isinstance(value, str):
        return isinstance(value, int | float)
    try:
        return float(value) is not None
    except ValueError:
        return False


def _is_choice(record: dict[str, Any]) -> bool:
    """Return whether `correct` names a choice, by its neighbouring fields."""
    return any(key in record for key in CHOICES) and not isinstance(record.get("correct"), bool)


@dataclass
class Scales:
    """Counts fields with numbers outside [0, 1] (`correct`: or other words); they hold no outcomes.

    A number outside speaks of its own file, where another field said how its row ended: another file's field of the name may
    mean something else. Where no field did, it speaks of all files, for one may hold a single run. A word speaks of its own file.
    """

    off: Counter[str] = field(default_factory=Counter)
    """field -> rows in which it is outside [0, 1]"""
    _off: Counter[tuple[str, str]] = field(default_factory=Counter)
    """the same by (file, field); file "": rows without an outcome, of any file"""
    _taken: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(file, field) -> rows whose outcome was read from it and is neither a boolean nor a grade"""

    def add(self, trajectory: Trajectory) -> None:
        source, ended = trajectory.source, trajectory.outcome is not None
        file = source.file if source else ""
        outcome_field = source.outcome_field if source and ended else None
        for name in SCALED:
            value = trajectory.meta.get(name)
            if name == "correct" and _is_choice(trajectory.meta):
                continue  # known to be no outcome, and none was read from it
            number = isinstance(value, int | float) and not 0 <= value <= 1
            is_answer = isinstance(value, str) and value.strip().casefold() not in TRUE | FALSE | UNGRADED
            if outcome_field != name and (number or (name == "correct" and is_answer)):
                self.off[name] += 1
                self._off["" if number and not ended else file, name] += 1
        value = trajectory.meta.get(outcome_field) if outcome_field in SCALED else None
        is_grade = isinstance(value, bool) or (isinstance(value, str) and value.strip().casefold() in GRADES)
        if outcome_field in SCALED and not is_grade:
            self._taken[file, outcome_field] += 1

    def complaint(self) -> str | None:
        """Name the fields that outcomes were read from although they are not on [0, 1]; None for none."""
        complaints = []
        for name in FIELDS:
            wrong = {f for f, n in self._taken if n == name and (self._off["", name] or self._off[f, name])}
            if wrong:
                off = sum(self._off[file, name] for file in wrong | {""})
                taken = sum(self._taken[file, name] for file in wrong)
                fault, meaning = ("not on [0, 1]", "are of another scale, where 1 may be the worst")
                if name == "correct":
                    fault, meaning = ("no label (0, 1, true, false)", "may be choices' numbers, or answers")
                complaints.append(f"`{name}` is {fault} in {off} rows, so the {taken} outcomes read from it {meaning}")
        if not complaints:
            return None
        return "; ".join(complaints) + (
            ": name the field that says how a run ended (--outcome FIELD, --map outcome=FIELD, data.outcome), or bring this one "
            "to [0, 1] in every row"
        )


def refuse_other_scales(trajectories: Iterable[Trajectory]) -> None:
    """Refuse rows whose outcome's field is not on [0, 1] in other rows.

    Raises:
        RRMError: naming the field, and in how many rows it is outside.
    """
    scales = Scales()
    for trajectory in trajectories:
        scales.add(trajectory)
    if complaint := scales.complaint():
        raise RRMError(complaint)


def outcome_at(record: Any, path: str) -> RunOutcome | None:
    """Return the outcome at a path; None where it holds null, or is absent and the path ends in `?`.

    A path may end in a scale, `rating:1..5`: its numbers are mapped onto [0, 1]. One that falls, `failed:1..0`, turns booleans and
    words round, too.

    Raises:
        ValueError: nothing stands there, or something that is no label in [0, 1] or on the scale.
    """
    name = path.removesuffix("?")
    if scale := SCALE.search(name):
        name = name[: scale.start()]
    value = get(record, name)
    if value is None or (value is MISSING and path.endswith("?")):
        return None
    if value is MISSING:
        raise ValueError(f"no outcome at {name!r}; write {path + '?'!r} where some runs have none")
    if scale and not isinstance(value, bool) and _is_number(value):
        low, high = float(scale[1]), float(scale[2])
        if low == high or not min(low, high) <= float(value) <= max(low, high):
            raise ValueError(f"outcome at {name!r} is not on the scale {scale[0][1:]}: {str(value)[:80]!r}")
        return RunOutcome((float(value) - low) / (high - low), name)
    label = as_outcome(value)
    if label is None:
        raise ValueError(
            f"outcome at {name!r} is no label in [0, 1]: {str(value)[:80]!r}; marks from 1 to 5 are read by {name + ':1..5'!r}"
        )
    return RunOutcome(1 - label if scale and float(scale[1]) > float(scale[2]) else label, name)


def proposed_path(flag: str) -> str:
    """Return the path that reads a flag's field as an outcome: turned round where its name says failure."""
    return f"{flag}:1..0" if FAILURE.search(flag.rpartition(".")[2]) else flag


def guessed_scale(low: float, high: float) -> str | None:
    """Return the scale, `1..5`, that marks from `low` to `high` are probably on; None where they may be on [0, 1] or on none."""
    scales = ((-1, 1), (1, 5), (0, 5), (1, 10), (0, 10), (0, 100))
    if 0 <= low <= high <= 1:
        return None
    return next((f"{a}..{b}" for a, b in scales if a <= low and high <= b), None)


def get(value: Any, path: str) -> Any:
    """Return the value at a path (`a.b[0].c`; `.` is the record itself), or MISSING. A key may hold dots itself."""
    keys = split_path(path)
    for i, key in enumerate(keys):
        rest = ".".join(keys[i:]).replace(".[", "[")
        index = key[1:-1] if key.startswith("[") and key.endswith("]") else key
        if isinstance(value, dict) and rest in value:
            return value[rest]
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and re.fullmatch(r"-?\d{1,9}", index) and -len(value) <= int(index) < len(value):
            value = value[int(index)]
        else:
            return MISSING
    return value


def split_path(path: str) -> list[str]:
    """`a[0].b` -> `["a", "[0]", "b"]`."""
    return [] if path == "." else re.split(r"\.|(?=\[)", path)
