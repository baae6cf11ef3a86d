"""`sharding: fsdp`: two processes train as one does, and resume from shards, also on one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sharded_sft_worker
import torch
from processes import emptied, launch
from pydantic import ValidationError
from safetensors.torch import load_file
from sharded_sft_worker import KINDS, STEPS, config

from rrm.config import TrainConfig
from rrm.errors import RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.train.run import train


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same runs in this process, with twice the micro-batches an update."""
    output = tmp_path_factory.mktemp("one")
    torch.set_num_threads(1)
    for training in KINDS:
        train(config(output / f"{training}-straight", training, accumulation=2, sharding="none"))
    return output


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("two")
    started = ["torch.distributed.run", "--standalone", "--nproc-per-node", 2]
    launch([*started, sharded_sft_worker.__file__, output], timeout=550, prepare=lambda: emptied(output))
    return output


def weights(run: Path, training: str) -> dict[str, torch.Tensor]:
    """The saved weights of a stage."""
    name = "adapter_model" if training == "lora" else "model"
    return load_file(run / "sft" / "model" / f"{name}.safetensors")


def logged(run: Path) -> dict[str, Any]:
    """The trainer's line of ten updates, of all processes."""
    (line,) = [
        row for row in json.loads((run / "sft" / "trainer_state.json").read_text())["log_history"] if "loss" in row
    ]
    return {name: line[name] for name in ("step", "loss", "grad_norm", "learning_rate")}


@pytest.mark.parametrize("training", KINDS)
@pytest.mark.timeout(900)
def test_two_sharded_processes_train_what_one_does(one_process: Path, two: Path, training: str) -> None:
    runs = one_process / f"{training}-straight", two / f"{training}-straight"
    expected, of_two = (logged(run) for run in runs)
    assert expected["step"] == STEPS and of_two == pytest.approx(expected, rel=1e-5, abs=1e-5)
    theirs, mine = (weights(run, training) for run in runs)
    assert theirs.keys() == mine.keys()
    for name, weight in theirs.items():
        torch.testing.assert_close(mine[name], weight, rtol=1e-5, atol=1e-5, msg=name)
    if training == "lora":  # B starts at nought
        assert max(float(w.abs().max()) for n, w in theirs.items() if "lora_B" in n) > 1e-3
    shards = {path.name for path in (runs[1] / "sft" / f"checkpoint-{STEPS}").glob("*.safetensors")}
    assert shards == {f"shard-0000{i}-of-00002.safetensors" for i in (1, 2)}


@pytest.mark.parametrize("training", KINDS)
@pytest.mark.timeout(900)
def test_a_sharded_training_goes_on_to_the_bit(two: Path, training: str) -> None:
    straight, resumed = two / f"{training}-straight", two / f"{training}-resumed"
    theirs, mine = logged(straight), logged(resumed)
    del theirs["loss"], mine["loss"]  # a mean over the steps since the trainer began
    assert theirs == mine
    theirs, mine = weights(straight, training), weights(resumed, training)
    assert all(torch.equal(mine[name], weight) for name, weight in theirs.items())


@pytest.mark.parametrize("training", KINDS)
@pytest.mark.timeout(900)
def test_one_process_goes_on_from_the_shards_of_two(one_process: Path, two: Path, training: str) -> None:
    handed = two / f"{training}-handed"
    with pytest.raises(RRMError, match=r"made with sharding=fsdp.*with sharding=none: set sharding=fsdp"):
        train(config(handed, training, accumulation=1, sharding="none"))
    with pytest.raises(
        RRMError, match=r"updates of 8 rows, and these would have 4: set sft\.gradient_accumulation_steps"
    ):
        train(config(handed, training, accumulation=1, sharding="fsdp"))
    train(config(handed, training, accumulation=2, sharding="fsdp"))
    theirs, mine = weights(one_process / f"{training}-straight", training), weights(handed, training)
    for name, weight in theirs.items():
        torch.testing.assert_close(mine[name], weight, rtol=1e-5, atol=1e-5, msg=name)


@pytest.mark.timeout(900)
def test_the_judge_of_a_sharded_training_is_whole(one_process: Path, two: Path) -> None:
    expected, of_two = (load_file(run / "full-straight" / "judge" / "model.safetensors") for run in (one_process, two))
    assert {name: w.shape for name, w in expected.items()} == {name: w.shape for name, w in of_two.items()}
    assert AgentRRM.from_pretrained(str(two / "lora-straight"), device="cpu").settings.modes == ["full", "score"]


@pytest.mark.timeout(900)
def test_a_whole_checkpoint_is_not_continued_in_shards(one_process: Path, tmp_path: Path) -> None:
    sharded_sft_worker.set_back(one_process / "lora-straight", tmp_path / "run")
    with pytest.raises(RRMError, match=r"made with sharding=none.*with sharding=fsdp: set sharding=none"):
        train(config(tmp_path / "run", "lora", accumulation=2, sharding="fsdp"))


@pytest.mark.parametrize(("changes", "message"), [
    ({"rl": {"enabled": True}}, r"sharding=fsdp with rl\.enabled.*Set rl\.enabled=false"),
    ({"sft": {"compile": True}}, r"sharding=fsdp with sft\.compile"),
])  # fmt: skip
def test_what_is_not_sharded_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TrainConfig.model_validate({"sharding": "fsdp", "rl": {"enabled": False}, **changes})
