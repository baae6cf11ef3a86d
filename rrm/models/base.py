"""A base model and its tokenizer (a directory, a hub id, or the default base, fetched once), and its LoRA adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rrm.config import BaseSettings, LoraSettings
from rrm.errors import RRMError
from rrm.judge.judge_dir import is_shipped, shipped
from rrm.models.hub import HubError, download


def base_path(base: str) -> str:
    """A directory or hub id for `from_pretrained`: `smollm2` is fetched to the cache once, a judge's name is where an
    installed package has it.

    Raises:
        RRMError: no such directory, or the shipped judge is an adapter.
    """
    if base == "smollm2":
        from rrm.models.weights import fetch_base

        return str(fetch_base())
    if is_shipped(base):
        folder = shipped(base)
        if (folder / "adapter_config.json").is_file():
            raise RRMError(f"the shipped judge {base!r} is an adapter: name its base and train an adapter of your own")
        return str(folder)
    if base.startswith((".", "/", "~")) and not Path(base).expanduser().is_dir():
        raise RRMError(f"model directory {base!r} does not exist")
    return str(Path(base).expanduser()) if Path(base).expanduser().is_dir() else base


def load_model(config: BaseSettings) -> tuple[Any, Any]:
    """(model, tokenizer) from safetensors; pickle checkpoints are refused.

    Raises:
        RRMError: there is no such model, or it cannot be loaded.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = base_path(config.base)
    try:
        if not Path(path).is_dir():
            download(path, weights=False)  # asks once: a mistyped name is not worth a minute of retries for each file
    except HubError as error:
        raise RRMError(
            f"cannot load model {config.base!r}: neither a directory nor a shipped model, and {error}"
        ) from error
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=config.trust_remote_code)
        model = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=getattr(torch, config.dtype),
            attn_implementation=config.attn_implementation,
            trust_remote_code=config.trust_remote_code,
            use_safetensors=True,
        )
    except (OSError, ValueError) as error:
        raise RRMError(f"cannot load model {config.base!r}: {error}") from error
    return model, tokenizer


def adapter_folder(name: str) -> Path:
    """Where `sft.lora.init` lies: a directory, or a shipped judge's."""
    return shipped(name) if is_shipped(name) else Path(name).expanduser()


def with_adapter(model: Any, settings: LoraSettings) -> Any:
    """The model under the adapter at `settings.init`, in float32, to be trained further.

    Raises:
        RRMError: there is no adapter, it is of another model, or of other rank, alpha or layers than the settings say.
    """
    from peft import PeftModel

    folder = adapter_folder(settings.init or "")
    if not all((folder / name).is_file() for name in ("adapter_config.json", "adapter_model.safetensors")):
        raise RRMError(
            f"sft.lora.init: {str(folder)!r} holds no adapter (adapter_config.json and adapter_model.safetensors)"
        )
    try:
        found = PeftModel.from_pretrained(model, str(folder), is_trainable=True, use_safetensors=True)
    except (RuntimeError, ValueError) as error:  # shapes that do not fit, modules the model lacks
        raise RRMError(f"sft.lora.init: the adapter in {str(folder)!r} does not fit the base: {error}") from error
    have: Any = found.peft_config["default"]
    skipped = min(have.layers_to_transform or range(model.config.num_hidden_layers))
    both = {
        "r": (have.r, settings.r),
        "alpha": (have.lora_alpha, settings.alpha),
        "skip_layers": (skipped, settings.skip_layers),
    }
    if wrong := [f"{name}={theirs} (here {ours})" for name, (theirs, ours) in both.items() if theirs != ours]:
        raise RRMError(
            f"sft.lora.init: the adapter in {str(folder)!r} has {', '.join(wrong)}; set sft.lora to the same"
        )
    return found


def lora_config(settings: LoraSettings, model: Any) -> Any:
    """peft's `LoraConfig` of the settings, for a causal language model."""
    from peft import LoraConfig

    skip = settings.skip_layers
    return LoraConfig(
        r=settings.r,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=settings.target_modules,
        layers_to_transform=list(range(skip, model.config.num_hidden_layers)) if skip else None,
        task_type="CAUSAL_LM",
    )
