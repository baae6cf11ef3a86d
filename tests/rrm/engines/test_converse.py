"""Engines that can only `complete` are asked by as many threads as they say."""

import threading

import pytest

from rrm.engines.base import Reply, Request, SamplingParams, converse
from rrm.errors import EngineError

BARRIER = threading.Barrier(3, timeout=10)


class Together:
    """Answers once three are asked at the same time."""

    concurrency = 3

    def complete(self, messages: list[dict[str, str]], params: SamplingParams, key: str = "") -> Reply:
        if key == "refused":
            raise EngineError("no key", "refused")
        BARRIER.wait()
        if key == "2":
            raise EngineError("failed")
        return Reply(key, "eos")


def test_rows_are_asked_at_once_and_each_with_what_follows_it() -> None:
    heard: list[str] = []

    def answered(request: Request, reply: Reply | EngineError) -> Request | None:
        heard.append(reply.text if isinstance(reply, Reply) else str(reply))
        return None if "/" in request.key else Request([], f"{request.key}/next")

    converse(Together(), (Request([], str(i)) for i in range(3)), SamplingParams(), answered)
    assert sorted(heard[:3]) == ["0", "1", "failed"] and sorted(heard[3:]) == ["0/next", "1/next", "2/next"]


def test_a_refused_key_ends_it_at_once() -> None:
    begun: list[int] = []
    rows = (Request([], "refused" if begun.append(i) is None else "") for i in range(1000))
    with pytest.raises(EngineError, check=lambda error: error.kind == "refused"):
        converse(Together(), rows, SamplingParams(), lambda request, reply: None)
    assert len(begun) <= 10
