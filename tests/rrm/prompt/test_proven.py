"""What a rule proves to be a mistake, and what it does not."""

from __future__ import annotations

from typing import Any

import pytest
from linear_time import assert_linear

from rrm.data.trajectory import Message, Trajectory
from rrm.prompt.proven import call_is_wrong, proven_mistakes

TOOLS = [{"name": "get"}, {"type": "function", "function": {"name": "refund"}}]
USER = Message(role="user", content="Please look again.")


def step(result: str, name: str = "get", **arguments: Any) -> list[Message]:
    """A native call and its result."""
    call = Message.model_validate({"role": "assistant", "tool_calls": [{"name": name, "arguments": arguments}]})
    return [call, Message(role="tool", content=result)]


def text_step(text: str, result: str) -> list[Message]:
    return [Message(role="assistant", content=text), Message(role="tool", content=result)]


def run(*steps: list[Message], tools: list[dict[str, Any]] | None = None) -> Trajectory:
    return Trajectory(id="t", messages=[USER, *(m for s in steps for m in s)], tools=tools)


def test_the_same_call_with_the_same_result_is_a_repeat() -> None:
    assert proven_mistakes(run(step("a", id=1), step("b", id=2), step("a", id=1))) == {3: "repeat"}
    assert proven_mistakes(run(step("a", id=1, n=2), step("a", n=2, id=1), step("a", id=1, n=2))) == {
        2: "repeat",
        3: "repeat",
    }
    search = text_step("<search>Ada</search>", "born 1815")
    assert proven_mistakes(run(search, text_step("I try\n<search>Ada</search>", "born 1815"))) == {2: "repeat"}


def test_an_environment_that_speaks_as_the_user_is_no_user() -> None:
    refused = Message(role="user", content="[CALL ERROR] The call has been refused; choose another one.")
    call = step("", id=1)[0]
    assert proven_mistakes(run([call, refused], [call, refused])) == {2: "repeat"}
    assert proven_mistakes(run([call, refused], [call, USER], [call, USER])) == {}


@pytest.mark.parametrize(
    "steps",
    [
        [step("a", id=1), step("b", id=1)],
        [step("a", id=1), step("a", id=2)],
        [step("a", id=1), step("b", id=1), step("a", id=1)],
        [step("a", id=1), step("ok", "refund", id=1), step("a", id=1)],
        [step("a", id=1), [Message(role="assistant", content="Which one?"), USER], step("a", id=1)],
        [[*step("a", id=1), USER], step("a", id=1)],
        [step("Error: the request timed out", id=1), step("Error: the request timed out", id=1)],
        [step("503 service unavailable", id=1), step("503 service unavailable", id=1)],
        [[step("", id=1)[0]], [step("", id=1)[0]]],
        [[Message(role="assistant", content="Hm.")], [Message(role="assistant", content="Hm.")]],
    ],
    ids=["another result", "another call", "changed in between", "after a change of state", "after a user's turn",
         "after a user's turn of its own step", "a time-out", "unavailable", "no result", "talk"],
)  # fmt: skip
def test_what_is_no_repeat(steps: list[list[Message]]) -> None:
    assert proven_mistakes(run(*steps), changes_state={"refund"}) == {}


def test_a_call_that_changes_nothing_else_between_two_equal_ones_does_not_hide_the_second() -> None:
    steps = [step("a", id=1), step("ok", "refund", id=1), step("a", id=1)]
    assert proven_mistakes(run(*steps)) == {3: "repeat"}


@pytest.mark.parametrize(
    "result",
    [
        "Error: missing required argument 'order'",
        "TypeError: get() missing 1 required positional argument: 'order'",
        '{"error": "validation error: order is a required field"}',
        "Error: invalid date format: use YYYY-MM-DD",
        "priority must be one of low, high",
        "SyntaxError: invalid syntax",
        'File "<stdin>", line 1\n    print(\nSyntaxError: invalid syntax',
        "unknown column 'nam' in 'field list'",
        "Error: no such tool: fetch",
        '{"success": false, "message": "missing required argument: order"}',
        "1 validation error for get\norder\n  Field required",
        "Value to plot must be one of 'visits', 'duration'",
        "/bin/bash: line 1: The: command not found",
        "Error running get:\ninvalid arguments: order is required",
    ],
)
def test_a_result_that_says_the_call_was_wrong_proves_it(result: str) -> None:
    assert call_is_wrong(result)
    assert proven_mistakes(run(step("a", id=1), step(result, id=2))) == {2: "malformed_call"}


@pytest.mark.parametrize(
    "result",
    [
        "Error: order not found",
        "404 Not Found",
        "Permission denied",
        "bash: /root: Permission denied",
        "Error: access is forbidden",
        "cat: a.txt: No such file or directory",
        "No results.",
        "Error: the request timed out",
        "[]",
        "TypeError: unsupported operand type(s) for +: 'int' and 'str'",
        "NameError: name 'total' is not defined",
        "Traceback (most recent call last)\nCell In[1], line 2\nTypeError: f() missing 1 required positional argument: 'n'",
        'File "/app/tests/test_cart.py", line 3\n    def f(\nSyntaxError: unexpected EOF while parsing',
        "Current population figures are not provided on this page.",
        "FAQ: A PO box is not a valid shipping address. Use a street address.",
        "Error: a PO box is not a valid shipping address",
        "Policy: a refund's amount must be a number below 50; the reason must be one of: lost, late.",
        "FAILED test_a - ValueError: invalid value in config\n1 failed, 3 passed",
        "def f(x):\n    raise ValueError('missing required argument')\n",
        "src/a.py:3: # unknown command handling\nsrc/a.py:9: def unknown_cmd(): pass",
        "ls: b.py: No such file or directory\nsrc/a.py:3: # unknown command handling",
        "bash: jq: command not found",
        "2026-01-01 app: validation error for user 7\n2026-01-01 app: ok",
        '{"order": "A-1", "note": "customer says: required field missing on form"}',
        "Tool 'hammer' not found in aisle 3",
        "a page of text that tells how to mend it: " + "word " * 400 + "Error: missing required argument",
        "",
    ],
)
def test_a_result_that_may_be_nobodys_fault_proves_nothing(result: str) -> None:
    assert not call_is_wrong(result)
    assert proven_mistakes(run(step(result, id=1), tools=TOOLS)) == {}


@pytest.mark.parametrize("result", ["Error: invalid JSON arguments", "json.decoder.JSONDecodeError: Expecting value"])
def test_arguments_that_are_cut_off_and_refused(result: str) -> None:
    cut = Message.model_validate({"role": "assistant", "tool_calls": [{"name": "get", "arguments": '{"order": '}]})
    assert proven_mistakes(run([cut, Message(role="tool", content=result)])) == {1: "malformed_call"}
    assert proven_mistakes(run([cut, Message(role="tool", content="shipped")])) == {}
    whole = step("json.decoder.JSONDecodeError: Expecting value", order="A-1")
    patch = Message.model_validate({"role": "assistant", "tool_calls": [{"name": "patch", "arguments": "--- a.py"}]})
    assert proven_mistakes(run(whole, [patch, Message(role="tool", content="Error: a.py is locked")])) == {}


@pytest.mark.parametrize(
    "result", ["Tool 'get_v2' not found", "Unknown function: get_v2.", "get_v2 is not a valid tool"]
)
@pytest.mark.parametrize("tools", [TOOLS, None])
def test_a_result_that_names_the_called_tool_as_unknown(result: str, tools: list[dict[str, Any]] | None) -> None:
    assert proven_mistakes(run(step(result, "get_v2", id=1), tools=tools)) == {1: "malformed_call"}
    assert proven_mistakes(run(step(result, "get", id=1), tools=tools)) == {}


def test_polling_is_no_repeat() -> None:
    for results in (["running", "running", "done"], ["queued (3rd)"] * 3, ["41 %", "41 %", "80 %"]):
        assert proven_mistakes(run(*(step(result, id=1) for result in results))) == {}
    pages = [step("a", "read", id=1), step("a", "read", id=1), step("ok", "edit"), step("b", "read", id=1)]
    assert proven_mistakes(run(*pages)) == {2: "repeat"}, "the edit changed the result"


def test_a_user_who_speaks_of_an_error_proves_nothing() -> None:
    said = Message(role="user", content="I get: missing required argument 'order'")
    assert proven_mistakes(run([*step("ok", id=1), said], [Message(role="assistant", content="Hm."), said])) == {}


def test_a_tool_that_is_not_on_offer() -> None:
    refused = step("Error: fetch cannot be called here", "fetch", id=1)
    steps = [step("ok", id=1), refused]
    assert proven_mistakes(run(*steps, tools=TOOLS)) == {2: "malformed_call"}
    assert proven_mistakes(run(steps[0], refused[:1], tools=TOOLS)) == {2: "malformed_call"}, "nothing came back"
    assert proven_mistakes(run(steps[0], step("ok", "fetch", id=1), tools=TOOLS)) == {}, "the environment knows it"
    assert proven_mistakes(run(*steps)) == {}
    assert proven_mistakes(run(*steps, tools=[*TOOLS, {"type": "web_search"}])) == {}
    assert proven_mistakes(run(*steps, tools=[{"name": {"odd": 1}}])) == {2: "malformed_call"}
    code = text_step("```python\nprint(1)\n```", "1")
    assert proven_mistakes(run(code, text_step("<answer>1</answer>", ""), tools=TOOLS)) == {}


def test_a_long_run_takes_time_of_its_length() -> None:
    def work(count: int) -> None:
        proven_mistakes(run(*(step("a", id=i) for i in range(count))))

    assert_linear(work, 150)
