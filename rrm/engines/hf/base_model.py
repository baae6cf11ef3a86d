"""Load a base model and its tokenizer (folder, hub id, or default base); LoRA config and device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rrm.config import BaseSettings, LoraSettings
from rrm.engines.hf.hub import download
from rrm.engines.shipped_judges import judge_folder
from rrm.errors import DownloadError, RRMError

if TYPE_CHECKING:
    import torch


def base_path(base: str) -> str:
    """Directory or hub id for `from_pretrained`: `smollm2` is cached once, a judge's name is its folder."""
    if base == "smollm2":
        from rrm.engines.hf.weights import fetch_base

        return str(fetch_base())
    folder = judge_folder(base)
    if folder is None:
        if base.startswith((".", "/", "~")):
            raise RRMError(f"model directory {base!r} does not exist")
        return base
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        raise RRMError(f"{base!r} is an adapter: name its base, and the adapter as sft.lora.init to train it further")
    return str(folder)


def load_model(config: BaseSettings) -> tuple[Any, Any]:
    """(model, tokenizer) from safetensors, never pickles; RRMError where it cannot be loaded."""
    import torch
    from transformers import AutoModelForCausalLM

    path = _place(config)
    with _loading(config), named_damage(path):
        tokenizer = _tokenizer(config, path)
        model = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=getattr(torch, config.dtype),
            attn_implementation=config.attn_implementation,
            trust_remote_code=config.trust_remote_code,
            use_safetensors=True,
        )
    return model, tokenizer


def load_architecture(config: BaseSettings) -> tuple[Any, Any]:
    """(transformers' config, tokenizer), without weights; RRMError where they cannot be loaded."""
    from transformers import AutoConfig

    path = _place(config)
    with _loading(config):
        tokenizer = _tokenizer(config, path)
        return AutoConfig.from_pretrained(path, trust_remote_code=config.trust_remote_code), tokenizer


def _place(config: BaseSettings) -> str:
    """Folder of the model with at least its small files."""
    path = base_path(config.base)
    try:
        if not Path(path).is_dir():
            download(path, weights=False)  # asks once: a mistyped name is not worth a minute of retries for each file
    except DownloadError as error:
        raise RRMError(
            f"cannot load model {config.base!r}: neither a directory nor a shipped model, and {error}"
        ) from error
    return path


def _tokenizer(config: BaseSettings, path: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path, trust_remote_code=config.trust_remote_code)


@contextmanager
def _loading(config: BaseSettings) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise RRMError(f"cannot load model {config.base!r}: {error}") from error


def lora_config(settings: LoraSettings, model: Any) -> Any:
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


@contextmanager
def named_damage(*places: str | Path) -> Iterator[None]:
    """Name damaged `*.safetensors` files of folders (or hub ids) in an RRMError."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        files = [
            str(file) for folder in places for file in sorted(Path(folder).glob("*.safetensors")) if _is_damaged(file)
        ]
        names = ", ".join(files or map(str, places))
        raise RRMError(f"{names}: the weights are damaged ({error}); copy or fetch them again") from error


def _is_damaged(file: Path) -> bool:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy"):
            return False
    except SafetensorError:
        return True


def default_device() -> str:
    import torch

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def default_dtype(device: str) -> torch.dtype:
    """bfloat16 on an accelerator; float32 on a CPU, where scores then do not depend on the batch."""
    import torch

    return torch.float32 if device == "cpu" else torch.bfloat16


def widest_float(device: str | torch.device) -> torch.dtype:
    """float64, or float32 on Apple's `mps`, which has no float64 (TypeError)."""
    import torch

    return torch.float32 if str(device).partition(":")[0] == "mps" else torch.float64
