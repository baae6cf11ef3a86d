"""Where the shipped lab policy lies: the supervised base every lab training starts from."""

from __future__ import annotations

from pathlib import Path

from rrm.errors import RRMError

FOLDER = Path(__file__).resolve().parents[1] / "assets" / "lab_policy"


def lab_policy_folder() -> Path:
    """The folder of the shipped lab policy (safetensors, tokenizer, card.json).

    Raises:
        RRMError: it is absent; says how to make it.
    """
    if not (FOLDER / "config.json").is_file():
        raise RRMError(f"no lab policy at {FOLDER}: make it with `reagent lab build --output {FOLDER}`")
    return FOLDER
