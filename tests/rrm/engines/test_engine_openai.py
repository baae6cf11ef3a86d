"""The openai engine against a real local server: order, concurrency, retries, seeds, keys; and the scripted engines."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest
from openai_server import Answer, Server, complete_many, completion, failure, serve

from rrm.data.seeds import derive_seed
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.base import Completion, Reply, SamplingParams, Span
from rrm.engines.openai import OpenAIEngine
from rrm.engines.replies import MAX_WAIT_S, NEVER_S, parse_reply, retry_after_s
from rrm.engines.scripted import ScriptedChatEngine, ScriptedEngine
from rrm.errors import ConfigError, EngineError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.chat import read_reply

PARAMS = SamplingParams(max_new_tokens=16, temperature=0.7, seed=5, timeout_s=20)


def ask(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def engine(server: Server, **options: Any) -> OpenAIEngine:
    return OpenAIEngine(server.url, "m", **{"backoff_s": 0.001, **options})


def in_turn(*answers: Answer) -> Callable[[int, dict[str, Any]], Answer]:
    """The answers one after the other, the last one for ever."""
    return lambda n, body: answers[min(n, len(answers) - 1)]


def test_results_stand_by_row_whatever_the_order_of_completion() -> None:
    last_in = threading.Event()

    def answer(n: int, body: dict[str, Any]) -> Answer:
        text = body["messages"][0]["content"]
        if text == "row 3":
            last_in.set()
        elif text == "row 0":
            last_in.wait(10)  # row 0 ends after row 3 began
        return completion(f"reply to {text}")

    order: list[int] = []
    with serve(answer) as server:
        asks, asked = [ask(f"row {i}") for i in range(4)], engine(server, concurrency=4)
        replies = complete_many(asked, asks, PARAMS, list("abcd"), lambda i, reply: order.append(i))
    assert [r.text for r in replies if isinstance(r, Reply)] == [f"reply to row {i}" for i in range(4)]
    assert sorted(order) == [0, 1, 2, 3]


def test_concurrency_is_bounded() -> None:
    both, first = threading.Barrier(2, timeout=10), threading.Semaphore(2)

    def answer(n: int, body: dict[str, Any]) -> Answer:
        if first.acquire(blocking=False):
            both.wait()  # two requests do meet
        return completion("x")

    with serve(answer) as server:
        complete_many(engine(server, concurrency=2), [ask(str(i)) for i in range(12)], PARAMS, ["k"] * 12)
    assert server.most_at_once == 2 and len(server.requests) == 12


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
def test_each_retry_has_a_new_seed_derived_from_row_and_try(status: int) -> None:
    with serve(in_turn(failure(status), failure(status), completion("fine"))) as server:
        assert engine(server).complete(ask("q"), PARAMS, "row-7").text == "fine"
    expected = [derive_seed(5, "row-7", attempt) % 2**31 for attempt in range(3)]
    assert [r["seed"] for r in server.requests] == expected and len(set(expected)) == 3


@pytest.mark.parametrize(
    "bad",
    [Answer(body=b'{"choices": [{"mess'), Answer(body=b"<html>"), Answer(body=b'{"error": {"message": "busy"}}'),
     Answer(body=b'{"choices": []}'), Answer(body=b"[1]"), Answer(body=b'"\xff"'), Answer(body=b"[" * 50_000),
     completion(""), completion("  \n"), completion(None)],
)  # fmt: skip
def test_a_reply_that_is_none_is_asked_for_again(bad: Answer) -> None:
    with serve(in_turn(bad, completion("fine"))) as server:
        assert engine(server).complete(ask("q"), PARAMS).text == "fine"
    assert server.requests[0]["seed"] != server.requests[1]["seed"]


def test_tries_end_and_the_error_says_what_to_do() -> None:
    with serve(in_turn(failure(500, "out of memory"))) as server:
        with pytest.raises(EngineError) as caught:
            engine(server, max_retries=2).complete(ask("q"), PARAMS)
        assert len(server.requests) == 3
        for part in (server.url, "HTTP 500", "out of memory", "tried 3 times", "server's log"):
            assert part in str(caught.value)


@pytest.mark.parametrize(("status", "advice"), [(400, "context"), (401, "OPENAI_API_KEY"), (404, "base URL")])
def test_a_refusal_is_not_tried_again(status: int, advice: str) -> None:
    with serve(in_turn(failure(status))) as server:
        with pytest.raises(EngineError, match=f"HTTP {status}.*{advice}"):
            engine(server).complete(ask("q"), PARAMS)
        assert len(server.requests) == 1


def test_the_key_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret\n")
    caplog.set_level(logging.DEBUG)
    with serve(in_turn(failure(401, "Incorrect API key provided: sk-very-secret"))) as server:
        judge = engine(server)
        with pytest.raises(EngineError) as caught:
            judge.complete(ask("q"), PARAMS)
    assert server.keys == ["Bearer sk-very-secret"]
    assert "very-secret" not in str(caught.value) + caplog.text + repr(judge)
    monkeypatch.delenv("OPENAI_API_KEY")
    with serve(in_turn(completion("x"))) as server:
        engine(server).complete(ask("q"), PARAMS)
    assert server.keys == ["Bearer none"]
    with pytest.raises(EngineError) as caught:
        OpenAIEngine("http://user:hunter2@127.0.0.1:9/v1", "m", max_retries=0).complete(ask("q"), PARAMS)
    assert "hunter2" not in str(caught.value) and "cannot connect" in str(caught.value)


def test_a_slow_server_is_a_time_out() -> None:
    with serve(lambda n, body: Answer(hang=True)) as server:
        judge = engine(server, max_retries=1, timeout_s=0.2)
        with pytest.raises(EngineError, match=r"no reply within 0\.2 s \(tried 2 times\)"):
            judge.complete(ask("q"), PARAMS)


def test_a_judge_over_a_server_takes_its_options() -> None:
    run = Trajectory(id="a", task="t", messages=[Message(role="assistant", content="done")])
    with serve(lambda n, body: completion("<score>0.5</score>")) as server:
        spec = f"openai:{server.url}#m"
        judge = AgentRRM.from_pretrained(spec, max_new_tokens=2048, timeout_s=300, concurrency=2)
        assert [f.status for f in judge.judge([run], mode="score")] == ["scored"]
    (asked,) = server.requests
    assert 2048 in (asked.get("max_tokens"), asked.get("max_completion_tokens"))
    assert isinstance(judge.engine, OpenAIEngine) and (judge.engine.timeout_s, judge.engine.concurrency) == (300, 2)
    with serve(lambda n, body: Answer(hang=True)) as server:
        judge = AgentRRM.from_pretrained(f"openai:{server.url}#m", timeout_s=0.2)
        judge.engine.max_retries = 0  # pyright: ignore
        (found,) = judge.judge([run], mode="score")
    assert found.status == "judge_error" and "no reply within 0.2 s" in str(found.reason)
    with pytest.raises(ConfigError, match="are a server's; lab runs in this process"):
        AgentRRM.from_pretrained("lab", timeout_s=5)


def test_retry_after_is_honoured() -> None:
    assert retry_after_s({"retry-after": "7"}) == 7.0
    assert retry_after_s({"retry-after-ms": "250", "retry-after": "7"}) == 0.25
    assert retry_after_s({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, now=1445412480.0 - 90) == 90.0
    assert retry_after_s({"retry-after": "86400"}) == 86400.0 > MAX_WAIT_S
    assert retry_after_s({"retry-after": "9" * 400}) == NEVER_S == retry_after_s({"retry-after-ms": "1e999"})
    assert [retry_after_s(h) for h in ({"retry-after": "soon"}, {}, {"retry-after-ms": "nan"})] == [0.0] * 3


def chosen(token: str, **alternatives: float) -> dict[str, Any]:
    top = [{"token": t, "logprob": math.log(p)} for t, p in alternatives.items()]
    return {"token": token, "logprob": math.log(0.5), "top_logprobs": top}


def test_log_probabilities_are_asked_for_and_do_without_where_refused() -> None:
    asking = SamplingParams(seed=1, top_logprobs=3)
    with serve(in_turn(completion("a", logprobs={"content": [chosen("a", b=0.25)]}))) as server:
        reply = engine(server).complete(ask("q"), asking)
    assert (server.requests[0]["logprobs"], server.requests[0]["top_logprobs"]) == (True, 3)
    assert reply.tokens == ["a"] and reply.top_logprobs == [{"b": math.log(0.25), "a": math.log(0.5)}]

    def refuses(n: int, body: dict[str, Any]) -> Answer:
        return failure(400, "logprobs unsupported") if "logprobs" in body else completion("fine")

    with serve(refuses) as server:
        judge = engine(server)
        assert [judge.complete(ask("q"), asking).top_logprobs for _ in range(2)] == [None, None]
        assert ["logprobs" in r for r in server.requests] == [True, False, False]
        assert server.requests[0]["seed"] == server.requests[1]["seed"]

    with serve(in_turn(failure(400, "context length"))) as server:
        judge = engine(server)
        for _ in range(2):  # the refusal was not about log-probabilities: they are asked for again
            with pytest.raises(EngineError, match="context length"):
                judge.complete(ask("q"), asking)
        assert ["logprobs" in r for r in server.requests] == [True, False, True, False]


def test_a_running_loop_and_lone_surrogates_are_no_obstacle() -> None:
    async def notebook(judge: OpenAIEngine) -> Reply:
        return judge.complete(ask("broken \ud83d text, whole \U0001f600"), PARAMS)

    with serve(in_turn(completion("fine"))) as server:
        assert asyncio.run(notebook(engine(server))).text == "fine"
        assert server.requests[0]["messages"][0]["content"] == "broken � text, whole \U0001f600"


def payload(**choice: Any) -> dict[str, Any]:
    return {"choices": [choice]}


def test_replies_are_read() -> None:
    cut = parse_reply(payload(message={"content": "half"}, finish_reason="length"))
    assert cut == Reply("half", "length")
    tokens = [chosen(t) for t in ("<score>", "0.5", "</score>", " more", " text")]
    whole = parse_reply(payload(message={"content": "<score>0.5</score> more text"}, logprobs={"content": tokens}))
    assert (whole.text, whole.stop_reason, len(whole.tokens)) == ("<score>0.5</score> more text", "eos", 5)
    tried = "<think>hmm <score>0.1</score></think><critique>c</critique><score>0.9</score>"
    for text in (tried, tried.removeprefix("<think>")):  # a chat template may have opened it
        assert read_reply(parse_reply(payload(message={"content": text + " more"}))).raw_score == 0.9
    apart = parse_reply(payload(message={"content": "<score>0.2</score>", "reasoning_content": "try <score>1</score>"}))
    assert apart.text == "<think>try 1</think><score>0.2</score>"
    parts = parse_reply(payload(message={"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}))
    assert parts.text == "ab"


def test_tokens_are_those_of_the_text_where_a_server_strips_the_thinking() -> None:
    words = ["hm", " <score>", "0.8", "</score>", " no", "</think>", "\n", "fine ", "<score>", "0.8", "</score>", " so"]
    given = [chosen(word) for word in words]
    given[9]["top_logprobs"] = [
        {"token": "0.8", "logprob": math.log(0.75)},
        {"token": "0.4", "logprob": math.log(0.25)},
    ]
    reply = parse_reply(payload(message={"content": "fine <score>0.8</score> so"}, logprobs={"content": given}))
    assert reply.tokens == words[7:]
    assert read_reply(reply).raw_score == pytest.approx(0.75 * 0.8 + 0.25 * 0.4)
    other = parse_reply(payload(message={"content": "fine <score>0.7</score>"}, logprobs={"content": given}))
    assert not other.tokens and read_reply(other).off_grid_mass is None  # the tokens of another text are none of it


def test_addresses() -> None:
    judge = OpenAIEngine.from_spec("openai:http://localhost:8000/v1#org/name", concurrency=3)
    assert (judge.base_url, judge.model, judge.concurrency) == ("http://localhost:8000/v1", "org/name", 3)
    for spec in ("openai:http://localhost:8000/v1", "openai:#name", "http://x#y"):
        with pytest.raises((ConfigError, EngineError)):
            OpenAIEngine.from_spec(spec)
    with pytest.raises(EngineError, match="OPENAI_API_KEY"):
        OpenAIEngine("http://localhost/v1", "m", api_key="kéy")


def test_scripted_engines() -> None:
    by_key = ScriptedEngine({"a": [7, 8, 0], "b": [9] * 9}, logprob=lambda row, t: -float(row[t]))
    first, second = by_key.generate([[1], [2]], SamplingParams(max_new_tokens=4), ["a", "b"])
    assert first == Completion([7, 8, 0], [-7.0, -8.0, -0.0], "eos")
    assert second == Completion([9] * 4, [-9.0] * 4, "length")
    assert by_key.logprobs([[5, 6, 7]], [Span(1, 3)]) == [[-6.0, -7.0]]
    assert by_key.continuation_logprobs([[1], [2, 3]], [[4], [5, 6]]) == [[-4.0, -11.0]] * 2
    by_key.release(["a"])
    assert by_key.released == ["a"] and [key for _, _, key in by_key.calls] == ["a", "b"]
    with pytest.raises(EngineError, match="'c'"):
        by_key.generate([[1]], SamplingParams(), ["c"])
    chat = ScriptedChatEngine(["one", Reply("two", "length"), EngineError("down")])
    assert chat.complete(ask("q"), PARAMS) == Reply("one", "eos")
    assert chat.complete(ask("q"), PARAMS).stop_reason == "length"
    for message in ("down", "one more"):
        with pytest.raises(EngineError, match=message):
            chat.complete(ask("q"), PARAMS)
    echo = ScriptedChatEngine(lambda messages, params, key: json.dumps([messages[0]["content"], params.seed, key]))
    assert json.loads(echo.complete(ask("q"), PARAMS, "k").text) == ["q", 5, "k"]
