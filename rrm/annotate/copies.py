"""Copies of runs for planted mistakes, and the other runs that their values come from."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from rrm.data.mistakes import MistakeKind
from rrm.data.text import content_words
from rrm.data.trajectory import Message, Trajectory
from rrm.prompt.canonical import CanonicalCall, CanonicalStep, canonical_step, native_step
from rrm.prompt.failures import error_of
from rrm.prompt.proven import call_is_wrong

_NUMBER = re.compile(r"(?<![\w.])\d[\d,]{0,30}(?:\.\d{1,30})?(?![\w.]{0,30}\d)")
_NAME = re.compile(r"\b[A-Z][a-zé]+(?:[ -](?:of |the |de )?[A-Z][a-zé]+)+\b")
_DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")
_ID = re.compile(r"#?\b[A-Za-z]{1,4}[-_]?\d{3,10}\b|\b\d{6,10}\b")
VALUES = (_DATE, _ID, _NAME, _NUMBER)


@dataclass(frozen=True)
class Planted:
    """A copy of a run that ends with its one planted step."""

    trajectory: Trajectory
    step: int
    kind: MistakeKind
    critique: str
    known: int
    """Steps 1 … `known` are the run's own, so that their labels hold."""
    twin: int | None = None
    """Number of the run's own step that the planted one replaces; None: of none."""
    good: bool = False
    """A counterpart, not a mistake."""


@dataclass
class Donors:
    """Calls with their results, and final messages, of other runs with the same tools."""

    calls: dict[str, list[tuple[str, CanonicalStep]]] = field(default_factory=lambda: defaultdict(list))
    """Tool → (question, step with one call of it)."""
    endings: list[tuple[str, CanonicalStep]] = field(default_factory=list)
    tools: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, runs: Iterable[tuple[str, Trajectory]]) -> Donors:
        donors = cls()
        for question, trajectory in runs:
            steps = [canonical_step(step) for step in trajectory.steps]
            for step in steps:
                donors.tools |= {call.name for call in step.calls}
                if len(step.calls) == 1 and step.returns and not failed(step):
                    donors.calls[step.calls[0].name].append((question, step))
            if steps and not steps[-1].calls:
                donors.endings.append((question, steps[-1]))
        return donors

    def another(self, name: str, question: str, rng: random.Random) -> CanonicalStep | None:
        """Draw a call of a tool from another question's run."""
        calls = self.calls.get(name, [])
        for _ in range(8 if calls else 0):
            theirs, step = rng.choice(calls)
            if theirs != question:
                return step
        return None


@dataclass(frozen=True)
class SuccessfulRun:
    trajectory: Trajectory
    question: str
    donors: Donors
    changes_state: Collection[str] = ()
    allowed: Collection[int] | None = None
    """Steps where a mistake may be planted; None: all."""
    steps: tuple[CanonicalStep, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", tuple(canonical_step(step) for step in self.trajectory.steps))

    def acting(self) -> list[int]:
        """Return numbers of the steps with a call that worked and may be changed."""
        return [
            k
            for k in self.places()
            if self.steps[k - 1].calls and self.steps[k - 1].returns and not failed(self.steps[k - 1])
        ]

    def places(self) -> list[int]:
        return [k for k in range(1, len(self.steps) + 1) if self.allowed is None or k in self.allowed]

    def changing(self) -> list[int]:
        return [k for k in self.acting() if any(call.name in self.changes_state for call in self.steps[k - 1].calls)]

    def results_before(self, k: int) -> str:
        return "\n".join(text for step in self.steps[: k - 1] for _, text in step.returns)


Operator = Callable[[SuccessfulRun, random.Random], Planted | None]


def failed(step: CanonicalStep) -> bool:
    return any(error_of(text) is not None or call_is_wrong(text) for label, text in step.returns if label == "result")


def copy_run(
    run: SuccessfulRun, upto: int, added: Sequence[CanonicalStep], prelude: Sequence[Message] | None = None
) -> Trajectory:
    """Copy the run's own steps 1 … `upto`, then the added ones."""
    steps = run.trajectory.steps
    end = steps[upto].message_index if upto < len(steps) else len(run.trajectory.messages)
    start = len(run.trajectory.prelude)
    messages = list(run.trajectory.prelude if prelude is None else prelude) + run.trajectory.messages[start:end]
    for number, step in enumerate(added, start=upto + 1):
        messages += native_step(step, number)
    return run.trajectory.model_copy(update={"messages": messages, "outcome": None})


def planted_at(run: SuccessfulRun, k: int, step: CanonicalStep, mistake: MistakeKind, critique: str) -> Planted:
    return Planted(copy_run(run, k - 1, [step]), k, mistake, critique, k - 1, twin=k)


def spoken_text(step: CanonicalStep) -> str:
    return step.answer if step.answer is not None else step.thought


def replace_value(text: str, old: str, new: str) -> str:
    """Replace a value where it stands by itself: no `10` within `100` or `3.10`."""
    return re.sub(rf"(?<![\w.]){re.escape(old)}(?!\w|[.,]\d)", lambda _: new, text)


def shown_call(call: CanonicalCall) -> str:
    return call.text if len(call.text) <= 80 and "\n" not in call.text else call.name


def makes_call(run: SuccessfulRun, call: CanonicalCall) -> bool:
    """Tell whether the run makes this call: then its task asks for it."""
    return any(call == own for step in run.steps for own in step.calls)


def with_spoken(step: CanonicalStep, old: str, new: str) -> CanonicalStep:
    answer = None if step.answer is None else replace_value(step.answer, old, new)
    return replace(step, answer=answer, thought=replace_value(step.thought, old, new))


def values_in(text: str) -> list[tuple[int, str]]:
    """Return (form, value) of the dates, ids, names and numbers of a text, each once."""
    forms: dict[str, int] = {}
    for form, pattern in enumerate(VALUES):
        for m in pattern.finditer(text):
            forms.setdefault(m.group(), form)
        text = pattern.sub("\0", text)
    return [(form, value) for value, form in forms.items()]


def alike(value: str, form: int, text: str, rng: random.Random, avoid: str = "") -> str | None:
    """Draw a value of the same form and similar length from a text, else change a number a little."""
    others = [
        v
        for f, v in values_in(text)
        if f == form and v != value and v not in value and value not in v and v not in avoid
    ]
    number = form == len(VALUES) - 1
    near = [v for v in others if abs(len(v) - len(value)) <= max(1 if number else 3, len(value) // 3)]
    if near and not (number and rng.random() < 0.3):
        return rng.choice(near)
    return off_by_some(value, rng) if number else None


def off_by_some(number: str, rng: random.Random) -> str | None:
    """Change a digit of a number, swap two, or add a little."""
    digits = [i for i, c in enumerate(number) if c.isdigit()]
    plain = number.replace(",", "")
    if len(digits) >= 2 and rng.random() < 0.5:
        i, j = rng.sample(digits, 2)
        swapped = list(number)
        swapped[i], swapped[j] = swapped[j], swapped[i]
        if (new := "".join(swapped)) != number and not new.startswith("0"):
            return new
    if "." not in plain and len(plain) < 12:
        return str(max(int(plain) + rng.choice([-10, -2, -1, 1, 2, 10]), 0))
    i = rng.choice(digits)
    return number[:i] + rng.choice([d for d in "123456789" if d != number[i]]) + number[i + 1 :]


def uses_result(after: CanonicalStep, step: CanonicalStep, run: SuccessfulRun) -> bool:
    """Tell whether a step speaks of the previous step's result, or goes on from a change of state."""
    if any(call.name in run.changes_state for call in step.calls):
        return bool(after.thought or after.answer)
    words = content_words(" ".join([after.thought, after.answer or "", *(call.text for call in after.calls)]))
    brought = content_words(" ".join(text for _, text in step.returns)) - content_words(run.trajectory.task)
    return len(words & (brought - content_words(" ".join(call.text for call in step.calls)))) >= 2
