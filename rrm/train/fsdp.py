"""FSDP2: a model's parameters, gradients and optimiser state divided among processes, for whatever trains it.

    mesh = process_mesh(device)
    shard(model, mesh)                          # before the optimiser is made: parameters are DTensors from here on
    loss.backward(); clip_grad_norm(model.parameters(), 1.0); optimizer.step()
    write_shard(tensors, folder, rank, ranks)   # each process its own file
    read_shards(tensors, folder)                # on as many processes or another number

It is torch's `fully_shard` over the device mesh that the processes have (NCCL on GPUs, gloo on a CPU), not accelerate's FSDP
plugin: accelerate ignores that one on a CPU without a word, so that no test would see what GPUs run. Here they run the same lines.

Every forward and every backward of a sharded module is a collective: a process that makes one more than another waits for ever.
`equal_rounds` says how many all of them make.

Files are safetensors in the layout of `torch.distributed.checkpoint` (its Hugging Face storage: each file's header says where its
tensors begin in the whole ones), so torch's own reader divides them anew. Torch's writer plans with all processes together; ours
needs none of them, so that a run that ends with an error can still keep what it has.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rrm.errors import RRMError

OFFSETS = "DCP_SHARDING_INFO"
"""Key of a safetensors header under which torch's reader looks for `{name: {"saved_offsets": [...]}}`."""


# ---- sharding ----


def process_mesh(device: torch.device) -> Any:
    """The mesh of all processes, one dimension.

    Args:
        device: where this process computes.
    """
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(device.type, (torch.distributed.get_world_size(),))


def shard(module: nn.Module, model: Any, mesh: Any) -> None:
    """Divide a module's parameters among the mesh's processes, in place; they are on the mesh's device afterwards.

    Each decoder layer is gathered as it computes and let go again; what is outside of the layers (embeddings, norm, heads) is
    gathered while the module computes. Gradients are the mean over processes, as under DDP.

    Args:
        module: what is called in training: the model, or what holds it.
        model: the transformers causal LM, not its PEFT wrapper.
    """
    from torch.distributed.fsdp import fully_shard

    for layer in model.get_decoder().layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    # by default a root stays gathered after its forward: the optimiser, `parameters()` and a checkpoint would meet whole tensors
    fully_shard(module, mesh=mesh, reshard_after_forward=True)


def reshard(module: nn.Module) -> None:
    """Divide again what a forward gathered, without the other processes: an error inside of one leaves layers whole."""
    from torch.distributed.fsdp import FSDPModule

    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


def equal_rounds(rounds: int, device: torch.device) -> int:
    """The most `rounds` of any process: as many forwards all of them make."""
    most = torch.tensor(rounds, device=device)
    torch.distributed.all_reduce(most, torch.distributed.ReduceOp.MAX)
    return int(most)


def clip_grad_norm(parameters: Iterable[nn.Parameter], max_norm: float) -> float:
    """Scale the gradients down to `max_norm`; their norm before, over all processes and all of their shards."""
    return float(whole(nn.utils.clip_grad_norm_(parameters, max_norm)))


# ---- whole tensors ----


def is_divided(module: nn.Module) -> bool:
    """Whether its parameters were divided (`shard`)."""
    from torch.distributed.tensor import DTensor

    return isinstance(next(module.parameters(), None), DTensor)


def whole(tensor: Tensor) -> Tensor:
    """A tensor as it was before it was divided; all processes call this together."""
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def gathered(tensors: Mapping[str, Tensor], *, keep: bool) -> dict[str, Tensor]:
    """Whole copies on the CPU, one after another, on the processes that `keep` them; nothing on the others, which take part.

    Names of one tensor (tied weights) have one copy.
    """
    copies: dict[int, Tensor] = {}
    for tensor in tensors.values():
        if id(tensor) not in copies:
            full = whole(tensor.detach())
            copies[id(tensor)] = full.to("cpu", copy=True) if keep else full.new_empty(0)
            del full
    return {name: copies[id(tensor)] for name, tensor in tensors.items()} if keep else {}


@torch.no_grad()
def copy_whole(source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
    """Copy tensors, divided or whole, into whole ones of the same names; all processes call this together where any is divided.

    Raises:
        KeyError: `target` lacks one.
    """
    for name, tensor in source.items():
        target[name].copy_(whole(tensor.detach()))


# ---- files ----


def trained_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters that require gradients, by name; tied ones once."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def optimizer_tensors(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state by parameter name (`<parameter>/<field>`), numbers as 0-d tensors."""
    found: dict[str, Tensor] = {}
    for name, parameter in trained_parameters(module).items():
        for field, value in optimizer.state.get(parameter, {}).items():
            found[f"{name}/{field}"] = torch.as_tensor(value).detach()
    return found


def read_training(
    folder: Path, module: nn.Module, optimizer: torch.optim.Optimizer | None, besides: Collection[str] = ()
) -> None:
    """Put trained parameters and the optimiser's state back, divided or whole, from what either kind of training wrote.

    Args:
        besides: names in the folder's files that are neither.

    Raises:
        RRMError: the folder belongs to another model, naming a parameter that differs.
    """
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
    """This process's part, and where it begins in the whole tensor."""
    from torch.distributed.tensor import DTensor

    if not isinstance(tensor, DTensor):
        return tensor, [0] * tensor.dim()
    (chunk,) = tensor.__create_chunk_list__()  # what torch's own writer asks
    return tensor.to_local(), list(chunk.offsets)


def write_shard(tensors: Mapping[str, Tensor], folder: Path, rank: int, ranks: int) -> None:
    """Write this process's part of the tensors to `folder`, alone; numbers, which nobody divides, are the first process's.

    The file appears when it is whole: `is_complete` then says whether all are there.

    Raises:
        RRMError: a tensor is not divided, of several processes; nothing is written.
    """
    from safetensors.torch import save_file
    from torch.distributed.tensor import DTensor

    gathered_ones = [name for name, tensor in tensors.items() if tensor.dim() and not isinstance(tensor, DTensor)]
    if ranks > 1 and gathered_ones:  # without this process's part the others' would look like all there is
        raise RRMError(f"{len(gathered_ones)} tensor(s) are not divided among the processes, e.g. {gathered_ones[0]!r}")
    held: dict[str, Tensor] = {}
    offsets: dict[str, dict[str, list[int]]] = {}
    for name, tensor in tensors.items():
        if rank and not isinstance(tensor, DTensor):
            continue
        part, offset = _parts(tensor.detach())
        if part.numel() or not isinstance(tensor, DTensor):  # fewer rows than processes: the last have none
            held[name] = part.cpu().contiguous()
            offsets[name] = {"saved_offsets": offset}
    path = folder / f"shard-{rank + 1:05d}-of-{ranks:05d}.safetensors"
    partial = path.with_suffix(".tmp")
    save_file(held, partial, metadata={"format": "pt", OFFSETS: json.dumps(offsets)})
    os.replace(partial, path)


def is_complete(folder: Path, ranks: int) -> bool:
    """Whether the files of all processes are there."""
    return all((folder / f"shard-{i + 1:05d}-of-{ranks:05d}.safetensors").is_file() for i in range(ranks))


def stored_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """The whole shape of every tensor in a folder's safetensors, by name."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    found = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    return {name: tuple(getattr(tensor, "size", ())) for name, tensor in found.items()}


@torch.no_grad()
def read_shards(tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Fill tensors, divided or whole, from a folder's safetensors, however many processes wrote them. No process waits for another.

    Raises:
        RRMError: the folder lacks one of them, or has it in another shape.
    """
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
