"""Tools: schema, argument checks, limits, and every way a call can go wrong."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Mapping

import pytest

from reagent.env.limiter import FairLimiter
from reagent.env.tool import EMPTY, Tool, ToolResult, shorten, tool
from reagent.errors import ToolError
from rrm.errors import RRMError


def run(tool: Tool, **arguments: object) -> ToolResult:
    return asyncio.run(tool.call(arguments))


@tool
def power(base: float, exponent: int = 2) -> str:
    """Raise a number to a power.

    Args:
        base: The number.
        exponent: How often it is multiplied.

    Returns:
        The power.
    """
    return f"{base**exponent:g}"


def test_schema_comes_from_signature_and_docstring() -> None:
    assert power.schema == {
        "type": "function",
        "function": {
            "name": "power",
            "description": "Raise a number to a power.",
            "parameters": {
                "type": "object",
                "properties": {
                    "base": {"type": "number", "description": "The number."},
                    "exponent": {"type": "integer", "description": "How often it is multiplied."},
                },
                "required": ["base"],
            },
        },
    }
    assert (power.name, power.description) == ("power", "Raise a number to a power.")
    assert power(3.0) == "9"  # still a function


def test_arguments_are_checked_and_converted() -> None:
    assert run(power, base="3").content == "9"
    assert run(power, base=2, exponent="10").content == "1024"
    for arguments, fragment in (
        ({}, "base: Field required"),
        ({"base": "x"}, "base: Input should be a valid number"),
        ({"base": 1, "exponent": 1.5}, "exponent: "),
        ({"base": 1, "power": 2}, "power: Extra inputs are not permitted"),
    ):
        result = asyncio.run(power.call(arguments))
        assert result.error is not None and result.error.kind == "bad_arguments" and result.error.agents_fault
        assert fragment in result.content and "It takes: base, exponent" in result.content


def test_arguments_may_have_any_name() -> None:
    @tool
    def odd(json: str, _x: int, model_config: str = "m", self_: str = "s") -> str:
        return f"{json} {_x} {model_config} {self_}"

    assert run(odd, json=1, _x="2", self_="t").content == "1 2 m t"


def test_a_function_that_cannot_be_a_tool_is_refused_with_advice() -> None:
    with pytest.raises(RRMError, match="'x' has no type hint"):

        @tool
        def untyped(x) -> str:
            return x

    with pytest.raises(RRMError, match="'parts' cannot be passed by name"):

        @tool
        def many(*parts: str) -> str:
            return "".join(parts)

    @tool
    def undocumented(x: str) -> str:
        return x

    with pytest.raises(RRMError, match=r"'undocumented': .* Write a docstring"):
        _ = undocumented.schema


def test_methods_are_bound_to_their_instance_and_share_their_limit() -> None:
    class Shop:
        def __init__(self, price: int) -> None:
            self.price = price

        @tool
        async def cost(self, number: int) -> int:
            """Say what it costs.

            Args:
                number: How many.
            """
            return self.price * number

    cheap, dear = Shop(1), Shop(10)
    assert (run(cheap.cost, number=3).content, run(dear.cost, number=3).content) == ("3", "30")
    assert list(cheap.cost.schema["function"]["parameters"]["properties"]) == ["number"]
    assert cheap.cost.slots is dear.cost.slots and cheap.cost.schema is dear.cost.schema


def _returns(value: object, **limits: object) -> Tool:
    def give() -> object:
        return value

    return tool(**limits)(give)  # pyright: ignore[reportCallIssue, reportArgumentType]


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", "text"), (None, EMPTY), ("  ", EMPTY), ({"a": [1, "é"]}, '{"a": [1, "é"]}'), (True, "true"),
        (1.5, "1.5"),
    ],
)  # fmt: skip
def test_results_become_text(value: object, content: str) -> None:
    result = run(_returns(value))
    assert (result.content, result.error) == (content, None)


@pytest.mark.parametrize("value", [b"\x00\xff", bytearray(3), memoryview(b"x"), object(), {1, 2}])
def test_what_is_no_text_is_a_typed_error(value: object) -> None:
    result = run(_returns(value))
    assert result.error is not None and result.error.kind == "bad_result"
    assert result.content.startswith("Error: the tool returned")


def test_a_huge_result_loses_its_middle() -> None:
    result = run(_returns("a" * 5_000_000 + "b" * 5_000_000, max_result_chars=1000))
    assert result.error is None
    assert len(result.content) <= 1000 and result.content.startswith("aaa") and result.content.endswith("bbb")
    assert "characters left out" in result.content
    assert result.cut_chars > 9_999_000
    assert shorten("abcdef", 6) == ("abcdef", 0)
    assert len(shorten("a" * 100, 3)[0]) == 3


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("error", "error_kind", "message"),
    [
        (ValueError("no such city"), "raised", "ValueError: no such city"),
        (ToolError("closed on Sundays"), "failed", "Error: closed on Sundays"),
        (SystemExit(3), "raised", "SystemExit: 3"),
        (StopIteration("x"), "raised", "Error:"),
        (_Unprintable(), "raised", "Unprintable"),
    ],
)
def test_whatever_a_tool_raises_is_told_to_the_agent(error, error_kind, message, is_async) -> None:
    if is_async:

        @tool
        async def breaks() -> str:
            raise error
    else:

        @tool
        def breaks() -> str:
            raise error

    result = run(breaks)
    assert result.error is not None and result.error.kind == error_kind and not result.error.agents_fault
    assert message in result.content and "Traceback" not in result.content


def test_a_plain_tool_does_not_block_the_loop() -> None:
    here, release = threading.Event(), threading.Event()

    @tool
    def waits() -> str:
        here.set()
        release.wait(5)
        return "done"

    async def main() -> list[str]:
        call = asyncio.ensure_future(waits.call({}))
        while not here.is_set():
            await asyncio.sleep(0)
        release.set()  # only a loop that runs on gets here
        return [(await call).content]

    assert asyncio.run(main()) == ["done"]


def test_a_hanging_tool_times_out_and_its_late_answer_is_thrown_away() -> None:
    release, ended = threading.Event(), threading.Event()
    answers = iter(("late", "in time"))

    @tool(timeout_s=0.05)
    def slow() -> str:
        answer = next(answers)
        if answer == "late":
            release.wait(5)
            ended.set()
        return answer

    async def main() -> list[ToolResult]:
        first = await slow.call({})
        release.set()
        while not ended.is_set():
            await asyncio.sleep(0)
        return [first, await slow.call({})]

    first, second = asyncio.run(main())
    assert first.error is not None and first.error.kind == "timeout"
    assert first.content == "Error: slow did not answer within 0.05 s" and first.duration_s >= 0.05
    assert (second.content, second.error) == ("in time", None)


def test_an_async_tool_that_refuses_to_be_cancelled_does_not_hold_the_episode() -> None:
    refused: list[bool] = []

    @tool(timeout_s=0.05)
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            refused.append(True)
            await asyncio.sleep(0)
        return "late"

    result = run(stubborn)
    assert result.error is not None and result.error.kind == "timeout"
    assert refused == [True]


def test_a_tool_that_cancels_itself_has_raised() -> None:
    @tool
    async def quits() -> str:
        raise asyncio.CancelledError

    result = run(quits)
    assert result.error is not None and result.error.kind == "raised"


def test_a_hanging_thread_keeps_its_slot_and_later_calls_are_told() -> None:
    release = threading.Event()

    @tool(timeout_s=0.05, max_concurrency=1, max_wait_s=0.05)
    def stuck() -> str:
        release.wait(5)
        return "late"

    async def main() -> list[str]:
        kinds = []
        for _ in range(2):
            result = await stuck.call({})
            assert result.error is not None
            kinds.append(result.error.kind)
        release.set()
        ended = await stuck.call({})
        while ended.error:  # the thread's slot comes free when it ends, from outside the loop
            ended = await stuck.call({})
        return [*kinds, ended.content]

    assert asyncio.run(main()) == ["timeout", "busy", "late"]


def test_the_limit_holds_over_event_loops_and_first_come_is_first_served() -> None:
    running, most, order = 0, 0, []

    @tool(max_concurrency=2)
    async def counted(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        order.append(number)
        await asyncio.sleep(0)
        running -= 1
        return number

    async def many() -> list[str]:
        return [r.content for r in await asyncio.gather(*(counted.call({"number": i}) for i in range(9)))]

    for _ in range(2):
        assert asyncio.run(many()) == [str(i) for i in range(9)]
    assert most == 2 and order == [*range(9), *range(9)]


def test_slots_survive_a_cancelled_waiter_and_a_closed_loop() -> None:
    slots = FairLimiter(1)

    async def waiter_leaves() -> None:
        assert await slots.acquire(1)
        waiting = asyncio.ensure_future(slots.acquire(5))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    asyncio.run(waiter_leaves())
    slots.release()  # the one who waited is gone, and its loop closed

    async def again() -> bool:
        return await slots.acquire(0)

    assert asyncio.run(again())
    with pytest.raises(ValueError, match="at least 1"):
        FairLimiter(0)


def test_cancelling_the_step_cancels_the_call() -> None:
    cancelled: list[bool] = []

    @tool
    async def waits() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return ""

    async def main() -> None:
        call = asyncio.ensure_future(waits.call({}))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await asyncio.sleep(0)

    asyncio.run(main())
    assert cancelled == [True]


def test_a_hanging_tool_does_not_keep_the_process_alive(tmp_path) -> None:
    import subprocess

    program = tmp_path / "hangs.py"
    program.write_text(
        "import asyncio, threading\n"
        "from reagent.env.tool import tool\n"
        "@tool(timeout_s=0.05)\n"
        "def hangs() -> str:\n"
        '    """Hang."""\n'
        "    threading.Event().wait()\n"
        "    return ''\n"
        "print(asyncio.run(hangs.call({})).content)\n"
    )
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(program)], env={"PYTHONPATH": ":".join(sys.path)}, capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip
    assert done.stdout.strip() == "Error: hangs did not answer within 0.05 s", done.stderr
    assert time.monotonic() - began < 60


def test_deep_arguments_are_an_error_not_a_crash() -> None:
    deep = json.loads("[" * 500 + "]" * 500)
    result = asyncio.run(power.call({"base": deep}))
    assert result.error is not None and result.error.kind == "bad_arguments"


def test_a_tool_that_somebody_else_describes() -> None:
    async def ask(**arguments: object) -> str:
        return f"asked with {arguments}"

    def check(arguments: Mapping[str, object]) -> dict[str, object]:
        if "self" not in arguments:
            raise ToolError("no self", "bad_arguments")
        return dict(arguments)

    schema = {"type": "function", "function": {"name": "ask", "description": "Ask.", "parameters": {"type": "object"}}}
    described = Tool.described(schema, ask, check, max_result_chars=30)
    assert (described.name, described.description, described.schema) == ("ask", "Ask.", schema)
    assert run(described, self=1).content == "asked with {'self': 1}"
    refused = run(described, other=1)
    assert refused.content == "Error: no self" and refused.error is not None and refused.error.kind == "bad_arguments"


def test_an_error_says_how_much_of_it_is_shown() -> None:
    class Wordy(ToolError):
        shown_chars = 1000

    @tool
    def fail(wordy: bool) -> str:
        raise (Wordy if wordy else ToolError)("x" * 5000)

    assert len(run(fail, wordy=False).content) == len("Error: ") + 300
    assert len(run(fail, wordy=True).content) == len("Error: ") + 1000
