"""Processes under `accelerate launch` or `torchrun`: who writes, who waits, what is refused.

All read the data and train together (DDP, or FSDP2 by `sharding: fsdp`). The main one alone writes to the run folder, checks the
gate of RL, exports, calibrates and evaluates.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from rrm.errors import ConfigError, RRMError

T = TypeVar("T")

# set by `accelerate launch` to shard weights
SHARDED = {
    "ACCELERATE_USE_FSDP": "FSDP",
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "a parallelism config",
}
PATIENCE = timedelta(hours=6)  # for other processes: the main one checks replies before RL


def state(cpu: bool) -> Any:
    """accelerate's `PartialState`; the first call joins the processes. Not cached, as trainers reset it."""
    from accelerate import PartialState

    return PartialState(cpu=cpu, timeout=PATIENCE) if int(os.environ.get("LOCAL_RANK", -1)) != -1 else PartialState(cpu)


def check_launch(cpu: bool) -> None:
    """Join the processes; ConfigError for launches that would train wrongly (sharded, lost processes)."""
    for variable, name in SHARDED.items():
        if os.environ.get(variable, "").lower() in ("1", "true"):
            raise ConfigError(
                f"this was launched with {name}, which is not used here. Use `accelerate launch --multi_gpu --num_processes N` (DDP: "
                "each process holds the whole model), with sft.lora for a base too large to train whole, or sharding=fsdp for one that "
                "does not fit one GPU"
            )
    launched, joined = int(os.environ.get("WORLD_SIZE", 1)), state(cpu).num_processes
    if launched > 1 and joined == 1:
        raise ConfigError(
            f"{launched} processes were launched but no accelerator is here for them: set cpu=true to train on the CPU, or "
            "launch one process"
        )
    refuse_data_parallel(cpu, joined)
    if joined > 1:
        atexit.unregister(leave)
        atexit.register(leave)


def leave() -> None:
    # its threads would abort a process that ends before them
    import torch.distributed as distributed

    if distributed.is_initialized():
        distributed.destroy_process_group()


def refuse_data_parallel(cpu: bool, processes: int) -> None:
    # transformers would split each batch among the GPUs
    import torch

    # a process that a launcher started has its own GPU, also where it is the only one
    gpus = 0 if cpu or "LOCAL_RANK" in os.environ else torch.cuda.device_count()
    if processes == 1 and gpus > 1:
        raise ConfigError(
            f"one process sees {gpus} GPUs: use them all with `accelerate launch --multi_gpu --num_processes {gpus} --module "
            "rrm train …`, or one with CUDA_VISIBLE_DEVICES=0"
        )


def is_main(cpu: bool) -> bool:
    return bool(state(cpu).is_main_process)


def wait(cpu: bool) -> None:
    state(cpu).wait_for_everyone()


def on_main(function: Callable[[], T], cpu: bool) -> T:
    """Broadcast the (picklable) result of the function in the main process; all raise its `RRMError`."""
    here = state(cpu)
    if here.num_processes == 1:
        return function()
    from accelerate.utils import broadcast_object_list

    outcome: list[Any] = [None, None]
    if here.is_main_process:
        try:
            outcome[0] = function()
        except RRMError as error:
            outcome[1] = str(error)
    broadcast_object_list(outcome)
    if outcome[1] is not None:
        raise RRMError(outcome[1])
    return outcome[0]
