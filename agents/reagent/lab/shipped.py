"""Folders of the lab's shipped policies and judge."""

from pathlib import Path

from rrm.errors import RRMError

FOLDER = Path(__file__).resolve().parent / "assets"
SHIPPED = {"lab": ("policy", "reagent lab build"), "lab-reflective": ("reflective", "reagent lab reflect")}
"""Name → folder, and the command that makes it."""


def lab_policy_folder(name: str = "lab") -> Path:
    """The folder of a shipped lab policy. Raises RRMError: it is absent."""
    folder, command = SHIPPED[name]
    if not (FOLDER / folder / "config.json").is_file():
        raise RRMError(f"no lab policy at {FOLDER / folder}: make it with `{command} --output {FOLDER / folder}`")
    return FOLDER / folder


def judge_folder() -> Path:
    """The shipped lab judge's directory (`--model lab`, by entry point)."""
    return FOLDER / "judge"
