"""Operators that plant a mistake into a step's words: misread, invented, claimed, wrong, given up."""

from __future__ import annotations

import random
import re
from dataclasses import replace

from rrm.annotate.copies import (
    Planted,
    SuccessfulRun,
    alike,
    copy_run,
    makes_call,
    planted_at,
    spoken_text,
    values_in,
    with_spoken,
)
from rrm.data.text import content_words
from rrm.prompt.canonical import CanonicalCall, CanonicalStep

_GIVE_UP = (
    "I was not able to find this. Please try another source.",
    "Unfortunately I could not complete the request.",
    "I could not determine the answer from the information I have.",
    "I am sorry, this does not seem to be possible. I will stop here.",
    "I don't have enough information to go on with this.",
)


def misread_result(run: SuccessfulRun, rng: random.Random) -> Planted | None:
    """Let a step state another value than the result before it."""
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
        returned_by = {v: j for j, text in returned.items() for _, v in values_in(text)}
        values = [
            (f, v)
            for f, v in values_in(own.thought)
            if v in returned_by and v not in run.trajectory.task and len(v) > 1
        ]
        values = [(f, v) for f, v in values if not any(v in call.text for call in own.calls)]
        rng.shuffle(values)
        for form, value in values[:3]:
            new = alike(value, form, "\n".join(returned.values()), rng, avoid=own.thought)
            if new is not None:
                step = with_spoken(own, value, new)
                return planted_at(
                    run, k, step, "misread_result", f"step {k} says {new}, step {returned_by[value]} returned {value}"
                )
    return None


def invented_result(run: SuccessfulRun, rng: random.Random) -> Planted | None:
    """Leave out a call, so that the next step states a result that was never returned."""
    reading = [
        k
        for k in run.acting()
        if k < len(run.steps) and not any(c.name in run.changes_state for c in run.steps[k - 1].calls)
    ]
    rng.shuffle(reading)
    for k in reading[:4]:
        own, after = run.steps[k - 1], run.steps[k]
        brought = {v for _, text in own.returns for _, v in values_in(text)}
        head = "\n".join(message.text() for message in run.trajectory.prelude)
        earlier = head + run.results_before(k) + run.trajectory.task
        earlier += "".join(c.text for s in run.steps[:k] for c in s.calls)
        values = [v for _, v in values_in(spoken_text(after)) if v in brought and v not in earlier and len(v) > 1]
        if values:
            value = rng.choice(sorted(values))
            return Planted(
                copy_run(run, k - 1, [after]),
                k,
                "invented_result",
                f"step {k} states {value}, which no tool returned",
                k - 1,
                twin=k + 1,
            )
    return None


def _claimed(call: CanonicalCall, rng: random.Random) -> str:
    """Return a sentence that claims a state-changing call."""
    words = call.name.rpartition(".")[2].replace("_", " ")
    values = (
        [str(v) for v in call.arguments.values() if isinstance(v, str | int | float) and 0 < len(str(v)) < 40]
        if isinstance(call.arguments, dict)
        else []
    )
    value = rng.choice(values) if values else ""
    return rng.choice(
        [
            f"I have also done this: {words} ({value}).",
            f"{words.capitalize()} for {value} is done as well.",
            f"The {words} for {value} has gone through.",
        ]
    )


def unsupported_claim(run: SuccessfulRun, rng: random.Random) -> Planted | None:
    """Claim an action that was never made: leave out its call, or claim another one."""
    left_out = [k for k in run.changing() if k + 1 in run.places() and _is_claimed(run, k)]
    if left_out and rng.random() < 0.6:
        k = rng.choice(left_out)
        name = next(c.name for c in run.steps[k - 1].calls if c.name in run.changes_state)
        critique = f"step {k} claims an action, but {name} was never called"
        return Planted(copy_run(run, k - 1, [run.steps[k]]), k, "unsupported_claim", critique, k - 1, twin=k + 1)
    last, k = run.steps[-1], len(run.steps)
    if not _may_claim(run):
        return None
    names = [n for n in run.changes_state if run.donors.calls.get(n)]
    other = run.donors.another(rng.choice(sorted(names)), run.question, rng) if names else None
    if other is None or makes_call(run, other.calls[0]):
        return None
    step = replace(last, thought=f"{last.thought} {_claimed(other.calls[0], rng)}".strip())
    critique = f"step {k} claims a call of {other.calls[0].name} that was never made"
    return planted_at(run, k, step, "unsupported_claim", critique)


def _changes(run: SuccessfulRun) -> list[CanonicalCall]:
    """Return calls before the last step that changed state, each as often as it was made."""
    steps = [run.steps[k - 1] for k in run.changing() if k < len(run.steps)]
    return [call for step in steps for call in step.calls if call.name in run.changes_state]


def _may_claim(run: SuccessfulRun) -> bool:
    """Tell whether the last step talks and the run changed state before it."""
    return bool(_changes(run)) and not run.steps[-1].calls and len(run.steps) in run.places()


def _is_claimed(run: SuccessfulRun, k: int) -> bool:
    """Tell whether the step after k only talks, and of the change of state that k made first."""
    if k >= len(run.steps) or run.steps[k].calls:
        return False
    own, after = run.steps[k - 1], run.steps[k]
    changed = {call.name for call in own.calls if call.name in run.changes_state}
    if any(call.name in changed for step in run.steps[: k - 1] for call in step.calls):
        return False
    words = [re.sub(r"[._]", " ", name) for name in sorted(changed)]
    brought = [*words, *(call.text for call in own.calls), *(text for label, text in own.returns if label == "result")]
    return bool(content_words(spoken_text(after)) & content_words(" ".join(brought)))


def supported_claim(run: SuccessfulRun, rng: random.Random) -> Planted | None:
    """Claim an action that was made."""
    if not _may_claim(run):
        return None
    last, call = run.steps[-1], rng.choice(_changes(run))
    step = replace(last, thought=f"{last.thought} {_claimed(call, rng)}".strip())
    return replace(planted_at(run, len(run.steps), step, "unsupported_claim", ""), good=True, twin=None)


def wrong_answer(run: SuccessfulRun, rng: random.Random) -> Planted | None:
    """Answer with another value of the same form."""
    last, k = run.steps[-1], len(run.steps)
    if last.calls or k not in run.places():
        return None
    before, answer = run.results_before(k), spoken_text(last)
    short = answer.strip().rstrip(".").lower()
    if last.answer is not None and short in ("yes", "no"):
        new = "no" if short == "yes" else "yes"
        return planted_at(run, k, replace(last, answer=new), "wrong_answer", f"step {k} answers {new}, which is wrong")
    values = [(f, v) for f, v in values_in(answer) if v not in run.trajectory.task]
    rng.shuffle(values)
    for form, value in values[:4]:
        new = alike(value, form, before, rng, avoid=answer)
        if new is not None:
            returned = value in {v for _, v in values_in(before)}
            why = f"the results say {value}" if returned else "which is wrong"
            return planted_at(run, k, with_spoken(last, value, new), "wrong_answer", f"step {k} answers {new}, {why}")
    if last.answer is not None and len(last.answer.split()) <= 5:
        ends = [
            s.answer
            for q, s in rng.sample(run.donors.endings, min(20, len(run.donors.endings)))
            if q != run.question and s.answer
        ]
        ends = [a for a in ends if a and abs(len(a) - len(last.answer)) < 12 and a.lower() != last.answer.lower()]
        own = last.answer.lower()
        names = [v for f, v in values_in(before) if f == 2 and v.lower() not in own and own not in v.lower()]
        pool = names if names and rng.random() < 0.7 else ends
        if pool:
            new = rng.choice(pool)
            step = with_spoken(last, last.answer, new)
            return planted_at(
                run, k, replace(step, answer=new), "wrong_answer", f"step {k} answers {new}, which is wrong"
            )
    return None


def gave_up_early(run: SuccessfulRun, rng: random.Random) -> Planted | None:
    """End the run before its work is done, with a message that it cannot be done."""
    places = [k for k in run.places() if 1 < k < len(run.steps) or (k == len(run.steps) and k > 1)]
    if not places:
        return None
    k = rng.choice(places)
    step = CanonicalStep(rng.choice(_GIVE_UP), (), None, ())
    return planted_at(run, k, step, "gave_up_early", f"step {k} gives up though there is more to try")
