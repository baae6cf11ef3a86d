"""Planted mistakes: one a copy, in its place, with a true critique; the same in every form of the run and for every draw of one seed."""

from __future__ import annotations

import random
import re
from collections import Counter
from functools import cache
from typing import Any

import pytest
from succeeded_runs import CHANGES, question, support

from rrm.annotate.planted import COUNTERPARTS, OPERATORS, Donors, Planted, SuccessfulRun, counterpart, plant
from rrm.annotate.planted_calls import _ERRORS
from rrm.data.mistakes import MISTAKE_KINDS, MistakeKind
from rrm.data.trajectory import Message
from rrm.prompt.canonical import CanonicalStep, canonical_step, head_texts, in_form, readable
from rrm.prompt.failures import is_transient
from rrm.prompt.proven import proven_mistakes


def runs_of(form: str = "own") -> list[SuccessfulRun]:
    """Runs of both kinds with their donors."""
    found = []
    for make, changes in ((support, CHANGES), (question, frozenset[str]())):
        made = [make(i) if form == "own" else make(i, form) for i in range(12)]
        donors = Donors.of((t.id, t) for t in made)
        found += [SuccessfulRun(t, t.id, donors, changes) for t in made]
    return found


RUNS = runs_of()


def drawn(kind: MistakeKind, make: Any, runs: list[SuccessfulRun], seeds: int) -> list[tuple[SuccessfulRun, Planted]]:
    made = [(run, make(run, kind, random.Random(f"{run.question}/{seed}"))) for run in runs for seed in range(seeds)]
    return [(run, found) for run, found in made if found is not None]


@cache
def plants(kind: MistakeKind, make: Any = plant, seeds: int = 6) -> list[tuple[SuccessfulRun, Planted]]:
    return drawn(kind, make, RUNS, seeds)


def steps_of(found: Planted) -> list[CanonicalStep]:
    return [canonical_step(step) for step in found.trajectory.steps]


def results_of(step: CanonicalStep) -> str:
    return "\n".join(text for _, text in step.returns)


@pytest.mark.parametrize("kind", MISTAKE_KINDS)
def test_a_copy_is_the_run_up_to_the_mistake_and_ends_with_it(kind: MistakeKind) -> None:
    found = plants(kind)
    assert len(found) >= 20, "too few to say anything"
    for run, planted in found:
        steps = steps_of(planted)
        assert planted.kind == kind and not planted.good
        assert len(steps) == planted.step and planted.known < planted.step
        assert steps[: planted.known] == list(run.steps[: planted.known])
        assert planted.trajectory.outcome is None
        assert planted.trajectory.task == run.trajectory.task and planted.trajectory.tools == run.trajectory.tools
        assert re.search(rf"\bstep {planted.step}\b", planted.critique), planted.critique


@pytest.mark.parametrize("kind", MISTAKE_KINDS)
def test_exactly_one_step_is_the_mistake_and_no_copy_is_its_run(kind: MistakeKind) -> None:
    for run, planted in plants(kind):
        steps, head = steps_of(planted), head_texts(planted.trajectory)
        if kind == "broken_instruction":  # the step is the run's own: what it is told is not
            assert steps == list(run.steps[: planted.step]) and head != head_texts(run.trajectory)
            continue
        assert head == head_texts(run.trajectory)
        assert steps != list(run.steps[: planted.step])
        own = [step.action_text for step in run.steps]
        changed = [k for k, step in enumerate(steps, start=1) if step.action_text not in own]
        assert changed in ([], [planted.step]), (
            changed,
            planted,
        )  # none: a repeat, a call left out before it, a result that failed


@pytest.mark.parametrize("kind", MISTAKE_KINDS)
def test_a_seed_draws_the_same_plant_in_every_form_of_a_run(kind: MistakeKind) -> None:
    def texts(runs: list[SuccessfulRun]) -> list[tuple]:
        return [
            (run.question, p.step, p.critique, p.known, p.twin, [(s.action_text, s.return_text) for s in steps_of(p)], head_texts(p.trajectory))
            for run, p in drawn(kind, plant, runs, 3)
        ]  # fmt: skip

    # a ReAct input is a text and has no argument to change: there the native form has more places
    forms = [runs_of("react"), runs_of("native")] if kind not in ("wrong_argument", "malformed_call") else []
    mine = [[r for r in runs if r.changes_state] for runs in (RUNS, runs_of("react"), runs_of("native"))]
    assert all(texts(runs) == texts(RUNS) for runs in [runs_of(), *forms])
    assert texts(mine[0]) == texts(mine[1]) == texts(mine[2])


def test_a_twin_is_the_runs_own_step_in_the_place_of_the_planted_one() -> None:
    for kind in MISTAKE_KINDS:
        for run, planted in plants(kind):
            if planted.twin is not None:
                assert 1 <= planted.twin <= len(run.steps) and planted.twin > planted.known
                skipped = planted.twin - planted.step
                assert skipped == (1 if kind in ("invented_result", "unsupported_claim") and skipped else 0)


# ---- critiques are true ----


def match(pattern: str, planted: Planted) -> re.Match[str]:
    found = re.fullmatch(pattern, planted.critique)
    assert found, planted.critique
    return found


def test_an_irrelevant_call_is_one_that_the_run_never_makes() -> None:
    for run, planted in plants("irrelevant_call"):
        (call,) = steps_of(planted)[-1].calls
        assert match(r"step \d+ calls (.+), which the task does not ask for", planted)[1] == call.text
        assert all(call != own for step in run.steps for own in step.calls)


def test_a_wrong_argument_is_the_one_that_differs() -> None:
    for run, planted in plants("wrong_argument"):
        (call,), (own,) = steps_of(planted)[-1].calls, run.steps[planted.step - 1].calls
        said = match(r"step \d+ calls (\w+) with a wrong (\w+)", planted)
        assert isinstance(call.arguments, dict) and isinstance(own.arguments, dict) and call.name == own.name == said[1]
        assert [n for n in own.arguments if call.arguments[n] != own.arguments[n]] == [said[2]]
        assert type(call.arguments[said[2]]) is type(own.arguments[said[2]])


def test_a_malformed_call_is_proven_by_rule() -> None:
    for run, planted in plants("malformed_call"):
        assert proven_mistakes(planted.trajectory, run.changes_state)[planted.step] == "malformed_call"
        (call,), tools = steps_of(planted)[-1].calls, {t["name"] for t in run.trajectory.tools or []}
        if "does not exist" in planted.critique:
            assert (
                match(r"step \d+ calls (\w+), a tool that does not exist", planted)[1] == call.name
                and call.name not in tools
            )
        else:
            name, argument = match(r"step \d+ calls (\w+) without (\w+)", planted).groups()
            (own,) = run.steps[planted.step - 1].calls
            assert isinstance(own.arguments, dict) and isinstance(call.arguments, dict)
            assert name == call.name == own.name and argument in own.arguments and argument not in call.arguments


def test_a_repeat_is_proven_by_rule() -> None:
    for run, planted in plants("repeat"):
        k = int(match(r"step \d+ repeats the call of step (\d+)", planted)[1])
        steps = steps_of(planted)
        assert [c.text for c in steps[-1].calls] == [c.text for c in steps[k - 1].calls] and steps[-1].returns == steps[
            k - 1
        ].returns
        native = in_form(planted.trajectory, "native")
        assert proven_mistakes(native, run.changes_state).get(planted.step) == "repeat"


def test_an_ignored_error_stands_in_the_step_before() -> None:
    for _, planted in plants("ignored_error"):
        before, last = steps_of(planted)[-2:]
        assert match(r"step (\d+) ignores the error that step (\d+) returned", planted).groups() == (
            str(planted.step),
            str(planted.step - 1),
        )
        assert before.returns and {text for _, text in before.returns} <= set(map(readable, _ERRORS))
        assert not [c for c in last.calls if c in before.calls]


def test_a_broken_instruction_is_broken_by_that_step_first() -> None:
    seen = Counter[str]()
    for run, planted in plants("broken_instruction", seeds=20):
        seen[check_instruction(run, planted)] += 1
    assert len(seen) == 6, seen


def added(run: SuccessfulRun, found: Planted) -> str:
    """The instruction that a copy has and the run has not."""
    before, after = (head_texts(t).get("Instructions", "").split("\n") for t in (run.trajectory, found.trajectory))
    (text,) = [line for line in after if line not in before]
    return text


def breaks(text: str, steps: list[CanonicalStep]) -> tuple[str, int | None]:
    """(kind of the instruction, the first step that breaks it)."""
    calls = [(k, c) for k, step in enumerate(steps, start=1) for c in step.calls]
    if m := re.search(r"(?:Do not use|The tool|Never call) (\w+)", text):
        return "never", next((k for k, c in calls if c.name == m[1]), None)
    if m := re.search(r"Ask the user before you call (\w+)\.|(\w+) may be called only after", text):
        asked = next((k for k, s in enumerate(steps, start=1) if any(label == "user" for label, _ in s.returns)), 10**6)
        return "confirm", next((k for k, c in calls if c.name == (m[1] or m[2]) and k <= asked), None)
    if m := re.search(r"Call (\w+) before you call (\w+)\.|Always use (\w+) first, and (\w+) only", text):
        first, then = (m[1], m[2]) if m[1] else (m[3], m[4])
        order = [c.name for _, c in calls]
        at = next((i for i, name in enumerate(order) if name == then), None)
        return "before", calls[at][0] if at is not None and first not in order[:at] else None
    if m := re.search(r"(?:at most|more than) (\d+) (?:tool calls|calls)", text):
        return "count", calls[int(m[1])][0] if len(calls) > int(m[1]) else None
    if m := re.search(r"at most (\d+) words", text):
        last = steps[-1]
        said = last.answer if last.answer is not None else last.thought
        return "words", len(steps) if not last.calls and len(said.split()) > int(m[1]) else None
    m = re.search(r"Leave (.+) alone|(.+) is off limits", text)
    assert m, text
    return "value", next((k for k, c in calls if (m[1] or m[2]) in c.text), None)


def check_instruction(run: SuccessfulRun, planted: Planted) -> str:
    kind, first = breaks(added(run, planted), steps_of(planted))
    assert first == planted.step, planted.critique
    return kind


def test_a_misread_value_stands_in_the_results_and_not_in_the_step() -> None:
    for _, planted in plants("misread_result"):
        said, step, value = match(r"step \d+ says (.+), step (\d+) returned (.+)", planted).groups()
        steps = steps_of(planted)
        assert words(value) <= words(results_of(steps[int(step) - 1])) and said != value
        assert said in steps[-1].thought and not words(value) <= words(steps[-1].thought)


def words(text: str) -> set[str]:
    return set(re.findall(r"[\w.#-]*\w", text))


def test_an_invented_result_stands_nowhere_before() -> None:
    for _, planted in plants("invented_result"):
        value = match(r"step \d+ states (.+), which no tool returned", planted)[1]
        *before, last = steps_of(planted)
        assert words(value) <= words(last.answer or last.thought)
        head = " ".join(m.text() for m in planted.trajectory.prelude)
        assert value not in " ".join([head, *(s.action_text + results_of(s) for s in before)])


def test_a_claimed_action_was_never_made() -> None:
    left_out = 0
    for run, planted in plants("unsupported_claim", seeds=20):
        calls = [c for s in steps_of(planted) for c in s.calls]
        last = steps_of(planted)[-1]
        assert not last.calls and last.thought
        if m := re.search(r"but (\w+) was never called", planted.critique):
            left_out += 1
            assert all(c.name != m[1] for c in calls) and m[1] in CHANGES
        else:
            name = match(r"step \d+ claims a call of (\w+) that was never made", planted)[1]
            assert name in CHANGES and name.replace("_", " ") in last.thought.lower()
            assert last.thought != run.steps[-1].thought
    assert left_out


def test_a_claim_that_follows_a_left_out_call_speaks_of_it() -> None:
    """A later talk ("anything else?") claims nothing: the first message after the call does."""
    made = []
    for i in range(6):
        run = support(i)
        extra = [
            {"role": "user", "content": "Thank you."},
            {"role": "assistant", "content": "You are welcome. Anything else?"},
            {"role": "user", "content": "No."},
            {"role": "assistant", "content": "Goodbye then, have a nice day."},
        ]
        made.append(run.model_copy(update={"messages": [*run.messages, *map(Message.model_validate, extra)]}))
    donors = Donors.of((t.id, t) for t in made)
    found = drawn("unsupported_claim", plant, [SuccessfulRun(t, t.id, donors, CHANGES) for t in made], 20)
    left_out = [p for _, p in found if "never called" in p.critique]
    assert left_out
    for planted in left_out:
        assert "sent you an email" in steps_of(planted)[-1].thought


def test_a_needless_side_effect_is_a_change_that_the_run_never_makes() -> None:
    for run, planted in plants("needless_side_effect"):
        (call,) = steps_of(planted)[-1].calls
        assert match(r"step \d+ calls (.+), which nobody asked for", planted)[1] == call.text and call.name in CHANGES
        assert all(call != own for step in run.steps for own in step.calls)


def test_a_wrong_answer_says_another_value_than_the_results() -> None:
    contradicted = 0
    for run, planted in plants("wrong_answer"):
        *before, last = steps_of(planted)
        said = last.answer or last.thought
        assert said != (run.steps[-1].answer or run.steps[-1].thought)
        if m := re.fullmatch(r"step \d+ answers (.+), the results say (.+)", planted.critique):
            contradicted += 1
            assert m[1] in said and words(m[2]) <= words(" ".join(map(results_of, before)))
        else:
            assert match(r"step \d+ answers (.+), which is wrong", planted)[1] in said
    assert contradicted


def test_giving_up_makes_no_call_and_answers_nothing() -> None:
    for _, planted in plants("gave_up_early"):
        last = steps_of(planted)[-1]
        assert not last.calls and last.answer is None and not last.returns and planted.step > 1


# ---- counterparts are right ----


@pytest.mark.parametrize("kind", COUNTERPARTS)
def test_a_counterpart_is_right(kind: MistakeKind) -> None:
    found = plants(kind, counterpart)
    assert len(found) >= 10
    for run, right in found:
        steps = steps_of(right)
        assert right.good and right.kind == kind and right.critique == "" and right.step == len(steps)
        assert steps[: right.known] == list(run.steps[: right.known])
        assert right.step not in proven_mistakes(right.trajectory, run.changes_state)


def test_a_call_is_repeated_after_a_time_out() -> None:
    for run, right in plants("repeat", counterpart):
        before, last = steps_of(right)[-2:]
        assert before.calls == last.calls and all(is_transient(text) for _, text in before.returns)
        assert (
            last.action_text == run.steps[right.step - 2].action_text
            and last.returns == run.steps[right.step - 2].returns
        )


def test_an_error_is_dealt_with() -> None:
    for _, right in plants("ignored_error", counterpart):
        before, last = steps_of(right)[-2:]
        assert before.returns and {text for _, text in before.returns} <= set(map(readable, _ERRORS))
        assert not last.calls and last.answer is None


def test_an_obeyed_instruction_is_broken_by_no_step_of_the_whole_run() -> None:
    seen = Counter[str]()
    for run, right in plants("broken_instruction", counterpart, seeds=20):
        kind, first = breaks(added(run, right), list(run.steps))
        assert first is None, (added(run, right), first)
        seen[kind] += 1
    assert len(seen) >= 5, seen


def test_obeyed_and_broken_instructions_are_cut_at_like_steps() -> None:
    """How many steps of which sort end the copies says nothing about which of the two they are."""
    calls = [
        sum(bool(steps_of(p)[-1].calls) for _, p in found) / len(found)
        for found in (plants("broken_instruction", make, 20) for make in (plant, counterpart))
    ]
    assert abs(calls[0] - calls[1]) < 0.06 and calls[0] > 0.5
    for run, right in plants("broken_instruction", counterpart, 20):
        assert ("at most" in added(run, right) and "words" in added(run, right)) == (not steps_of(right)[-1].calls)


def test_an_action_is_claimed_rightly_wherever_one_is_claimed_wrongly_at_the_end() -> None:
    beside = [(r, p) for r, p in plants("unsupported_claim", seeds=20) if "claims a call of" in p.critique]
    assert len(beside) >= 20
    assert all(counterpart(run, "unsupported_claim", random.Random(0)) is not None for run, _ in beside)


def test_a_supported_claim_speaks_of_a_call_that_was_made() -> None:
    for _, right in plants("unsupported_claim", counterpart):
        *before, last = steps_of(right)
        made = [c.name.replace("_", " ") for s in before for c in s.calls if c.name in CHANGES]
        assert any(name in last.thought.lower() for name in made)


# ---- places and donors ----


@pytest.mark.parametrize("kind", MISTAKE_KINDS)
def test_mistakes_are_planted_where_it_is_allowed(kind: MistakeKind) -> None:
    only = [SuccessfulRun(r.trajectory, r.question, r.donors, r.changes_state, allowed=[2, 3]) for r in RUNS]
    for run, planted in drawn(kind, plant, only, 4):
        assert planted.step in (2, 3) or (kind == "repeat" and planted.step == len(run.steps) + 1)


def test_kinds_that_need_a_change_of_state_find_no_place_without_one() -> None:
    still = [SuccessfulRun(r.trajectory, r.question, r.donors) for r in RUNS]
    assert not any(drawn(kind, plant, still, 4) for kind in ("needless_side_effect", "unsupported_claim"))


def test_a_donated_call_comes_from_another_question() -> None:
    donors = Donors.of([("same", support(0)), ("same", support(1))])
    run = SuccessfulRun(support(0), "same", donors, CHANGES)
    assert all(
        plant(run, kind, random.Random(s)) is None
        for kind in ("irrelevant_call", "needless_side_effect")
        for s in range(5)
    )


def test_steps_that_failed_donate_nothing() -> None:
    run = support(1)
    run.messages[3] = run.messages[3].model_copy(update={"content": "Error: no matching record"})
    assert "search_orders" not in Donors.of([("q", run)]).calls and "get_order" in Donors.of([("q", run)]).calls


def test_there_is_an_operator_for_every_kind() -> None:
    assert set(OPERATORS) == set(MISTAKE_KINDS) and set(COUNTERPARTS) < set(MISTAKE_KINDS)
