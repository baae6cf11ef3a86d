"""What test_sharded_sft runs in two processes: SFT of a tiny judge under FSDP2, to its end and from a checkpoint.

    torchrun --nproc-per-node 2 tests/rrm/sharded_sft_worker.py OUTPUT

OUTPUT/<kind>-straight ran to its end; OUTPUT/<kind>-resumed is a copy of it that lost all after its last checkpoint but one and went
on from there; OUTPUT/<kind>-handed is such a copy that waits for another number of processes.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from processes import part

from rrm.config import TrainConfig
from rrm.train.ranks import check_launch, is_main, wait
from rrm.train.run import train

KINDS: dict[str, Any] = {"full": None, "lora": {"r": 4, "alpha": 8, "target_modules": ["q_proj", "v_proj"]}}
STEPS = 10
"""The trainer logs its loss every ten."""


def config(folder: Path, kind: str, *, accumulation: int, sharding: str) -> TrainConfig:
    """Ten updates of eight rows each, with two checkpoints left."""
    off = {"enabled": False}
    return TrainConfig.model_validate({
        "output_dir": str(folder),
        "transcript_tokens": 60,
        "max_new_tokens": 8,
        "cpu": True,
        "sharding": sharding,
        "model": {
            "base": "reagent.lab.judge_base:build",
            "options": {"hidden_size": 32, "intermediate_size": 32, "layers": 2, "heads": 2, "vocab_size": 400},
        },
        "data": {
            "generate": "reagent.lab.transcripts:generate",
            "generate_options": {"transcripts": 40},
            "target": "annotation",
        },
        "sft": {
            "max_steps": STEPS,
            "save_steps": 5,
            "batch_size": 4,
            "gradient_accumulation_steps": accumulation,
            "gradient_checkpointing": True,
            "learning_rate": 1e-3,
            "lora": KINDS[kind],
            "mix": {"score": 1, "full": 1},
        },
        "rl": off,
        "calibration": off,
        "evaluation": off,
    })  # fmt: skip


def set_back(source: Path, target: Path) -> None:
    """A copy of a run as it stood at its last checkpoint but one."""
    shutil.copytree(source, target)
    for name in (f"sft/checkpoint-{STEPS}", "sft/model", "judge"):
        shutil.rmtree(target / name)
    (target / "sft" / "done.json").unlink()


def run(output: Path) -> None:
    """Both kinds, to the end and from a checkpoint."""
    for kind in KINDS:
        straight, resumed = (output / f"{kind}-{name}" for name in ("straight", "resumed"))
        train(config(straight, kind, accumulation=1, sharding="fsdp"))
        wait(True)  # the main process has exported it
        if is_main(True):
            set_back(straight, resumed)
            set_back(straight, output / f"{kind}-handed")
        wait(True)
        train(config(resumed, kind, accumulation=1, sharding="fsdp"))
        wait(True)


if __name__ == "__main__":
    check_launch(True)
    run(Path(sys.argv[1]))
    part()
