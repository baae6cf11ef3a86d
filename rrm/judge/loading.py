"""Loading a judge's weights: a directory with an adapter or whole weights, a shipped judge, or a hub id."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrm.engines.base import TokenEngine
from rrm.errors import RRMError
from rrm.extras import needs
from rrm.judge.judge_dir import JudgeSettings, content_hash, is_shipped, load_settings, shipped
from rrm.models.base import base_path
from rrm.models.device import default_device, default_dtype
from rrm.prompt.prompter import Prompter


@dataclass(frozen=True)
class LocalJudge:
    """What a judge in this process is made of."""

    engine: TokenEngine
    prompter: Prompter
    settings: JudgeSettings
    model_hash: str | None


def find_folder(model: str | None) -> Path | None:
    """The judge's directory, or None where `model` is a hub id."""
    if model is None:
        return shipped("default")
    if Path(model).expanduser().is_dir():
        folder = Path(model).expanduser()
        return folder / "judge" if (folder / "judge" / "judge.json").is_file() else folder
    if is_shipped(model):
        return shipped(model)
    if model.count("/") > 1 or model.startswith((".", "/", "~")):
        raise RRMError(f"no judge at {model!r}: the directory does not exist")
    return None


def load_local(
    model: str | None,
    device: str | None,
    dtype: str | None,
    batch_tokens: int | None,
    max_transcript_tokens: int | None,
    max_new_tokens: int | None = None,
) -> LocalJudge:
    """The parts of a judge over an in-process engine; an adapter is merged into its base."""
    needs("local", "a judge whose weights run in this process", "torch", "transformers")
    import torch

    from rrm.engines.hf.engine import HFEngine
    from rrm.engines.hf.host_memory import keep_freed_memory

    folder = find_folder(model)
    place = device or default_device()
    if place == "cpu":
        keep_freed_memory()
    number = getattr(torch, dtype) if dtype else default_dtype(place)
    settings = load_settings(folder) if folder else JudgeSettings()
    weights, tokenizer = load_weights(folder, model, settings, number)
    if max_transcript_tokens:
        settings = settings.model_copy(update={"transcript_tokens": max_transcript_tokens})
    if max_new_tokens:
        settings = settings.model_copy(update={"max_new_tokens": max_new_tokens})
    prompter = Prompter(tokenizer, settings.transcript_tokens)
    options: dict[str, Any] = {"max_batch_tokens": batch_tokens} if batch_tokens else {}
    engine = HFEngine(weights.eval(), tokenizer, device=place, **options)
    return LocalJudge(engine, prompter, settings, content_hash(folder) if folder else None)


def load_weights(folder: Path | None, model: str | None, settings: JudgeSettings, dtype: Any) -> tuple[Any, Any]:
    """(model, tokenizer); an adapter's base is loaded in float32, merged, then cast.

    Raises:
        RRMError: nothing loadable there, naming the place.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    adapter = folder is not None and (folder / "adapter_config.json").is_file()
    place = base_path(settings.base or "smollm2") if adapter else str(folder or model)
    own_tokenizer = folder is not None and (folder / "tokenizer.json").is_file()
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder) if own_tokenizer else place)
        # whole weights load in their final type; a merge in bfloat16 would round the adapter away
        import torch

        weights = AutoModelForCausalLM.from_pretrained(
            place, dtype=torch.float32 if adapter else dtype, use_safetensors=True
        )
    except (OSError, ValueError) as error:
        raise RRMError(f"cannot load the judge {model or place!r}: {error}") from error
    if adapter:
        from peft import PeftModel

        weights = PeftModel.from_pretrained(weights, str(folder)).merge_and_unload().to(dtype)
    return weights, tokenizer
