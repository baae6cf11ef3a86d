"""Errors a user can act on: what was wrong, where, and what to do about it."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rrm.data.usage import Usage


ErrorKind = Literal["failed", "refused", "too_long", "schema"]


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


class DownloadError(RRMError):
    """The hub, or pip, does not give a model."""


class EngineError(RRMError):
    """An engine got no completion (time-out, HTTP status, empty reply) in all its tries.

    Args:
        kind: `refused`: a server refuses all requests alike (key, money, closed for hours, rate), so a run stops at once;
            `too_long`: it takes no prompt of this length; `schema`: it may answer without a JSON schema.
    """

    usage: Usage | None = None  # of all tries

    def __init__(self, text: str = "", kind: ErrorKind = "failed") -> None:
        super().__init__(text)
        self.kind = kind


class ServerGone(RRMError):
    """A server answered nothing for as long as it may be retried: other requests would fail alike."""


class SpendingLimit(RRMError):
    """A limit of money is reached: requests under way were finished and kept, the rest not begun."""


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


def __getattr__(name: str) -> type:
    if name in ("KeyRefused", "TooLong", "SchemaRefused"):
        raise ImportError(f"rrm.errors.{name} is gone: look at the `kind` of an EngineError")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
