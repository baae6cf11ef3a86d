"""How a training's processes are started: the `Accelerator` of a config, and the refusal of what would go wrong silently."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import DistributedType, broadcast_object_list

from reagent.train.config import AgentConfig
from rrm.errors import RRMError

SHARDING = {
    "FSDP": ("ACCELERATE_USE_FSDP", DistributedType.FSDP),
    "DeepSpeed": ("ACCELERATE_USE_DEEPSPEED", DistributedType.DEEPSPEED),
    "Megatron-LM": ("ACCELERATE_USE_MEGATRON_LM", DistributedType.MEGATRON_LM),
}
"""Name → the variable `accelerate launch` sets for it, which stands also where accelerate ignores it (`cpu: true`), and the type."""


def refuse_launch(environ: Mapping[str, str], processes: str = "") -> None:
    """Refuse a launch that accelerate would take for another.

    Args:
        environ: the process's environment.
        processes: accelerate's distributed type, once there is one.

    Raises:
        RRMError: sharded weights, which this trainer cannot roll out with, save or export; or `accelerate launch --cpu`,
            which starts one process however many are asked for.
    """
    for name, (variable, kind) in SHARDING.items():
        if environ.get(variable, "").lower() in ("1", "true", "yes") or processes == kind:
            raise RRMError(
                f"reagent train was launched with {name}, which it cannot train with yet: every process must hold the whole "
                "policy (it rolls out, saves and exports from it). Launch with --multi_gpu (DDP), and use policy.lora or "
                "policy.gradient_checkpointing=true where memory is short"
            )
    if environ.get("ACCELERATE_USE_CPU") == "True" and "MASTER_PORT" in environ and "WORLD_SIZE" not in environ:
        raise RRMError(
            "`accelerate launch --cpu` starts one process, however many are asked for (it leaves them to mpirun): "
            "launch with --multi_gpu instead, which stays on the CPU with cpu=true"
        )


def make_accelerator(config: AgentConfig, folder: Path) -> Accelerator:
    """The accelerator a config asks for.

    Args:
        folder: the run folder, for trackers.

    Raises:
        RRMError: as `refuse_launch`; or tasks that do not divide among the processes.
    """
    refuse_launch(os.environ)
    accelerator = Accelerator(
        cpu=config.cpu,
        mixed_precision=config.mixed_precision,
        log_with=[*config.report_to] or None,
        project_dir=folder,
    )
    refuse_launch(os.environ, accelerator.distributed_type)
    tasks, processes = config.rollout.tasks_per_update, accelerator.num_processes
    if tasks % processes:
        raise RRMError(f"rollout.tasks_per_update={tasks} does not divide among {processes} processes")
    return accelerator


def main_decides(value: Any) -> Any:
    """The main process's `value`, on every process: what depends on files is decided once, or processes part ways."""
    return broadcast_object_list([value])[0]
