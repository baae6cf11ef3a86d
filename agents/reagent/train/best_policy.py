"""The policy of the best evaluation, kept in `best/` while training goes on: what is there to return to when a guard stops it."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reagent.train.guards import Best

FIGURES = "evaluation.json"
"""Beside the weights: which evaluation it was."""


def keep_best(policy: Any, tokenizer: Any, folder: Path, best: Best, weights: Mapping[str, Any] | None = None) -> None:
    """Write the policy as it stands to `folder`, whole or not at all, in place of an earlier one; the policy is not changed.

    A policy trained whole is written as `policy.base` takes it; under `policy.lora` the adapter alone, in `folder/adapter`. `weights`: a
    sharded policy's, whole (`reagent.train.policy.saved_tensors`).
    """
    partial, previous = (folder.with_name(f"{folder.name}.{name}") for name in ("partial", "previous"))
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    given = {} if weights is None else {"state_dict": weights}
    policy.model.save_pretrained(str(_weights(policy, partial)), safe_serialization=True, **given)
    tokenizer.save_pretrained(str(partial))
    (partial / FIGURES).write_text(json.dumps(asdict(best)) + "\n")
    _put_back(folder)
    shutil.rmtree(previous, ignore_errors=True)
    if folder.exists():
        os.replace(folder, previous)
    os.replace(partial, folder)
    shutil.rmtree(previous, ignore_errors=True)


def kept_best(policy: Any, folder: Path, best: Best) -> Path | None:
    """Where the policy of that evaluation lies; None where `folder` holds none, or another's (of a run that was killed)."""
    _put_back(folder)
    held = folder / FIGURES
    try:  # files of earlier versions have fewer figures
        if not json.loads(held.read_bytes()).items() <= asdict(best).items():
            return None
    except (OSError, ValueError, AttributeError):
        return None  # `how_to_go_on` says that it is not kept
    return _weights(policy, folder)


def _put_back(folder: Path) -> None:
    """Undo what a kill left between the two renames: the earlier one stands again."""
    previous = folder.with_name(f"{folder.name}.previous")
    if previous.exists() and not folder.exists():
        os.replace(previous, folder)


def _weights(policy: Any, folder: Path) -> Path:
    return folder / "adapter" if hasattr(policy.model, "merge_and_unload") else folder
