"""An adapter to train further (`sft.lora.init`), compared with the base."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from rrm.config import LoraSettings
from rrm.data.extras import is_import_path
from rrm.engines.hf.base_model import base_path, named_damage
from rrm.engines.shipped_judges import FILE, judge_folder
from rrm.errors import RRMError
from rrm.judge.card import HUB_NAMES
from rrm.judge.judge_dir import base_of, load_settings

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def adapter_folder(name: str) -> Path:
    """The folder of `sft.lora.init`: a judge's, a run's, an adapter's or a shipped judge's, else RRMError."""
    folder = judge_folder(name) or Path(name).expanduser()
    if not all((folder / file).is_file() for file in (CONFIG, WEIGHTS)):
        raise RRMError(f"sft.lora.init: {str(folder)!r} holds no adapter ({CONFIG} and {WEIGHTS})")
    return folder


def checked_adapter(settings: LoraSettings, base: str) -> Path:
    """The folder of the adapter at `settings.init`, if its config allows to train it further.

    Raises:
        RRMError: no adapter, no LoRA, or one of another base or revision.
    """
    folder = adapter_folder(settings.init or "")
    try:
        have = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except ValueError as error:
        raise RRMError(f"sft.lora.init: {folder / CONFIG} is not JSON: {error}") from error
    if not isinstance(have, dict) or have.get("peft_type") != "LORA":
        adapter_type = have.get("peft_type") if isinstance(have, dict) else type(have).__name__
        raise RRMError(
            f"sft.lora.init: the adapter in {str(folder)!r} is no LoRA but {adapter_type}: only that is trained further"
        )
    if not is_import_path(base):
        their_settings = load_settings(folder)
        theirs, named = base_of(folder, their_settings), FILE if their_settings.base else CONFIG
        if not is_same_base(theirs, base):
            raise RRMError(
                f"sft.lora.init: the adapter in {str(folder)!r} is over {theirs!r}, and model.base is {base!r}: over another base "
                f"it says nothing. Set model.base to its base; where that only lies elsewhere now, name the place in its {named}"
            )
        if their_settings.base_revision is not None and judge_folder(theirs) is None:
            raise RRMError(
                f"sft.lora.init: the adapter in {str(folder)!r} is over {theirs!r} at revision {their_settings.base_revision}, and "
                "model.base is what its main branch holds now. Fetch that revision, and name its folder as model.base and as "
                f"base in the adapter's {FILE}"
            )
    return folder


def is_same_base(theirs: str, ours: str) -> bool:
    if HUB_NAMES.get(theirs, theirs) == HUB_NAMES.get(ours, ours):
        return True
    folder = judge_folder(theirs)
    return folder is not None and Path(base_path(ours)).resolve() == folder.resolve()


def with_adapter(model: Any, settings: LoraSettings, base: str) -> Any:
    """The model under the adapter at `settings.init`, in float32, with the dropout of the settings; RRMError if it does not fit the base."""
    from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
    from safetensors.torch import load_file

    folder = checked_adapter(settings, base)
    its_config: Any = LoraConfig.from_pretrained(str(folder))
    its_config.inference_mode, its_config.lora_dropout = False, settings.dropout
    peft_model = get_peft_model(model, its_config)
    with named_damage(folder):
        theirs = load_file(str(folder / WEIGHTS))
    ours = get_peft_model_state_dict(peft_model, save_embedding_layers=False)
    wrong = [f"{name} is not here" for name in sorted(theirs.keys() - ours.keys())]
    wrong += [f"{name} is not there" for name in sorted(ours.keys() - theirs.keys())]
    for name in sorted(theirs.keys() & ours.keys()):
        if theirs[name].shape != ours[name].shape:
            wrong.append(f"{name} is {tuple(theirs[name].shape)} (here {tuple(ours[name].shape)})")
    if wrong:
        raise RRMError(
            f"sft.lora.init: the adapter in {str(folder)!r} does not fit the base; {len(wrong)} tensors differ: {'; '.join(wrong[:2])}"
        )
    set_peft_model_state_dict(peft_model, theirs)
    for name, weights in peft_model.named_parameters():
        if (layer := re.search(r"\.layers\.(\d{1,4})\.", name)) and int(layer[1]) < settings.skip_layers:
            weights.requires_grad_(False)
    return peft_model
