"""Start a training's processes: the `Accelerator` of a config, and refusals of silent mistakes."""

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from accelerate import Accelerator
from accelerate.utils import (
    AutocastKwargs,
    DistributedDataParallelKwargs,
    DistributedType,
    InitProcessGroupKwargs,
    broadcast_object_list,
)

from reagent.train.build_feedback import MODES
from reagent.train.config import AgentConfig
from rrm.errors import ConfigError, RRMError

T = TypeVar("T")

OTHERS = {
    "DeepSpeed": ("ACCELERATE_USE_DEEPSPEED", DistributedType.DEEPSPEED),
    "Megatron-LM": ("ACCELERATE_USE_MEGATRON_LM", DistributedType.MEGATRON_LM),
}


def refuse_launch(environ: Mapping[str, str], processes: str = "") -> None:
    """Refuse foreign sharding and `accelerate launch --cpu`. Raises RRMError."""
    if _asked(environ, "ACCELERATE_USE_FSDP") or processes == DistributedType.FSDP:
        raise RRMError(
            "reagent train was launched with accelerate's FSDP plugin (--use_fsdp, distributed_type: FSDP), which it does not use: "
            "launch with --multi_gpu (configs/accelerate/fsdp_8gpu.yaml, or torchrun) and set sharding=fsdp"
        )
    for name, (variable, distributed_type) in OTHERS.items():
        if _asked(environ, variable) or processes == distributed_type:
            raise RRMError(
                f"reagent train was launched with {name}, which it cannot train with: launch with --multi_gpu, and set "
                "sharding=fsdp where the policy does not fit one GPU"
            )
    if environ.get("ACCELERATE_USE_CPU") == "True" and "MASTER_PORT" in environ and "WORLD_SIZE" not in environ:
        raise RRMError(
            "`accelerate launch --cpu` starts one process, however many are asked for (it leaves them to mpirun): "
            "launch with --multi_gpu instead, which stays on the CPU with cpu=true"
        )


def _asked(environ: Mapping[str, str], variable: str) -> bool:
    return environ.get(variable, "").lower() in ("1", "true", "yes")


def is_sharded(config: AgentConfig, accelerator: Accelerator) -> bool:
    return config.sharding == "fsdp" and accelerator.num_processes > 1


def make_accelerator(config: AgentConfig, folder: Path) -> Accelerator:
    """The accelerator of a config. Raises RRMError: as `refuse_launch` and `check_divides`."""
    refuse_launch(os.environ)
    engine = config.rollout.engine
    # the others wait while the first process sends weights to servers, which may be being started again
    waits = timedelta(seconds=engine.timeout_s + engine.patience_s) if engine.is_remote else timedelta()
    accelerator = Accelerator(
        cpu=config.cpu,
        mixed_precision=config.mixed_precision,
        kwargs_handlers=[
            # a cache would hold all weights a second time, in 16 bits, until a forward ends; each is cast once a forward anyway
            AutocastKwargs(cache_enabled=False),
            InitProcessGroupKwargs(timeout=waits + timedelta(minutes=10)),
            # DDP sends the first process's buffers before a forward, also before one without gradients, of which processes make
            # unlike numbers: a broadcast of one then met another collective of the other. They are constants here (of RoPE)
            DistributedDataParallelKwargs(broadcast_buffers=False),
        ],
        log_with=[*config.report_to] or None,
        project_dir=folder,
    )
    refuse_launch(os.environ, accelerator.distributed_type)
    check_divides(config, accelerator.num_processes)
    return accelerator


def check_divides(config: AgentConfig, processes: int) -> None:
    """Refuse tasks that do not divide among the processes. Raises RRMError."""
    tasks = config.rollout.tasks_per_update
    if tasks % processes:
        raise RRMError(f"rollout.tasks_per_update={tasks} does not divide among {processes} processes")


def check_lag(config: AgentConfig, processes: int) -> None:
    """Refuse max_lag on processes that compare rounds before learning. Raises ConfigError."""
    if config.rollout.max_lag and processes > 1 and MODES[config.feedback.mode].gathers:
        raise ConfigError(
            f"rollout.max_lag=1 on several processes: feedback.mode={config.feedback.mode} has to compare what all of them "
            "played before it is learned from; take rollout.max_lag=0, or one process"
        )


def main_decides(value: Any) -> Any:
    """The main process's `value`, on every process: files are looked up once."""
    return broadcast_object_list([value])[0]


def main_does(function: Callable[[], T], main: bool) -> T:
    """The function's result in the main process, on every process; an `RRMError` there is raised by all."""
    result: tuple[Any, str | None] = (None, None)
    if main:
        try:
            result = function(), None
        except RRMError as error:
            result = None, str(error)
    value, why = main_decides(result)
    if why is not None:
        raise RRMError(why)
    return value
