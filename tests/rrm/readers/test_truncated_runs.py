"""A model whose replies all end before their score is not paid for to the end, and more room for them goes on with the same output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chat_judge import rows_of, transcripts
from openai_server import Answer, completion, serve

from rrm.engines.openai import OpenAIEngine
from rrm.engines.server_options import ServerOptions
from rrm.errors import RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings
from rrm.scoring.ranking import rank_file
from rrm.scoring.run import GIVE_UP_TRUNCATED, score_file


def thinker(n: int, body: dict[str, Any]) -> Answer:
    """A reasoning model, which needs a thousand tokens before it says anything."""
    used = {"prompt_tokens": 100, "completion_tokens": body["max_tokens"]}
    if body["max_tokens"] < 1000:
        return completion(None, "length", usage=used, reasoning_content="Let me see")
    return completion("<score>0.5</score>", usage=used)


def judge_at(url: str, thinking: int | None = None, tokens: int = 2048) -> AgentRRM:
    engine = OpenAIEngine(url, "m", concurrency=4, options=ServerOptions(thinking_tokens=thinking))
    settings = JudgeSettings(opening=False, prompt_version="2", transcript_tokens=tokens)
    return AgentRRM(engine, settings=settings, model="openai:http://a/v1#m")


def test_a_reasoning_model_stops_after_the_first_rows_and_goes_on_with_more_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output = tmp_path / "out.jsonl"
    with serve(thinker) as server:
        for retry in (False, True):
            with pytest.raises(RRMError, match="--thinking-tokens where the model thinks first"):
                score_file(judge_at(server.url), transcripts(600), output, mode="score", retry_errors=retry)
        assert len(server.requests) <= 2 * (GIVE_UP_TRUNCATED + 4)
        kept = len(rows_of(output))
        assert GIVE_UP_TRUNCATED <= kept < GIVE_UP_TRUNCATED + 8
        for tokens in (2049, 2048 - 4001):  # neither is for the sake of that room
            with pytest.raises(RRMError, match=f"transcript_tokens was 2048 and is {tokens}"):
                score_file(judge_at(server.url, 4000, tokens), transcripts(20), output, mode="score")
        more = judge_at(server.url, 4000, 1500)  # a window leaves room for it
        summary = score_file(more, transcripts(20), output, mode="score")
        assert summary.statuses == {"scored": 20 - min(kept, 20), "truncated": min(kept, 20)}
        assert (
            "other room for a reply: thinking_tokens was not set and is 4000; transcript_tokens was 2048 and is 1500"
            in caplog.text
        )
        assert score_file(more, transcripts(20), output, mode="score", retry_errors=True).statuses == {"scored": 20}
        with pytest.raises(RRMError, match="transcript_tokens was 1500 and is 900"):
            score_file(judge_at(server.url, 4000, 900), transcripts(20), output, mode="score")


def test_rows_that_could_not_be_read_are_asked_for_again_on_demand(tmp_path: Path) -> None:
    output, lost = tmp_path / "out.jsonl", {"text": "none"}
    with serve(lambda n, body: completion(lost["text"])) as server:
        judge = AgentRRM(OpenAIEngine(server.url, "m"), model="openai:http://a/v1#m")
        assert score_file(judge, transcripts(3), output, mode="score").statuses == {"unparsable": 3}
        lost["text"] = "<score>0.5</score>"
        assert score_file(judge, transcripts(3), output, mode="score").judged == 0
        assert score_file(judge, transcripts(3), output, mode="score", retry_errors=("judge_error",)).judged == 0
        again = score_file(judge, transcripts(3), output, mode="score", retry_errors=True)
        assert again.statuses == {"scored": 3} and again.usage is not None and again.usage["requests"] == 9
        ranked, rows = tmp_path / "ranked.jsonl", [t.model_copy(update={"question_id": "q"}) for t in transcripts(2)]
        how: dict[str, Any] = {"size": 6, "both_orders": False, "seed": 0}
        assert rank_file(judge, rows, ranked, **how)["statuses"] == {"unparsable": 2}
        lost["text"] = "<ranking>A > B</ranking>"
        assert rank_file(judge, rows, ranked, **how)["resumed"] == 2
        assert rank_file(judge, rows, ranked, retry_errors=True, **how)["statuses"] == {"scored": 2}
        sent = len(server.requests)
        rank_file(judge, rows, ranked, retry_errors=True, **how)
        assert len(server.requests) == sent
