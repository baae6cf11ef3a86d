"""A checkpoint is whole, or it is not used: `manifest.json`, written last, names each of its files with size and SHA-256 sum.

Of every training, of judges and of agents. What a kill cut short has no manifest yet; what a disk, a copy or a hand
changed afterwards is not what the manifest says.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rrm.errors import RRMError, is_disk_full

logger = logging.getLogger(__name__)
MANIFEST = "manifest.json"
UNFINISHED = f"it has no {MANIFEST}: its writing was cut short, or an earlier version made it"


def seal(folder: Path) -> None:
    """Write the manifest of a folder whose files are all there."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith(MANIFEST)]
    partial = (
        folder / f"{MANIFEST}.{secrets.token_hex(4)}"
    )  # of a sharded policy, two processes may write the same at once
    partial.write_text(
        json.dumps({"files": {str(path.relative_to(folder)): _facts(path) for path in found}}, indent=1) + "\n"
    )
    os.replace(partial, folder / MANIFEST)


def _facts(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def damage(folder: Path) -> str | None:
    """Compare a folder with its manifest. Returns the first difference in words, with the file's name; None: the folder is whole."""
    try:
        files = json.loads((folder / MANIFEST).read_bytes())["files"].items()
    except FileNotFoundError:
        return UNFINISHED
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"its {MANIFEST} cannot be read ({error})"
    for name, facts in files:
        try:
            found = _facts(folder / name)
        except (OSError, ValueError) as error:
            return f"{name} cannot be read ({error})"
        if found != facts:
            return f"{name} is not what was written ({found['bytes']} bytes, another checksum than {MANIFEST} says)"
    return None


def newest_whole(checkpoints: Sequence[Path]) -> Path | None:
    """The newest checkpoint that is whole, which is said; those that are not are named, with why.

    Args:
        checkpoints: oldest first.

    Returns:
        None where there are none, or only such whose writing was cut short.

    Raises:
        RRMError: all that were finished are damaged, or all are an earlier version's.
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
    """Name the file in the error when the disk gets full while files of a run are written.

    Raises:
        RRMError: the disk is full.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, RRMError) or not is_disk_full(error):
            raise
        files = [path for path in folder.rglob("*") if path.is_symlink() or path.is_file()]
        name = getattr(error, "filename", None) or max(files, key=lambda path: path.lstat().st_mtime_ns, default=folder)
        reason = os.strerror(errno.ENOSPC)
        raise RRMError(f"cannot write {name}: {reason}; mend that and run the same command to continue") from error
