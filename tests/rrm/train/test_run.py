"""`train()` from transcripts to a judge's directory, in one process and in two; refusals."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from processes import launch
from safetensors.torch import load_file, save_file

from reagent.lab.transcripts import make_transcripts
from rrm.config import TrainConfig
from rrm.data.output import folder_when_whole
from rrm.errors import ConfigError, RRMError
from rrm.evaluation.fit_calibration import calibrate
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.calibration import Calibration, Platt
from rrm.judge.judge_dir import JudgeSettings
from rrm.train import export, ranks
from rrm.train.checkpoints import seal
from rrm.train.prepare import prepare
from rrm.train.run import train

ROOT = Path(__file__).resolve().parents[3]
SMALL = {"hidden_size": 32, "intermediate_size": 32, "layers": 1, "heads": 2, "vocab_size": 400}


def tree(folder: Path, *, accumulation: int = 2, **changes: Any) -> dict[str, Any]:
    """A config of all stages that takes seconds."""
    return {
        "name": "tiny",
        "output_dir": str(folder),
        "transcript_tokens": 60,
        "max_new_tokens": 8,
        "cpu": True,
        "model": {"base": "reagent.lab.judge_base:build", "options": SMALL},
        "data": {
            "generate": "reagent.lab.transcripts:generate",
            "generate_options": {"transcripts": 80},
            "target": "annotation",
            "calibration_share": 0.4,
            "test_share": 0.2,
        },
        "sft": {
            "max_steps": 3,
            "batch_size": 4,
            "gradient_accumulation_steps": accumulation,
            "lora": None,
            "mix": {"score": 1, "full": 1},
        },
        "rl": {
            "enabled": True,
            "max_steps": 1,
            "prompts_per_step": 2,
            "num_generations": 2,
            "max_completion_length": 8,
            "gate_format": 0.0,
            "gate_rows": 2,
        },
        "calibration": {"modes": ["score"], "max_rows": 32},
        "evaluation": {"max_rows": 16, "full_rows": 2},
        **changes,
    }


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A run in this process, and what it returned."""
    folder = tmp_path_factory.mktemp("one") / "run"
    summary = train(TrainConfig.model_validate(tree(folder)))
    assert summary is not None
    return folder, summary


def test_train_goes_from_data_to_a_judge_that_judges(one_process: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = one_process
    assert summary["judge"] == str(folder / "judge")
    names = {path.name for path in (folder / "judge").iterdir()}
    assert {"model.safetensors", "tokenizer.json", "judge.json", "evaluation.json", "README.md"} <= names
    assert {path.name for path in folder.iterdir()} == {
        ".lock", "config.yaml", "data.json", "earlier.json", "split.json", "sft", "rl", "judge",
    }  # fmt: skip
    card = json.loads((folder / "judge" / "evaluation.json").read_text())
    assert card["score"]["rows"] == 16 and card["full"]["rows"] == 2
    assert card["calibration"]["score@windowed"]["rows"] == 32  # each is longer than a window
    assert card["question_texts_in_training"] == {"calibration": 0, "test": 0}
    labels, split = card["trained_on"]["labels"], card["trained_on"]["rows"]
    assert split == {"train": 32, "calibration": 32, "test": 16}
    assert labels["annotation"] == {"lab": 32} and labels["both"] == 32
    fresh = [t for t, _ in make_transcripts(4, seed=9)]
    judge = AgentRRM.from_pretrained(str(folder), device="cpu")
    feedback = judge.judge(fresh, mode="score")
    assert judge.settings.modes == ["full", "score"] and len(judge.settings.training_questions) == 8
    assert all(f.status == "scored" and f.score is not None and 0.0 <= f.score <= 1.0 for f in feedback)


def test_a_judge_of_steps_is_trained_calibrated_and_measured(tmp_path: Path) -> None:
    changes = {
        "transcript_tokens": 400,
        "sft": {**tree(tmp_path)["sft"], "mix": {"score": 0, "steps": 1}},
        "rl": {"enabled": False},
        "calibration": {"modes": ["steps", "score"], "max_rows": 16},
    }
    assert train(TrainConfig.model_validate(tree(tmp_path / "run", **changes))) is not None
    card = json.loads((tmp_path / "run" / "judge" / "evaluation.json").read_text())
    assert set(card["calibration"]) >= {"steps", "steps_p_good", "score"} and "skipped" in card["calibration"]["score"]
    assert card["steps"]["rows"] == 16 and card["steps"]["steps"]["steps"] > 16 and "score" not in card
    judge = AgentRRM.from_pretrained(str(tmp_path / "run"), device="cpu")
    assert (judge.settings.modes, judge.settings.default_mode) == (["steps"], "steps")
    fresh = [t for t, _ in make_transcripts(3, seed=9)]
    for trajectory, feedback in zip(fresh, judge.judge(fresh, mode="full"), strict=True):
        assert feedback.status == "scored" and feedback.trace and feedback.coverage is not None
        assert [f.step for f in feedback.findings] == [step.index for step in trajectory.steps]


def test_a_finish_that_is_stopped_leaves_the_judge_that_was_there(
    one_process: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated `rrm train` used to delete judge/ first, and a kill during calibration left half of one."""
    folder, summary = one_process
    before = {path.name: path.read_bytes() for path in (folder / "judge").iterdir()}
    config = TrainConfig.model_validate(tree(folder))
    with monkeypatch.context() as patch:
        patch.setattr("rrm.train.run.calibrate", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            train(config)
    assert not (folder / "judge.tmp").exists()
    (folder / "judge.tmp").mkdir()  # as a kill leaves it
    assert {path.name: path.read_bytes() for path in (folder / "judge").iterdir()} == before
    stages = {path: path.stat().st_mtime_ns for path in folder.glob("*/model/*")}
    assert train(config) == summary
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*/model/*")} == stages  # finished ones were skipped
    assert not (folder / "judge.tmp").exists() and not (folder / "judge.old").exists()


def test_a_stopped_run_of_lora_and_rl_is_finished_with_the_adapter_of_rl(tmp_path: Path) -> None:
    off, model = {"enabled": False}, {"base": "reagent.lab.judge_base:build", "options": SMALL, "dtype": "float32"}
    config = tree(tmp_path / "run", model=model, calibration=off, evaluation=off)
    config["sft"] |= {"lora": {"r": 4, "alpha": 8, "target_modules": ["q_proj", "v_proj"]}}
    start = prepare(TrainConfig.model_validate(config)).model.state_dict()
    assert train(TrainConfig.model_validate(config)) is not None
    weights = load_file(tmp_path / "run" / "judge" / "model.safetensors")
    saved = tmp_path / "run" / "rl" / "model" / "adapter_model.safetensors"
    save_file({name: (1 + 99 * ("lora_B" in name)) * value for name, value in load_file(saved).items()}, saved)
    seal(saved.parent)
    assert train(TrainConfig.model_validate(config)) is not None
    finished = load_file(tmp_path / "run" / "judge" / "model.safetensors")
    name = "model.layers.0.self_attn.q_proj.weight"
    learned = weights[name] - start[name]
    assert float(learned.abs().max()) > 1e-6
    torch.testing.assert_close(finished[name] - start[name], 100 * learned, rtol=1e-2, atol=1e-6)


def test_a_judge_stopped_between_two_renamings_is_found_again(tmp_path: Path) -> None:
    (tmp_path / "judge.old").mkdir()
    (tmp_path / "judge.old" / "kept").touch()
    with pytest.raises(RRMError), folder_when_whole(tmp_path / "judge") as building:
        assert (tmp_path / "judge" / "kept").exists()
        building.mkdir()
        raise RRMError("stopped again")
    assert (tmp_path / "judge" / "kept").exists() and not building.exists()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The same run in two processes: each has one of the two micro-batches of an update."""
    base = tmp_path_factory.mktemp("two")
    (base / "config.yaml").write_text(yaml.safe_dump(tree(base / "run", accumulation=1)))
    processes = ["--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--main_process_port", "0"]
    settled = ["--mixed_precision", "no", "--dynamo_backend", "no", "--module", "rrm", "train"]
    started = ["accelerate.commands.launch", *processes, *settled]
    command = [*started, "--config", base / "config.yaml"]
    return base / "run", launch(command, timeout=280, prepare=lambda: shutil.rmtree(base / "run", ignore_errors=True))


def test_two_processes_train_what_one_does(
    one_process: tuple[Path, dict[str, Any]], two: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    """Rank and accumulation change nothing in SFT: the same three updates to float32's rounding."""
    expected, weights_of_two = (
        load_file(run / "sft" / "model" / "model.safetensors") for run in (one_process[0], two[0])
    )
    start = prepare(TrainConfig.model_validate(tree(one_process[0]))).model.state_dict()
    assert expected.keys() == weights_of_two.keys()
    assert max(float((start[name] - value).abs().max()) for name, value in expected.items()) > 5e-4
    for name, value in expected.items():
        torch.testing.assert_close(weights_of_two[name], value, rtol=1e-4, atol=1e-5, msg=name)


def test_of_two_processes_one_finishes(two: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = two
    summaries = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"output_dir"')]
    assert [s["judge"] for s in summaries] == [str(folder / "judge")]
    assert done.stderr.count("data.target=annotation: targets of 32 rows") == 1
    assert {path.name for path in folder.iterdir()} == {
        ".lock", "config.yaml", "data.json", "earlier.json", "split.json", "sft", "rl", "judge",
    }  # fmt: skip
    assert json.loads((folder / "rl" / "done.json").read_text())["steps"] == 1
    fresh = [t for t, _ in make_transcripts(4, seed=9)]
    feedback = AgentRRM.from_pretrained(str(folder), device="cpu").judge(fresh, mode="score")
    assert [f.status for f in feedback] == ["scored"] * 4


def test_a_refusal_of_the_main_process_stops_all_of_them(tmp_path: Path) -> None:
    """The gate of RL is checked by one: the others neither wait for ever nor train on."""
    script = tmp_path / "worker.py"
    script.write_text(
        "import sys\n"
        "from rrm.errors import RRMError\n"
        "from rrm.train.ranks import check_launch, is_main, on_main, wait\n"
        "check_launch(True)\n"
        "def gate():\n"
        "    raise RRMError('too few replies')\n"
        "share = on_main(lambda: 0.75, True)\n"
        "try:\n"
        "    on_main(gate, True)\n"
        "except RRMError as error:\n"
        "    open(sys.argv[1] + str(int(is_main(True))), 'w').write(f'{share} {error}')\n"
        "wait(True)\n"
    )
    launch(["torch.distributed.run", "--standalone", "--nproc-per-node", 2, script, tmp_path / "rank"], timeout=120)
    assert [(tmp_path / f"rank{main}").read_text() for main in (0, 1)] == ["0.75 too few replies"] * 2


@pytest.mark.parametrize(("variable", "name"), list(ranks.SHARDED.items()))
def test_sharded_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, name: str) -> None:
    monkeypatch.setenv(variable, "true")
    with pytest.raises(ConfigError, match=rf"launched with {name}, .*--multi_gpu .*sft\.lora.*sharding=fsdp"):
        train(TrainConfig.model_validate(tree(tmp_path / "run")))
    assert not (tmp_path / "run").exists()


def test_processes_without_an_accelerator_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would each train alone, in the same folder."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(ranks, "state", lambda cpu: type("Alone", (), {"num_processes": 1})())
    with pytest.raises(ConfigError, match=r"2 processes were launched but no accelerator is here .* cpu=true"):
        train(TrainConfig.model_validate(tree(tmp_path / "run", cpu=False)))


def test_one_process_with_several_gpus_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers would wrap the model in DataParallel, whose batches mix the modes that ours keep apart."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    with pytest.raises(ConfigError, match=r"one process sees 2 GPUs: .*--num_processes 2 .*CUDA_VISIBLE_DEVICES=0"):
        ranks.refuse_data_parallel(cpu=False, processes=1)
    ranks.refuse_data_parallel(cpu=True, processes=1)
    ranks.refuse_data_parallel(cpu=False, processes=2)
    ranks.check_launch(cpu=True)
    monkeypatch.setenv("LOCAL_RANK", "0")  # torchrun --nproc_per_node 1
    ranks.refuse_data_parallel(cpu=False, processes=1)


def test_bfloat16_whole_weights_learn_in_small_steps(tmp_path: Path) -> None:
    """At 1e-6 a bfloat16 weight of 0.1 cannot take a step: 1 % of the weights used to move in 20 updates."""
    from transformers import AutoModelForCausalLM

    from reagent.lab.model import build_lab_model, build_lab_tokenizer

    tokenizer = build_lab_tokenizer(["You judge an agent's run. score 0.5"], 300)
    base = build_lab_model(tokenizer, hidden=32, layers=1, heads=2, seed=0).to(torch.bfloat16)
    base.save_pretrained(str(tmp_path / "base"))
    tokenizer.save_pretrained(str(tmp_path / "base"))
    off = {"enabled": False}
    sft = {
        "max_steps": 20,
        "epochs": 9,
        "batch_size": 2,
        "gradient_accumulation_steps": 1,
        "learning_rate": 1e-6,
        "lora": None,
    }
    config = tree(
        tmp_path / "run",
        model={"base": str(tmp_path / "base"), "dtype": "bfloat16"},
        sft=sft, rl=off, calibration=off, evaluation=off,
    )  # fmt: skip
    assert train(TrainConfig.model_validate(config)) is not None
    before, after = (
        load_file(p / "model.safetensors") for p in (tmp_path / "base", tmp_path / "run" / "sft" / "model")
    )
    used = {n: (before[n].float() != after[n].float()).float().mean().item() for n in after if "embed" not in n}
    assert min(used.values()) > 0.95, used
    # what is used is of the base's type again
    judge = AutoModelForCausalLM.from_pretrained(str(tmp_path / "run" / "judge"))
    assert judge.dtype == torch.bfloat16


def test_a_card_is_measured_on_whole_questions() -> None:
    """Of 400 rows drawn alone, 72 of 3,203 pairs of attempts at one question were left."""
    rows = [t for t, _ in make_transcripts(80, seed=0)]
    random.Random(0).shuffle(rows)
    chosen = export.whole_questions(rows, 30, seed=1)
    attempts = Counter(t.question_id for t in chosen)
    assert len(chosen) == 28 and set(attempts.values()) == {4}
    assert chosen == export.whole_questions(rows, 30, seed=1) != export.whole_questions(rows, 30, seed=2)
    assert len({t.question_id for t in export.whole_questions(rows, 3, seed=1)}) == 1
    assert export.whole_questions(rows, 0, seed=1) == export.whole_questions([], 9, seed=1) == []


def test_a_card_says_calibrated_only_of_what_is() -> None:
    settings = JudgeSettings(calibration=Calibration(modes={"score": Platt(a=1.0, b=0.0, rows=20)}))
    assert "Scores are calibrated in mode score, in no other." in export.model_card(settings, {})
    assert "not calibrated." in export.model_card(JudgeSettings(), {})


def test_a_mode_without_training_rows_is_neither_calibrated_nor_measured(
    one_process: tuple[Path, dict[str, Any]],
) -> None:
    judge = AgentRRM.from_pretrained(str(one_process[0]), device="cpu")
    judge.settings.modes = ["score"]
    calibration = {"modes": ["full"], "sampled_rows": 4}
    config = TrainConfig.model_validate(
        tree(one_process[0], calibration=calibration, evaluation={"max_rows": 4, "full_rows": 4})
    )
    rows = [t for t, _ in make_transcripts(4, seed=9)]
    assert calibrate(judge, rows, [1.0, 0.0, 1.0, 0.0], config.calibration)["full"]["skipped"].startswith(
        "trained on no row"
    )
    assert export.measure(judge, rows, {}, config).keys() == {"score"}


def test_the_card_says_what_the_judge_can_do_and_what_was_measured() -> None:
    report = {
        "rows": 9,
        "metrics": {
            "judge": {
                "auroc": {"value": 0.5, "low": 0.25, "high": 0.75},
                "brier": dict.fromkeys(("value", "low", "high")),
            }
        },
    }
    card = export.model_card(
        JudgeSettings(modes=["steps"], prompt_version="2", transcript_tokens=640), {"steps": report}
    )
    assert "gives the probability that each step was good" in card and "critique" not in card
    assert "640 tokens; longer transcripts are read in windows" in card
    assert "| steps | 9 | auroc | 0.500 | 0.250 – 0.750 |" in card and "brier" not in card
    assert "a critique anchored to steps" in export.model_card(JudgeSettings(modes=["score", "full"]), {})
