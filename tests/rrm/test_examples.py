"""The short scripts of examples/ in place of commands and modules. Frameworks have stand-ins; integrations/test_integration_examples.py runs
the scripts where they are installed."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from chat_judge import ChatJudge

from rrm.data.annotation import Annotation, own_annotations
from rrm.data.feedback import Feedback, JudgeInfo
from rrm.engines.scripted import ScriptedChatEngine
from rrm.errors import ReadError, RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.readers import read
from rrm.scoring.row_index import to_row

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


def test_they_are_short() -> None:
    names = (
        "agentevals_evaluator", "art_group", "evaluate_metric", "gymnasium_judge", "langchain_judge", "lighteval_metric",
        "openenv_judge", "push_dataset", "scout_scanner",
    )  # fmt: skip
    assert max(len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) for name in names) <= 80


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
    own = [f.score or 0.0 for f in ChatJudge().judge(read)]
    assert scores == pytest.approx([own[0], math.nan, (own[2] + own[3]) / 2], nan_ok=True)
    assert metric.corpus_level_fn(scores) == pytest.approx((scores[0] + scores[2]) / 2)
    assert math.isnan(metric.corpus_level_fn([math.nan]))
    assert read[3].messages[1].reasoning_content == "hm" and metric.metric_name == "agent_rrm"


JUDGE = JudgeInfo(model="openai:http://10.1.2.3:8000/v1#m-7b", model_hash="ab12", prompt_version="2", mode="full")
TOKEN = "hf_" + "a1B2" * 9  # the form of one, and none


@pytest.fixture
def labelled(tmp_path: Path) -> list[str]:
    """Two runs, the first with a key in it, a label and a judgement; as arguments of the example."""
    call = {"name": "look", "arguments": {"at": "door", "how": None}, "id": "c1"}
    lines = [
        {
            "id": name,
            "messages": [
                {"role": "user", "content": "How wide?"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "content": "90 cm", "tool_call_id": "c1"},
                {"role": "assistant", "content": said},
            ],
            **more,
        }
        for name, said, more in (
            ("one", f"export HF_TOKEN={TOKEN} \ud800", {"reference": "90", "host": "ann"}),
            ("two", "80 cm", {"outcome": 0.5, "tools": [{"type": "function", "function": {"name": "look"}}]}),
        )
    ]
    (tmp_path / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run, _ = read(tmp_path / "runs.jsonl")
    label = Annotation(trajectory_id="one", digest=run.digest, score=0.7, critique="[step 1] good: looks", kind="llm",
                       annotator="openai:http://10.1.2.3:8000/v1#gpt")  # fmt: skip
    (tmp_path / "labels.jsonl").write_text(label.to_json() + "\n")
    said = Feedback(id="one", status="scored", score=0.8, critique="Fine.", reason="http://10.1.2.3", judge=JUDGE)
    (tmp_path / "scored.jsonl").write_text(json.dumps(to_row(said, run)) + "\n")
    files = [str(tmp_path / name) for name in ("runs.jsonl", "labels.jsonl", "scored.jsonl")]
    return [files[0], "--to", "org/doors", "--license", "mit", "--annotations", files[1], "--scores", files[2]]


def test_a_pushed_set_is_read_back_with_labels_and_without_keys(
    labelled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example, out = load("push_dataset", monkeypatch), tmp_path / "set.parquet"
    example.main([*labelled, "--dry-run", str(out)])
    assert json.loads(capsys.readouterr().out) == {"rows": 2, "removed": {"Hugging Face token": 1}}
    runs, back = list(read(labelled[0])), list(read(out))
    assert [(t.id, t.task, t.question_id, t.outcome) for t in back] == [
        (t.id, t.task, t.question_id, t.outcome) for t in runs
    ]
    assert back[1].digest == runs[1].digest and back[1].meta == {}
    assert back[0].messages[3].text() == "export HF_TOKEN=[removed] ?" and back[0].meta["reference"] == "90"
    (label,), _ = own_annotations(back[0])
    assert (label.digest, label.score, label.annotator) == (back[0].digest, 0.7, "gpt")
    assert (back[0].meta["feedback"]["score"], back[0].meta["feedback"]["judge"]["model"]) == (0.8, "m-7b")
    said = "".join(t.model_dump_json(exclude={"source"}) for t in back)
    assert not [word for word in ("10.1.2.3", "host", TOKEN, str(tmp_path)) if word in said]


def test_a_set_is_pushed_private_and_never_into_a_public_one(
    labelled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    example, asked = load("push_dataset", monkeypatch), list[Any]()
    monkeypatch.setattr(example, "create_repo", lambda *args, **how: asked.append(how["private"]))
    monkeypatch.setattr(example.Dataset, "push_to_hub", lambda rows, to: asked.append((len(rows), to)))
    monkeypatch.setattr(example, "metadata_update", lambda to, card, **_: asked.append(card))
    monkeypatch.setattr(example, "repo_info", lambda *_, **__: SimpleNamespace(private=False))
    with pytest.raises(SystemExit, match="org/doors is there, and is public"):
        example.main(labelled)
    assert asked == [True]
    example.main([*labelled, "--public"])
    assert asked == [True, False, (2, "org/doors"), {"license": "mit"}]


def test_labels_and_scores_of_what_has_changed_are_refused(
    labelled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    example, runs = load("push_dataset", monkeypatch), Path(labelled[0])
    runs.write_text(runs.read_text().replace("90 cm", "70 cm"))
    with pytest.raises(RRMError, match="1 of 1 annotations belong to no transcript"):
        example.main(labelled)
    with pytest.raises(RRMError, match="that transcript has changed since"):
        example.main([*labelled[:5], *labelled[7:]])


def test_the_command_that_is_gone_names_the_example() -> None:
    command = [sys.executable, "-c", "from rrm.cli import main; main()", "push", "runs", "--to", "org/doors"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: rrm push is gone: examples/push_dataset.py ")
