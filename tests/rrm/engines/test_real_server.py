"""Against a server for real; skipped unless the environment names one.

    RRM_TEST_SERVER=openai:http://127.0.0.1:8000/v1#base          a chat model: what it says may be poor, every path ends typed
    RRM_TEST_SERVED_JUDGE=openai:http://127.0.0.1:8000/v1#judge   a trained judge, with
    RRM_TEST_JUDGE_DIR=runs/judge                                 its directory: the same scores as from its weights here

How one is started on a machine without a GPU stands in docs/judges.md. These tests take minutes there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reagent.lab.transcripts import make_transcripts
from rrm.cli import calibrate_cmd, rank_cmd, score_cmd
from rrm.data.trajectory import write_jsonl
from rrm.engines.base import SamplingParams
from rrm.engines.openai import OpenAIEngine
from rrm.errors import RRMError
from rrm.judge.agent_rrm import AgentRRM

CHAT, JUDGE, FOLDER = (os.environ.get(f"RRM_TEST_{name}", "") for name in ("SERVER", "SERVED_JUDGE", "JUDGE_DIR"))
a_server = pytest.mark.skipif(not CHAT, reason="RRM_TEST_SERVER names no server")
TYPED = {"scored", "unparsable", "truncated"}
"""What a model that answers may end in; a server that does not is another matter."""
QUESTIONS = {"did_what_was_asked", "supported", "checked", "honest"}
LIMIT = 0.02
CHAT_ROWS, ROWS = 12, 40


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    write_jsonl(path, [t for t, _ in make_transcripts(CHAT_ROWS, seed=11)])
    return path


@pytest.fixture
def server() -> tuple[str, ...]:
    return ("--model", CHAT, "--timeout", "600", "--max-new-tokens", "128")


def rows_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@a_server
@pytest.mark.parametrize("criteria", [(), ("--criteria", "task-success")], ids=["rubric", "criteria"])
def test_every_row_ends_typed_with_its_usage(
    criteria: tuple[str, ...], source: Path, tmp_path: Path, server: tuple[str, ...], invoke: Callable[..., Any]
) -> None:
    out = tmp_path / "out.jsonl"
    _, summary = invoke(score_cmd.command, source, "-o", out, *server, *criteria, "--price", "1,2")
    found = rows_in(out)
    assert len(found) == CHAT_ROWS and {row["status"] for row in found} <= TYPED
    for row in found:
        assert (row["score"] is None) == (row["status"] != "scored") and (row["reason"] or row["score"] is not None)
        assert row["usage"]["unreported"] == 0 and row["usage"]["cost"] > 0
        if criteria:
            assert row["judge"]["answered_in"] == "schema" and set(row["criteria"] or ()) <= QUESTIONS
    assert summary["usage"]["completion_tokens"] == sum(row["usage"]["completion_tokens"] for row in found)


@a_server
def test_attempts_are_ranked_or_it_is_said_why_not(
    source: Path, tmp_path: Path, server: tuple[str, ...], invoke: Callable[..., Any]
) -> None:
    out = tmp_path / "ranked.jsonl"
    _, summary = invoke(rank_cmd.command, source, "-o", out, *server, "--both-orders")
    assert {row["status"] for row in rows_in(out)} <= TYPED and summary["usage_now"]["unreported"] == 0


@a_server
def test_a_model_is_calibrated_or_it_is_said_why_not(
    source: Path, tmp_path: Path, server: tuple[str, ...], invoke: Callable[..., Any]
) -> None:
    question = tmp_path / "done.yaml"
    question.write_text("name: done\nquestions:\n  done:\n    ask: Was the task done?\n    scale: yes_no\n")
    how = (*server, "--criteria", question, "--mode", "score")
    try:
        code, summary = invoke(calibrate_cmd.command, source, "-o", tmp_path / "judge", *how)
    except RRMError as error:
        assert "calibration needs at least 20 rows" in str(error)
    else:
        assert code == 0 and summary["statuses"].keys() <= TYPED


@a_server
def test_a_schema_holds_a_reply_and_log_probabilities_come() -> None:
    engine = OpenAIEngine.from_spec(CHAT, timeout_s=600)
    schema = {"type": "object", "properties": {"answer": {"enum": ["yes", "no"]}}, "required": ["answer"]}
    question = [{"role": "user", "content": "Is water wet? Reply as JSON."}]
    held = engine.complete(question, SamplingParams(max_new_tokens=24, json_schema=schema, timeout_s=600))
    assert json.loads(held.text)["answer"] in ("yes", "no") and held.usage is not None and held.usage.prompt_tokens > 0
    free = engine.complete(question, SamplingParams(max_new_tokens=4, top_logprobs=5, timeout_s=600))
    assert free.top_logprobs is not None and "".join(free.tokens) == free.text and len(free.top_logprobs) <= 4
    assert all(token in top for token, top in zip(free.tokens, free.top_logprobs, strict=True))
    assert (engine.context_tokens() or 0) > 0


@pytest.mark.skipif(not (JUDGE and FOLDER), reason="RRM_TEST_SERVED_JUDGE and RRM_TEST_JUDGE_DIR name no served judge")
def test_a_served_judge_gives_its_directorys_scores() -> None:
    here = AgentRRM.from_pretrained(FOLDER, device="cpu", dtype="float32")
    there = AgentRRM.from_pretrained(JUDGE, settings=FOLDER, timeout_s=600)
    rows = [t for t, _ in make_transcripts(ROWS, seed=23)]
    for mode in here.settings.modes or ["score", "full"]:
        for local, served in zip(here.judge(rows, mode=mode), there.judge(rows, mode=mode), strict=True):
            assert local.status == served.status, (mode, local.id, served.reason)
            if local.score is not None:
                assert served.score == pytest.approx(local.score, abs=LIMIT), (mode, local.id)
