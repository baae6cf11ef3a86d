"""Checkpoints without pickle: tensors as safetensors, the rest as JSON, put in place by one rename.

checkpoint-000040/
  model.safetensors      trained weights (all of the policy's parameters that require gradients, and the value head)
  optimizer.safetensors  the optimiser's tensors, as `<parameter name>/<field>`
  random.safetensors     torch's random state
  state.json             update, schedule, counters

A killed run leaves either a whole checkpoint or a `.partial` folder, which the next run removes. Rollout and minibatch
seeds derive from (seed, update), so nothing else needs restoring for a resumed run to be the same to the bit.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from rrm.errors import RRMError

PREFIX = "checkpoint-"


def trained_parameters(module: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Parameters that require gradients, by name; tied ones once."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def optimizer_tensors(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The optimiser's state by parameter name, numbers as 0-d tensors."""
    found = {}
    for name, parameter in trained_parameters(module).items():
        for field, value in optimizer.state.get(parameter, {}).items():
            found[f"{name}/{field}"] = torch.as_tensor(value).detach().cpu().contiguous()
    return found


def save_checkpoint(
    folder: Path,
    update: int,
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    *,
    keep: int = 2,
) -> Path:
    """Write `folder/checkpoint-<update>` whole or not at all, and drop all but the newest `keep`."""
    final = folder / f"{PREFIX}{update:06d}"
    partial = final.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    weights = {name: p.detach().cpu().contiguous() for name, p in trained_parameters(module).items()}
    save_file(weights, partial / "model.safetensors")
    save_file(optimizer_tensors(module, optimizer), partial / "optimizer.safetensors")
    save_file({"torch": torch.get_rng_state()}, partial / "random.safetensors")
    (partial / "state.json").write_text(json.dumps({"update": update, **state}, indent=1) + "\n")
    shutil.rmtree(final, ignore_errors=True)
    os.replace(partial, final)
    for old in checkpoints(folder)[:-keep]:
        shutil.rmtree(old)
    return final


def checkpoints(folder: Path) -> list[Path]:
    """Whole checkpoints, oldest first."""
    return sorted(p for p in folder.glob(f"{PREFIX}*") if p.is_dir() and p.suffix != ".partial")


def load_checkpoint(path: Path, module: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[str, Any]:
    """Put weights, optimiser and random state back; returns `state.json`.

    Raises:
        RRMError: the checkpoint belongs to another model, naming the parameters that differ.
    """
    weights = load_file(path / "model.safetensors")
    own = trained_parameters(module)
    wrong = sorted(set(weights) ^ set(own)) or [n for n in own if own[n].shape != weights[n].shape]
    if wrong:
        raise RRMError(f"{path} holds another policy: {len(wrong)} parameter(s) differ, e.g. {wrong[0]!r}")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(weights[name])
    if optimizer is not None:
        for key, value in load_file(path / "optimizer.safetensors").items():
            name, field = key.rsplit("/", 1)
            # AdamW keeps its step counter on the CPU
            optimizer.state[own[name]][field] = value if value.dim() == 0 else value.to(own[name].device)
    torch.set_rng_state(load_file(path / "random.safetensors")["torch"])
    return json.loads((path / "state.json").read_text())
