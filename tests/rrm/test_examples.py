"""The short scripts of examples/ that put a judge into other tools, on stand-ins of the frameworks; integrations/test_integration_examples.py
runs them where the frameworks are installed."""

from __future__ import annotations

import asyncio
import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from chat_judge import ChatJudge

from rrm.engines.scripted import ScriptedChatEngine
from rrm.errors import ReadError
from rrm.judge.agent_rrm import AgentRRM

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"query": "Ada"}'}}


def load(name: str, monkeypatch: pytest.MonkeyPatch, **framework: dict[str, Any]) -> ModuleType:
    """A script as a module; `framework`: what it imports of modules that are stood in for, their names' dots as `__`."""
    for module, names in framework.items():
        stand_in = ModuleType(module.replace("__", "."))
        vars(stand_in).update(names)
        monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["agentevals_evaluator", "art_group", "evaluate_metric", "lighteval_metric"])
def test_they_are_short(name: str) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= 62


def test_a_measure_is_a_metric_of_evaluate(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("evaluate", reason="evaluate is not installed")
    metric = load("evaluate_metric", monkeypatch).AUROC(keep_in_memory=True)
    assert metric.compute(predictions=[0.8, 0.4, 0.4, 0.2], references=[1, 0.5, 0.49, 0]) == {"auroc": 0.875}


def test_agentevals_gets_a_score_or_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    example = load("agentevals_evaluator", monkeypatch, agentevals={}, agentevals__types={"EvaluatorResult": dict})
    call = {"name": "search", "args": {"query": "Ada"}, "id": "c1", "type": "tool_call"}
    of_langchain = [
        {"type": "human", "content": "Where was Ada born?"},
        {"type": "ai", "content": "", "tool_calls": [call]},
        {"type": "tool", "content": "Ada was born in London", "tool_call_id": "c1", "name": "search"},
        {"type": "ai", "content": "Answer: London"},
    ]
    messages = [SimpleNamespace(model_dump=lambda m=m: m) for m in of_langchain]
    read: list[Any] = []
    found = example.trajectory_evaluator(ChatJudge(read.extend))(inputs="left aside", outputs={"messages": messages})
    assert found["key"] == "agent_rrm" and found["metadata"] == {"status": "scored"} and 0 <= found["score"] <= 1
    assert found["comment"] == "[step 1] good: ok"
    assert [m.role for m in read[0].messages] == ["user", "assistant", "tool", "assistant"]
    down = example.trajectory_evaluator(ChatJudge(down=(read[0].id,)))(outputs=of_langchain)
    assert down["score"] is None and "server is down" in down["comment"]
    with pytest.raises(ReadError, match="outputs"):
        example.trajectory_evaluator(ChatJudge())(outputs=[{"role": "robot", "content": "beep"}])


class Copied(SimpleNamespace):
    """A trajectory or a group of ART's, as far as the example knows them."""

    def model_copy(self, update: dict[str, Any]) -> Copied:
        return Copied(**{**vars(self), **update})

    def messages(self) -> list[dict[str, Any]]:
        said = [{"role": "user", "content": "Where was Ada born?"}, {"role": "assistant", "tool_calls": [CALL]}]
        result = {"role": "tool", "tool_call_id": "c1", "content": "Ada was born in London"}
        return [*said, result, {"role": "assistant", "content": self.answer}]


def test_arts_rewards_are_the_places_of_the_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    example = load("art_group", monkeypatch, art={})
    tools = [{"type": "function", "function": {"name": "search"}}]
    attempts = [
        Copied(answer=answer, reward=float(answer == "London"), metrics={"turns": 2}, tools=tools)
        for answer in ("London", "Paris", "Maybe Rome?")
    ]
    group = Copied(trajectories=attempts, metadata={"task": 1})

    def judged(reply: str) -> Any:
        engine = ScriptedChatEngine(lambda *_: reply)
        found = asyncio.run(example.judge_score_group(group, AgentRRM(engine, model="scripted")))
        assert len(engine.calls) >= 1
        return found

    found = judged("<ranking>B > A = C</ranking>")
    assert sorted(one.reward for one in found.trajectories) == [0.25, 0.25, 1.0] and found.metadata == {"task": 1}
    assert found.trajectories[0].metrics == {"turns": 2, "independent_reward": 1.0}
    assert [one.reward for one in attempts] == [1.0, 0.0, 0.0]
    assert judged("I cannot say.") is None


def test_lighteval_gets_the_mean_of_a_samples_scores_and_nan_of_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    example = load(
        "lighteval_metric",
        monkeypatch,
        lighteval={},
        lighteval__metrics={},
        lighteval__metrics__metrics_sample={"SampleLevelComputation": object},
        lighteval__metrics__utils={},
        lighteval__metrics__utils__metric_utils={"SampleLevelMetric": SimpleNamespace},
        lighteval__models={},
        lighteval__models__model_output={"ModelResponse": SimpleNamespace},
        lighteval__tasks={},
        lighteval__tasks__requests={"Doc": SimpleNamespace, "SamplingMethod": SimpleNamespace(GENERATIVE="text")},
    )
    read: list[Any] = []
    metric = example.agent_rrm(ChatJudge(read.extend, down=("1",)))
    docs = [SimpleNamespace(query=f"What is {n} * 7?") for n in range(3)]
    texts = [["Answer: 0"], ["It is 7."], ["14, I think.", "<think>hm</think>15"]]
    scores = metric.sample_level_fn.compute([SimpleNamespace(text=text) for text in texts], docs)
    own = [f.score for f in ChatJudge().judge(read)]
    assert scores == pytest.approx([own[0], math.nan, (own[2] + own[3]) / 2], nan_ok=True)
    assert metric.corpus_level_fn(scores) == pytest.approx((scores[0] + scores[2]) / 2)
    assert math.isnan(metric.corpus_level_fn([math.nan]))
    assert read[3].messages[1].reasoning_content == "hm" and metric.metric_name == "agent_rrm"
