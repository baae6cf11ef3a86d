"""The policy of the best evaluation, kept in `best/` while training goes on."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reagent.train.guards import Best

FIGURES = "evaluation.json"


def keep_best(policy: Any, tokenizer: Any, folder: Path, best: Best, weights: Mapping[str, Any] | None = None) -> None:
    """Write the policy (under `policy.lora` its adapter) to `folder` atomically; `weights`: gathered ones."""
    partial, previous = (folder.with_name(f"{folder.name}.{name}") for name in ("partial", "previous"))
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    options = {} if weights is None else {"state_dict": weights}
    policy.model.save_pretrained(str(_weights(policy, partial)), safe_serialization=True, **options)
    tokenizer.save_pretrained(str(partial))
    (partial / FIGURES).write_text(json.dumps(asdict(best)) + "\n")
    _put_back(folder)
    shutil.rmtree(previous, ignore_errors=True)
    if folder.exists():
        os.replace(folder, previous)
    os.replace(partial, folder)
    shutil.rmtree(previous, ignore_errors=True)


def kept_best(policy: Any, folder: Path, best: Best) -> Path | None:
    """The folder of that evaluation's policy; None where `folder` holds none, or another's."""
    _put_back(folder)
    figures = folder / FIGURES
    try:  # files of earlier versions have fewer figures
        if not json.loads(figures.read_bytes()).items() <= asdict(best).items():
            return None
    except (OSError, ValueError, AttributeError):
        return None  # `how_to_go_on` says that it is not kept
    return _weights(policy, folder)


def _put_back(folder: Path) -> None:
    """Undo a kill between the two renames."""
    previous = folder.with_name(f"{folder.name}.previous")
    if previous.exists() and not folder.exists():
        os.replace(previous, folder)


def _weights(policy: Any, folder: Path) -> Path:
    return folder / "adapter" if hasattr(policy.model, "merge_and_unload") else folder
