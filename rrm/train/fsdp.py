"""FSDP2: parameters, gradients and optimiser state divided among processes (torch's `fully_shard`).

    mesh = process_mesh(device)
    shard(model, mesh)                          # before the optimiser is made: parameters are DTensors from here on
    write_shard(tensors, folder, rank, ranks)   # each process its own file
    read_shards(tensors, folder)                # on as many processes or another number

accelerate's FSDP plugin is silently ignored on a CPU, where no test would see what GPUs run. Every forward and backward of a sharded
module is a collective: a process with one more than another waits for ever (`equal_rounds`). Files are safetensors in the layout of
`torch.distributed.checkpoint`; unlike torch's writer, ours needs no other process, so a run that ends with an error can save.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rrm.data.output import drafted
from rrm.errors import RRMError

# safetensors header key with `{name: {"saved_offsets": [...]}}`, read by torch
OFFSETS = "DCP_SHARDING_INFO"


# ---- sharding ----


def process_mesh(device: torch.device) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(device.type, (torch.distributed.get_world_size(),))


def shard(module: nn.Module, model: Any, mesh: Any) -> None:
    """Divide a module's parameters among the mesh's processes, in place, on the mesh's device.

    A decoder layer is gathered as it computes, the rest while the module does. Gradients are means over processes, as under DDP.

    Args:
        module: the module called in training: the model, or what holds it.
        model: the transformers causal LM, not its PEFT wrapper.
    """
    from torch.distributed.fsdp import fully_shard

    for layer in model.get_decoder().layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    # by default a root stays gathered after its forward: the optimiser, `parameters()` and a checkpoint would meet whole tensors
    fully_shard(module, mesh=mesh, reshard_after_forward=True)


def reshard(module: nn.Module) -> None:
    """Divide again what a forward gathered, alone: an error inside of one leaves layers whole."""
    from torch.distributed.fsdp import FSDPModule

    for submodule in module.modules():
        if isinstance(submodule, FSDPModule):
            submodule.reshard()


def equal_rounds(rounds: int, device: torch.device) -> int:
    most = torch.tensor(rounds, device=device)
    torch.distributed.all_reduce(most, torch.distributed.ReduceOp.MAX)
    return int(most)


def clip_grad_norm(parameters: Iterable[nn.Parameter], max_norm: float) -> float:
    """Clip the gradients; returns their norm before, over all processes and shards."""
    return float(whole(nn.utils.clip_grad_norm_(parameters, max_norm)))


# ---- whole tensors ----


def is_divided(module: nn.Module) -> bool:
    from torch.distributed.tensor import DTensor

    return isinstance(next(module.parameters(), None), DTensor)


def whole(tensor: Tensor) -> Tensor:
    """The undivided tensor; all processes call this together."""
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def gathered(tensors: Mapping[str, Tensor], *, keep: bool) -> dict[str, Tensor]:
    """Whole CPU copies (one for tied weights) where `keep`; all processes call this together."""
    copies: dict[int, Tensor] = {}
    for tensor in tensors.values():
        if id(tensor) not in copies:
            full = whole(tensor.detach())
            copies[id(tensor)] = full.to("cpu", copy=True) if keep else full.new_empty(0)
            del full
    return {name: copies[id(tensor)] for name, tensor in tensors.items()} if keep else {}


@torch.no_grad()
def copy_whole(source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
    """Copy tensors into whole ones of the same names; all processes call this together.

    Raises KeyError: `target` lacks one."""
    for name, tensor in source.items():
        target[name].copy_(whole(tensor.detach()))


# ---- files ----


def trained_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def optimizer_tensors(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state by name (`<parameter>/<field>`), numbers as 0-d tensors."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in trained_parameters(module).items():
        for field, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{name}/{field}"] = torch.as_tensor(value).detach()
    return tensors


def read_training(
    folder: Path, module: nn.Module, optimizer: torch.optim.Optimizer | None, besides: Collection[str] = ()
) -> None:
    """Restore trained parameters and optimiser state; `besides`: other names in the files.

    Raises RRMError: the folder is another model's; names a parameter that differs."""
    own = trained_parameters(module)
    shapes = {name: shape for name, shape in stored_shapes(folder).items() if name not in besides}
    weights = {name: shape for name, shape in shapes.items() if "/" not in name}
    wrong = sorted(set(weights) ^ set(own)) or [n for n in own if tuple(own[n].shape) != weights[n]]
    if wrong:
        raise RRMError(f"{folder} holds another policy: {len(wrong)} parameter(s) differ, e.g. {wrong[0]!r}")
    tensors: dict[str, Tensor] = dict(own)
    if optimizer is not None:
        for key in shapes.keys() - weights.keys():
            name, field = key.rsplit("/", 1)
            # AdamW keeps its step counter on the CPU
            tensors[key] = torch.zeros_like(own[name]) if shapes[key] else torch.zeros(())
            optimizer.state[own[name]][field] = tensors[key]
    read_shards(tensors, folder)


def _parts(tensor: Tensor) -> tuple[Tensor, list[int]]:
    # this process's part, and where it begins in the whole tensor
    from torch.distributed.tensor import DTensor

    if not isinstance(tensor, DTensor):
        return tensor, [0] * tensor.dim()
    (chunk,) = tensor.__create_chunk_list__()  # what torch's own writer asks
    return tensor.to_local(), list(chunk.offsets)


def write_shard(tensors: Mapping[str, Tensor], folder: Path, rank: int, ranks: int) -> None:
    """Write this process's part, alone (the first one's also 0-d tensors); RRMError if one is not divided."""
    from safetensors.torch import save_file
    from torch.distributed.tensor import DTensor

    gathered_ones = [name for name, tensor in tensors.items() if tensor.dim() and not isinstance(tensor, DTensor)]
    if ranks > 1 and gathered_ones:  # without this process's part the others' would look like all there is
        raise RRMError(f"{len(gathered_ones)} tensor(s) are not divided among the processes, e.g. {gathered_ones[0]!r}")
    local_tensors: dict[str, Tensor] = {}
    offsets: dict[str, dict[str, list[int]]] = {}
    for name, tensor in tensors.items():
        if rank and not isinstance(tensor, DTensor):
            continue
        local, offset = _parts(tensor.detach())
        if local.numel() or not isinstance(tensor, DTensor):  # fewer rows than processes: the last have none
            local_tensors[name] = local.cpu().contiguous()
            offsets[name] = {"saved_offsets": offset}
    path = folder / f"shard-{rank + 1:05d}-of-{ranks:05d}.safetensors"
    with drafted(path, ".tmp") as draft:
        save_file(local_tensors, draft, metadata={"format": "pt", OFFSETS: json.dumps(offsets)})


def is_complete(folder: Path, ranks: int) -> bool:
    return all((folder / f"shard-{i + 1:05d}-of-{ranks:05d}.safetensors").is_file() for i in range(ranks))


def stored_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    metadata = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    return {name: tuple(getattr(tensor, "size", ())) for name, tensor in metadata.items()}


@torch.no_grad()
def read_shards(tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Fill tensors from safetensors of any number of processes, alone; RRMError if they do not fit."""
    from safetensors import safe_open
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    shapes = stored_shapes(folder)
    wrong = [name for name, tensor in tensors.items() if shapes.get(name) != tuple(tensor.shape)]
    if wrong:
        raise RRMError(f"{folder} holds another model: {len(wrong)} tensor(s) differ, e.g. {wrong[0]!r}")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # it is not: each process reads for itself
        load(
            {name: tensor.detach() for name, tensor in tensors.items() if tensor.dim()},
            storage_reader=HuggingFaceStorageReader(str(folder)),
            no_dist=True,
        )
    single = {name for name, tensor in tensors.items() if not tensor.dim()}  # torch's reader knows no slice of a number
    for path in sorted(folder.glob("*.safetensors")) if single else ():
        with safe_open(path, framework="pt") as file:
            for name in single & set(file.keys()):
                tensors[name].copy_(file.get_tensor(name))
