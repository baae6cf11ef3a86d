"""What servers refuse: reasoning models take no temperature, and a key that is not taken ends a run at once."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_judge import rows_of, transcripts
from openai_server import Answer, complete_many, completion, failure, serve

from rrm.engines.base import SamplingParams
from rrm.engines.http_errors import Rejected, context_of, way_out_of
from rrm.engines.openai import OpenAIEngine
from rrm.engines.server_options import ServerOptions
from rrm.errors import EngineError
from rrm.judge.agent_rrm import AgentRRM
from rrm.scoring.run import score_file

PARAMS = SamplingParams(max_new_tokens=16, temperature=0.7, seed=5, timeout_s=20)
ASK = [{"role": "user", "content": "q"}]


def reasoning_model(n: int, body: dict[str, Any]) -> Answer:
    """Refuses as OpenAI's reasoning models do, one parameter a reply; the last refusal quotes the request."""
    if "max_tokens" in body:
        return failure(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
    if "temperature" in body:
        return failure(400, "Unsupported value: 'temperature' does not support 0.7 with this model (seed=5).")
    if "top_p" in body:
        return failure(422, "Unsupported parameter: 'top_p' is not supported with this model.")
    if "logprobs" in body:
        return failure(400, "You are not allowed to request logprobs from this model.")
    return completion("fine")


def test_a_server_that_refuses_temperature_answers_without(caplog: pytest.LogCaptureFixture) -> None:
    with serve(reasoning_model) as server:
        engine = OpenAIEngine(server.url, "o", backoff_s=0.001)
        assert not engine.refuses_temperature
        asking = SamplingParams(max_new_tokens=16, temperature=0.7, seed=5, timeout_s=20, top_logprobs=20)
        assert [engine.complete(ASK, asking).text for _ in range(3)] == ["fine"] * 3
        assert engine.refuses_temperature
    last = server.requests[-1]
    assert len(server.requests) == 4 + 2  # three refusals, then remembered
    assert not {"temperature", "top_p", "logprobs", "max_tokens"} & set(last) and "seed" in last
    assert last["max_completion_tokens"] == 16
    said = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(said) == 2 and "refuses 'temperature'" in said[0] and "gives no log-probabilities" in said[1]


def test_top_p_is_sent_where_it_is_set_alone_and_of_a_refused_pair_temperature_stays(tmp_path: Path) -> None:

    def proxy(n: int, body: dict[str, Any]) -> Answer:
        if {"temperature", "top_p"} <= body.keys():
            said = "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
            return failure(400, said)
        return completion("<score>0.5</score>")

    with serve(proxy) as server:
        judge = AgentRRM(OpenAIEngine(server.url, "m"), model="m")
        summary = score_file(judge, transcripts(1), tmp_path / "a", mode="score")
        assert [body.get("top_p") for body in server.requests] == [None] and summary.left_out is None
        options = ServerOptions(extra_body={"top_p": 0.9})
        judge = AgentRRM(OpenAIEngine(server.url, "m", options=options), model="m")
        judge.judge(transcripts(1), mode="score")
        OpenAIEngine(server.url, "m").complete(ASK, replace(PARAMS, top_p=0.9))
    assert [("temperature" in b, "top_p" in b) for b in server.requests[1:]] == [(True, True), (True, False)] * 2


def test_a_row_and_the_summary_say_that_temperature_0_was_refused(tmp_path: Path) -> None:
    with serve(reasoning_model) as server:
        judge = AgentRRM(OpenAIEngine(server.url, "o", concurrency=1), model="m")
        summary = score_file(judge, transcripts(2), tmp_path / "out.jsonl", mode="score")
    rows = rows_of(tmp_path / "out.jsonl")
    assert [(r["judge"]["temperature"], r["judge"]["left_out"]) for r in rows] == [(None, ["temperature"])] * 2
    assert summary.left_out == {"temperature": 2}


def test_log_probabilities_are_given_up_where_a_server_says_so_alone() -> None:
    texts = iter(["bad", *["q"] * 5])

    def answer(n: int, body: dict[str, Any]) -> Answer:
        odd = body["messages"][0]["content"] == "bad" and "logprobs" in body
        return failure(400, "Invalid character in the request") if odd else completion("fine")

    asking = replace(PARAMS, top_logprobs=20)
    with serve(answer) as server:
        engine = OpenAIEngine(server.url, "m")
        for text in texts:
            engine.complete([{"role": "user", "content": text}], asking)
    assert ["logprobs" in body for body in server.requests] == [True, False, True, True, True, True, True]

    with serve(lambda n, b: failure(400, "no") if "logprobs" in b else completion("fine")) as server:
        engine = OpenAIEngine(server.url, "m")
        for _ in range(4):
            engine.complete(ASK, asking)
    assert ["logprobs" in body for body in server.requests] == [True, False] * 3 + [False]


@pytest.mark.parametrize(
    ("most", "message", "asked"),
    [
        (5, "top_logprobs must be less than or equal to 5", [20, 5]),
        (8, "Requested sample logprobs of 20, which is greater than max allowed: 8", [20, 8]),
        (5, "Invalid value for top_logprobs", [20, 5]),
        (0, "logprobs are not supported by this model", [20, None]),
        (0, "Invalid value for top_logprobs", [20, 5, None]),
    ],
)
def test_fewer_log_probabilities_are_asked_for_where_a_server_allows_fewer(
    most: int, message: str, asked: list[int | None]
) -> None:

    def answer(n: int, body: dict[str, Any]) -> Answer:
        return failure(400, message) if body.get("top_logprobs", 0) > most else completion("fine")

    with serve(answer) as server:
        engine = OpenAIEngine(server.url, "m")
        for _ in range(2):
            engine.complete(ASK, replace(PARAMS, top_logprobs=20))
    assert [body.get("top_logprobs") for body in server.requests] == [*asked, asked[-1]]


def test_a_refusal_that_goes_on_is_an_error_and_nothing_is_remembered() -> None:
    with serve(lambda n, body: failure(400, "temperature, seed and top_p look fine, but I am broken")) as server:
        engine = OpenAIEngine(server.url, "m", backoff_s=0.001)
        with pytest.raises(EngineError, match="I am broken"):
            engine.complete(ASK, PARAMS)
        assert not engine.refuses_temperature and len(server.requests) == 4


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_stops_at_once(status: int, tmp_path: Path) -> None:
    with serve(lambda n, body: failure(status, "no such key")) as server:
        judge = AgentRRM(OpenAIEngine(server.url, "m", concurrency=2), model="m")
        said = rf"HTTP {status}: .*no such key.*OPENAI_API_KEY"
        with pytest.raises(EngineError, match=said, check=lambda error: error.kind == "refused"):
            score_file(judge, transcripts(30), tmp_path / "out.jsonl", mode="score")
    assert len(server.requests) <= 2
    assert not (tmp_path / "out.jsonl").exists()  # nothing was judged: the next run finds nothing in its way


def test_a_key_that_is_withdrawn_stops_the_run_and_keeps_its_rows(tmp_path: Path) -> None:
    with serve(lambda n, body: completion("<score>0.5</score>") if n < 3 else failure(401)) as server:
        judge = AgentRRM(OpenAIEngine(server.url, "m", concurrency=1), model="m")
        with pytest.raises(EngineError, check=lambda error: error.kind == "refused"):
            score_file(judge, transcripts(9), tmp_path / "out.jsonl", mode="score")
    assert len(server.requests) == 4 and len(rows_of(tmp_path / "out.jsonl")) == 3


def test_a_filter_that_forbids_one_text_takes_one_row() -> None:
    first = threading.Event()

    def answer(n: int, body: dict[str, Any]) -> Answer:
        if body["messages"][0]["content"] == "bad":
            return failure(403, "blocked by the firewall")
        first.set()
        return completion("fine")

    with serve(answer) as server:
        engine = OpenAIEngine(server.url, "m", concurrency=1)
        rows = [[{"role": "user", "content": text}] for text in ("a", "bad", "b")]
        found = complete_many(engine, rows, PARAMS, ["1", "2", "3"])
    assert first.is_set() and isinstance(found[1], EngineError) and found[1].kind == "failed"


def test_a_403_for_log_probabilities_is_not_a_refused_key() -> None:
    def answer(n: int, body: dict[str, Any]) -> Answer:
        if "logprobs" in body:
            return failure(403, "You are not allowed to request logprobs from this model")
        return completion("<score>0.7</score>")

    with serve(answer) as server:
        judge = AgentRRM(OpenAIEngine(server.url, "m", concurrency=1), model="m")
        found = judge.judge(transcripts(3), mode="score")
    assert [(f.status, f.score, f.judge.score_source) for f in found] == [("scored", 0.7, "sampled")] * 3
    assert len(server.requests) == 4, "asked for once, and remembered"


def test_a_403_that_goes_on_without_log_probabilities_is_a_refused_key() -> None:
    with serve(lambda n, body: failure(403, "no logprobs, and nothing else either")) as server:
        judge = AgentRRM(OpenAIEngine(server.url, "m", concurrency=1), model="m")
        with pytest.raises(EngineError, check=lambda error: error.kind == "refused"):
            judge.judge(transcripts(3), mode="score")
    assert len(server.requests) == 2


REFUSALS = """\
400 2048 'max_tokens' or 'max_completion_tokens' is too large: 512. This model's maximum context length is 2048 tokens and your request has 1900 input tokens
400 8192 This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.
400 - the request exceeds the available context size, try increasing it
400 - Input exceeds the context window of this model (context_length_exceeded)
422 200000 prompt is too long: 210000 tokens > 200000 maximum
400 8192 The decoder prompt (length 9000) is longer than the maximum model length of 8192. Make sure that `max_model_len`
422 4095 Input validation error: `inputs` must have less than 4095 tokens. Given: 9000
422 4096 Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 tokens and 512
400 1048576 The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).
400 272000 Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens.
413 - Request Entity Too Large
400 1024 This model's maximum context length is 1024 tokens. However, your prompt contains 1100 input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=1100)"""
"""Status, the context that is named, message; the last one is vLLM 0.32's."""
NAMED = [
    (int(status), message, None if n == "-" else int(n))
    for status, n, message in (line.split(" ", 2) for line in REFUSALS.splitlines())
]
TOO_LONG = [(status, message) for status, message, _ in NAMED]


@pytest.mark.parametrize(("status", "message"), TOO_LONG)
def test_a_transcript_beyond_the_servers_context_is_too_long_after_one_request(status: int, message: str) -> None:
    with serve(lambda n, body: failure(status, message)) as server:
        judge = AgentRRM(OpenAIEngine(server.url, "m", backoff_s=0.001), model="m")
        (found,) = judge.judge(transcripts(1), mode="score")
    assert (found.status, found.score, len(server.requests)) == ("too_long", None, 1)
    assert found.reason and message[:40] in found.reason and "--transcript-tokens" in found.reason


def test_what_to_do_about_a_long_prompt_names_the_context_that_the_server_named() -> None:
    """`--context` without a value; of a body that is too large for a proxy, and of a context that had been told and is held to, too."""
    for status, message, context in NAMED:
        rejected = Rejected(status, message)
        assert context_of(rejected) == context, message
        for known in (None, 100_000):  # of which the second was not told by who says less
            unnamed = "" if status == 413 else "say how long its context is with --context;"
            told = f"say --context {context};" if context else unnamed
            held = bool(known and context and known <= context)
            assert way_out_of(rejected, known).startswith("its context of" if held else told), message
            assert "--context" in way_out_of(rejected, known) or held or status == 413
    llama_cpp = '{"error":{"type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":4096}}'
    assert context_of(Rejected(400, llama_cpp)) == 4096
    assert context_of(Rejected(400, "This model's maximum context length is 1,048,576 tokens.")) == 1_048_576


@pytest.mark.parametrize(
    "refusal",
    [
        "max_tokens is too large: 512. This model supports at most 256 completion tokens",
        "Input validation error: `max_new_tokens` must be <= 256. Given: 512",
        "Input validation error: `inputs` must have at least one token",
    ],
)
def test_a_limit_on_the_reply_alone_is_not_too_long(refusal: str) -> None:
    with serve(lambda n, body: failure(400, refusal)) as server:
        (found,) = AgentRRM(OpenAIEngine(server.url, "m"), model="m").judge(transcripts(1), mode="score")
    assert found.status == "judge_error"


def test_many_transcripts_that_are_too_long_do_not_stop_a_run(tmp_path: Path) -> None:
    with serve(lambda n, body: failure(*TOO_LONG[0])) as server:
        judge = AgentRRM(OpenAIEngine(server.url, "m"), model="m")
        summary = score_file(judge, transcripts(5), tmp_path / "out.jsonl", mode="score", give_up_after=2)
    assert summary.statuses == {"too_long": 5} and len(server.requests) == 5
