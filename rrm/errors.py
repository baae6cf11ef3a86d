"""Errors a user can act on: what was wrong, where, and what to do about it."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rrm.data.usage import Usage


class RRMError(Exception):
    """Base of every error raised on purpose. The CLI prints it without a traceback and exits 2."""


class ReadError(RRMError):
    """A transcript file or line cannot be read; `path` is `-` for standard input."""

    # line: from 1, or a position in a JSON array; None: the whole file
    def __init__(self, path: str, line: int | None, reason: str) -> None:
        self.path, self.line, self.reason = path, line, reason
        super().__init__(f"{path}:{line}: {reason}" if line is not None else f"{path}: {reason}")


class ConfigError(RRMError):
    """A config file or override has an unknown key or a value of the wrong type."""


class EngineError(RRMError):
    """An engine got no completion (time-out, HTTP status, empty reply) in all its tries."""

    usage: Usage | None = None  # of all tries


class KeyRefused(EngineError):
    """A server refuses all requests alike (key, money, closed for hours, rate): a run stops at once."""


class ServerGone(RRMError):
    """A server answered nothing for as long as it may be retried: other requests would fail alike."""


class SpendingLimit(RRMError):
    """A limit of money is reached: requests under way were finished and kept, the rest not begun."""


class TooLong(EngineError):
    """A prompt is longer than a server takes: another try would fail too."""


class SchemaRefused(EngineError):
    """A server takes no JSON schema for its reply; without one it may answer."""


class MissingExtra(RRMError):
    """An optional dependency is absent; the message names the extra to install."""


def is_disk_full(error: BaseException) -> bool:
    """Recognise a full disk, also by messages alone: of safetensors, and of torch (could not write)."""
    message = str(error)
    return (
        getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        or os.strerror(errno.ENOSPC) in message
        or (
            isinstance(error, RuntimeError)
            and any(mark in message for mark in ("PytorchStreamWriter", "inline_container"))
        )
    )


def file_problem(error: BaseException) -> RRMError | None:
    """Explain a wrong path or a full disk to the user; None for other errors."""
    where = f" ({name})" if (name := getattr(error, "filename", None)) else ""
    if is_disk_full(error):
        return RRMError(
            f"no space left on the disk{where}: free some and run the same command again; whole files are kept"
        )
    if isinstance(error, OSError) and name:
        return RRMError(f"{name}: {error.strerror or error}")
    return None
