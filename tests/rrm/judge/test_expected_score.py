"""The expected score over a server equals the model's own."""

from __future__ import annotations

import math
from typing import Any

import pytest
from chat_judge import ChatItem, judge_chat
from hypothesis import given
from hypothesis import strategies as st
from openai_server import Answer, completion, failure, serve
from travelling_judge import ROWS

from rrm.data.feedback import JudgeInfo
from rrm.engines.base import Reply, SamplingParams
from rrm.engines.openai import OpenAIEngine
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.expected_score import MIN_OPEN, expected_score, other_way
from rrm.judge.judge_dir import JudgeSettings

INFO = JudgeInfo(model="m", prompt_version="2", mode="score")
PARAMS = SamplingParams(max_new_tokens=16, top_logprobs=20)
BEFORE = "<critique>fine</critique><score>"
USED = {"prompt_tokens": 10, "completion_tokens": 4}


class Grid:
    """Writes the likeliest score digit by digit, given the probabilities of 0.0, 0.1 … 1.0."""

    def __init__(self, p: list[float]) -> None:
        self.p, self.asked = p, list[str]()

    def after(self, written: str) -> dict[str, float]:
        """Probabilities of the next token."""
        below = sum(self.p[:10])
        if written == "":
            return {"0": below, "1": self.p[10]}
        if written in ("0", "1"):
            return {".": 1.0}
        if written == "0.":
            return {str(d): q / below for d, q in enumerate(self.p[:10])} if below else {"0": 1.0}
        return {"0": 1.0} if written == "1." else {"</score>": 1.0}

    def complete(self, messages: list[dict[str, str]], params: SamplingParams, key: str = "") -> Reply:
        text = messages[-1]["content"]
        self.asked.append(text)
        tokens, top = (
            ([], []) if "<score>" in text else ([BEFORE.removeprefix(text)], [{BEFORE.removeprefix(text): 0.0}])
        )
        written = text.partition("<score>")[2]
        while "</score>" not in written:
            ps = {token: q for token, q in self.after(written).items() if q > 0}
            top.append({token: math.log(q) for token, q in ps.items()})
            tokens.append(max(ps, key=lambda token: ps[token]))
            written += tokens[-1]
        return Reply("".join(tokens), "eos", top, tokens)


def judged(model: Grid, opening: str) -> Any:
    item = ChatItem("a", [{"role": "user", "content": "x"}], 1, opening=opening)
    return judge_chat(model, [item], info=INFO, params=PARAMS)[0]


@given(st.lists(st.floats(0.0, 1.0), min_size=11, max_size=11).filter(lambda w: sum(w) > 0.1))
@pytest.mark.parametrize("opening", ["<score>", "<critique>"])
def test_a_served_score_is_the_mean_of_the_grid(opening: str, weights: list[float]) -> None:
    p = [w / sum(weights) for w in weights]
    model = Grid(p)
    feedback = judged(model, opening)
    mean = sum(i / 10 * q for i, q in enumerate(p))
    assert feedback.status == "scored" and feedback.judge.score_source == "expected"
    assert feedback.raw_score == pytest.approx(mean, abs=MIN_OPEN + 1e-9)  # of what is not asked for
    again = p[10] >= sum(p[:10]) and sum(p[:10]) >= MIN_OPEN
    assert model.asked[1:] == (
        [("" if opening == "<score>" else "<critique>fine</critique>") + "<score>0"] if again else []
    )


def test_a_reply_that_was_not_opened_is_not_gone_on_with() -> None:
    model = Grid([0.0] * 4 + [0.4] + [0.0] * 5 + [0.6])
    feedback = judged(model, "")
    assert len(model.asked) == 1 and feedback.raw_score == 1.0 and feedback.judge.score_source == "sampled"


def content(*steps: tuple[str, dict[str, float]]) -> dict[str, Any]:
    """Log-probabilities as a server sends them."""
    return {
        "content": [
            {"token": t, "logprob": math.log(top[t]), "top_logprobs": [{"token": k, "logprob": math.log(q)} for k, q in top.items()]}
            for t, top in steps
        ]
    }  # fmt: skip


ONE = content(("1", {"1": 0.6, "0": 0.4}), (".", {".": 1.0}), ("0", {"0": 1.0}), ("</score>", {"</score>": 1.0}))
REST = content((".", {".": 1.0}), ("4", {"4": 0.75, "8": 0.25}), ("</score>", {"</score>": 1.0}))


def test_over_http_the_other_way_is_one_more_request_of_the_same_row() -> None:
    replies = [completion("1.0</score>", logprobs=ONE, usage=USED), completion(".4</score>", logprobs=REST, usage=USED)]
    with serve(lambda n, body: replies[n]) as server:
        judge = AgentRRM(OpenAIEngine(server.url, "m"), settings=JudgeSettings(opening=True))
        (feedback,) = judge.judge(ROWS[:1], mode="score")
    first, second = (body["messages"] for body in server.requests)
    assert first[:-1] == second[:-1] and [m[-1]["content"] for m in (first, second)] == ["<score>", "<score>0"]
    assert server.requests[1]["continue_final_message"] is True
    assert (
        feedback.raw_score == pytest.approx(0.6 + 0.4 * (0.75 * 0.4 + 0.25 * 0.8))
        and feedback.judge.score_source == "expected"
    )
    assert feedback.usage is not None and (feedback.usage.requests, feedback.usage.completion_tokens) == (2, 8)


@pytest.mark.parametrize("second", [failure(400, "no"), completion("maybe"), completion(".4</score>", usage=USED)])
def test_where_the_other_way_cannot_be_had_the_number_is_the_score(second: Answer) -> None:
    replies = [completion("1.0</score>", logprobs=ONE, usage=USED), second, second]
    with serve(lambda n, body: replies[min(n, 2)]) as server:
        judge = AgentRRM(OpenAIEngine(server.url, "m", max_retries=0), settings=JudgeSettings(opening=True))
        (feedback,) = judge.judge(ROWS[:1], mode="score")
    assert (feedback.status, feedback.raw_score, feedback.judge.score_source) == ("scored", 1.0, "sampled")
    assert feedback.usage is not None and feedback.usage.requests >= 2


def test_of_earlier_windows_no_score_is_asked_for_twice() -> None:
    """Their score is not wanted, only what they find."""
    messages = [*ROWS[0].messages, *ROWS[0].messages[1:] * 9]
    long = ROWS[0].model_copy(update={"messages": messages})
    with serve(lambda n, body: completion("[step 1] bad: no</critique><score>1.0</score>", logprobs=None)) as server:
        judge = AgentRRM(OpenAIEngine(server.url, "m"), settings=JudgeSettings(opening=True, transcript_tokens=128))
        (feedback,) = judge.judge([long], mode="critique")
        windows = len(judge.plan(long, "critique"))
    assert feedback.status == "scored" and windows > 1 and len(server.requests) == windows


def test_ways_are_told_apart_by_their_tokens() -> None:
    """`0.7` as one token and as three are two ways to one value, and both count."""
    first = {"<score>": 1.0}, {"0.7": 0.4, "0": 0.35, "1": 0.25}
    tokens = ["<score>", "0.7", "</score>"]
    tops = [{t: math.log(q) for t, q in top.items()} for top in (*first, {"</score>": 1.0})]
    reply = Reply("".join(tokens), "eos", tops, tokens)
    assert expected_score(reply, 0.7) is None  # a third is open
    other = other_way(reply)
    assert other is not None and (other.text, other.tokens) == ("<score>0", ["<score>", "0"])
    rest = [{".": 0.0}, {"7": math.log(0.5), "2": math.log(0.5)}, {"</score>": 0.0}]
    way = Reply(
        "<score>0.7</score>", "eos", [*(other.top_logprobs or []), *rest], [*other.tokens, ".", "7", "</score>"]
    )
    feedback = expected_score(Reply(reply.text, "eos", reply.top_logprobs, reply.tokens, others=(way,)), 0.7)
    assert feedback is not None and feedback[0] == pytest.approx(0.4 * 0.7 + 0.175 * 0.7 + 0.175 * 0.2 + 0.25)
    assert other_way(Reply("<score>0.7</score>", "eos")) is None and other_way(reply, least=0.36) is None


def test_the_grid_is_told_and_a_number_off_it_is_read_as_given() -> None:
    """A mean is of one kind: 0.85 as written is not averaged with an expectation."""
    on = [{"token": t, "logprob": math.log(p)} for t, p in (("5", 0.5), ("7", 0.5))]
    items = [{"token": t, "logprob": 0.0} for t in ("<score>", "0", ".")]
    items += [{"token": "5", "logprob": math.log(0.5), "top_logprobs": on}, {"token": "</score>", "logprob": 0.0}]

    def answer(n: int, body: dict[str, Any]) -> Answer:
        if n % 2:
            return completion("<score>0.5</score>", logprobs={"content": items})
        off = [{"token": t, "logprob": math.log(0.99)} for t in ("<score>", "0", ".", "8", "5", "</score>")]
        return completion("<score>0.85</score>", logprobs={"content": off})

    with serve(answer) as server:
        judge = AgentRRM(OpenAIEngine(server.url, "m", concurrency=1), model="m")
        off, on_grid = (judge.judge([ROWS[0]], mode="score")[0] for _ in range(2))
        both = judge.judge([ROWS[0]], mode="score", samples=2)[0]
    assert "one of 0.0, 0.1, 0.2, … 1.0" in server.requests[0]["messages"][0]["content"]
    assert (off.raw_score, off.judge.score_source) == (0.85, "sampled")
    assert (on_grid.raw_score, on_grid.judge.score_source) == (pytest.approx(0.6), "expected")
    assert (both.raw_score, both.judge.score_source) == (pytest.approx((0.85 + 0.5) / 2), "sampled")
