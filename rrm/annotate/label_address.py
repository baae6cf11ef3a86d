"""The page's address, stored beside the label file so that an open tab goes on after a restart.

Who has the token can label: the file is mode 0600, and one that others may read, or that another user made, is not used.
"""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import asdict, dataclass
from pathlib import Path

from rrm.data.output import drafted
from rrm.errors import RRMError

HOST = "127.0.0.1"
_TOKEN = re.compile(r"[\w-]{32}", re.ASCII)
_MOST_BYTES = 1000


@dataclass(frozen=True)
class PageAddress:
    port: int
    token: str

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/{self.token}/"


def address_file(labels: Path) -> Path:
    return Path(f"{labels}.journal.page.json")


def kept_address(labels: Path) -> PageAddress | None:
    """Read the stored address of a label file's page; None where there is none to trust."""
    try:
        with open(address_file(labels), "rb") as file:
            if os.name != "nt":
                about = os.fstat(file.fileno())
                if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077:
                    return None
            address = json.loads(file.read(_MOST_BYTES))
        port, token = address["port"], address["token"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    good = type(port) is int and 0 < port < 65536 and isinstance(token, str) and _TOKEN.fullmatch(token)
    return PageAddress(port, token) if good else None


def keep_address(labels: Path, address: PageAddress) -> None:
    """Store the address for its owner alone; raises RRMError where it cannot be written."""
    path = address_file(labels)
    try:
        with drafted(path, ".part") as draft:
            draft.unlink(missing_ok=True)
            with open(draft, "x", encoding="ascii", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                json.dump(asdict(address), file)
    except OSError as error:
        raise RRMError(f"cannot write {path}: {error.strerror}") from error
