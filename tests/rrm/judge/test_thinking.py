"""Models that think before they judge: room, token counts, and replies cut inside the thinking."""

from __future__ import annotations

import pytest
from chat_judge import transcripts
from openai_server import completion, serve

from rrm.data.usage import Usage
from rrm.engines.base import Reply
from rrm.engines.openai import OpenAIEngine
from rrm.engines.replies import parse_reply, usage_of
from rrm.engines.server_options import ServerOptions
from rrm.errors import ConfigError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.chat import read_reply
from rrm.judge.serving import RUBRIC, SHARE

THOUGHT = Usage(requests=1, prompt_tokens=9, completion_tokens=40, reasoning_tokens=40)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply("<think>well, <score>0.5</score>", "length"), "inside its thinking: raise --thinking-tokens"),
        (Reply("<think>well", "length", usage=THOUGHT), "inside its thinking after 40 tokens of it: raise --thinking"),
        (Reply("", "length", usage=THOUGHT), "inside its thinking after 40 tokens of it"),
        (
            Reply("<think>well", "length", usage=THOUGHT + THOUGHT),
            "inside its thinking: raise",
        ),  # of two tries together
        (Reply("<think>t</think><critique>hm", "length", usage=THOUGHT), "cut off by length before a complete score"),
        (Reply("", "length"), "cut off by length before a complete score"),
    ],
)
def test_a_reply_cut_inside_its_thinking_is_truncated_and_says_so(reply: Reply, reason: str) -> None:
    judgement = read_reply(reply)
    assert judgement.status == "truncated" and judgement.raw_score is None
    assert reason in str(judgement.reason) and judgement.usage == reply.usage


def test_thinking_that_comes_apart_is_kept_where_nothing_else_came() -> None:
    cut = {
        "choices": [
            {"message": {"content": None, "reasoning_content": "I <score>1</score> wonder"}, "finish_reason": "length"}
        ]
    }
    assert parse_reply(cut) == Reply("<think>I 1 wonder", "length")
    ended = {"choices": [{"message": {"content": "", "reasoning": "hm"}, "finish_reason": "stop"}]}
    assert parse_reply(ended).text == ""  # an empty reply, asked for again


def test_thinking_that_is_not_counted_is_counted_at_its_tokens() -> None:
    def reply(*tokens: str, **details: int) -> Usage:
        content = [{"token": token, "logprob": -0.1} for token in tokens]
        usage = {"prompt_tokens": 5, "completion_tokens": len(tokens), "completion_tokens_details": details}
        return usage_of({"choices": [{"logprobs": {"content": content}}], "usage": usage})

    assert reply("<think>", "a", "b", "</", "think>", "<score>").reasoning_tokens == 5
    assert reply("a", "</think>", "<score>").reasoning_tokens == 2  # the template opened it
    assert reply("<think>", "a", "b").reasoning_tokens == 3 and reply("<score>", "0.5").reasoning_tokens == 0
    assert reply("<think>", "</think>", reasoning_tokens=1).reasoning_tokens == 1  # the server knows better
    for payload in (
        [],
        {"usage": None},
        {"choices": [{"logprobs": 7}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}},
    ):
        assert usage_of(payload).reasoning_tokens == 0


def test_thinking_has_room_of_its_own() -> None:
    used = {"prompt_tokens": 9, "completion_tokens": 612, "completion_tokens_details": {"reasoning_tokens": 612}}
    with serve(lambda n, body: completion(None, "length", usage=used, reasoning_content="still at it")) as server:
        options = ServerOptions(thinking_tokens=100)
        judge = AgentRRM.from_pretrained(f"openai:{server.url}#m", server=options)
        (feedback,) = judge.judge(transcripts(1))
    assert server.requests[0]["max_tokens"] == 512 + 100
    assert feedback.status == "truncated" and "inside its thinking after 612 tokens" in str(feedback.reason)
    assert feedback.usage is not None and feedback.usage.reasoning_tokens == 612
    assert judge.describe()["thinking_tokens"] == 100 and feedback.judge.request == {"thinking_tokens": 100}


def test_thinking_takes_its_part_of_a_context() -> None:
    name = "openai:http://127.0.0.1:9/v1#m"
    judge = AgentRRM.from_pretrained(name, context=4096, server=ServerOptions(thinking_tokens=1000))
    assert judge.settings.transcript_tokens == int((4096 - 512 - 1000 - RUBRIC) * SHARE)
    with pytest.raises(ConfigError, match="or --thinking-tokens"):
        AgentRRM.from_pretrained(name, context=4096, server=ServerOptions(thinking_tokens=3000))


def test_a_temperature_is_asked_for_and_several_samples_need_one() -> None:
    with serve(lambda n, body: completion("<score>0.5</score>")) as server:
        engine = OpenAIEngine(server.url, "m", options=ServerOptions(temperature=0.25))
        (feedback,) = AgentRRM(engine).judge(transcripts(1), mode="score", samples=2)
        assert [body["temperature"] for body in server.requests] == [0.25, 0.25] and feedback.judge.temperature == 0.25
        frozen = AgentRRM(OpenAIEngine(server.url, "m", options=ServerOptions(temperature=0.0)))
        with pytest.raises(ConfigError, match="2 samples at --temperature 0"):
            frozen.judge(transcripts(1), samples=2)
    with pytest.raises(ConfigError, match="are a server's; lab runs in this process"):
        AgentRRM.from_pretrained("lab", server=ServerOptions(temperature=0.5))
