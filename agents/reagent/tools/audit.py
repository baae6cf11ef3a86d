"""Writes one line of JSON for each call of a tool that acts outside of this process."""

import hashlib
import json
import logging
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from reagent.env.tool import ToolResult

Arguments = Literal["full", "digest"]
log = logging.getLogger(__name__)


class ToolAudit:
    """Appends to a file; safe from several threads and, a line being one write, from several processes.

    Args:
        path: the file; its folder must exist.
        arguments: keep calls with their arguments (`full`), or with a SHA-256 of them (`digest`), where they may hold secrets.
    """

    def __init__(self, path: str | Path, arguments: Arguments = "full") -> None:
        self.path, self.arguments, self.lock = Path(path), arguments, threading.Lock()
        self.lost = 0

    def write(self, server: str, tool: str, arguments: Mapping[str, Any], result: ToolResult) -> None:
        """Write the time, the call, its duration, ending (`ok` or the error's kind) and size.
        A line that cannot be written (a full disk) is lost, and logged once: the call has been made, and its episode goes on."""
        text = json.dumps(arguments, sort_keys=True, default=str)
        line = {
            "at": datetime.fromtimestamp(result.started, UTC).isoformat(timespec="milliseconds"),
            "server": server,
            "tool": tool,
            "arguments": dict(arguments) if self.arguments == "full" else None,
            "arguments_sha256": hashlib.sha256(text.encode()).hexdigest(),
            "duration_s": round(result.duration_s, 6),
            "ending": "ok" if result.error is None else result.error.kind,
            "chars": len(result.content),
            "cut_chars": result.cut_chars,
        }
        entry = json.dumps(line, default=str).encode("ascii") + b"\n"
        with self.lock:
            try:
                with open(self.path, "ab", buffering=0) as out:
                    out.write(entry)
            except OSError as error:
                if not self.lost:
                    log.error(
                        "the audit trail %s cannot be written and is incomplete from now on: %s", self.path, error
                    )
                self.lost += 1
