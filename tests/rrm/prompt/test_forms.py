"""Forms of a run: native calls and ReAct text of the same steps give the same prompt."""

from __future__ import annotations

from typing import Any

import pytest

from rrm.data.trajectory import Message, Trajectory
from rrm.prompt.canonical import Form, canonical_step, in_form
from rrm.prompt.rendering import CharacterTokenizer
from rrm.prompt.windows import Planner

FORMS: tuple[Form, ...] = ("native", "react")


def run(*turns: dict[str, Any] | str) -> Trajectory:
    """A run: a text is the agent's, an object any message; the task stands first."""
    messages = [{"role": "system", "content": "Be quick."}, {"role": "user", "content": "Do it."}]
    messages += [{"role": "assistant", "content": t} if isinstance(t, str) else t for t in turns]
    return Trajectory.model_validate({"id": "t", "task": "Do it.", "messages": messages, "tools": [{"name": "get"}]})


def said(text: str, *calls: tuple[str, Any]) -> dict[str, Any]:
    named = [{"id": f"c{i}", "name": name, "arguments": arguments} for i, (name, arguments) in enumerate(calls)]
    return {"role": "assistant", "content": text, "tool_calls": named}


def result(text: str, id: str | None = None) -> dict[str, Any]:
    return {"role": "tool", "content": text, "tool_call_id": id}


RUNS = {
    "native": run(said("Look.", ("get", {"id": "A-1"})), result('{"id": "A-1", "n": [1, 2]}'), "It is A-1."),
    "react": run("Thought: Look.\nAction: get[A-1]", result("Observation: found"), "Thought: so\nAction: Finish[A-1]"),
    "tags": run("Look.\n<search>A-1</search>", result("found"), "<answer>A-1</answer>"),
    "code": run("Look.\n```python\nif x:\n    y()\n```", result("  1\n  2"), "<execute>\n\tz()\n</execute>", result("")),
    "shell": run("```bash\nls -l\n```", result("a\nb"), said("", ("bash", {"command": "cat <<E\n```\nE"})), result("ok")),
    "code with its own end": run(said("", ("python", {"code": "print('</execute>')\nx = '</tool_call>'"})), result("1")),
    "two calls": run(said("", ("get", {"id": "A"}), ("get", {"id": "B"})), result("two", "c1"), result("one", "c0"), "Done."),
    "a missing result": run(said("", ("get", {"id": "A"}), ("get", {"id": "B"})), result("one", "c0"), "Done."),
    "user": run("Which one?", {"role": "user", "content": "the red one"}, said("", ("get", {"c": 1})), result("r"), "Done."),
    "malformed": run(said("", ("get", '{"id": ')), result("Error: bad JSON"), said("", ("get", "a\nb")), result("x")),
    "submit": run(said("", ("submit", {})), result("ok"), said("", ("submit", {"a": 1, "b": 2})), result("ok")),
    "a name with blanks": run(said("x", ("my tool", {"q": "a", "n": 1}), ("srv/get", {"q": "a"})), result("r")),
    "lines": run(said("", ("write", {"path": "a.py", "body": "def f():\n    pass"})), result("ok"), "Done."),
    "text argument": run(said("", ("write", {"body": "one\ntwo"})), result("ok"), "Done."),
    "an empty step": run("", result("?"), "Done."),
    "code beside a call": run(said("See:\n```python\nf()\n```", ("get", {"id": "A"})), result("r", "c0"), "Done."),
    "code in a reasoning": run({"role": "assistant", "content": "ok", "reasoning_content": "```python\nf()\n```"}, "Done."),
    "two answers": run("<answer>4</answer> or <answer>5</answer>"),
    "a made-up result": run("Thought: Look.\nAction: get[A-1]\nObservation: found", result("nothing"), "Done."),
    "labels in a row": run("Thought: Thought: Action: no", "Done."),
    "an open block": run("```python\nf(", result("SyntaxError: '(' was never closed"), "Done."),
    "an error by its flag": run(said("", ("get", {"id": "A"})), result("no row", "c0") | {"is_error": True}, "Done."),
    "answer and call": run(said("", ("get", {"a": 1}), ("finish", {"answer": "4\n2"})), result("r", "c0")),
}  # fmt: skip


def text_of(trajectory: Trajectory, budget: int = 10_000) -> str:
    plan = Planner(CharacterTokenizer(), budget, canonical=True).plan(trajectory, slots=True)
    return "".join(plan.reading(i).text for i in range(len(plan)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", RUNS)
def test_every_form_of_a_run_has_the_same_prompt(name: str, form: Form) -> None:
    rewritten = in_form(RUNS[name], form)
    assert rewritten.messages[:2] == RUNS[name].messages[:2]
    assert text_of(rewritten) == text_of(RUNS[name])


@pytest.mark.parametrize("name", RUNS)
def test_a_form_of_a_form_has_the_same_prompt(name: str) -> None:
    there = in_form(RUNS[name], "react")
    assert text_of(in_form(in_form(there, "native"), "react")) == text_of(RUNS[name])


def test_the_forms_are_what_they_are_called() -> None:
    first = RUNS["react"].steps[0].message
    native, react = (in_form(RUNS["native"], form).steps for form in FORMS)
    assert native[0].message.tool_calls and not react[0].message.tool_calls
    assert react[0].message.text() == 'Thought 1: Look.\nAction: get\nAction Input: {"id": "A-1"}'
    assert react[0].observations[0].text() == "Observation: id: A-1\nn: 1, 2"
    assert in_form(RUNS["react"], "own").steps[0].message is first


def test_results_belong_to_their_calls_in_native_form() -> None:
    step = in_form(RUNS["two calls"], "native").steps[0]
    ids = {call.id: call.arguments for call in step.message.tool_calls or []}
    results = {str(ids[m.tool_call_id]): m.text() for m in step.observations}
    assert results == {"{'id': 'A'}": "one", "{'id': 'B'}": "two"}


def test_a_readable_result_stays_as_it_is_in_another_form() -> None:
    (step,) = run(said("", ("get", {})), result('{"a": {"b": [{"c": 1}, {"d": "x\\ny"}]}}')).steps
    again = step.model_copy(update={"observations": [Message(role="tool", content=canonical_step(step).returns[0][1])]})
    assert canonical_step(again).return_text == canonical_step(step).return_text


def long(trajectory: Trajectory) -> Trajectory:
    """The run with its steps nine times over, each with a result that fills a good part of a window."""
    result_message = Message(role="tool", content="word " * 30)
    messages = trajectory.messages[:2]
    for k in range(9):
        messages += [*trajectory.messages[2:], Message(role="assistant", content=f"On {k}."), result_message]
    return trajectory.model_copy(update={"messages": messages})


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", RUNS)
def test_the_digest_of_a_long_run_is_the_same_in_every_form(name: str, form: Form) -> None:
    own = long(RUNS[name])
    text = text_of(own, 900)
    assert "earlier steps are not listed\n" in text and text_of(in_form(own, form), 900) == text


@pytest.mark.parametrize("form", FORMS)
def test_the_windows_that_are_read_of_a_long_run_are_the_same_in_every_form(form: Form) -> None:
    """Those with a step that the rules flag: a repeated call, whatever wrote it."""
    planner = Planner(CharacterTokenizer(), 900, canonical=True, max_windows=4)
    own, other = (planner.plan(long(t), slots=True) for t in (RUNS["code"], in_form(RUNS["code"], form)))
    assert own.windowed and [own.steps(i) for i in range(4)] == [other.steps(i) for i in range(4)]
