"""Checkpoints without pickle: tensors as safetensors, the rest as JSON, put in place by one rename.

checkpoint-000040/
  model.safetensors      trained weights (parameters that require gradients, and the value head)
  optimizer.safetensors  the optimiser's tensors, as `<parameter name>/<field>`
  random.safetensors     torch's random state
  state.json             update, schedule, counters
  metrics.jsonl …        the run's logs as they were then (`LOGS`)
  manifest.json          size and checksum of each of these files (`rrm.train.checkpoints`)

Under `sharding: fsdp` the first two are one file a process, `shard-00001-of-00004.safetensors` (`rrm.train.fsdp`); the last
process to write puts the checkpoint in place, without a barrier, so that an error that ends all leaves one too. Either kind
is read on any number of processes. Rollout and minibatch seeds derive from (seed, update): nothing else is restored."""

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
RANDOM = ("torch",)
OTHERS_S = 20.0
"""Wait of an ending process for the others' parts: a launcher kills them after 30 seconds."""


def save_checkpoint(
    folder: Path,
    update: int,
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    *,
    keep: int = 2,
) -> Path:
    """Write `folder/checkpoint-<update>` atomically, and drop all but the newest `keep`."""
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
    """Write this process's part of a checkpoint; the last process puts it in place.

    No process waits for another. An earlier run's partial one must be gone (`drop_partial`). Raises RRMError: a part of the policy
    cannot be divided again."""
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
    """Drop all checkpoints but the newest `keep` up to an update, and all later ones."""
    existing = checkpoints(folder)
    newest = [path for path in existing if path.name <= f"{PREFIX}{update:06d}"][-keep:]
    for old in existing:
        if old not in newest:
            shutil.rmtree(old, ignore_errors=True)


def drop_partial(folder: Path) -> None:
    for left in folder.glob(f"{PREFIX}*.partial"):
        shutil.rmtree(left, ignore_errors=True)


def checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints, oldest first."""
    return sorted(p for p in folder.glob(f"{PREFIX}*") if p.is_dir() and p.suffix != ".partial")


def load_checkpoint(path: Path, module: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[str, Any]:
    """Restore weights, optimiser and random state; returns `state.json`. Raises RRMError: another model's."""
    read_training(path, module, optimizer, besides=RANDOM)
    torch.set_rng_state(load_file(path / "random.safetensors")["torch"])
    return json.loads((path / "state.json").read_text())


def restore_logs(path: Path, run: Path) -> None:
    """Restore a log that no longer begins with the checkpoint's copy."""
    for name in LOGS:
        saved, log = path / name, run / name
        if saved.is_file() and not (log.is_file() and log.read_bytes().startswith(saved.read_bytes())):
            logger.warning("%s was cut or changed since %s was written: it is put back as it was then", log, path)
            shutil.copyfile(saved, log)
