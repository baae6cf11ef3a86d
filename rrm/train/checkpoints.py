"""Checkpoints are whole or not used: `manifest.json`, written last, has size and SHA-256 of each file.

A checkpoint that a kill cut short has no manifest; later changes do not match it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rrm.data.output import drafted
from rrm.errors import RRMError, is_disk_full

logger = logging.getLogger(__name__)
MANIFEST = "manifest.json"
UNFINISHED = f"it has no {MANIFEST}: its writing was cut short, or an earlier version made it"


def seal(folder: Path) -> None:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith(MANIFEST)]
    manifest = {"files": {str(path.relative_to(folder)): _facts(path) for path in files}}
    with drafted(folder / MANIFEST) as draft:  # of a sharded policy, two processes may write the same at once
        draft.write_text(json.dumps(manifest, indent=1) + "\n")


def _facts(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def damage(folder: Path) -> str | None:
    """Compare a folder with its manifest: the first difference in words, or None."""
    try:
        files = json.loads((folder / MANIFEST).read_bytes())["files"].items()
    except FileNotFoundError:
        return UNFINISHED
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"its {MANIFEST} cannot be read ({error})"
    for name, facts in files:
        try:
            actual = _facts(folder / name)
        except (OSError, ValueError) as error:
            return f"{name} cannot be read ({error})"
        if actual != facts:
            return f"{name} is not what was written ({actual['bytes']} bytes, another checksum than {MANIFEST} says)"
    return None


def newest_whole(checkpoints: Sequence[Path]) -> Path | None:
    """The newest whole checkpoint (of oldest first), or None; logs it, and the reasons against others.

    Raises:
        RRMError: all finished ones are damaged, or all are an earlier version's.
    """
    damaged: list[str] = []
    for path in reversed(checkpoints):
        problem = damage(path)
        if problem is None:
            logger.warning("continuing from %s", path)
            return path
        logger.warning("%s is not used: %s", path, problem)
        damaged += [f"{path}: {problem}"] if problem != UNFINISHED else []
    if damaged:
        raise RRMError(
            f"no checkpoint is whole to go on from ({'; '.join(damaged)}): bring one back from a copy, or delete them to begin anew"
        )
    if len(checkpoints) > 1:  # a kill leaves one unfinished at most
        raise RRMError(
            f"none of {len(checkpoints)} checkpoints in {checkpoints[0].parent} has a {MANIFEST}, as those of an earlier version have none: "
            "finish this run with that version, or name another output folder"
        )
    if checkpoints:
        logger.warning("no checkpoint is there to go on from: beginning anew")
    return None


@contextmanager
def full_disk_named(folder: Path) -> Iterator[None]:
    """Turn the error of a full disk while a run writes into an RRMError that names the file."""
    try:
        yield
    except Exception as error:
        if isinstance(error, RRMError) or not is_disk_full(error):
            raise
        files = [path for path in folder.rglob("*") if path.is_symlink() or path.is_file()]
        name = getattr(error, "filename", None) or max(files, key=lambda path: path.lstat().st_mtime_ns, default=folder)
        reason = os.strerror(errno.ENOSPC)
        raise RRMError(f"cannot write {name}: {reason}; mend that and run the same command to continue") from error
