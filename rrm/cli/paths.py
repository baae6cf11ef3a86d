"""Check paths before any work is done."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rrm.errors import ConfigError
from rrm.readers.base import DATA_SUFFIXES
from rrm.readers.hub import is_hub


def check_outputs(*paths: Path | None) -> None:
    """Raise `ConfigError` for files that cannot be written: folders, in no folder, not permitted."""
    for path in paths:
        if path is None:
            continue
        if path.is_dir():
            raise ConfigError(f"cannot write {path}: it is a folder; name a file in it")
        if not path.parent.is_dir():
            raise ConfigError(f"cannot write {path}: there is no folder {path.parent}; make it first")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise ConfigError(f"cannot write {path}: permission denied")


def ready_outputs(*paths: Path | None) -> None:
    """Make the folders of files, and check the files as `check_outputs`; raises `ConfigError`."""
    for path in filter(None, paths):
        _refuse_root(path.absolute().parent)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.filename}: {error.strerror}") from error
    check_outputs(*paths)


def _refuse_root(folder: Path) -> None:
    """Raise `ConfigError` for a folder whose first part would be a new one at the file system's root."""
    top = Path(*folder.parts[:2])
    if not top.exists():
        raise ConfigError(f"there is no folder {top}: make it first, or choose another place")


def beside(inputs: Sequence[str], ending: str) -> Path:
    """Return the default output of a command, beside its first input: `runs.jsonl` → `runs` + ending."""
    first = inputs[0]
    if first == "-" or is_hub(first):
        raise ConfigError(f"say where the output goes: -o NAME{ending}")
    path = Path(first) if Path(first).name else Path(first).resolve()
    name = path.name
    while not path.is_dir() and Path(name).suffix.lower() in (*DATA_SUFFIXES, ".gz"):
        name = Path(name).stem
    return path.with_name(name + ending)


def check_folder(path: Path) -> None:
    """Raise `ConfigError` for a folder that cannot be made, or not written into."""
    _refuse_root(path.absolute())
    there = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not there.is_dir():
        raise ConfigError(f"cannot make the folder {path}: {there} is a file")
    if not os.access(there, os.W_OK):
        raise ConfigError(f"cannot write into the folder {there}: permission denied")
