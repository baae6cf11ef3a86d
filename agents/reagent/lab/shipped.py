"""Where the lab's shipped policies and its judge lie."""

from pathlib import Path

from rrm.errors import RRMError

FOLDER = Path(__file__).resolve().parent / "assets"
SHIPPED = {"lab": ("policy", "reagent lab build"), "lab-reflective": ("reflective", "reagent lab reflect")}
"""Per name its folder and the command that makes it. `lab` is supervised on demonstrations; `lab-reflective` is `lab` taught
second attempts and the judge's texts besides."""


def lab_policy_folder(name: str = "lab") -> Path:
    """The folder of a shipped lab policy (safetensors, tokenizer, card.json). Raises RRMError: it is absent; says how to make it."""
    folder, command = SHIPPED[name]
    if not (FOLDER / folder / "config.json").is_file():
        raise RRMError(f"no lab policy at {FOLDER / folder}: make it with `{command} --output {FOLDER / folder}`")
    return FOLDER / folder


def judge_folder() -> Path:
    """The shipped lab judge's directory (`--model lab`, by entry point)."""
    return FOLDER / "judge"
