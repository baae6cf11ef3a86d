"""Checkpoints without pickle: tensors as safetensors, the rest as JSON, put in place by one rename.

checkpoint-000040/
  model.safetensors      trained weights (all of the policy's parameters that require gradients, and the value head)
  optimizer.safetensors  the optimiser's tensors, as `<parameter name>/<field>`
  random.safetensors     torch's random state
  state.json             update, schedule, counters
  metrics.jsonl …        the run's logs as they were then (`LOGS`)
  manifest.json          size and checksum of each of these files (`rrm.train.checkpoints`)

Under `sharding: fsdp` the first two are one file a process, `shard-00001-of-00004.safetensors` (`rrm.train.fsdp`). Every process
writes its own without asking the others, and the last one puts the checkpoint in place: so an error that ends all of them leaves
one too. Either kind is read on any number of processes, sharded or not.

A killed run leaves either a whole checkpoint or a `.partial` folder, which the next run removes. Rollout and minibatch
seeds derive from (seed, update), so nothing else needs restoring for a resumed run to be the same to the bit.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from rrm.train.checkpoints import seal
from rrm.train.fsdp import is_complete, optimizer_tensors, read_training, reshard, trained_parameters, write_shard

logger = logging.getLogger(__name__)
PREFIX = "checkpoint-"
LOGS = ("metrics.jsonl", "eval.jsonl", "guards.jsonl")
"""Of the run folder: what a run that goes on has to know of what was, so that a cut file loses no row."""
RANDOM = ("torch",)
"""Tensors of random.safetensors."""
OTHERS_S = 20.0
"""How long a process that ends waits for the others' parts of a checkpoint: a launcher kills them after 30 seconds."""


def save_checkpoint(
    folder: Path,
    update: int,
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    *,
    keep: int = 2,
) -> Path:
    """Write `folder/checkpoint-<update>` whole or not at all, and drop all but the newest `keep`.

    Args:
        folder: `checkpoints/` of a run folder.
    """
    final = folder / f"{PREFIX}{update:06d}"
    partial = final.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    save_file(_on_cpu(trained_parameters(module)), partial / "model.safetensors")
    save_file(_on_cpu(optimizer_tensors(module, optimizer)), partial / "optimizer.safetensors")
    _write_rest(partial, update, state, folder.parent)
    seal(partial)
    shutil.rmtree(final, ignore_errors=True)
    os.replace(partial, final)
    drop_old(folder, update, keep)
    return final


def save_sharded(
    folder: Path,
    update: int,
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    *,
    rank: int,
    ranks: int,
    keep: int = 2,
) -> Path:
    """As `save_checkpoint`, this process's part of it; the last of the processes puts the whole in place.

    No process waits for another here, and an error may have ended a forward in its midst. What an earlier run left of the same
    update must be gone (`drop_partial`).

    Raises:
        RRMError: a part of the policy cannot be divided again; there will be no checkpoint of this update.
    """
    reshard(module)
    final = folder / f"{PREFIX}{update:06d}"
    partial = final.with_suffix(".partial")
    partial.mkdir(parents=True, exist_ok=True)
    if rank == 0:  # before its shard: when all shards are there, so is the rest
        _write_rest(partial, update, state, folder.parent)
        shutil.rmtree(final, ignore_errors=True)
    write_shard(trained_parameters(module) | optimizer_tensors(module, optimizer), partial, rank, ranks)
    if is_complete(partial, ranks):
        try:
            seal(partial)
            os.replace(partial, final)
        except FileNotFoundError:
            return final  # two saw that all is there, and the other one was quicker
        drop_old(folder, update, keep)
    return final


def wait_for(path: Path, seconds: float) -> bool:
    """Wait for a checkpoint that others may still be writing; whether it is there."""
    ends = time.monotonic() + seconds
    while not path.is_dir() and time.monotonic() < ends:
        time.sleep(0.05)
    return path.is_dir()


def _on_cpu(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _write_rest(folder: Path, update: int, state: dict[str, Any], run: Path) -> None:
    save_file({"torch": torch.get_rng_state()}, folder / "random.safetensors")
    for name in LOGS:
        if (run / name).is_file():
            shutil.copyfile(run / name, folder / name)
    (folder / "state.json").write_text(json.dumps({"update": update, **state}, indent=1) + "\n")


def drop_old(folder: Path, update: int, keep: int) -> None:
    """All checkpoints but the newest `keep` up to an update go, and later ones, which a run that went on from an older one passed over."""
    found = checkpoints(folder)
    kept = [path for path in found if path.name <= f"{PREFIX}{update:06d}"][-keep:]
    for old in found:
        if old not in kept:
            shutil.rmtree(old, ignore_errors=True)


def drop_partial(folder: Path) -> None:
    """What a killed run left of a checkpoint goes."""
    for left in folder.glob(f"{PREFIX}*.partial"):
        shutil.rmtree(left, ignore_errors=True)


def checkpoints(folder: Path) -> list[Path]:
    """Those that were put in place, oldest first."""
    return sorted(p for p in folder.glob(f"{PREFIX}*") if p.is_dir() and p.suffix != ".partial")


def load_checkpoint(path: Path, module: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[str, Any]:
    """Put weights, optimiser and random state back; returns `state.json`.

    Raises:
        RRMError: the checkpoint belongs to another model, naming the parameters that differ.
    """
    read_training(path, module, optimizer, besides=RANDOM)
    torch.set_rng_state(load_file(path / "random.safetensors")["torch"])
    return json.loads((path / "state.json").read_text())


def restore_logs(path: Path, run: Path) -> None:
    """Where a log no longer begins with what it held when the checkpoint was written, that stands there again."""
    for name in LOGS:
        kept, log = path / name, run / name
        if kept.is_file() and not (log.is_file() and log.read_bytes().startswith(kept.read_bytes())):
            logger.warning("%s was cut or changed since %s was written: it is put back as it was then", log, path)
            shutil.copyfile(kept, log)
