"""Servers that answer what no server should: a run goes on, stops with a word, or fails a row, and never dies of it."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import pytest
from openai_server import Answer, complete_many, completion, failure, serve

from rrm.data.blocks import contents, parse_judgement
from rrm.engines.base import Reply, SamplingParams
from rrm.engines.endpoints import Endpoints
from rrm.engines.http_errors import Retry
from rrm.engines.openai import OpenAIEngine
from rrm.engines.replies import MAX_WAIT_S, MOST_CHARS
from rrm.errors import EngineError
from rrm.judge.chat import read_reply
from rrm.judge.score_text import outside_think

PARAMS = SamplingParams(max_new_tokens=16, seed=5, timeout_s=20, top_logprobs=3)
ASK = [{"role": "user", "content": "q"}]
TOKENS = ["<score>", "0", ".", "5", "</score>"]


def logprobs(value: Any) -> dict[str, Any]:
    """All tokens with this log-probability."""
    one = [{"token": t, "logprob": value, "top_logprobs": [{"token": t, "logprob": value}]} for t in TOKENS]
    return {"content": one}


def engine(url: str, **options: Any) -> OpenAIEngine:
    return OpenAIEngine(url, "m", **{"backoff_s": 0.001, "max_retries": 1, **options})


@pytest.mark.parametrize("value", [float("nan"), 5000.0, float("inf"), 0.5, None, "-0.1", 10**400])
def test_what_is_no_log_probability_is_left_out_and_the_text_counts(value: Any) -> None:
    with serve(lambda n, body: completion("<score>0.5</score>", logprobs=logprobs(value))) as server:
        reply = engine(server.url).complete(ASK, PARAMS)
    judgement = read_reply(reply)
    assert (judgement.status, judgement.raw_score, judgement.off_grid_mass) == ("scored", 0.5, None)
    assert len(server.requests) == 1


def test_one_that_rounding_made_a_little_more_than_certain_is_kept() -> None:
    with serve(lambda n, body: completion("<score>0.5</score>", logprobs=logprobs(1e-7))) as server:
        judgement = read_reply(engine(server.url).complete(ASK, PARAMS))
    assert judgement.raw_score == pytest.approx(0.5) and judgement.off_grid_mass == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(body=b"<html>come back later</html>"),
        completion(0.7),  # pyright: ignore[reportArgumentType]
        Answer(body=b"[" * 100_000),
        Answer(body=b'"' + b"\xff" * 10 + b'"'),
    ],
)
def test_what_is_no_completion_is_an_error_of_its_row(answer: Answer) -> None:
    with serve(lambda n, body: answer) as server, pytest.raises(EngineError, match="not a chat completion"):
        engine(server.url).complete(ASK, PARAMS)
    assert len(server.requests) == 2


def test_a_reply_without_end_is_cut_off_and_says_so() -> None:
    text = "<think>" * 200_000 + "<score>0.5</score>"
    with serve(lambda n, body: completion(text)) as server:
        reply = engine(server.url).complete(ASK, PARAMS)
    assert (len(reply.text), reply.stop_reason, len(server.requests)) == (MOST_CHARS, "length", 1)
    assert read_reply(reply).status == "truncated"


def test_a_server_that_closes_for_a_day_ends_the_run_at_once() -> None:
    said = r"asks to wait 86,\d{3} s: what was judged is kept; run the same command"
    closes = serve(lambda n, body: failure(429, "quota of today is used", retry_after="86400"))
    with closes as server, pytest.raises(EngineError, match=said, check=lambda error: error.kind == "refused"):
        complete_many(engine(server.url, concurrency=4), [ASK] * 20, PARAMS, [str(i) for i in range(20)])
    assert len(server.requests) <= 4


def test_where_one_of_two_closes_for_a_day_the_other_does_the_work(caplog: pytest.LogCaptureFixture) -> None:
    closes = serve(lambda n, body: failure(503, "maintenance", retry_after="86400"))
    with closes as closed, serve(lambda n, body: completion("fine")) as open_:
        both = engine(f"{closed.url},{open_.url}", concurrency=4, max_retries=3)
        found = complete_many(both, [ASK] * 20, PARAMS, [str(i) for i in range(20)])
    assert all(isinstance(reply, Reply) for reply in found)
    assert len(open_.requests) == 20 and len(closed.requests) <= 4
    assert caplog.text.count("asks to wait 86400 s") == 1


def test_a_long_pause_is_said_once_and_a_short_one_is_not(caplog: pytest.LogCaptureFixture) -> None:
    one = Endpoints(["http://me:secret@a/v1?key=secret"], 8, lambda: 100.0)
    with caplog.at_level(logging.WARNING):
        one.failed(one.all[0], Retry("", "", 5.0, throttled=True), 0, 5.0)
        assert not caplog.text and one.rest_s() == 5.0
        one.all[0].rests_until = 0.0
        for _ in range(3):
            one.failed(one.all[0], Retry("", "", 60.0, throttled=True), 0, 60.0)
    assert caplog.text.count("asks to wait 60 s") == 1 and "secret" not in caplog.text
    assert one.rest_s() == 60.0 < MAX_WAIT_S


@pytest.mark.parametrize("url", ["http://h:99999/v1", "http://h:port/v1", "http://[::1/v1", "http://h:0/v1", "h/v1"])
def test_what_is_no_address_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(EngineError, match="is not a server's address"):
        engine(url)


@pytest.mark.parametrize(
    "text", ["<score>" + " " * 20_000, "<score>" + " 1" * 10_000, "<think>" * 100_000 + "</think>"]
)
def test_a_model_that_lost_its_way_is_read_at_once(text: str) -> None:
    assert read_reply(Reply(text=text, stop_reason="length")).status == "truncated"
    assert parse_judgement(text).score is None


def test_blocks_are_read_as_they_were() -> None:
    text = "<think>a<think>b</think>c</think> <critique> x </critique><score>\n0.5 </score><score>y</score>"
    said = parse_judgement(text)
    assert (said.trace, said.critique, said.score) == ("a<think>b", "x", None)
    assert said.problem == "score 'y' is not a number"
    assert [*contents("</a><a>1</a><a>2<a>3</a><a>", "a")] == [(7, 8), (15, 20)]
    assert outside_think("a<think>b</think>c<think>d") == "ac"


def test_a_server_that_only_says_that_it_is_too_much_ends_the_run() -> None:
    said = r"HTTP 429: .*slow down.*; in 4 tries it answered nothing else: what was judged is kept"
    throttles = serve(lambda n, body: failure(429, "slow down"))
    with throttles as server, pytest.raises(EngineError, match=said, check=lambda error: error.kind == "refused"):
        asked = engine(server.url, concurrency=4, max_retries=1)
        complete_many(asked, [ASK] * 1000, PARAMS, [str(i) for i in range(1000)])
    assert len(server.requests) <= 4 * 4


def test_a_server_that_says_so_for_a_minute_ends_the_run_whatever_tries_are_left() -> None:
    with serve(lambda n, body: failure(429, "slow down")) as server:
        one, times = engine(server.url, concurrency=1, max_retries=1000), itertools.count(0, 10)
        one.endpoints.clock = lambda: next(times)
        said = r"in \d+ s it answered nothing else: .*; run the same command .* --concurrency"
        with pytest.raises(EngineError, match=said, check=lambda error: error.kind == "refused"):
            one.complete(ASK, PARAMS)
    assert len(server.requests) <= 7


def test_a_row_that_is_throttled_while_others_are_answered_fails_alone() -> None:
    def answer(n: int, body: dict[str, Any]) -> Answer:
        return failure(429, "slow down") if "poor" in str(body["messages"]) else completion("fine")

    asks = [[{"role": "user", "content": "poor" if i == 0 else "rich"}] for i in range(40)]
    with serve(answer) as server:
        one = engine(server.url, concurrency=2, max_retries=1)
        found = complete_many(one, asks, PARAMS, [str(i) for i in range(40)])
    assert isinstance(found[0], EngineError) and all(isinstance(reply, Reply) for reply in found[1:])
