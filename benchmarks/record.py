"""How a benchmark's results are written: the figures, and beside them the command, versions and hardware that made them."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def command(module: str) -> str:
    """The command line as it was given, absolute paths by their last part; `module` below `benchmarks`."""
    said = [Path(word).name if os.path.isabs(word) else word for word in sys.argv[1:]]
    return " ".join([f"python -m benchmarks.{module}", *said])


def commit() -> str | None:
    """The commit that is checked out, with `+` where tracked files differ from it; None outside a checkout."""
    where = Path(__file__).resolve().parent
    run = ["git", "-C", str(where), "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def is_known(commit: str) -> bool:
    """Whether the checkout has this commit; True outside one, where nobody can say. A record of a commit that was rebased away names
    files that nobody has."""
    where = str(Path(__file__).resolve().parent)

    def has(what: str) -> bool:
        run = ["git", "-C", where, "cat-file", "-e", what]
        return subprocess.run(run, capture_output=True, check=False).returncode == 0

    try:
        return not has("HEAD^{commit}") or has(f"{commit}^{{commit}}")
    except OSError:
        return True


def load(name: str) -> dict[str, Any] | None:
    """A results file, or None where it was never made."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else None


def interval(value: dict[str, float]) -> str:
    """`0.712 [0.690, 0.734]`; `not defined` where there is nothing to measure (one class only)."""
    if value.get("value") is None:
        return "not defined"
    if value.get("low") is None or value.get("high") is None:
        return f"{value['value']:.3f} [too few questions]"
    return f"{value['value']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"


def unmade(commit: object) -> str | None:
    """Why a record cannot be made again by this commit; None where it can."""
    if commit in (None, ""):
        return "no commit"
    if str(commit).endswith("+"):
        return "made by files that no commit has"
    return None if is_known(str(commit)) else f"made by {commit}, which this repository does not have"


def hardware() -> str:
    """Architecture and cores, `x86_64, 2 cores`."""
    return f"{platform.machine()}, {os.cpu_count()} cores"


def made_with(*packages: str) -> dict[str, Any]:
    """`versions` of Python and of packages, and `hardware`."""
    return {
        "versions": {"python": platform.python_version(), **{p: version(p) for p in packages}},
        "hardware": hardware(),
    }


def timed_with(module: str, args: argparse.Namespace, *packages: str) -> dict[str, Any]:
    """What stands beside a speed measurement: `options` (all but files, folders and the model, which may be a folder),
    `command`, versions, hardware, and the machine's load (1, 5, 15 minutes)."""
    return {
        "options": {k: v for k, v in vars(args).items() if k not in ("data", "out", "model")},
        "command": f"python -m benchmarks.{module}",
        **made_with(*packages),
        "load_average": os.getloadavg(),
    }


def write(path: Path, record: Mapping[str, Any]) -> None:
    """The record as JSON, a list or object of plain values on one line; its folder is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{_lines(record)}\n", encoding="utf-8")


def _lines(value: Any, indent: int = 0) -> str:
    """`json.dumps(value, indent=1)` with what holds no further list or object on one line."""
    named = isinstance(value, dict)
    held = list(value.values()) if named else value if isinstance(value, list | tuple) else ()
    if not any(isinstance(one, dict | list | tuple) for one in held):
        return json.dumps(value)
    names = [f"{json.dumps(str(name))}: " for name in value] if named else [""] * len(held)
    rows = (f"{' ' * (indent + 1)}{name}{_lines(one, indent + 1)}" for name, one in zip(names, held, strict=True))
    first, last = "{}" if named else "[]"
    return f"{first}\n" + ",\n".join(rows) + f"\n{' ' * indent}{last}"
