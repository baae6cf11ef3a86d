"""A large body keeps nobody waiting while it is read: not on the loop's thread, and not in one piece."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from serving import PATIENCE_S, Served, run, serving, until

from rrm.data.trajectory import Trajectory
from rrm.serve import app as bodies
from rrm.serve.app import SMALL
from rrm.serve.schemas import RankRequest, ScoreRequest

LARGE = {"transcripts": [run("a", "score 0.5") | {"meta": {"text": "x" * SMALL}}]}


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as found:
        yield found


class Parsing:
    """The parser, which begins with a large body only when it is let go."""

    def __init__(self) -> None:
        self.begun, self.goes_on = threading.Event(), threading.Event()
        self.threads: list[str] = []

    def __call__(self, body: bytes, real: Callable[[bytes], Any] = bodies.loads) -> Any:
        self.threads.append(threading.current_thread().name)
        if len(body) > SMALL:
            self.begun.set()
            assert self.goes_on.wait(PATIENCE_S)
        return real(body)


@pytest.fixture
def parsing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Parsing]:
    found = Parsing()
    monkeypatch.setattr(bodies, "loads", found)
    yield found
    found.goes_on.set()


def requests(found: Served, status: int) -> int:
    """How many to score were answered so."""
    name = f'rrm_requests_total{{path="/v1/score",status="{status}"}}'
    told = found.ask("/metrics")[1].splitlines()
    return next((int(float(line.rsplit(" ", 1)[1])) for line in told if line.startswith(name)), 0)


def test_others_are_answered_while_a_large_body_is_parsed(served: Served, parsing: Parsing) -> None:
    small = {"transcripts": [run("b", "score 0.25")]}
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(served.ask, "/v1/score", LARGE)
        assert parsing.begun.wait(PATIENCE_S)
        assert served.ask("/healthz")[0] == 200
        assert served.ask("/v1/score", small)[1]["rows"][0]["score"] == 0.25
        assert not asked.done()
        parsing.goes_on.set()
        status, said = asked.result()
    assert status == 200 and said["rows"][0]["score"] == 0.5
    large, little = parsing.threads
    assert large != served.thread.name == little


def test_a_stop_answers_a_body_that_is_being_parsed(served: Served, parsing: Parsing) -> None:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(served.ask, "/v1/score", LARGE)
        assert parsing.begun.wait(PATIENCE_S)
        served.stop()
        parsing.goes_on.set()
        status, said = asked.result()
    assert status == 200 and said["rows"][0]["score"] == 0.5


def test_who_goes_while_its_body_is_parsed_leaves_nothing_waiting(served: Served, parsing: Parsing) -> None:
    slow = [run(str(n), "WAIT 900 score 0.5") | {"meta": {"text": "x" * 4000}} for n in range(40)]
    with served.sent({"transcripts": slow}):
        assert parsing.begun.wait(PATIENCE_S)
    parsing.goes_on.set()
    until(lambda: requests(served, 499))
    assert served.pool.load.waiting == 0 and requests(served, 200) == 0


@pytest.mark.parametrize(
    ("body", "said"), [(b"[" * 2 * SMALL, "not JSON"), (b'{"a": "\xff"}' + b" " * SMALL, "not JSON")]
)
def test_what_is_no_json_is_told_as_of_a_small_body(served: Served, body: bytes, said: str) -> None:
    status, answer = served.ask("/v1/score", raw=body)
    assert status == 422 and said in answer["error"]["message"] and answer["error"]["at"] == "body"


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of those that write runs."""
    real, found = Trajectory.model_dump, set[str]()

    def noted(self: Trajectory, **how: Any) -> Any:
        found.add(threading.current_thread().name)
        return real(self, **how)

    monkeypatch.setattr(Trajectory, "model_dump", noted)
    return found


def test_items_are_written_before_they_reach_the_loop(served: Served, threads: set[str]) -> None:
    assert served.ask("/v1/score", LARGE)[0] == 200  # a small one is written where it is read
    assert threads and served.thread.name not in threads


def test_what_a_header_says_of_a_bodys_size_is_not_believed(served: Served, threads: set[str]) -> None:
    """Where a body comes in chunks its length is none: it was written on the loop's thread."""
    data = json.dumps(LARGE).encode()
    head = served.head("Connection: close", "Content-Length: 9", "Transfer-Encoding: chunked")
    with served.connect() as raw:
        raw.sendall(head + b"%x\r\n" % len(data) + data + b"\r\n0\r\n\r\n")
        assert raw.recv(15).startswith(b"HTTP/1.1 200")
    assert threads and served.thread.name not in threads


def calls_of(work: Callable[[], Any]) -> tuple[Any, int]:
    """What it returns, and how many functions of Python it called: in each the interpreter may turn to another thread."""
    calls = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        found = work()
    finally:
        sys.setprofile(None)
    return found, calls


def test_reading_and_writing_let_others_have_their_turn_all_along() -> None:
    many = run("a", "score 0.5") | {"messages": [{"role": "assistant", "content": str(n)} for n in range(500)]}
    body = json.dumps(many).encode()
    found, calls = calls_of(lambda: bodies.loads(body))
    assert found == many and calls >= 500
    written, calls = calls_of(lambda: bodies.dumps(Trajectory.model_validate(many)))
    assert calls >= 500 and json.loads(written)["messages"][499]["content"] == "499"


HERE = {"id": "a", "task": "t", "messages": [{"role": "user", "content": "q"}]}


@pytest.mark.parametrize(
    ("kind", "body", "place"),
    [
        (RankRequest, {"groups": [1] * 99}, ("groups", 0)),
        (ScoreRequest, {"transcripts": [1], **{f"x{n}": 1 for n in range(99)}}, ("x0",)),
        (Trajectory, HERE | {"messages": [1] * 99}, ("messages", 0)),
        (Trajectory, HERE | {"tools": [1] * 99}, ("tools", 0)),
        (Trajectory, HERE | {"messages": [{"role": "user", "content": [1] * 99}]}, ("messages", 0, "content", "str")),
        (Trajectory, HERE | {"messages": [{"role": "user", "tool_calls": [1] * 99}]}, ("messages", 0, "tool_calls", 0)),
    ],
)
def test_of_many_mistakes_the_first_is_found_alone(kind: type[BaseModel], body: Any, place: tuple[Any, ...]) -> None:
    """An error for each of a hundred thousand took seconds, with the loop held, and hundreds of megabytes."""
    with pytest.raises(ValidationError) as raised:
        kind.model_validate(body)
    assert raised.value.error_count() <= 2 and raised.value.errors()[0]["loc"] == place


def test_a_key_that_is_not_there_is_named_among_many(served: Served) -> None:
    status, said = served.ask("/v1/score", LARGE | {f"x{n}": 1 for n in range(9)})
    assert status == 422 and said["error"] == {"message": "Extra inputs are not permitted", "at": "x0"}


def test_a_run_is_written_as_it_is() -> None:
    call = {"name": "search", "arguments": {"q": "café \ud800"}, "id": "c", "more": [1]}
    told = [
        {"role": "user", "content": [{"type": "text", "text": 'a "quoted"\n\u2028 line'}]},
        {"role": "assistant", "content": None, "tool_calls": [call], "logprobs": [-0.5, float("inf")]},
        {"role": "tool", "content": "]}, {", "tool_call_id": "c", "timestamp": 3.5},
    ]
    whole = Trajectory.model_validate({"id": "x", "task": "t", "messages": told, "meta": {"k": {"messages": []}}})
    for one in (whole, whole.model_copy(update={"messages": []})):
        assert json.loads(bodies.dumps(one)) == json.loads(json.dumps(one.model_dump(mode="json")))
        assert bodies.dumps(one).isascii()
