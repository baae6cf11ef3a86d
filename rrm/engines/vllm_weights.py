"""Send a policy's weights to vLLM's servers: a LoRA adapter with its own name, or all weights.

A restarted server does not know an adapter's name. For whole weights it stores a version (`/update_weight_version`), lost on
restart and checked around each reply. Servers read both from a shared folder.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrm.engines.http import UnreadableAnswer
from rrm.engines.http_errors import Rejected, Retry
from rrm.engines.vllm_http import Server

log = logging.getLogger(__name__)
NAME = re.compile(r"[0-9a-f]{8}-\d+(\.part)?")  # names of weights at the server, and of their folders
START = "start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora --max-lora-rank R, and let it read the run folder"
START_WHOLE = "start it with VLLM_SERVER_DEV_MODE=1 (not where others reach it), and let it read the run folder"
# versions of a server's own weights (vLLM's word), and (ours) while it loads some
OWN, LOADING = "default", "being loaded"
SHARD = "2GB"  # most of whole weights in one file


@dataclass(frozen=True)
class Weights:
    """Weights that a request names."""

    name: str  # model or adapter at the server
    version: int = -1  # updates done; −1: the server's own weights
    folder: str | None = None  # path at the server; None: the server's own weights
    whole: str | None = None  # version id of whole weights; None: an adapter

    @property
    def label(self) -> str:
        return self.whole or self.name


def save(model: Any, folder: Path, name: str, tensors: Mapping[str, Any] | None, dtype: Any) -> None:
    """Write weights as safetensors into `folder/name`, by rename: a restarted server must not read half.

    Args:
        tensors: by name, where the model holds only shards.
        dtype: of whole weights, as the policy computes with them; None: unchanged.
    """
    partial_folder = folder / f"{name}.part"
    shutil.rmtree(partial_folder, ignore_errors=True)
    if hasattr(model, "peft_config"):
        state = {} if tensors is None else {"state_dict": dict(tensors)}
        model.save_pretrained(str(partial_folder), safe_serialization=True, **state)
    else:
        tensors_by_name = dict(model.state_dict() if tensors is None else tensors)
        if dtype is not None:  # not a second time where the policy trains
            tensors_by_name = {
                k: v.to("cpu", dtype if v.is_floating_point() else v.dtype) for k, v in tensors_by_name.items()
            }
        model.save_pretrained(str(partial_folder), state_dict=tensors_by_name, max_shard_size=SHARD)
    shutil.rmtree(folder / name, ignore_errors=True)
    partial_folder.rename(folder / name)


async def load(server: Server, weights: Weights) -> None:
    """Load weights at a server unless it has them; raises Retry, or EngineError where it refuses."""
    if weights.whole is None:
        await _load_adapter(server, weights)
    else:
        await _reload(server, weights.folder or "", weights.whole)


async def _load_adapter(server: Server, weights: Weights) -> None:
    try:
        await server.send(
            "/load_lora_adapter", {"lora_name": weights.name, "lora_path": weights.folder or ""}, as_text=True
        )
    except Rejected as refused:
        if "already" not in refused.text:  # a row that found it missing was first
            raise server.error(f"the adapter was not loaded: {refused.text}", START) from refused


async def _reload(server: Server, folder: str, version: str) -> None:
    """Replace all weights from a folder unless they are there; waits for running rows, drops the KV cache."""
    if await version_at(server) == version:
        return
    rpc = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
    try:
        await server.send("/pause?mode=wait", {}, root=True, as_text=True)
        try:
            # of no version while it loads: a load that breaks off leaves some of these weights and some of those
            await server.send("/update_weight_version", {"new_version": LOADING}, root=True, as_text=True)
            await server.send("/collective_rpc", rpc, root=True, as_text=True)
            reply = await server.send("/reset_prefix_cache", {}, root=True)
            if not isinstance(reply, dict) or reply.get("success") is not True:
                raise Retry("it still holds keys and values of the weights before", "is it another program's as well?")
            await server.send("/update_weight_version", {"new_version": version}, root=True, as_text=True)
        finally:
            await server.send("/resume", {}, root=True, as_text=True)
    except Rejected as refused:
        raise server.error(f"the weights were not loaded: {refused.text}", START_WHOLE) from refused


async def version_at(server: Server) -> str | None:
    """Version of a server's weights: `default` where none was set, None where unsupported. Raises Retry."""
    try:
        reply = await server.send("/weight_info", root=True)
    except Rejected:
        return None
    if not isinstance(reply, dict) or not isinstance(reply.get("weight_version"), str):
        raise UnreadableAnswer("it does not say the version of its weights")
    return reply["weight_version"]


async def restore(server: Server, root: str | None) -> None:
    """Restore a server's own weights (from `root`) where a run left others; EngineError if unsupported."""
    version = await version_at(server)
    if version is None:
        raise server.error("it takes no weights that are trained whole", START_WHOLE)
    await server.send(
        "/resume", {}, root=True, as_text=True
    )  # it was left waiting where that run ended within an update
    if root and is_left(version):
        log.info("vLLM at %s is given its own weights back: %s", server.url, root)
        await _reload(server, root, OWN)


def is_left(version: str | None) -> bool:
    """Tell whether a version is of a run that was trained whole, or half loaded."""
    return version is not None and (version == LOADING or NAME.fullmatch(version) is not None)


async def check_own(server: Server) -> None:
    """Raise EngineError where a server still has the weights of a run that was trained whole."""
    version = await version_at(server)
    if is_left(version):
        raise server.error(f"it has the weights of a run that was trained whole ({version})", "start it again")


async def unload(server: Server, name: str) -> None:
    """Unload an adapter; one that stays only takes room."""
    try:
        await server.send("/unload_lora_adapter", {"lora_name": name}, as_text=True)
    except (Retry, Rejected, UnreadableAnswer) as error:
        log.info("vLLM at %s: adapter %s was not unloaded (%s)", server.url, name, error_text(error))


async def sweep(server: Server, past: Callable[[str, str], bool]) -> None:
    """Unload the adapters whose (name, folder) are `past`; those that stay only take room."""
    try:
        entries = (await server.send("/models"))["data"]
        old = [str(entry["id"]) for entry in entries if past(str(entry["id"]), str(entry.get("root")))]
    except (Retry, Rejected, UnreadableAnswer, LookupError, TypeError, AttributeError) as error:
        log.info("vLLM at %s: its adapters were not listed (%s)", server.url, error_text(error))
        return
    for name in old:
        await unload(server, name)


def error_text(error: BaseException) -> str:
    if isinstance(error, Retry):
        return error.reason
    return error.text if isinstance(error, Rejected) else str(error) or type(error).__name__
