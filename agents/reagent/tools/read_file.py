"""`read_file`: documents in one folder as text. Nothing outside of it is reached, by dots or by links."""

import os
import stat
from pathlib import Path

from reagent.env.tool import Tool, tool
from reagent.errors import ToolError
from reagent.tools.documents.run import read_document
from rrm.errors import ConfigError

_LISTED = 50


def load(root: Path, path: str, max_bytes: int) -> bytes:
    """A file's bytes. `root`: links resolved.
    Raises ToolError: there is none, it lies outside the root once links are resolved, is no ordinary file, or larger than `max_bytes`."""
    if not path or "\0" in path:
        raise ToolError(f"no path; {_listing(root)}", "no_file")
    none = ToolError(f"there is no file {path[:100]!r} in the folder; {_listing(root)}", "no_file")
    try:
        target = (root / path).resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:  # ValueError: half a surrogate pair, which no name holds
        raise none from error
    if not target.is_relative_to(root):
        raise none
    descriptor = os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        description = "a folder" if stat.S_ISDIR(status.st_mode) else "no ordinary file"
        raise ToolError(f"{path[:100]!r} is {description}; {_listing(root)}", "file_refused")
    with open(descriptor, "rb") as file:
        if status.st_size > max_bytes:
            raise ToolError(f"{path[:100]!r} has {status.st_size} bytes; at most {max_bytes} are read", "unreadable")
        return file.read(max_bytes)


def _is_inside(path: Path, root: Path) -> bool:
    """Tell whether a path leads to an existing file in the folder."""
    try:
        return path.resolve(strict=True).is_relative_to(root)
    except (OSError, RuntimeError):
        return False


def _listing(root: Path) -> str:
    names = []
    for folder, folders, files in os.walk(root):
        folders.sort()
        paths = [Path(folder, name) for name in sorted(files)]
        names += [str(path.relative_to(root)) for path in paths if _is_inside(path, root)]
        if len(names) > _LISTED:
            break
    return f"there are: {', '.join(names[:_LISTED])}"[:200] if names else "the folder is empty"


def read_file_tools(
    root: str,
    max_bytes: int = 50_000_000,
    max_chars: int = 6000,
    timeout_s: int = 10,
    memory_mb: int = 1024,
    max_concurrency: int = 4,
) -> list[Tool]:
    """Make the tool `read_file`. Raises ConfigError: no such folder.

    Args:
        root: the folder with the files.
        max_bytes: of a file.
        max_chars: of a reading; the agent reads on by `start`.
        timeout_s: processor seconds of a reading.
        memory_mb: of a reading.
        max_concurrency: readings at once.
    """
    folder = Path(root)
    if not folder.is_dir():
        raise ConfigError(f"tools.read_file: root: there is no folder {root}")
    folder = folder.resolve()

    @tool(timeout_s=timeout_s * 2 + 5, max_concurrency=max_concurrency, max_result_chars=max_chars + 200)
    def read_file(path: str, part: str = "", start: int = 0) -> str:
        """Read a file as text: txt, md, csv, json, jsonl, html, xlsx, docx, pptx, pdf, zip.

        Args:
            path: The file's path.
            part: Pages of a PDF or slides (3 or 3-5), a sheet's name, or a file in a zip archive. Leave out for all, or for the archive's list.
            start: The character to begin with, to read on in a long file.
        """
        data = load(folder, path, max_bytes)
        suffix = Path(path).suffix[1:].lower()
        return read_document(
            data, suffix, part=part, start=start, max_chars=max_chars, timeout_s=timeout_s, memory_mb=memory_mb
        ).with_note()

    return [read_file]
