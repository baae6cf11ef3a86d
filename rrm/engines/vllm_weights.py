"""How a policy's weights reach vLLM's servers: a LoRA adapter under a name of its own, or all weights in place of those before.

An adapter is asked for by its name, so a server that was started again says that it does not know it. Whole weights have no name that
a request could ask for: the server is told a version with them (`/update_weight_version`, forgotten when it is started again), which is asked for after each reply
(`check_version`). Both are read by the server from a folder that trainer and servers share.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrm.engines.http_errors import Rejected, Retry
from rrm.engines.vllm_http import Server, WrongReply

log = logging.getLogger(__name__)
NAME = re.compile(r"[0-9a-f]{8}-\d+(\.part)?")  # what weights are called, as the server and their folder have it
START = "start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora --max-lora-rank R, and let it read the run folder"
START_WHOLE = "start it with VLLM_SERVER_DEV_MODE=1 (not where others reach it), and let it read the run folder"
# what a server says of weights that nobody gave it (vLLM's word), and, by ours, while it loads some
OWN, LOADING = "default", "being loaded"
SHARD = "2GB"  # of whole weights, at most a file


@dataclass(frozen=True)
class Weights:
    """What a request asks to answer."""

    name: str  # as the server knows them: a model's or an adapter's
    version: int = -1  # updates done; −1: those the server was started with
    folder: str | None = None  # as the server sees it; None: weights that the server was started with
    whole: str | None = None  # of weights in place of the model's: what tells them from others; None: an adapter

    @property
    def label(self) -> str:
        """What tells them from others."""
        return self.whole or self.name


def save(model: Any, folder: Path, name: str, tensors: Mapping[str, Any] | None, dtype: Any) -> None:
    """Write what is to be sent as safetensors into `folder/name`, aside first: a server that is started again must never read half.

    Args:
        model: an adapter's (PEFT), or the model that is sent whole.
        tensors: by their names in the model, where the model itself holds only shards of them.
        dtype: of whole weights, as the policy computes with them; None: as they are held.
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
    """Have a server load them; those that are there already are left as they are.

    Raises:
        Retry: it may pass.
        EngineError: the server does not take them.
    """
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
    """All weights from a folder, in place, unless they are there. What runs is waited for; keys and values of the weights before are dropped."""
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
    """What the server was told of its weights; `default` where nobody told it, None where it cannot say.

    Raises:
        Retry: it may pass.
    """
    try:
        reply = await server.send("/weight_info", root=True)
    except Rejected:
        return None
    if not isinstance(reply, dict) or not isinstance(reply.get("weight_version"), str):
        raise WrongReply("it does not say the version of its weights")
    return reply["weight_version"]


async def restore(server: Server, root: str | None) -> None:
    """Give a server the weights back that it was started with, where a run that was trained whole left its own.

    Args:
        root: where they are, as the server says.

    Raises:
        Retry: it may pass.
        EngineError: it can take none.
    """
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
    """Whether these are weights of a run that was trained whole, or half of them."""
    return version is not None and (version == LOADING or NAME.fullmatch(version) is not None)


async def check_own(server: Server) -> None:
    """Refuse a server that was left with the weights of a run that was trained whole: what is asked of it would speak as that.

    Raises:
        Retry: it may pass.
        EngineError: it has them.
    """
    version = await version_at(server)
    if is_left(version):
        raise server.error(f"it has the weights of a run that was trained whole ({version})", "start it again")


async def unload(server: Server, name: str) -> None:
    """Unload an adapter; one that stays takes room there, and no more."""
    try:
        await server.send("/unload_lora_adapter", {"lora_name": name}, as_text=True)
    except (Retry, Rejected, WrongReply) as error:
        log.info("vLLM at %s: adapter %s was not unloaded (%s)", server.url, name, error_text(error))


async def sweep(server: Server, past: Callable[[str, str], bool]) -> None:
    """Unload the adapters whose (name, folder) are `past`; those that stay take room there, and no more."""
    try:
        entries = (await server.send("/models"))["data"]
        old = [str(entry["id"]) for entry in entries if past(str(entry["id"]), str(entry.get("root")))]
    except (Retry, Rejected, WrongReply, LookupError, TypeError, AttributeError) as error:
        log.info("vLLM at %s: its adapters were not listed (%s)", server.url, error_text(error))
        return
    for name in old:
        await unload(server, name)


def error_text(error: BaseException) -> str:
    """What went wrong, in short."""
    if isinstance(error, Retry):
        return error.reason
    return error.text if isinstance(error, Rejected) else str(error) or type(error).__name__
