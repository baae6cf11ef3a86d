"""What rules make of a call again, of a loop, of figures that came back, and of results that an agent makes up."""

from __future__ import annotations

import pytest
from agent_runs import call, run

from rrm.data.trajectory import Trajectory
from rrm.prompt import rules


def faults(trajectory: Trajectory) -> dict[str, int]:
    return dict(rules.check_steps(trajectory)[1])


def test_a_call_again_whose_result_differs_is_no_repeat() -> None:
    """A polled status and a next page were repeats that learn nothing new."""
    polled = run(call({"id": 7}), "pending", call({"id": 7}), "shipped today", "Final Answer: shipped today")
    pages = run("<execute>page()</execute>", "a b", "<execute>page()</execute>", "c d", "Final Answer: c d")
    assert "repeat" not in faults(polled) and "repeat" not in faults(pages)
    assert faults(run(call({"id": 7}), "pending", call({"id": 7}), " Pending ", "Final Answer: pending"))["repeat"] == 1


@pytest.mark.parametrize(
    ("between", "repeats"),
    [
        ("<execute>def f(x):\n    return x + 1</execute>", 0),
        ('<tool_call>{"name": "edit_file", "arguments": {"path": "f.py"}}</tool_call>', 0),
        ('<tool_call>{"name": "run_bash", "arguments": {"command": "sed -i s/a/b/ f.py"}}</tool_call>', 0),
        ("> open drawer 1", 0),
        ("<execute>print(g(3))</execute>", 1),
        ('<tool_call>{"name": "get_order", "arguments": {"id": 1}}</tool_call>', 1),
    ],
)
def test_a_call_again_after_a_change_is_no_repeat(between: str, repeats: int) -> None:
    """Tests run again after an edit were a repeat, or an ignored error where they failed again."""
    for result in ("1 passed", "Traceback (most recent call last):\nAssertionError: f(2) is 3"):
        tests = "<execute>print(check(f))</execute>"
        found = faults(run(tests, result, between, "ok", tests, result, "Final Answer: done"))
        assert found.get("repeat", 0) + found.get("ignored_error", 0) == repeats, (result, found)


@pytest.mark.parametrize("period", [1, 2, 3])
def test_a_loop_of_any_period_is_one_finding(period: int) -> None:
    """Each of its steps was one: four rounds of three calls gave nine findings, and a score of 0.1."""
    calls = [part for n in range(4 * period) for part in (call({"q": "abc"[n % period]}), f"result {n % period}")]
    trajectory = run(*calls, "Final Answer: result 0 and result 1 and result 2")
    found, counts = rules.check_steps(trajectory)
    assert counts["repeat"] == 1 and [f.step for f in found if "repeats" in f.text] == [period + 1]
    twice = run(*calls, call({"q": "new"}), "result 9", call({"q": "new"}), "result 9", "Final Answer: result 9")
    assert faults(twice)["repeat"] == 2
    edits = (
        '<tool_call>{"name": "edit_file", "arguments": {"path": "f.py"}}</tool_call>',
        "ok",
        call({"q": "t"}),
        "1 failed",
    )
    assert faults(run(*edits * 4, "Final Answer: done"))["repeat"] == 1  # the same edit again and again changes nothing


def test_figures_that_came_back_support_an_answer_of_any_length() -> None:
    """Only in an answer of four words and more did they: `20C, 3C` occurred in no result."""
    both = (call({"q": "rome"}), "Rome 20C", call({"q": "oslo"}), "Oslo 3C")
    for answer, supported in (
        ("20C, 3C", True),
        ("20C 3C", True),
        ("20C 4C", False),
        ("Rome is warmer, 20C versus 3C", True),
    ):
        assert ("unsupported" not in faults(run(*both, f"Final Answer: {answer}", task="Compare"))) == supported, answer


@pytest.mark.parametrize(
    ("said", "made_up"),
    [
        (
            '<tool_call>{"name": "f", "arguments": {"q": "a"}}</tool_call><tool_response>blue</tool_response> So blue.',
            True,
        ),
        ("Action: f[a]\nObservation: it is blue\nThought: blue then", True),
        ("<search>a</search>\n<information>it is blue</information>", True),
        ("Observation: nothing yet.\nAction: f[a]", False),
        ('<tool_call>{"name": "f", "arguments": {"q": "<tool_response>"}}</tool_call>', False),
        ("I write what I see.\nObservation: it is blue", False),
    ],
)
def test_a_result_that_the_agent_makes_up_behind_its_call_is_a_mistake(said: str, made_up: bool) -> None:
    """It was not looked at: 225 runs of one benchmark have such a step, and read well."""
    trajectory = run(said, "it is red", "Final Answer: red")
    assert (faults(trajectory).get("invented") == 1) == made_up
    native = run(call({"q": "a"}), "it is red", "Final Answer: red")
    for text, counts in (("<tool_response>blue</tool_response>", True), ("Observation: I see a page", False)):
        task, first, *rest = native.messages
        said_too = first.model_copy(update={"content": text})
        assert ("invented" in faults(native.model_copy(update={"messages": [task, said_too, *rest]}))) == counts
