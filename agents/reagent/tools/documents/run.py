"""Read a document in a child process with limits on time and memory."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reagent.errors import ToolError
from rrm.data.extras import needs

_START = "import sys; sys.path.insert(0, sys.argv[1]); from documents.child import main; main()"
_NEEDS = {"pdf": "pypdf", "xlsx": "openpyxl"}


@dataclass(frozen=True)
class Window:
    """A stretch of a document's text."""

    text: str
    start: int
    total: int  # characters of the document; at least so many where `cut`
    cut: bool  # the text is longer than is ever read

    def with_note(self) -> str:
        """The text, with a note how to read on where it is not all."""
        end = self.start + len(self.text)
        if end >= self.total and not self.start:
            return self.text
        more = f"; read on with start={end}" if end < self.total else ""
        size = f"more than {self.total}" if self.cut else str(self.total)
        return f"{self.text}\n[characters {self.start} to {end} of {size}{more}]"


def read_document(
    data: bytes,
    kind: str,
    *,
    part: str = "",
    start: int = 0,
    max_chars: int = 6000,
    charset: str | None = None,
    timeout_s: int = 10,
    memory_mb: int = 1024,
    base_url: str = "",
) -> Window:
    """Read a window of a document's text.

    Args:
        kind: a file suffix without its dot: `txt`, `html`, `pdf`, …; an unknown one is tried as text.
        part: pages or slides (`3`, `3-5`), a sheet's name, or a member of an archive.
        start: the first character.
        charset: of text; guessed without.
        timeout_s: processor seconds, and wall clock with as many more.
        base_url: completes links of a page.

    Raises:
        ToolError: it cannot be read.
        MissingExtra: the reader of this suffix is not installed.
    """
    if kind in _NEEDS:
        needs("tools", f"reading a .{kind} file", _NEEDS[kind])
    request = {
        "kind": kind,
        "part": part,
        "start": start,
        "max_chars": max_chars,
        "charset": charset,
        "cpu_s": timeout_s,
        "memory_bytes": memory_mb << 20,
        "base_url": base_url,
    }
    answer = _ask(json.dumps(request).encode() + b"\n" + data, timeout_s * 2)
    if "error" in answer:
        raise ToolError(answer["message"], answer["error"])
    return Window(**answer)


def _ask(request: bytes, timeout_s: float) -> dict[str, Any]:
    command = [sys.executable, "-I", "-c", _START, str(Path(__file__).parents[1])]
    environment = {"LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
    inherited = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}
    try:
        done = subprocess.run(
            command,
            input=request,
            capture_output=True,
            timeout=timeout_s,
            env=environment | inherited,
            cwd="/",
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": "reading_timeout", "message": f"reading it took more than {timeout_s:g} s"}
    try:
        return json.loads(done.stdout)
    except ValueError:
        if done.returncode in (-24, -9):  # SIGXCPU, and SIGKILL a second later
            return {"error": "reading_timeout", "message": "reading it took too much processor time"}
        return {"error": "unreadable", "message": f"its reader died (exit code {done.returncode})"}
