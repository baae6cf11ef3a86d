"""examples/grpo_from_parts.py is the trainer's update, on one page."""

from __future__ import annotations

import importlib.util
import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from trainer_setup import make_trainer, settings

from reagent.lab.shipped import lab_policy_folder
from reagent.lab.transcripts import make_transcripts
from rrm.data.trajectory import write_jsonl

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
MOST_LINES = {
    "agents/reagent/algorithms/grpo": 70, "examples/grpo_from_parts": 200, "examples/judge_logs": 60, "examples/train_judge": 60,
    "examples/own_environment": 60, "examples/no_answer_key": 60,
}  # fmt: skip


def test_the_loop_from_parts_makes_the_trainers_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    example = load("grpo_from_parts", monkeypatch)
    policy, (figures,) = example.train(str(lab_policy_folder()), updates=1, tasks_per_update=4, group_size=4)
    config = settings(
        lab_policy_folder(),
        tmp_path,
        algorithm="grpo",
        rollout={
            "tasks_per_update": 4, "group_size": 4, "max_turns": 7, "max_new_tokens": 48, "max_episode_tokens": 640,
            "max_observation_tokens": 128, "temperature": example.TEMPERATURE,
        },
        optim={"learning_rate": example.LEARNING_RATE, "betas": (0.9, 0.99), "microbatch_tokens": 8192},
        loss={"clip_high": example.CLIP_HIGH, "advantage_scale": "batch", "credit": "turn"},
    )  # fmt: skip
    trainer = make_trainer(config)
    trainer.env_factory, trainer.tasks = example.environment(0)
    start = {name: weight.clone() for name, weight in trainer.policy.model.state_dict().items()}
    metrics, _ = trainer.update()
    assert 0 < figures["success"] < 1, "episodes must differ for a step to be taken"
    assert figures["reward"] == pytest.approx(metrics["episode/reward"])
    assert figures["loss"] == pytest.approx(metrics["policy_loss"], rel=1e-4, abs=1e-6)
    assert figures["grad_norm"] == pytest.approx(metrics["grad_norm"], rel=1e-4)
    assert figures["logprob_gap"] < 1e-4
    expected = policy.state_dict()
    for name, weight in trainer.policy.model.state_dict().items():
        torch.testing.assert_close(weight, expected[name], rtol=1e-4, atol=1e-5, msg=name)
    moved = max(float((weight - expected[name]).abs().max()) for name, weight in start.items())
    assert moved > 1e-4


SMALL = ("max_updates=1", "rollout.tasks_per_update=2", "environment.train_tasks=4", "environment.eval_tasks=2")


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A script as a module, found under its name as `python examples/NAME.py` finds it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    rows = make_transcripts(40, seed=3)
    write_jsonl(tmp_path / "runs.jsonl", [t for t, _ in rows])
    lines = (a.model_dump_json(exclude_none=True) + "\n" for _, a in rows)
    (tmp_path / "labels.jsonl").write_text("".join(lines), encoding="utf-8")
    return tmp_path / "runs.jsonl"


@pytest.mark.parametrize("name", MOST_LINES)
def test_a_reader_can_hold_it_on_a_page(name: str) -> None:
    assert len((ROOT / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= MOST_LINES[name]


def test_a_log_is_judged(runs: Path, tmp_path, monkeypatch, capsys) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text("".join(runs.read_text().splitlines(keepends=True)[:3]) + "{broken\n")
    load("judge_logs", monkeypatch).main([str(few), "--model", "lab", "-n", "2"])
    said = capsys.readouterr().out.splitlines()
    assert said[-1].startswith("3 runs, 0 without a score") and "few.jsonl:4" in said[0]
    scores = [float(line.split()[0]) for line in said if line[:1].isdigit() and "  " in line]
    assert len(scores) == 2 and scores == sorted(scores)


def test_a_judge_is_trained(runs: Path, tmp_path, monkeypatch, capsys) -> None:
    small = [
        "data.generate=null", "sft.max_steps=1", "calibration.modes=[score]", "calibration.max_rows=8",
        "evaluation.max_rows=8",
    ]  # fmt: skip
    out = tmp_path / "out"
    words = [str(runs), "--annotations", str(tmp_path / "labels.jsonl"), "-o", str(out), *small]
    load("train_judge", monkeypatch).main(words)
    assert (out / "judge" / "judge.json").is_file()
    assert "outcome" in capsys.readouterr().out.splitlines()[-1]


def test_a_judge_is_trained_on_outcomes_alone(runs: Path, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["data.generate=null", "sft.mix={score: 1.0}", "sft.max_steps=1", "evaluation.max_rows=8"]
    small += ["calibration={method: platt, modes: [score], max_rows: 8}"]
    load("train_judge", monkeypatch).main([str(runs), "-o", "out", *small])
    assert json.loads((tmp_path / "out" / "judge" / "judge.json").read_text())["trained_on"]["rows"]["train"] > 0
    assert "outcome" in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "text"),
    [("judge_logs", "nothing to judge in absent.jsonl"), ("train_judge", "no such file or folder: absent.jsonl")],
)
def test_a_file_that_is_not_there_is_one_line(name: str, text: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "absent.jsonl"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert isinstance(ended.value.code, str) and ended.value.code.startswith(f"error: {text}")
    assert len(ended.value.code.splitlines()) == 1


EXTRAS = {
    "grpo_from_parts": "agents", "gymnasium_judge": "gym,local", "inspect_scores": "inspect",
    "no_answer_key": "agents", "own_environment": "agents",
    "trl_judge": "agents,train",
}  # fmt: skip
INSTALLS = {
    "agentevals_evaluator": "agentevals 'agent-rrm[local]'", "art_group": "openpipe-art", "evaluate_metric": "evaluate",
    "langchain_judge": "langchain-core 'agent-rrm[local]'", "lighteval_metric": "lighteval 'agent-rrm[local]'",
    "openenv_judge": "openenv-core 'agent-rrm[local]'", "push_dataset": "datasets",
    "scout_scanner": "inspect-scout 'agent-rrm[local]'", "verifiers_judge": "verifiers 'agent-rrm[local]'",
    **{name: f"'agent-rrm[{extra}]'" for name, extra in EXTRAS.items()},
}  # fmt: skip


def test_an_extra_that_is_not_installed_is_named() -> None:
    """Each example where nothing optional is: a line with what installs it, and no traceback."""
    program = f"""
import runpy, sys
OPTIONAL = {{"agentevals", "art", "datasets", "evaluate", "gymnasium", "inspect_ai", "inspect_scout", "langchain_core", "lighteval", "openenv", "peft", "safetensors", "tokenizers", "torch",
            "transformers", "trl", "verifiers"}}
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in OPTIONAL:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Refuse())
for name in {sorted(INSTALLS)}:
    try:
        runpy.run_path({str(EXAMPLES)!r} + f"/{{name}}.py", run_name="__main__")
    except SystemExit as end:
        print(name, end.code)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert {name: line.rpartition(": ")[2] for name, line in said.items()} == {
        name: f"pip install {what}" for name, what in INSTALLS.items()
    }
    assert all("No module named" in line for line in said.values())


def test_an_agent_is_trained_in_an_environment_of_one_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = load("own_environment", monkeypatch).main([*SMALL, f"output_dir={tmp_path / 'run'}"])
    assert summary["updates"] == 1 and (tmp_path / "run" / "policy").is_dir()


def test_an_agent_is_trained_without_an_answer_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = [*SMALL, "feedback.score_mode=score", f"output_dir={tmp_path / 'run'}"]
    summary = load("no_answer_key", monkeypatch).main(small)
    assert summary["reward"] is None and summary["learned_reward"] is not None
    json.dumps(summary)
