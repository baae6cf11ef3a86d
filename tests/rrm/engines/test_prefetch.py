"""What is read ahead in a thread: in order, no farther than said, with its errors, and never waited for at the end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from openai_server import completion, serve

from rrm.engines.async_runner import Feed
from rrm.engines.base import Request, SamplingParams
from rrm.engines.openai import OpenAIEngine


async def drawn(source: Any, ahead: int = 3) -> list[int]:
    found: list[int] = []
    with Feed(source, ahead) as feed:
        while (item := await feed.next()) is not None:
            found.append(item)
    return found


def test_items_come_in_order_from_sequences_and_generators() -> None:
    assert asyncio.run(drawn([1, 2, 3])) == [1, 2, 3] == asyncio.run(drawn(i for i in (1, 2, 3)))
    assert asyncio.run(drawn(iter(range(1, 500)))) == list(range(1, 500)) and asyncio.run(drawn(iter(()))) == []


def test_no_more_is_read_than_said() -> None:
    read: list[int] = []

    def source() -> Iterator[int]:
        for i in range(1, 100):
            read.append(i)
            yield i

    async def some() -> int:
        with Feed(source(), ahead=4) as feed:
            for _ in range(10):
                await feed.next()
            for _ in range(100):
                await asyncio.sleep(0)
            return len(read)

    assert 10 <= asyncio.run(some()) <= 15


def test_what_reading_raises_is_raised_where_it_is_awaited() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise ValueError("line 2 is broken")

    with pytest.raises(ValueError, match="line 2 is broken"):
        asyncio.run(drawn(source()))


def test_a_slow_input_delays_no_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe that gives its second line after the first one's reply: nobody would ever get on if the loop waited for it."""
    answered = threading.Event()

    def source() -> Iterator[Request]:
        yield Request([{"role": "user", "content": "1"}], "1")
        assert answered.wait(10)
        yield Request([{"role": "user", "content": "2"}], "2")

    heard: list[str] = []

    def hear(request: Request, reply: Any) -> None:
        heard.append(request.key)
        answered.set()

    with serve(lambda n, body: completion("x")) as server:
        OpenAIEngine(server.url, "m").converse(source(), SamplingParams(), hear)
    assert heard == ["1", "2"]


def test_an_end_does_not_wait_for_an_input_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rrm.engines.async_runner.FEED_CLOSE_S", 0.01)
    never = threading.Event()

    def source() -> Iterator[int]:
        yield 1
        never.wait(20)
        yield 2

    async def one() -> Any:
        with Feed(source(), ahead=2) as feed:
            return await feed.next()

    started = time.monotonic()
    assert asyncio.run(one()) == 1 and time.monotonic() - started < 5
    never.set()
