"""Errors a user can act on: what was wrong, where, and what to do about it."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rrm.data.usage import Usage


class RRMError(Exception):
    """Base of every error this package raises on purpose. The CLI prints it without a traceback and exits 2."""


class ReadError(RRMError):
    """A transcript file or line that cannot be read.

    Attributes:
        path: file the line came from (`-` for standard input).
        line: 1-based line number, or the 1-based position of the item in a JSON array; None for the whole file.
        reason: what was wrong, in one sentence.
    """

    def __init__(self, path: str, line: int | None, reason: str) -> None:
        self.path, self.line, self.reason = path, line, reason
        super().__init__(f"{path}:{line}: {reason}" if line is not None else f"{path}: {reason}")


class ConfigError(RRMError):
    """A config file or override with an unknown key or a value of the wrong type."""


class EngineError(RRMError):
    """An engine could not produce a completion (time-out, HTTP status, empty reply) after its retries."""

    usage: Usage | None = None
    """What the tries used."""


class KeyRefused(EngineError):
    """A server refuses the API key, has no money, has closed for hours or says to each of many tries that it is asked too much: whatever else is asked of it fails alike, so a run stops
    at once."""


class ServerGone(RRMError):
    """A server that was asked again for as long as may be answered nothing: whatever else it is asked for fails alike."""


class SpendingLimit(RRMError):
    """A limit of money is reached: what was under way is finished and kept, and the rest was not begun."""


class TooLong(EngineError):
    """A server cannot take a prompt of this length: another try, or another server of this context, would not change it."""


class SchemaRefused(EngineError):
    """A server takes no JSON schema for its reply: asked without one, it may answer."""


class MissingExtra(RRMError):
    """An optional dependency is needed and absent; the message names the extra to install."""


def is_disk_full(error: BaseException) -> bool:
    """Whether a disk is full. Libraries that write files in other languages say so in the message alone (safetensors), or say that they
    could not write (torch)."""
    said = str(error)
    return (
        getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        or os.strerror(errno.ENOSPC) in said
        or (
            isinstance(error, RuntimeError)
            and any(mark in said for mark in ("PytorchStreamWriter", "inline_container"))
        )
    )


def file_problem(error: BaseException) -> RRMError | None:
    """What a user can do about an error of the file system: a path that is wrong, or a disk that is full; None for others."""
    where = f" ({name})" if (name := getattr(error, "filename", None)) else ""
    if is_disk_full(error):
        return RRMError(
            f"no space left on the disk{where}: free some and run the same command again; whole files are kept"
        )
    if isinstance(error, OSError) and name:
        return RRMError(f"{name}: {error.strerror or error}")
    return None
