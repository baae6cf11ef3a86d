"""Operators that plant a mistake into a call, or let its error be ignored."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from rrm.annotate.copies import (
    Planted,
    SuccessfulRun,
    alike,
    copy_run,
    makes_call,
    planted_at,
    replace_value,
    shown_call,
    uses_result,
    values_in,
)
from rrm.prompt.canonical import CanonicalCall, CanonicalStep
from rrm.prompt.proven import name_of

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


def irrelevant_call(run: SuccessfulRun, rng: random.Random) -> Planted | None:
    """Replace a call by another question's call and its result."""
    places = run.acting()
    if not places:
        return None
    k = rng.choice(places)
    own = run.steps[k - 1]
    names = [n for n in run.donors.calls if n not in run.changes_state or own.calls[0].name in run.changes_state]
    same = own.calls[0].name if own.calls[0].name in names and rng.random() < 0.6 else None
    other = run.donors.another(same or rng.choice(names), run.question, rng) if names else None
    if other is None or makes_call(run, other.calls[0]):
        return None
    thought = rng.choice([own.thought, other.thought])
    step = replace(own, calls=other.calls, returns=other.returns, thought=thought)
    critique = f"step {k} calls {shown_call(other.calls[0])}, which the task does not ask for"
    return planted_at(run, k, step, "irrelevant_call", critique)


def wrong_argument(run: SuccessfulRun, rng: random.Random) -> Planted | None:
    """Replace one value of a call by one of the run's results, or of another call of the same tool."""
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
            returns = tuple((label, replace_value(text, old, value)) for label, text in own.returns)
            step = replace(
                own,
                calls=(new,),
                returns=returns,
                thought=replace_value(own.thought, old, value) if len(old) > 2 else own.thought,
            )
        elif other is not None and isinstance(call.arguments, dict) and isinstance(other.calls[0].arguments, dict):
            theirs = other.calls[0].arguments
            names = [n for n, v in call.arguments.items() if n in theirs and theirs[n] != v]
            if not names:
                continue
            name = rng.choice(names)
            new, returns = CanonicalCall(call.name, {**call.arguments, name: theirs[name]}), other.returns
            step = replace(own, calls=(new,), returns=returns)
        else:
            continue
        return planted_at(run, k, step, "wrong_argument", f"step {k} calls {call.name} with a wrong {name}")
    return None


def _other_value(
    run: SuccessfulRun, call: CanonicalCall, k: int, other: CanonicalStep | None, rng: random.Random
) -> tuple[CanonicalCall, str, str, str] | None:
    """Return (call, argument, old text, new text) with one wrong argument, of the run's own if possible."""
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
            form = next((f for f, v in values_in(text) if v == text), None)
            value: Any = alike(text, form, met, rng) if form is not None else None
            if value is None and isinstance(theirs.get(name), type(old)) and theirs[name] != old:
                value = theirs[name]
            if value is None or str(value) == text:
                continue
            try:
                value = type(old)(str(value).replace(",", "")) if not isinstance(old, str) else str(value)
            except ValueError:
                continue
            return CanonicalCall(call.name, {**call.arguments, name: value}), name, text, str(value)
    return None


def malformed_call(run: SuccessfulRun, rng: random.Random) -> Planted | None:
    """Call an unknown tool or leave out an argument, and return the error."""
    places = [k for k in run.acting() if len(run.steps[k - 1].calls) == 1]
    if not places:
        return None
    k = rng.choice(places)
    own = run.steps[k - 1]
    call = own.calls[0]
    if isinstance(call.arguments, dict) and call.arguments and rng.random() < 0.5:
        argument = rng.choice(list(call.arguments))
        new = CanonicalCall(call.name, {n: v for n, v in call.arguments.items() if n != argument})
        error, why = rng.choice(_MISSING).format(argument=argument), f"calls {call.name} without {argument}"
    else:
        stem = call.name.rpartition(".")[2]
        name = rng.choice(
            [f"{stem}_v2", f"get_{stem}", f"{stem}s", f"{stem}_info", stem.replace("_", ""), f"do_{stem}"]
        )
        if name == call.name or name in run.donors.tools | {name_of(tool) for tool in run.trajectory.tools or []}:
            return None
        new = CanonicalCall(name, call.arguments)
        error, why = rng.choice(_UNKNOWN).format(name=name), f"calls {name}, a tool that does not exist"
    return planted_at(
        run, k, replace(own, calls=(new,), returns=(("result", error),)), "malformed_call", f"step {k} {why}"
    )


def repeat(run: SuccessfulRun, rng: random.Random) -> Planted | None:
    """Make a call that worked again, now or later, with the same result."""
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
    trajectory = copy_run(run, until, [again])
    return Planted(
        trajectory,
        until + 1,
        "repeat",
        f"step {until + 1} repeats the call of step {k}",
        until,
        twin=until + 1 if until < len(run.steps) else None,
    )


def repeat_counterpart(run: SuccessfulRun, rng: random.Random) -> Planted | None:
    """Make a call that timed out again: right."""
    places = [k for k in run.acting() if not any(label == "user" for label, _ in run.steps[k - 1].returns)]
    if not places:
        return None
    k = rng.choice(places)
    own = run.steps[k - 1]
    failed = replace(own, returns=tuple(("result", rng.choice(_TIME_OUTS)) for _ in own.calls))
    return Planted(copy_run(run, k - 1, [failed, own]), k + 1, "repeat", "", k - 1, good=True)


def ignored_error(run: SuccessfulRun, rng: random.Random) -> Planted | None:
    """Let a call fail and the next step go on as if it had worked."""
    places = [
        k
        for k in run.acting()
        if k < len(run.steps) and k + 1 in run.places() and uses_result(run.steps[k], run.steps[k - 1], run)
    ]
    places = [
        k for k in places if not any(call in run.steps[k - 1].calls for call in run.steps[k].calls)
    ]  # tried again
    if not places:
        return None
    k = rng.choice(places)
    own, after = run.steps[k - 1], run.steps[k]
    error = rng.choice(_ERRORS)
    failed = replace(own, returns=tuple(("result", error) for _ in own.calls))
    return Planted(
        copy_run(run, k - 1, [failed, after]),
        k + 1,
        "ignored_error",
        f"step {k + 1} ignores the error that step {k} returned",
        k - 1,
        twin=k + 1,
    )


def ignored_error_counterpart(run: SuccessfulRun, rng: random.Random) -> Planted | None:
    """Let a call fail and the next step say so or try again."""
    places = run.acting()
    if not places:
        return None
    k = rng.choice(places)
    own = run.steps[k - 1]
    if any(label == "user" for label, _ in own.returns):
        return None
    error = rng.choice(_ERRORS)
    failed = replace(own, returns=tuple(("result", error) for _ in own.calls))
    words = rng.choice(
        [
            f"The call of {own.calls[0].name} failed, so I have not been able to do this yet. Shall I try again?",
            f"{own.calls[0].name} returned an error and nothing was done. I cannot confirm the result.",
            "That did not work. I will look for another way.",
        ]
    )
    answer = CanonicalStep(words, (), None, ())
    return Planted(copy_run(run, k - 1, [failed, answer]), k + 1, "ignored_error", "", k - 1, good=True)


def needless_side_effect(run: SuccessfulRun, rng: random.Random) -> Planted | None:
    """Insert another question's call that changes state."""
    names = sorted(n for n in run.changes_state if run.donors.calls.get(n))
    places = [k for k in run.places() if k > 1]
    if not names or not places:
        return None
    k = rng.choice(places)
    other = run.donors.another(rng.choice(names), run.question, rng)
    if other is None or makes_call(run, other.calls[0]):
        return None
    step = replace(other, thought=rng.choice([other.thought, ""]))
    return Planted(
        copy_run(run, k - 1, [step]),
        k,
        "needless_side_effect",
        f"step {k} calls {shown_call(other.calls[0])}, which nobody asked for",
        k - 1,
        twin=k,
    )
