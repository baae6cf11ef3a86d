"""`sharding: fsdp` for TRL's SFTTrainer, which gets a model that is divided (`rrm.train.fsdp`).

accelerate would wrap it once more (DDP) unless it counts as prepared. Each process writes its part of a checkpoint, and reads it
back on any number of processes; all else is transformers' Trainer's.
"""

from __future__ import annotations

import contextlib
import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from rrm.config import SFTSettings
from rrm.engines.hf.engine import base_causal_lm
from rrm.errors import RRMError
from rrm.train.fsdp import (
    copy_whole,
    optimizer_tensors,
    process_mesh,
    read_training,
    shard,
    trained_parameters,
    write_shard,
)

SCHEDULE = "schedule.json"  # in such a checkpoint: rows of an update, and the state of the schedule


def arguments() -> Any:
    """TRL's SFTConfig for a model that stays where it is: the trainer would move all of it to the GPU."""
    from trl.trainer.sft_config import SFTConfig

    class Placed(SFTConfig):
        @property
        def place_model_on_device(self) -> bool:
            return False

    return Placed


def divided(model: Any, device: torch.device) -> Any:
    """A copy of the model, divided among the processes; the model itself stays whole."""
    copied = copy.deepcopy(model)
    shard(copied, base_causal_lm(copied), process_mesh(device))
    copied._is_accelerate_prepared = True
    return copied


def check_checkpoint(checkpoint: Path, in_shards: bool, rows: int) -> None:
    """Refuse (RRMError) a checkpoint of the other kind, or of updates with other than `rows` rows."""
    if in_shards != (checkpoint / SCHEDULE).is_file():
        was, now = ("none", "fsdp") if in_shards else ("fsdp", "none")
        raise RRMError(
            f"{checkpoint} was made with sharding={was}, and cannot be continued with sharding={now}: set sharding={was} (on any "
            "number of processes), or choose another output_dir"
        )
    before = json.loads((checkpoint / SCHEDULE).read_text())["rows"] if in_shards else rows
    if before != rows:
        raise RRMError(
            f"{checkpoint} was made by updates of {before} rows, and these would have {rows}: set sft.gradient_accumulation_steps so "
            "that it makes, times sft.batch_size and the processes, as many"
        )


def rows_per_update(settings: SFTSettings, processes: int) -> int:
    return settings.batch_size * settings.gradient_accumulation_steps * processes


def gather_weights(divided_model: Any, model: Any) -> None:
    """Give the whole model the trained weights; all processes call this together."""
    copy_whole(trained_parameters(divided_model), dict(model.named_parameters()))


@contextlib.contextmanager
def in_shards(trainer: Any, rows: int, *, bf16: bool) -> Iterator[None]:
    """Make `trainer` write and read its checkpoints in shards, inside of the block.

    Args:
        rows: of an update, over all processes.
        bf16: compute under bfloat16 autocast, as accelerate does with models that it prepares itself.
    """
    model, state = trainer.model, trainer.accelerator.state
    inner = trainer.model.forward
    if bf16:
        # without its cache, which would hold the weights of all layers until the forward ends
        model.forward = torch.autocast(state.device.type, dtype=torch.bfloat16, cache_enabled=False)(inner)

    def optimizer() -> Any:
        return getattr(trainer.optimizer, "optimizer", trainer.optimizer)

    def make_folder(output_dir: str, _internal_call: bool = False) -> None:
        if state.is_main_process:  # a killed run of another number of processes may have left parts of one
            shutil.rmtree(output_dir, ignore_errors=True)
            Path(output_dir).mkdir(parents=True)
        state.wait_for_everyone()

    def write(output_dir: str) -> None:
        folder = Path(output_dir)
        if state.is_main_process:
            schedule_state = {k: v for k, v in trainer.lr_scheduler.state_dict().items() if k != "lr_lambdas"}
            (folder / SCHEDULE).write_text(json.dumps({"rows": rows, "schedule": schedule_state}) + "\n")
        tensors = trained_parameters(model) | optimizer_tensors(model, optimizer())
        write_shard(tensors, folder, state.process_index, state.num_processes)
        state.wait_for_everyone()  # the main process says that the checkpoint is whole: it writes the trainer's state after this

    def read(checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        read_training(Path(checkpoint), model, optimizer())
        schedule = trainer.lr_scheduler
        schedule.load_state_dict(
            schedule.state_dict() | json.loads((Path(checkpoint) / SCHEDULE).read_text())["schedule"]
        )
        for group, rate in zip(optimizer().param_groups, schedule.get_last_lr(), strict=True):
            group["lr"] = rate

    own = {
        "save_model": make_folder,
        "_save_optimizer_and_scheduler": write,
        "_load_from_checkpoint": lambda *args, **more: None,  # with the optimiser, once there is one
        "_load_optimizer_and_scheduler": read,
    }
    for name, function in own.items():
        getattr(trainer, name)  # another transformers: fail here, not at the first checkpoint
        setattr(trainer, name, function)
    try:
        yield
    finally:
        for name in own:
            delattr(trainer, name)
        if bf16:
            model.forward = inner
