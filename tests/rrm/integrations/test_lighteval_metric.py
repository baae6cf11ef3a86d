"""The metric, computed by lighteval's own code."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("lighteval", reason="lighteval is not installed (pip install 'agent-rrm[lighteval]')")

from chat_judge import ChatJudge
from lighteval.metrics import apply_metric
from lighteval.models.model_output import ModelResponse
from lighteval.tasks.requests import Doc

from rrm.integrations.lighteval_metric import agent_rrm, as_trajectory
from rrm.judge.agent_rrm import AgentRRM

DOCS = [Doc(query=f"What is {n} * 7?", choices=[str(7 * n)], gold_index=0, instruction="Be brief.") for n in range(3)]


def test_lighteval_gets_the_judges_scores(judge: AgentRRM) -> None:
    metric = agent_rrm(judge)
    texts = [["Answer: 0"], ["It is 7."], ["14, I think.", "15"]]
    found = apply_metric([ModelResponse(text=text) for text in texts], DOCS, [metric])
    rows = [as_trajectory(doc, text) for doc, some in zip(DOCS, texts, strict=True) for text in some]
    own = [row.score or 0.0 for row in judge.judge(rows, mode="score")]
    want = [own[0], own[1], (own[2] + own[3]) / 2]
    assert [row["agent_rrm"] for row in found] == [pytest.approx(score, abs=1e-6) for score in want]
    whole = metric.get_corpus_aggregations()["agent_rrm"]([row["agent_rrm"] for row in found])
    assert whole == pytest.approx(sum(want) / 3, abs=1e-6)
    assert [m.role for m in rows[0].messages] == ["system", "user", "assistant"] and rows[0].meta["reference"] == "0"


def test_a_failure_is_not_a_number_and_no_part_of_the_mean() -> None:
    down = as_trajectory(DOCS[1], "It is 7.").id
    metric = agent_rrm(ChatJudge(down=(down,)), mode="full", name="mine")
    found = apply_metric([ModelResponse(text=["It is 7."]) for _ in DOCS], DOCS, [metric])
    scores = [row["mine"] for row in found]
    assert [math.isnan(score) for score in scores] == [False, True, False]
    assert metric.get_corpus_aggregations()["mine"](scores) == pytest.approx((scores[0] + scores[2]) / 2)
