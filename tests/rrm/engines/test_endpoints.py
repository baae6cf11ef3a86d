"""Several addresses of one model: shared by load, left out while dead, asked less where they say it is too much."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import pytest
from openai_server import Answer, complete_many, completion, failure, serve

from rrm.engines import endpoints as module
from rrm.engines.base import Reply, SamplingParams
from rrm.engines.endpoints import OUT_S, Endpoints, room_for
from rrm.engines.http_errors import Retry
from rrm.engines.openai import OpenAIEngine

PARAMS = SamplingParams(max_new_tokens=16, seed=5, timeout_s=20)
GONE = Retry("cannot connect", "", unconnected=True)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def two(concurrency: int = 8) -> tuple[Endpoints, Clock]:
    clock = Clock()
    return Endpoints(["http://a/v1", "http://b/v1"], concurrency, clock), clock


def test_the_one_with_the_least_in_flight_comes_next_and_equals_take_turns() -> None:
    both, _ = two()
    a, b = both.all
    turns = [both.free(), both.free(), both.free()]
    assert turns[0] is not turns[1] and turns[0] is turns[2]
    a.in_flight = 2
    assert both.free(before=a) is b  # what it has read is not worth waiting for
    b.in_flight = 2
    assert both.free(before=a) is a and both.free(before=b) is b


def test_one_that_is_gone_is_left_out_and_asked_again_later_with_one_request(caplog: pytest.LogCaptureFixture) -> None:
    both, clock = two()
    a, b = both.all
    with caplog.at_level(logging.WARNING):
        assert both.failed(a, GONE, 0, 1.0) and both.failed(a, GONE, 0, 1.0)
    assert caplog.text.count("http://a/v1 is left out") == 1
    assert [both.free() for _ in range(3)] == [b, b, b] and both.wait_s() == pytest.approx(OUT_S)
    clock.now += OUT_S + 0.1
    b.in_flight = 3
    assert both.free() is a
    a.in_flight = 1
    assert both.free() is b  # until it answers, one at a time
    assert both.failed(a, GONE, 0, 1.0)
    a.in_flight = 0
    clock.now += OUT_S + 0.1
    assert both.free() is b  # longer, the second time
    clock.now += OUT_S
    assert both.free() is a
    both.answered(a)
    assert (a.out_until, a.strikes, a.out_s) == (0.0, 0, OUT_S)
    both.failed(a, GONE, 0, 1.0)
    both.failed(b, GONE, 0, 1.0)
    assert both.free() is not None  # with nobody left, all are tried


def test_failures_that_are_none_of_the_address_need_three_in_a_row() -> None:
    both, _ = two()
    a, b = both.all
    error = Retry("HTTP 500", "")
    both.failed(a, error, 0, 1.0)
    both.failed(a, error, 0, 1.0)
    both.answered(a)
    both.failed(a, error, 0, 1.0)
    both.failed(a, error, 0, 1.0)
    assert a.out_until == 0.0
    both.failed(a, error, 0, 1.0)
    assert a.out_until > 0.0 and both.free() is b


def test_too_much_at_once_is_halved_once_a_burst_and_raised_again() -> None:
    one = Endpoints(["http://a/v1"], 64, Clock())
    (a,) = one.all
    much = Retry("HTTP 429", "", 2.0, throttled=True)
    assert not one.failed(a, much, a.bursts, 2.0)
    assert not one.failed(a, much, 0, 2.0)  # of the same burst
    assert a.limit == 32.0 and one.free() is None and one.wait_s() == pytest.approx(2.0)
    one.clock.now += 2.1  # pyright: ignore
    a.in_flight = 32
    assert one.free() is None and one.wait_s() is None
    a.in_flight = 31
    assert one.free() is a
    for _ in range(10_000):
        one.answered(a)
    assert a.limit == 64.0
    for _ in range(20):
        one.failed(a, much, a.bursts, 0.0)
    assert a.limit == 1.0


@pytest.mark.parametrize(("asked", "seconds"), [(0.0, 70), (1.0, 80), (10.0, None)])
def test_a_minute_of_nothing_but_too_much_is_enough(asked: float, seconds: int | None) -> None:
    """A server that said nothing else was asked for 138 s; pauses that it asks for itself are kept, and do not count."""
    clock = Clock()
    one = Endpoints(["http://a/v1"], 8, clock)
    (a,) = one.all
    much, began = Retry("HTTP 429", "", asked, throttled=True), clock.now

    def throttled(times: int) -> int | None:
        """Seconds until it is closed, where it is asked every ten."""
        for _ in range(times):
            one.failed(a, much, a.bursts, asked)
            if why := one.why_closed(None, 0):
                assert "s it answered nothing else: what was judged is kept; run the same command" in why
                return round(clock.now - began)
            clock.now += 10
        return None

    assert throttled(5) is None
    one.answered(a)
    began = clock.now
    assert throttled(5) is None
    one.failed(a, GONE, a.bursts, 0.0)
    a.in_flight = 2
    assert throttled(40) is None  # one of them may be a long reply
    a.in_flight = 1
    one.begin()
    began = clock.now
    assert throttled(40) == seconds


def test_a_dead_server_costs_nothing_but_tries() -> None:
    with serve(lambda n, body: Answer()) as closed:
        dead = closed.url
    with serve(lambda n, body: completion("fine")) as live:
        engine = OpenAIEngine(f"{dead},{live.url}", "m", concurrency=16, backoff_s=0.001)
        rows = [[{"role": "user", "content": str(i)}] for i in range(60)]
        found = complete_many(engine, rows, PARAMS, [str(i) for i in range(60)])
        assert all(isinstance(r, Reply) for r in found) and len(live.requests) == 60
        assert engine.endpoints.all[0].out_until > 0


def test_an_error_names_the_address_it_came_from() -> None:
    with serve(lambda n, body: failure(404, "no such model")) as one, serve(lambda n, body: completion("x")) as other:
        engine = OpenAIEngine(f"{one.url},{other.url}", "m", concurrency=1)
        found = complete_many(engine, [[{"role": "user", "content": str(i)}] for i in range(2)], PARAMS, ["a", "b"])
    (error,) = [reply for reply in found if not isinstance(reply, Reply)]
    assert one.url in str(error) and other.url not in str(error)


def test_two_servers_share_the_work() -> None:
    met = threading.Barrier(2, timeout=10)
    first = threading.Semaphore(2)

    def answer(n: int, body: dict[str, Any]) -> Answer:
        if first.acquire(blocking=False):
            met.wait()  # one request at each
        return completion("x")

    with serve(answer) as a, serve(answer) as b:
        engine = OpenAIEngine(f"{a.url},{b.url}", "m", concurrency=2)
        complete_many(engine, [[{"role": "user", "content": str(i)}] for i in range(20)], PARAMS, ["k"] * 20)
    assert len(a.requests) + len(b.requests) == 20 and min(len(a.requests), len(b.requests)) >= 4


@pytest.mark.parametrize("wait", [{"retry_after": "0.05"}, {"retry_after_ms": "50"}])
def test_a_server_that_takes_four_at_once_is_asked_by_sixty_four(wait: dict[str, str]) -> None:
    active, lock = [0], threading.Lock()

    def answer(n: int, body: dict[str, Any]) -> Answer:
        with lock:
            active[0] += 1
            busy = active[0] > 4
        try:
            return failure(429, "slow down", **wait) if busy else completion("fine")
        finally:
            with lock:
                active[0] -= 1

    with serve(answer) as server:
        engine = OpenAIEngine(server.url, "m", concurrency=64, backoff_s=0.001)
        rows = [[{"role": "user", "content": str(i)}] for i in range(100)]
        found = complete_many(engine, rows, PARAMS, [str(i) for i in range(100)])
    assert all(isinstance(reply, Reply) and reply.text == "fine" for reply in found)


def test_files_are_made_room_for(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    resource = pytest.importorskip("resource")
    limits = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda which, pair: limits.append(pair))
    assert room_for(500) == 500 and limits == [(1024, 4096)]
    assert room_for(1000) == 1000 and limits[-1] == (1000 + module.SPARE_FILES, 4096)
    assert room_for(5000) == 4096 - module.SPARE_FILES and "ulimit -n" in caplog.text


def test_threads_of_one_engine_do_not_wait_for_each_other_for_ever() -> None:
    taken = threading.Barrier(2)

    def answer(n: int, body: dict[str, Any]) -> Answer:
        if n < 2:
            taken.wait(10)
        time.sleep(0.3)
        return completion("fine")

    replies: list[Any] = []

    def ask() -> None:
        replies.extend(complete_many(engine, [[{"role": "user", "content": "x"}]] * 2, PARAMS, ["a", "b"]))

    with serve(answer) as server:
        engine = OpenAIEngine(server.url, "m", "key", concurrency=2)
        threads = [threading.Thread(target=ask, daemon=True) for _ in range(2)]
        threads[0].start()
        while len(server.requests) < 2:
            time.sleep(0.01)
        threads[1].start()
        for thread in threads:
            thread.join(10)
    assert len(replies) == 4 and server.most_at_once == 2
