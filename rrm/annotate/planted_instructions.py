"""Operators that add an instruction which the run breaks, or obeys."""

from __future__ import annotations

import random

from rrm.annotate.copies import Planted, SuccessfulRun, copy_run, spoken_text, values_in
from rrm.data.trajectory import Message

_KINDS = ("never", "confirm", "before", "count", "words", "value")


def _instruction(run: SuccessfulRun, rng: random.Random, rule: str, *, broken: bool) -> tuple[str, int, str] | None:
    """Return (instruction, step, critique): one that the run first breaks at that step, or obeys."""
    acting = [k for k in range(1, len(run.steps) + 1) if run.steps[k - 1].calls]
    if not acting:
        return None
    used = {call.name for k in acting for call in run.steps[k - 1].calls}
    first = {name: next(k for k in acting if any(c.name == name for c in run.steps[k - 1].calls)) for name in used}
    unused = sorted(run.donors.tools - used)
    allowed = set(run.places())
    if rule in ("never", "confirm"):
        name = rng.choice(sorted(used)) if broken else (rng.choice(unused) if unused else None)
        if name is None or (broken and first[name] not in allowed):
            return None
        if (
            rule == "confirm"
            and broken
            and any(label == "user" for s in run.steps[: first[name] - 1] for label, _ in s.returns)
        ):
            return None
        text = rng.choice([f"Do not use {name}.", f"The tool {name} must not be called.", f"Never call {name}."])
        if rule == "confirm":
            text = rng.choice(
                [f"Ask the user before you call {name}.", f"{name} may be called only after the user has said yes."]
            )
        return (
            text,
            first.get(name, len(run.steps)),
            f"calls {name}, which the instructions forbid" if rule == "never" else f"calls {name} without asking first",
        )
    if rule == "before":
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
    if rule == "count":
        calls = [(k, n) for k in acting for n in range(len(run.steps[k - 1].calls))]
        most = rng.randrange(1, len(calls)) if broken and len(calls) > 1 else len(calls) + rng.randrange(3)
        if broken and (len(calls) < 2 or calls[most][0] not in allowed):
            return None
        return (
            rng.choice([f"Make at most {most} tool calls.", f"Not more than {most} calls of tools are allowed."]),
            calls[most][0] if broken else len(run.steps),
            f"makes more than {most} calls",
        )
    if rule == "words":
        last = run.steps[-1]
        count = len(spoken_text(last).split())
        if last.calls or count < 6 or len(run.steps) not in allowed:
            return None
        most = rng.randrange(3, max(count - 2, 4)) if broken else count + rng.randrange(1, 30)
        return (
            f"The final answer must have at most {most} words.",
            len(run.steps),
            f"answers with more than {most} words",
        )
    values = [(k, v) for k in acting for call in run.steps[k - 1].calls for f, v in values_in(call.text) if f < 3]
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
            for f, v in values_in(c.text)
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


def _instructed(run: SuccessfulRun, text: str, rng: random.Random) -> list[Message]:
    """Add an instruction to the system message, or a system message."""
    prelude = [m.model_copy() for m in run.trajectory.prelude]
    system = next((i for i, m in enumerate(prelude) if m.role == "system"), None)
    if system is None:
        return [Message(role="system", content=text), *prelude]
    lines = prelude[system].text().split("\n")
    lines.insert(rng.choice([0, len(lines)]), text)
    prelude[system] = prelude[system].model_copy(update={"content": "\n".join(lines)})
    return prelude


def _broken(run: SuccessfulRun, rng: random.Random) -> tuple[str, tuple[str, int, str]] | None:
    """Return (kind, instruction) of one that the run breaks."""
    for rule in rng.sample(_KINDS, 4):
        if (instruction := _instruction(run, rng, rule, broken=True)) is not None:
            return rule, instruction
    return None


def broken_instruction(run: SuccessfulRun, rng: random.Random) -> Planted | None:
    """Add an instruction that the run's own step breaks."""
    if (broken := _broken(run, rng)) is None:
        return None
    text, k, why = broken[1]
    trajectory = copy_run(run, k, [], _instructed(run, text, rng))
    return Planted(trajectory, k, "broken_instruction", f"step {k} {why}", k - 1, twin=k)


def obeyed_instruction(run: SuccessfulRun, rng: random.Random) -> Planted | None:
    """Add an instruction that the run obeys; cut the copy where a broken one would be broken."""
    if (like := _broken(run, rng)) is None:
        return None
    own, (_, k, _) = like
    others = [
        rule for rule in _KINDS if rule not in (own, "words")
    ]  # only the answer can break what is said of its words
    for rule in (own, *(rng.sample(others, 4) if own != "words" else ())):
        if (instruction := _instruction(run, rng, rule, broken=False)) is not None:
            prelude = _instructed(run, instruction[0], rng)
            return Planted(copy_run(run, k, [], prelude), k, "broken_instruction", "", k, good=True)
    return None
