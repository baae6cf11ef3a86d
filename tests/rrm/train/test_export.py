"""The exported judge is the trained one, whatever its base."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from reagent.lab.model import build_lab_model, build_lab_tokenizer
from reagent.lab.transcripts import make_transcripts
from rrm.cli.eval_cmd import step_labels_of
from rrm.config import TrainConfig
from rrm.data.annotation import Annotation, Finding, Verdict
from rrm.data.trajectory import Trajectory, write_jsonl
from rrm.engines.hf.engine import HFEngine
from rrm.engines.scripted import ScriptedChatEngine
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings, load_settings, save_settings
from rrm.prompt.prompter import Prompter
from rrm.train import run as stages
from rrm.train.data import TrainingRow
from rrm.train.export import measure
from rrm.train.run import train

WHOLE = "<think>t</think><critique>[step 1] good: ok</critique><score>0.5</score>"
ROWS = [t for t, _ in make_transcripts(20, seed=3)]


def drills(prompter: Prompter, rows: int, seed: int) -> list[TrainingRow]:
    """Rows that move the weights far from those of the base."""
    reply = [*prompter.encode("0.9</score>"), prompter.eos_token_id]
    return [TrainingRow(prompter.encode("a b c"), reply, "score") for _ in range(rows)]


def build(trajectories: Sequence[Trajectory], annotations: Any, *, seed: int) -> tuple[Any, Any]:
    """A base that is nowhere but in this process."""
    return tiny(seed)


def tiny(seed: int) -> tuple[Any, Any]:
    tokenizer = build_lab_tokenizer([m.text() for t in ROWS for m in t.messages] + ["<score>0.1</score>"], 500)
    return build_lab_model(tokenizer, hidden=32, layers=2, heads=2, seed=seed), tokenizer


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    model, tokenizer = tiny(0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def trained(folder: Path, base: str, monkeypatch: pytest.MonkeyPatch, **more: Any) -> tuple[list[Any], AgentRRM]:
    """A run of one update: scores of the model that came out of training, and the judge that was exported."""
    data = folder / "rows.jsonl"
    write_jsonl(data, ROWS)
    config = TrainConfig.model_validate(
        {
            "cpu": True,
            "output_dir": str(folder / "run"),
            "transcript_tokens": 100,
            "model": {"base": base, **more.pop("model", {})},
            "data": {"trajectories": [str(data)]},
            "sft": {"max_steps": 1, "batch_size": 4, "gradient_accumulation_steps": 1, "learning_rate": 1e-2},
            "calibration": {"enabled": False},
            "evaluation": {"enabled": False},
            **more,
        }
    )
    heard_scores: list[Any] = []
    finish = stages.run_finish

    def listen(run: Any, model: Any) -> dict[str, Any]:
        engine = HFEngine(model.eval(), run.prompter.tokenizer, device="cpu")
        # as the exported one: a judge that was trained in no known mode writes a critique of every window first
        settings = JudgeSettings(modes=stages.trained_modes(run), prompt_version=run.prompter.version)
        heard_scores.extend(scores(AgentRRM(engine, run.prompter, settings=settings)))
        return finish(run, model)

    monkeypatch.setattr(stages, "run_finish", listen)
    train(config)
    return heard_scores, AgentRRM.from_pretrained(str(folder / "run"), device="cpu", trust_remote_code=True)


def scores(judge: AgentRRM) -> list[Any]:
    return [f.raw_score for f in judge.judge(ROWS[:4], mode="score")]


def test_an_adapter_over_drilled_weights_is_exported_as_what_was_trained(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was exported over the base as it was before the drills: another judge."""
    drill_settings = {"generate": f"{__name__}:drills", "rows": 32, "batch_size": 4, "learning_rate": 1e-2}
    expected, judge = trained(tmp_path, str(base), monkeypatch, drills=drill_settings)
    assert scores(judge) == pytest.approx(expected, abs=1e-5)
    assert load_settings(tmp_path / "run" / "judge").base is None


def test_an_adapter_over_a_base_made_by_a_function_is_exported_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ended in an error after training, for no folder or hub id is named module:function."""
    expected, judge = trained(tmp_path, f"{__name__}:build", monkeypatch)
    assert scores(judge) == pytest.approx(expected, abs=1e-5)


def test_an_adapter_over_a_named_base_stays_one(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, judge = trained(tmp_path, str(base), monkeypatch)
    assert scores(judge) == pytest.approx(expected, abs=5e-3)  # the adapter is stored in bfloat16
    names = {path.name for path in (tmp_path / "run" / "judge").iterdir()}
    assert "adapter_model.safetensors" in names and "model.safetensors" not in names
    assert load_settings(tmp_path / "run" / "judge").base == str(base)


def test_an_adapter_is_trained_further(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a learning rate of 0 it stays the first judge; it knows the questions of both trainings."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    _, first = trained(tmp_path / "a", str(base), monkeypatch)
    start = tmp_path / "a" / "run" / "judge"
    settings = load_settings(start)
    save_settings(start, settings.model_copy(update={"training_questions": [*settings.training_questions, "f" * 16]}))
    sft = {"max_steps": 1, "batch_size": 4, "gradient_accumulation_steps": 1, "lora": {"init": str(start)}}
    heard, second = trained(tmp_path / "b", str(base), monkeypatch, sft={**sft, "learning_rate": 0.0})
    earlier = list(heard)  # the next run's scores are heard by all who listen
    assert earlier == pytest.approx(scores(first), abs=1e-5)
    assert "f" * 16 in second.settings.training_questions


def remote(folder: Path) -> Path:
    """A base whose class comes with its folder, as code."""
    model, tokenizer = tiny(0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    name = type(model).__name__
    config_type = type(model.config).__name__
    config |= {"model_type": "own", "architectures": ["OwnLM"]}
    config["auto_map"] = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnLM"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(
        f"from transformers import {config_type}, {name}\n"
        f"class OwnConfig({config_type}):\n    model_type = 'own'\n"
        f"class OwnLM({name}):\n    config_class = OwnConfig\n"
    )
    return folder


@pytest.mark.parametrize("lora", [None, {"r": 2}])
def test_a_base_with_code_of_its_own_is_trained_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_modules: None, lora: dict[str, int] | None
) -> None:
    """trust_remote_code was heard in training and not in loading the judge that training ends with."""
    folder = remote(tmp_path / "own")
    sft = {"max_steps": 1, "batch_size": 4, "gradient_accumulation_steps": 1, "lora": lora}
    expected, judge = trained(tmp_path, str(folder), monkeypatch, sft=sft, model={"trust_remote_code": True})
    assert scores(judge) == pytest.approx(expected, abs=5e-3)


def test_the_card_reads_step_labels_as_eval_does() -> None:
    rows = [t for t in ROWS if len(t.steps) == 2][:4]
    labels: dict[str, tuple[Verdict, ...]] = {"a": ("bad", "good"), "b": ("good", "good"), "c": ("good", "bad")}
    raters = {
        t.id: [
            Annotation(
                trajectory_id=t.id, score=0.5, annotator=who, kind="human",
                weight=2.0 if who == "a" else 1.0,
                findings=[Finding(step=k, verdict=v) for k, v in enumerate(verdicts, 1)],
            )
            for who, verdicts in labels.items()
        ]
        for t in rows
    }  # fmt: skip
    judge = AgentRRM(ScriptedChatEngine([WHOLE] * 2 * len(rows)))
    config = TrainConfig.model_validate({"evaluation": {"max_rows": 0, "full_rows": len(rows)}})
    steps = measure(judge, rows, raters, config)["full"]["steps"]
    assert [step_labels_of([t], raters) for t in rows] == [[["good", "good"]]] * len(rows)
    assert (steps["bad_share"], steps["steps"]) == (0.0, 2 * len(rows))
    raters[rows[0].id].append(raters[rows[0].id][0].model_copy(update={"weight": 0.0}))  # says nothing
    assert step_labels_of(rows[:1], raters) == [["good", "good"]]
