"""Planted mistakes: exactly one mistake in a copy of a run that succeeded, its kind, step and critique known (docs/labels.md).

`plant` takes one kind and returns the copy, cut after the planted step, or None where the run offers no place for it. What surrounds a
planted step is the run's own; values come from the run's own results and from other runs of the same tools, so that the words of a
planted step look like those of right ones. `counterpart` makes the same surface where it is right: a call repeated after a time-out, an
instruction that is obeyed, an action that is claimed and was made.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rrm.annotate.proven import call_is_wrong, name_of
from rrm.annotators.failures import error_of
from rrm.data.mistakes import MistakeKind
from rrm.prompt.canonical import Call, CanonicalStep, canonical_step
from rrm.prompt.forms import native_step
from rrm.text import content_words
from rrm.trajectory import Message, Trajectory

_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w.]*\d)")
_NAME = re.compile(r"\b[A-Z][a-zé]+(?:[ -](?:of |the |de )?[A-Z][a-zé]+)+\b")
_DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")
_ID = re.compile(r"#?\b[A-Za-z]{1,4}[-_]?\d{3,10}\b|\b\d{6,10}\b")
_VALUES = (_DATE, _ID, _NAME, _NUMBER)
_ERRORS = (
    "Error: permission denied",
    "Error: internal server error (500)",
    "Error: resource not found",
    '{"error": "service unavailable", "status": 503}',
    "Request failed: access is forbidden",
    "Failed to execute: the record is locked",
    "Error: no matching record",
    "HTTP 502 Bad Gateway",
)
_TIME_OUTS = (
    "Error: the request timed out, try again",
    "503 service temporarily unavailable",
    "Error: rate limit reached, try again in 2 seconds",
    '{"error": "connection reset, please retry"}',
)
_UNKNOWN = (
    "Error: unknown tool {name}",
    "{name} is not a valid tool",
    '{{"error": "no such function: {name}"}}',
    "Tool {name} does not exist",
)
_MISSING = (
    "Error: missing required argument '{argument}'",
    "TypeError: missing 1 required positional argument: '{argument}'",
    '{{"error": "validation error: {argument} is a required field"}}',
    "Invalid call: {argument} was not provided",
)
_GIVE_UP = (
    "I was not able to find this. Please try another source.",
    "Unfortunately I could not complete the request.",
    "I could not determine the answer from the information I have.",
    "I am sorry, this does not seem to be possible. I will stop here.",
    "I don't have enough information to go on with this.",
)


@dataclass(frozen=True)
class Planted:
    """A copy of a run with one planted step, its last one."""

    trajectory: Trajectory
    step: int
    """Number of the planted step."""
    kind: MistakeKind
    critique: str
    known: int
    """Steps 1 … `known` are the run's own, so that their labels hold; what lies between and the planted step is unknown."""
    twin: int | None = None
    """Number of the run's own step that the planted one stands for, in the run; None: of none."""
    good: bool = False
    """A counterpart: the same surface where it is right."""


@dataclass
class Donors:
    """Calls, with what they returned, and final messages of other runs of the same tools."""

    calls: dict[str, list[tuple[str, CanonicalStep]]] = field(default_factory=lambda: defaultdict(list))
    """Tool → (question, step with one call of it)."""
    endings: list[tuple[str, CanonicalStep]] = field(default_factory=list)
    tools: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, runs: Iterable[tuple[str, Trajectory]]) -> Donors:
        """Donors of (question, run) pairs."""
        made = cls()
        for question, trajectory in runs:
            steps = [canonical_step(step) for step in trajectory.steps]
            for step in steps:
                made.tools |= {call.name for call in step.calls}
                if len(step.calls) == 1 and step.returns and not _failed(step):
                    made.calls[step.calls[0].name].append((question, step))
            if steps and not steps[-1].calls:
                made.endings.append((question, steps[-1]))
        return made

    def another(self, name: str, question: str, rng: random.Random) -> CanonicalStep | None:
        """A call of a tool in another question's run."""
        found = self.calls.get(name, [])
        for _ in range(8 if found else 0):
            theirs, step = rng.choice(found)
            if theirs != question:
                return step
        return None


@dataclass(frozen=True)
class Run:
    """A run that succeeded, as the operators see it."""

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
        """Numbers of the steps with a call that worked and may be changed."""
        return [
            k
            for k in self.places()
            if self.steps[k - 1].calls and self.steps[k - 1].returns and not _failed(self.steps[k - 1])
        ]

    def places(self) -> list[int]:
        """Numbers of the steps where a mistake may be planted."""
        return [k for k in range(1, len(self.steps) + 1) if self.allowed is None or k in self.allowed]

    def changing(self) -> list[int]:
        """Those of `acting` that change state."""
        return [k for k in self.acting() if any(call.name in self.changes_state for call in self.steps[k - 1].calls)]

    def results_before(self, k: int) -> str:
        """What came back before step k."""
        return "\n".join(text for step in self.steps[: k - 1] for _, text in step.returns)


Operator = Callable[[Run, random.Random], Planted | None]


def plant(run: Run, kind: MistakeKind, rng: random.Random) -> Planted | None:
    """A copy with one mistake of this kind, or None where the run has no place for it."""
    made = OPERATORS[kind](run, rng)
    return None if made is None or (kind != "broken_instruction" and _is_own(run, made)) else made


def counterpart(run: Run, kind: MistakeKind, rng: random.Random) -> Planted | None:
    """The same surface where it is right, or None."""
    operator = COUNTERPARTS.get(kind)
    return None if operator is None else operator(run, rng)


def _is_own(run: Run, made: Planted) -> bool:
    """Whether the copy is a prefix of the run: a run that repeats itself has the planted step already."""
    steps = [canonical_step(step) for step in made.trajectory.steps[made.known :]]
    own = run.steps[made.known : made.known + len(steps)]
    return [(s.action_text, s.return_text) for s in steps] == [(s.action_text, s.return_text) for s in own]


# ---- parts of a copy -----------------------------------------------------------------------------------------------------


def _failed(step: CanonicalStep) -> bool:
    return any(error_of(text) is not None or call_is_wrong(text) for label, text in step.returns if label == "result")


def _copy(run: Run, upto: int, added: Sequence[CanonicalStep], prelude: Sequence[Message] | None = None) -> Trajectory:
    """The run's own steps 1 … `upto`, then the added ones."""
    steps = run.trajectory.steps
    end = steps[upto].message_index if upto < len(steps) else len(run.trajectory.messages)
    start = len(run.trajectory.prelude)
    messages = list(run.trajectory.prelude if prelude is None else prelude) + run.trajectory.messages[start:end]
    for number, step in enumerate(added, start=upto + 1):
        messages += native_step(step, number)
    return run.trajectory.model_copy(update={"messages": messages, "outcome": None})


def _at(run: Run, k: int, step: CanonicalStep, kind: MistakeKind, critique: str) -> Planted:
    """The copy in which step k is another one."""
    return Planted(_copy(run, k - 1, [step]), k, kind, critique, k - 1, twin=k)


def _spoken(step: CanonicalStep) -> str:
    """The text in which a step says what it found: its answer, or its words."""
    return step.answer if step.answer is not None else step.thought


def _replaced(text: str, old: str, new: str) -> str:
    """The text with another value, where that value stands by itself: no `10` within `100` or `3.10`."""
    return re.sub(rf"(?<![\w.]){re.escape(old)}(?!\w|[.,]\d)", lambda _: new, text)


def _shown(call: Call) -> str:
    """A call as a critique names it: with its arguments where they are short."""
    return call.text if len(call.text) <= 80 and "\n" not in call.text else call.name


def _makes(run: Run, call: Call) -> bool:
    """Whether the run makes this very call: then its task asks for it."""
    return any(call == own for step in run.steps for own in step.calls)


def _with_spoken(step: CanonicalStep, old: str, new: str) -> CanonicalStep:
    """The step with a value replaced wherever it says it."""
    answer = None if step.answer is None else _replaced(step.answer, old, new)
    return replace(step, answer=answer, thought=_replaced(step.thought, old, new))


def _values(text: str) -> list[tuple[int, str]]:
    """(form, value) of the dates, ids, names and numbers of a text, each once; the year of a date is no number of its own."""
    found: dict[str, int] = {}
    for form, pattern in enumerate(_VALUES):
        for m in pattern.finditer(text):
            found.setdefault(m.group(), form)
        text = pattern.sub("\0", text)
    return [(form, value) for value, form in found.items()]


def _alike(value: str, form: int, text: str, rng: random.Random, avoid: str = "") -> str | None:
    """Another value of the same form from a text, near in length; a number is changed a little where there is none."""
    others = [
        v for f, v in _values(text) if f == form and v != value and v not in value and value not in v and v not in avoid
    ]
    number = form == len(_VALUES) - 1
    near = [v for v in others if abs(len(v) - len(value)) <= max(1 if number else 3, len(value) // 3)]
    if near and not (number and rng.random() < 0.3):
        return rng.choice(near)
    return _off_by_some(value, rng) if number else None


def _off_by_some(number: str, rng: random.Random) -> str | None:
    """A number that a slip would give: a digit changed, two swapped, or off by one."""
    digits = [i for i, c in enumerate(number) if c.isdigit()]
    plain = number.replace(",", "")
    if len(digits) >= 2 and rng.random() < 0.5:
        i, j = rng.sample(digits, 2)
        swapped = list(number)
        swapped[i], swapped[j] = swapped[j], swapped[i]
        if (made := "".join(swapped)) != number and not made.startswith("0"):
            return made
    if "." not in plain and len(plain) < 12:
        return str(max(int(plain) + rng.choice([-10, -2, -1, 1, 2, 10]), 0))
    i = rng.choice(digits)
    return number[:i] + rng.choice([d for d in "123456789" if d != number[i]]) + number[i + 1 :]


# ---- operators: one a kind -------------------------------------------------------------------------------------------------


def _irrelevant_call(run: Run, rng: random.Random) -> Planted | None:
    """Another question's call, with what it brought, in the place of the run's."""
    places = run.acting()
    if not places:
        return None
    k = rng.choice(places)
    own = run.steps[k - 1]
    names = [n for n in run.donors.calls if n not in run.changes_state or own.calls[0].name in run.changes_state]
    same = own.calls[0].name if own.calls[0].name in names and rng.random() < 0.6 else None
    other = run.donors.another(same or rng.choice(names), run.question, rng) if names else None
    if other is None or _makes(run, other.calls[0]):
        return None
    thought = rng.choice([own.thought, other.thought])
    step = replace(own, calls=other.calls, returns=other.returns, thought=thought)
    critique = f"step {k} calls {_shown(other.calls[0])}, which the task does not ask for"
    return _at(run, k, step, "irrelevant_call", critique)


def _wrong_argument(run: Run, rng: random.Random) -> Planted | None:
    """One value of a call is another one: of the run's own results, or of another question's call of the same tool."""
    places = [k for k in run.acting() if len(run.steps[k - 1].calls) == 1]
    rng.shuffle(places)
    for k in places[:4]:
        own = run.steps[k - 1]
        call = own.calls[0]
        other = run.donors.another(call.name, run.question, rng)
        if call.name in run.changes_state:
            changed = _other_value(run, call, k, other, rng)
            if changed is None:
                continue
            new, name, old, value = changed
            returns = tuple((label, _replaced(text, old, value)) for label, text in own.returns)
            step = replace(
                own,
                calls=(new,),
                returns=returns,
                thought=_replaced(own.thought, old, value) if len(old) > 2 else own.thought,
            )
        elif other is not None and isinstance(call.arguments, dict) and isinstance(other.calls[0].arguments, dict):
            theirs = other.calls[0].arguments
            names = [n for n, v in call.arguments.items() if n in theirs and theirs[n] != v]
            if not names:
                continue
            name = rng.choice(names)
            new, returns = Call(call.name, {**call.arguments, name: theirs[name]}), other.returns
            step = replace(own, calls=(new,), returns=returns)
        else:
            continue
        return _at(run, k, step, "wrong_argument", f"step {k} calls {call.name} with a wrong {name}")
    return None


def _other_value(
    run: Run, call: Call, k: int, other: CanonicalStep | None, rng: random.Random
) -> tuple[Call, str, str, str] | None:
    """(call, argument, old text, new text) with one argument wrong; the value is one that the run itself has met where there is one."""
    if not isinstance(call.arguments, dict):
        return None
    met = run.results_before(k) + "\n" + run.trajectory.task
    theirs = other.calls[0].arguments if other is not None and isinstance(other.calls[0].arguments, dict) else {}
    names = list(call.arguments)
    rng.shuffle(names)
    for name in names:
        old = call.arguments[name]
        if isinstance(old, str | int | float) and not isinstance(old, bool):
            text = str(old)
            form = next((f for f, v in _values(text) if v == text), None)
            value: Any = _alike(text, form, met, rng) if form is not None else None
            if value is None and isinstance(theirs.get(name), type(old)) and theirs[name] != old:
                value = theirs[name]
            if value is None or str(value) == text:
                continue
            try:
                value = type(old)(str(value).replace(",", "")) if not isinstance(old, str) else str(value)
            except ValueError:
                continue
            return Call(call.name, {**call.arguments, name: value}), name, text, str(value)
    return None


def _malformed_call(run: Run, rng: random.Random) -> Planted | None:
    """A tool that does not exist, or an argument left out, and the error that says so."""
    places = [k for k in run.acting() if len(run.steps[k - 1].calls) == 1]
    if not places:
        return None
    k = rng.choice(places)
    own = run.steps[k - 1]
    call = own.calls[0]
    if isinstance(call.arguments, dict) and call.arguments and rng.random() < 0.5:
        argument = rng.choice(list(call.arguments))
        new = Call(call.name, {n: v for n, v in call.arguments.items() if n != argument})
        said, why = rng.choice(_MISSING).format(argument=argument), f"calls {call.name} without {argument}"
    else:
        stem = call.name.rpartition(".")[2]
        name = rng.choice(
            [f"{stem}_v2", f"get_{stem}", f"{stem}s", f"{stem}_info", stem.replace("_", ""), f"do_{stem}"]
        )
        if name == call.name or name in run.donors.tools | {name_of(tool) for tool in run.trajectory.tools or []}:
            return None
        new = Call(name, call.arguments)
        said, why = rng.choice(_UNKNOWN).format(name=name), f"calls {name}, a tool that does not exist"
    return _at(run, k, replace(own, calls=(new,), returns=(("result", said),)), "malformed_call", f"step {k} {why}")


def _repeat(run: Run, rng: random.Random) -> Planted | None:
    """A call that worked is made again, now or later, and brings the same."""
    places = [k for k in run.acting() if k + 1 in run.places() or k == len(run.steps)]
    if not places:
        return None
    k = rng.choice(places)
    own = run.steps[k - 1]
    until = k
    free = {*run.places(), len(run.steps) + 1}
    while until < len(run.steps) and until - k < 3 and rng.random() < 0.35 and until + 2 in free:
        nxt = run.steps[until]
        if (
            any(c.name in run.changes_state for c in nxt.calls)
            or any(label == "user" for label, _ in nxt.returns)
            or not nxt.calls
        ):
            break
        until += 1
    if any(label == "user" for label, _ in own.returns):
        return None
    later = run.steps[until] if until < len(run.steps) else own
    again = replace(
        own, thought=rng.choice([own.thought, later.thought, ""]) if later.calls else rng.choice([own.thought, ""])
    )
    trajectory = _copy(run, until, [again])
    return Planted(
        trajectory,
        until + 1,
        "repeat",
        f"step {until + 1} repeats the call of step {k}",
        until,
        twin=until + 1 if until < len(run.steps) else None,
    )


def _repeat_counterpart(run: Run, rng: random.Random) -> Planted | None:
    """A call that timed out is made again: right."""
    places = [k for k in run.acting() if not any(label == "user" for label, _ in run.steps[k - 1].returns)]
    if not places:
        return None
    k = rng.choice(places)
    own = run.steps[k - 1]
    failed = replace(own, returns=tuple(("result", rng.choice(_TIME_OUTS)) for _ in own.calls))
    return Planted(_copy(run, k - 1, [failed, own]), k + 1, "repeat", "", k - 1, good=True)


def _ignored_error(run: Run, rng: random.Random) -> Planted | None:
    """The call failed, and the next step goes on as if it had worked."""
    places = [
        k
        for k in run.acting()
        if k < len(run.steps) and k + 1 in run.places() and _uses(run.steps[k], run.steps[k - 1], run)
    ]
    places = [
        k for k in places if not any(call in run.steps[k - 1].calls for call in run.steps[k].calls)
    ]  # tried again
    if not places:
        return None
    k = rng.choice(places)
    own, after = run.steps[k - 1], run.steps[k]
    said = rng.choice(_ERRORS)
    failed = replace(own, returns=tuple(("result", said) for _ in own.calls))
    return Planted(
        _copy(run, k - 1, [failed, after]),
        k + 1,
        "ignored_error",
        f"step {k + 1} ignores the error that step {k} returned",
        k - 1,
        twin=k + 1,
    )


def _ignored_error_counterpart(run: Run, rng: random.Random) -> Planted | None:
    """The call failed, and the next step says so or tries once more."""
    places = run.acting()
    if not places:
        return None
    k = rng.choice(places)
    own = run.steps[k - 1]
    if any(label == "user" for label, _ in own.returns):
        return None
    said = rng.choice(_ERRORS)
    failed = replace(own, returns=tuple(("result", said) for _ in own.calls))
    words = rng.choice(
        [
            f"The call of {own.calls[0].name} failed, so I have not been able to do this yet. Shall I try again?",
            f"{own.calls[0].name} returned an error and nothing was done. I cannot confirm the result.",
            "That did not work. I will look for another way.",
        ]
    )
    told = CanonicalStep(words, (), None, ())
    return Planted(_copy(run, k - 1, [failed, told]), k + 1, "ignored_error", "", k - 1, good=True)


def _uses(after: CanonicalStep, step: CanonicalStep, run: Run) -> bool:
    """Whether a step speaks of what the one before it brought, or goes on from a change of state."""
    if any(call.name in run.changes_state for call in step.calls):
        return bool(after.thought or after.answer)
    said = content_words(" ".join([after.thought, after.answer or "", *(call.text for call in after.calls)]))
    brought = content_words(" ".join(text for _, text in step.returns)) - content_words(run.trajectory.task)
    return len(said & (brought - content_words(" ".join(call.text for call in step.calls)))) >= 2


def _instruction(run: Run, rng: random.Random, *, broken: bool) -> tuple[str, int, str] | None:
    """(instruction, step, critique): one that the run breaks first at that step, or one that it obeys throughout."""
    acting = [k for k in range(1, len(run.steps) + 1) if run.steps[k - 1].calls]
    if not acting:
        return None
    used = {call.name for k in acting for call in run.steps[k - 1].calls}
    first = {name: next(k for k in acting if any(c.name == name for c in run.steps[k - 1].calls)) for name in used}
    unused = sorted(run.donors.tools - used)
    allowed = set(run.places())
    kind = rng.choice(["never", "confirm", "before", "count", "words", "value"])
    if kind in ("never", "confirm"):
        name = rng.choice(sorted(used)) if broken else (rng.choice(unused) if unused else None)
        if name is None or (broken and first[name] not in allowed):
            return None
        if (
            kind == "confirm"
            and broken
            and any(label == "user" for s in run.steps[: first[name] - 1] for label, _ in s.returns)
        ):
            return None
        text = rng.choice([f"Do not use {name}.", f"The tool {name} must not be called.", f"Never call {name}."])
        if kind == "confirm":
            text = rng.choice(
                [f"Ask the user before you call {name}.", f"{name} may be called only after the user has said yes."]
            )
        return (
            text,
            first.get(name, len(run.steps)),
            f"calls {name}, which the instructions forbid" if kind == "never" else f"calls {name} without asking first",
        )
    if kind == "before":
        pairs = [
            (a, b)
            for a in used
            for b in (used | set(unused[:6]))
            if a != b and (first.get(b, 10**6) > first[a] if broken else b in first and first[b] < first[a])
        ]
        pairs = [(a, b) for a, b in pairs if first[a] in allowed or not broken]
        if not pairs:
            return None
        a, b = rng.choice(sorted(pairs))
        return (
            rng.choice([f"Call {b} before you call {a}.", f"Always use {b} first, and {a} only afterwards."]),
            first[a],
            f"calls {a} before {b}",
        )
    if kind == "count":
        calls = [(k, n) for k in acting for n in range(len(run.steps[k - 1].calls))]
        most = rng.randrange(1, len(calls)) if broken and len(calls) > 1 else len(calls) + rng.randrange(3)
        if broken and (len(calls) < 2 or calls[most][0] not in allowed):
            return None
        return (
            rng.choice([f"Make at most {most} tool calls.", f"Not more than {most} calls of tools are allowed."]),
            calls[most][0] if broken else len(run.steps),
            f"makes more than {most} calls",
        )
    if kind == "words":
        last = run.steps[-1]
        count = len(_spoken(last).split())
        if last.calls or count < 6 or len(run.steps) not in allowed:
            return None
        most = rng.randrange(3, max(count - 2, 4)) if broken else count + rng.randrange(1, 30)
        return (
            f"The final answer must have at most {most} words.",
            len(run.steps),
            f"answers with more than {most} words",
        )
    values = [(k, v) for k in acting for call in run.steps[k - 1].calls for f, v in _values(call.text) if f < 3]
    if broken:
        values = [
            (k, v)
            for k, v in values
            if k in allowed and not any(v in c.text for s in run.steps[: k - 1] for c in s.calls)
        ]
        if not values:
            return None
        k, value = rng.choice(values)
    else:
        name = rng.choice(sorted(used))
        other = run.donors.another(name, run.question, rng)
        theirs = [
            v
            for c in (other.calls if other else ())
            for f, v in _values(c.text)
            if f < 3 and not any(v in call.text for k in acting for call in run.steps[k - 1].calls)
        ]
        if not theirs:
            return None
        k, value = len(run.steps), rng.choice(theirs)
    return (
        rng.choice([f"Leave {value} alone: do not look it up and do not change it.", f"{value} is off limits."]),
        k,
        f"touches {value}, which is off limits",
    )


def _instructed(run: Run, text: str, rng: random.Random) -> list[Message]:
    """The prelude with one more instruction, in the system message or behind the task."""
    prelude = [m.model_copy() for m in run.trajectory.prelude]
    system = next((i for i, m in enumerate(prelude) if m.role == "system"), None)
    if system is None:
        return [Message(role="system", content=text), *prelude]
    told = prelude[system].text()
    lines = told.split("\n")
    at = rng.choice([0, len(lines)])
    lines.insert(at, text)
    prelude[system] = prelude[system].model_copy(update={"content": "\n".join(lines)})
    return prelude


def _broken_instruction(run: Run, rng: random.Random) -> Planted | None:
    """An instruction is added that the run's own step breaks."""
    for _ in range(4):
        if (found := _instruction(run, rng, broken=True)) is not None:
            text, k, why = found
            trajectory = _copy(run, k, [], _instructed(run, text, rng))
            return Planted(trajectory, k, "broken_instruction", f"step {k} {why}", k - 1, twin=k)
    return None


def _obeyed_instruction(run: Run, rng: random.Random) -> Planted | None:
    """An instruction is added that the run obeys."""
    for _ in range(4):
        if (found := _instruction(run, rng, broken=False)) is not None:
            text, k, _ = found
            k = min(k, max(run.places(), default=k))
            return Planted(_copy(run, k, [], _instructed(run, text, rng)), k, "broken_instruction", "", k, good=True)
    return None


def _misread_result(run: Run, rng: random.Random) -> Planted | None:
    """A step says another value than the result before it."""
    places = [
        k
        for k in run.places()
        if k > 1
        and run.steps[k - 1].thought
        and (run.steps[k - 1].calls or k < len(run.steps) or run.steps[k - 1].answer is None)
    ]
    rng.shuffle(places)
    for k in places[:6]:
        own = run.steps[k - 1]
        returned = {j: "\n".join(t for label, t in run.steps[j - 1].returns if label == "result") for j in range(1, k)}
        at = {v: j for j, text in returned.items() for _, v in _values(text)}
        told = [(f, v) for f, v in _values(own.thought) if v in at and v not in run.trajectory.task and len(v) > 1]
        told = [(f, v) for f, v in told if not any(v in call.text for call in own.calls)]
        rng.shuffle(told)
        for form, value in told[:3]:
            new = _alike(value, form, "\n".join(returned.values()), rng, avoid=own.thought)
            if new is not None:
                step = _with_spoken(own, value, new)
                return _at(run, k, step, "misread_result", f"step {k} says {new}, step {at[value]} returned {value}")
    return None


def _invented_result(run: Run, rng: random.Random) -> Planted | None:
    """The call is left out, and the next step states what it would have returned."""
    reading = [
        k
        for k in run.acting()
        if k < len(run.steps) and not any(c.name in run.changes_state for c in run.steps[k - 1].calls)
    ]
    rng.shuffle(reading)
    for k in reading[:4]:
        own, after = run.steps[k - 1], run.steps[k]
        brought = {v for _, text in own.returns for _, v in _values(text)}
        head = "\n".join(message.text() for message in run.trajectory.prelude)
        known = head + run.results_before(k) + run.trajectory.task
        known += "".join(c.text for s in run.steps[:k] for c in s.calls)
        told = [v for _, v in _values(_spoken(after)) if v in brought and v not in known and len(v) > 1]
        if told:
            value = rng.choice(sorted(told))
            return Planted(
                _copy(run, k - 1, [after]),
                k,
                "invented_result",
                f"step {k} states {value}, which no tool returned",
                k - 1,
                twin=k + 1,
            )
    return None


def _claimed(call: Call, rng: random.Random) -> str:
    """A sentence that says that a state-changing call was made."""
    words = call.name.rpartition(".")[2].replace("_", " ")
    values = (
        [str(v) for v in call.arguments.values() if isinstance(v, str | int | float) and 0 < len(str(v)) < 40]
        if isinstance(call.arguments, dict)
        else []
    )
    shown = rng.choice(values) if values else ""
    return rng.choice(
        [
            f"I have also done this: {words} ({shown}).",
            f"{words.capitalize()} for {shown} is done as well.",
            f"The {words} for {shown} has gone through.",
        ]
    )


def _unsupported_claim(run: Run, rng: random.Random) -> Planted | None:
    """An action is claimed that was never made: the call is left out, or another one is claimed beside it."""
    left_out = [k for k in run.changing() if k + 1 in run.places() and _is_claimed(run, k)]
    if left_out and rng.random() < 0.6:
        k = rng.choice(left_out)
        name = next(c.name for c in run.steps[k - 1].calls if c.name in run.changes_state)
        critique = f"step {k} claims an action, but {name} was never called"
        return Planted(_copy(run, k - 1, [run.steps[k]]), k, "unsupported_claim", critique, k - 1, twin=k + 1)
    last, k = run.steps[-1], len(run.steps)
    if last.calls or k not in run.places() or k < 2:
        return None
    names = [n for n in run.changes_state if run.donors.calls.get(n)]
    other = run.donors.another(rng.choice(sorted(names)), run.question, rng) if names else None
    if other is None or _makes(run, other.calls[0]):
        return None
    step = replace(last, thought=f"{last.thought} {_claimed(other.calls[0], rng)}".strip())
    critique = f"step {k} claims a call of {other.calls[0].name} that was never made"
    return _at(run, k, step, "unsupported_claim", critique)


def _is_claimed(run: Run, k: int) -> bool:
    """Whether the step after k only talks, and of the change of state that k made for the first time."""
    if k >= len(run.steps) or run.steps[k].calls:
        return False
    own, after = run.steps[k - 1], run.steps[k]
    changed = {call.name for call in own.calls if call.name in run.changes_state}
    if any(call.name in changed for step in run.steps[: k - 1] for call in step.calls):
        return False
    words = [re.sub(r"[._]", " ", name) for name in sorted(changed)]
    brought = [*words, *(call.text for call in own.calls), *(text for label, text in own.returns if label == "result")]
    return bool(content_words(_spoken(after)) & content_words(" ".join(brought)))


def _supported_claim(run: Run, rng: random.Random) -> Planted | None:
    """An action that was made is claimed."""
    changing, last = [k for k in run.changing() if k < len(run.steps)], run.steps[-1]
    if not changing or last.calls or len(run.steps) not in run.places():
        return None
    call = run.steps[rng.choice(changing) - 1].calls[0]
    step = replace(last, thought=f"{last.thought} {_claimed(call, rng)}".strip())
    return replace(_at(run, len(run.steps), step, "unsupported_claim", ""), good=True, twin=None)


def _needless_side_effect(run: Run, rng: random.Random) -> Planted | None:
    """A call of another question that changes state, between the run's own steps."""
    names = sorted(n for n in run.changes_state if run.donors.calls.get(n))
    places = [k for k in run.places() if k > 1]
    if not names or not places:
        return None
    k = rng.choice(places)
    other = run.donors.another(rng.choice(names), run.question, rng)
    if other is None or _makes(run, other.calls[0]):
        return None
    step = replace(other, thought=rng.choice([other.thought, ""]))
    return Planted(
        _copy(run, k - 1, [step]),
        k,
        "needless_side_effect",
        f"step {k} calls {_shown(other.calls[0])}, which nobody asked for",
        k - 1,
        twin=k,
    )


def _wrong_answer(run: Run, rng: random.Random) -> Planted | None:
    """The last step answers with another value of the same form."""
    last, k = run.steps[-1], len(run.steps)
    if last.calls or k not in run.places():
        return None
    before, said = run.results_before(k), _spoken(last)
    short = said.strip().rstrip(".").lower()
    if last.answer is not None and short in ("yes", "no"):
        new = "no" if short == "yes" else "yes"
        return _at(run, k, replace(last, answer=new), "wrong_answer", f"step {k} answers {new}, which is wrong")
    told = [(f, v) for f, v in _values(said) if v not in run.trajectory.task]
    rng.shuffle(told)
    for form, value in told[:4]:
        new = _alike(value, form, before, rng, avoid=said)
        if new is not None:
            known = value in {v for _, v in _values(before)}
            why = f"the results say {value}" if known else "which is wrong"
            return _at(run, k, _with_spoken(last, value, new), "wrong_answer", f"step {k} answers {new}, {why}")
    if last.answer is not None and len(last.answer.split()) <= 5:
        ends = [
            s.answer
            for q, s in rng.sample(run.donors.endings, min(20, len(run.donors.endings)))
            if q != run.question and s.answer
        ]
        ends = [a for a in ends if a and abs(len(a) - len(last.answer)) < 12 and a.lower() != last.answer.lower()]
        own = last.answer.lower()
        names = [v for f, v in _values(before) if f == 2 and v.lower() not in own and own not in v.lower()]
        pool = names if names and rng.random() < 0.7 else ends
        if pool:
            new = rng.choice(pool)
            step = _with_spoken(last, last.answer, new)
            return _at(run, k, replace(step, answer=new), "wrong_answer", f"step {k} answers {new}, which is wrong")
    return None


def _gave_up_early(run: Run, rng: random.Random) -> Planted | None:
    """The run ends before its work is done, with a message that it cannot be done."""
    places = [k for k in run.places() if 1 < k < len(run.steps) or (k == len(run.steps) and k > 1)]
    if not places:
        return None
    k = rng.choice(places)
    step = CanonicalStep(rng.choice(_GIVE_UP), (), None, ())
    return _at(run, k, step, "gave_up_early", f"step {k} gives up though there is more to try")


OPERATORS: dict[MistakeKind, Operator] = {
    "irrelevant_call": _irrelevant_call,
    "wrong_argument": _wrong_argument,
    "malformed_call": _malformed_call,
    "repeat": _repeat,
    "ignored_error": _ignored_error,
    "broken_instruction": _broken_instruction,
    "misread_result": _misread_result,
    "invented_result": _invented_result,
    "unsupported_claim": _unsupported_claim,
    "needless_side_effect": _needless_side_effect,
    "wrong_answer": _wrong_answer,
    "gave_up_early": _gave_up_early,
}
COUNTERPARTS: dict[MistakeKind, Operator] = {
    "repeat": _repeat_counterpart,
    "ignored_error": _ignored_error_counterpart,
    "broken_instruction": _obeyed_instruction,
    "unsupported_claim": _supported_claim,
}
