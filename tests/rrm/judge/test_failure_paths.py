"""Every failure of a judge over HTTP ends in its status and never in a number."""

from __future__ import annotations

import json
import math
import socket
from typing import Any

import pytest
from chat_judge import ChatItem, judge_chat, to_feedback, transcripts
from hypothesis import given
from hypothesis import strategies as st
from openai_server import Answer, completion, failure, serve

from rrm.data.feedback import Feedback, JudgeInfo
from rrm.data.seeds import derive_seed
from rrm.engines.base import Reply, SamplingParams
from rrm.engines.openai import OpenAIEngine
from rrm.engines.scripted import ScriptedChatEngine
from rrm.engines.server_options import ServerOptions
from rrm.errors import EngineError, RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.chat import read_reply
from rrm.judge.expected_score import expected_score

INFO = JudgeInfo(model="openai:test#m", prompt_version="1", mode="full")
PARAMS = SamplingParams(temperature=0.7, seed=3, timeout_s=20)
GOOD = "<think>fine</think><critique>[step 1] bad: no search\n[step 9] bad: no such step</critique><score>0.4</score>"


def items(*names: str) -> list[ChatItem]:
    return [ChatItem(n, [{"role": "user", "content": n}], n_steps=2, truncated_tokens=11) for n in names]


def judged(url: str, timeout_s: float = 20.0) -> Feedback:
    engine = OpenAIEngine(url, "m", max_retries=1, backoff_s=0.001, timeout_s=timeout_s)
    feedback = judge_chat(engine, items("row"), info=INFO, params=PARAMS)[0]
    assert (feedback.id, feedback.truncated_tokens, feedback.judge.seed) == ("row", 11, 3)
    return feedback


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        (Answer(hang=True), "judge_error", "no reply within"),
        (failure(500), "judge_error", "HTTP 500"),
        (failure(404), "judge_error", "base URL"),
        (Answer(body=b'{"choices": ['), "judge_error", "not a chat completion"),
        (Answer(body=b"<html>proxy</html>", headers={"Content-Type": "text/html"}), "judge_error", "<html>"),
        (completion(""), "unparsable", "empty reply"),
        (completion(None), "unparsable", "empty reply"),
        (completion("I like it."), "unparsable", "no <score> block"),
        (completion("<think>a</think><critique>[step 1] bad: b</critique>"), "unparsable", "no <score> block"),
        (completion("<think>only thought</think>"), "unparsable", "no <score> block"),
        (completion("<score>7</score>"), "unparsable", "outside [0, 1]"),
        (completion("<score>-0.1</score>"), "unparsable", "outside [0, 1]"),
        (completion("<score>NaN</score>"), "unparsable", "not a number"),
        (completion("<score>inf</score>"), "unparsable", "not a number"),
        (completion("<score>1e999</score>"), "unparsable", "outside [0, 1]"),
        (completion("<score></score>"), "unparsable", "not a number"),
        (completion("<score>0.5 or 0.6</score>"), "unparsable", "not a number"),
        (completion("<think>a", "length"), "truncated", "cut off"),
        (completion("", "length"), "truncated", "cut off"),
        (completion("<critique>c</critique><score>0.7", "length"), "truncated", "cut off"),
        (completion("<think>say <score>0.9</score>? no,", "length"), "truncated", "cut off"),
        (completion("say <score>0.9</score>? no</think><critique>so", "length"), "truncated", "cut off"),
        (completion("<score>7</score>", "length"), "unparsable", "outside [0, 1]"),
    ],
)  # fmt: skip
def test_failures_keep_their_status(answer: Answer, status: str, reason: str) -> None:
    with serve(lambda n, body: answer) as server:
        feedback = judged(server.url, timeout_s=0.2 if answer.hang else 20.0)
    assert feedback.status == status and reason in (feedback.reason or "")
    assert feedback.score is None and feedback.raw_score is None and feedback.judge.score_source is None
    json.dumps(feedback.model_dump(), allow_nan=False)


def test_connection_refused() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can take the port
        feedback = judged(f"http://127.0.0.1:{closed.getsockname()[1]}/v1")
    assert (feedback.status, feedback.score) == ("judge_error", None) and "cannot connect" in (feedback.reason or "")


def test_a_retry_after_a_failure_has_a_new_seed_and_its_reply_counts() -> None:
    with serve(lambda n, body: failure(500) if n == 0 else completion(GOOD)) as server:
        feedback = judged(server.url)
    assert (feedback.status, feedback.score) == ("scored", 0.4)
    assert [r["seed"] for r in server.requests] == [derive_seed(3, "row", k) % 2**31 for k in (0, 1)]


def test_a_good_reply_is_read_whole() -> None:
    heard: list[Feedback] = []
    feedback = judge_chat(ScriptedChatEngine([GOOD]), items("a"), info=INFO, params=PARAMS, on_feedback=heard.append)[0]
    assert (feedback.trace, feedback.judge.score_source, feedback.raw_score) == ("fine", "sampled", 0.4)
    assert [(f.step, f.verdict, f.text) for f in feedback.findings] == [(1, "bad", "no search")]
    assert heard == [feedback]
    opened = read_reply(Reply("thinking</think><score>0.3</score>", "eos"))
    assert (opened.trace, opened.raw_score) == ("thinking", 0.3)


def test_samples_mean_spread_and_nearest_text() -> None:
    def reply(messages: Any, params: Any, key: str) -> str:
        score = {"a": "0.2", "a/sample1": "0.5", "a/sample2": "0.6"}[key]
        return f"<think>t{score}</think><critique>c</critique><score>{score}</score>"

    engine = ScriptedChatEngine(reply)
    calibrate = lambda raw: raw / 2  # noqa: E731
    feedback = judge_chat(engine, items("a"), info=INFO, params=PARAMS, samples=3, calibrate=calibrate)[0]
    assert feedback.raw_score == pytest.approx(1.3 / 3) and feedback.score == pytest.approx(1.3 / 6)
    assert feedback.judge.score_std == pytest.approx(0.2081665999466133)  # of 0.2, 0.5, 0.6 with n - 1
    assert (feedback.trace, feedback.judge.samples) == ("t0.5", 3)
    with pytest.raises(RRMError, match="temperature"):
        AgentRRM.from_pretrained("openai:http://127.0.0.1:9/v1#m", server=ServerOptions(temperature=0.0)).judge(
            transcripts(1), samples=2
        )


def test_failed_samples_are_left_out_of_the_mean_and_named() -> None:
    replies: list[Reply | EngineError] = [EngineError("down"), Reply("<score>0.3</score>", "eos"), Reply("", "eos")]
    feedback = to_feedback(items("a")[0], replies, INFO)
    assert (feedback.status, feedback.score, feedback.judge.samples) == ("scored", 0.3, 1)
    assert feedback.reason == "2 of 3 samples gave no score (down)"
    assert to_feedback(items("a")[0], [replies[2], replies[0]], INFO).status == "unparsable"


def test_what_is_said_of_steps_that_do_not_exist_is_cut_and_named() -> None:
    reply = "<think>[step 1] calls search\n[step 2] repeats\n[step 5] answers</think><critique>[step 1] good: found\n[step 4] bad: made up</critique><score>0.4</score>"
    feedback = to_feedback(items("a")[0], [Reply(reply, "eos")], INFO)
    assert (feedback.trace, feedback.critique) == ("[step 1] calls search\n[step 2] repeats", "[step 1] good: found")
    assert (feedback.status, feedback.raw_score) == ("scored", 0.4)
    assert feedback.reason == "the judge spoke of steps that the run does not have, and these lines were cut: 4, 5"


def with_logprobs(*steps: tuple[str, dict[str, float]]) -> Reply:
    """A reply whose tokens have these probabilities."""
    top = [{t: math.log(p) for t, p in probabilities.items()} for _, probabilities in steps]
    return Reply("".join(t for t, _ in steps), "eos", top, [t for t, _ in steps])


OPEN, CLOSE = ("<score>", {"<score>": 1.0}), ("</score>", {"</score>": 1.0})


def test_expected_score_single_tokens() -> None:
    reply = with_logprobs(OPEN, ("0.7", {"0.7": 0.6, "0.8": 0.3, "1.0": 0.05, "seven": 0.05}), CLOSE)
    value, off_grid = expected_score(reply, 0.7) or (None, None)
    assert value == pytest.approx((0.6 * 0.7 + 0.3 * 0.8 + 0.05) / 0.95) and off_grid == pytest.approx(0.05)
    judgement = read_reply(reply)
    assert judgement.raw_score == value and judgement.off_grid_mass == off_grid
    feedback = to_feedback(items("a")[0], [reply], INFO)
    assert feedback.judge.score_source == "expected" and feedback.judge.off_grid_mass == off_grid


def test_expected_score_digit_by_digit() -> None:
    reply = with_logprobs(
        ("<sc", {"<sc": 1.0}),
        ("ore>", {"ore>": 1.0}),
        ("0", {"0": 0.9, "1": 0.1}),
        (".", {".": 1.0}),
        ("7", {"7": 0.5, "2": 0.5}),
        CLOSE,
    )
    value, off_grid = expected_score(reply, 0.7) or (None, None)
    assert value == pytest.approx(0.1 * 1.0 + 0.45 * 0.7 + 0.45 * 0.2) and off_grid == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("steps", "sampled", "expected"),
    [
        ([(">0", {">0": 0.5, ">1": 0.5}), (".4", {".4": 1.0}), CLOSE], 0.4, 0.7),  # a token over the tag's edge
        ([("> 0", {"> 0": 1.0}), (".4</", {".4</": 0.5, ".6</": 0.5}), ("score>", {"score>": 1.0})], 0.4, 0.5),
        ([(">", {">": 1.0}), ("1", {"1": 1.0}), (".0", {".0": 1.0}), CLOSE], 1.0, 1.0),
        ([(">", {">": 1.0}), ("0", {"0": 1.0}), ("</score>", {"</score>": 0.95, ".": 0.05})], 0.0, 0.0),
        # 1.0 was sampled; what follows "0" is unknown and too much: the number itself is the score
        ([(">", {">": 1.0}), ("1", {"1": 0.6, "0": 0.4}), (".0", {".0": 1.0}), CLOSE], 1.0, None),
        ([(">", {">": 1.0}), ("0.", {"0.": 1.0}), ("75", {"75": 0.1, "7": 0.9}), CLOSE], 0.75, None),  # off the grid
        ([(">", {">": 1.0}), ("0.7", {"0.7": 0.5}), CLOSE], 0.7, None),  # half of the mass is not shown
        ([(">", {">": 1.0}), ("0.7", {"0.7": 1.0}), CLOSE], 0.3, None),  # the tokens are not this text's
    ],
)
def test_expected_score_edges(
    steps: list[tuple[str, dict[str, float]]], sampled: float, expected: float | None
) -> None:
    score = expected_score(with_logprobs(("<score", {"<score": 1.0}), *steps), sampled)
    assert score is None if expected is None else score is not None and score[0] == pytest.approx(expected)


def test_without_log_probabilities_the_number_is_the_score() -> None:
    assert expected_score(Reply("<score>0.7</score>", "eos"), 0.7) is None
    assert read_reply(Reply("<score>0.75</score>", "eos")).raw_score == 0.75


@given(st.text(alphabet="<>/score think0.17NaN e-+\n", max_size=60), st.sampled_from(["eos", "stop", "length"]))
def test_no_reply_ends_in_a_number_outside_its_range(text: str, stop: Any) -> None:
    feedback = to_feedback(items("a")[0], [Reply(text, stop)], INFO)
    assert (feedback.score is None) == (feedback.status != "scored")
    assert feedback.score is None or 0.0 <= feedback.score <= 1.0


@given(st.lists(st.floats(0.001, 1.0), min_size=11, max_size=11), st.integers(0, 10))
def test_one_token_and_digit_reading_agree(weights: list[float], sampled: int) -> None:
    p = [w / sum(weights) for w in weights]
    names = [f"{i / 10:.1f}" for i in range(11)]
    one_token = with_logprobs(OPEN, (names[sampled], dict(zip(names, p, strict=True))), CLOSE)
    mean = sum(i / 10 * q for i, q in enumerate(p))
    score = expected_score(one_token, sampled / 10)
    assert score is not None and score[0] == pytest.approx(mean) and score[1] == pytest.approx(0.0, abs=1e-9)
    below = sum(p[:10])
    digits = {str(i): q / below for i, q in enumerate(p[:10])}
    first = {"0": below, "1": p[10]}
    if sampled < 10:
        steps = [("0", first), (".", {".": 1.0}), (str(sampled), digits), CLOSE]
        score = expected_score(with_logprobs(OPEN, *steps), sampled / 10)
        assert score is not None and score[0] == pytest.approx(mean)
