"""Where the page of a label file is: kept beside the file, so that a tab that stayed open goes on after a restart.

Who has the token can label, so the file is its owner's alone (mode 0600); one that others may read, or that another user made, is not used.
"""

from __future__ import annotations

import json
import os
import re
import stat
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from rrm.errors import RRMError

HOST = "127.0.0.1"
_TOKEN = re.compile(r"[\w-]{32}", re.ASCII)
_MOST_BYTES = 1000


@dataclass(frozen=True)
class PageAddress:
    """Of a page on this machine."""

    port: int
    token: str

    @property
    def url(self) -> str:
        """What the rater opens."""
        return f"http://{HOST}:{self.port}/{self.token}/"


def address_file(labels: Path) -> Path:
    """`LABELS.jsonl` → `LABELS.jsonl.journal.page.json`."""
    return Path(f"{labels}.journal.page.json")


def kept_address(labels: Path) -> PageAddress | None:
    """Where the page of a label file is or was; None where nothing trustworthy says so."""
    try:
        with open(address_file(labels), "rb") as file:
            if os.name != "nt":
                about = os.fstat(file.fileno())
                if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077:
                    return None
            found = json.loads(file.read(_MOST_BYTES))
        port, token = found["port"], found["token"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    good = type(port) is int and 0 < port < 65536 and isinstance(token, str) and _TOKEN.fullmatch(token)
    return PageAddress(port, token) if good else None


def keep_address(labels: Path, address: PageAddress) -> None:
    """Write where the page is, for its owner alone.

    Raises:
        RRMError: it cannot be written.
    """
    path = address_file(labels)
    part = Path(f"{path}.part")
    try:
        part.unlink(missing_ok=True)
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
                json.dump(asdict(address), file)
            os.replace(part, path)
        finally:
            with suppress(OSError):
                part.unlink()
    except OSError as error:
        raise RRMError(f"cannot write {path}: {error.strerror}") from error
