"""Samples that stand in an Inspect log and in that of its retry: `inspect eval-retry` writes a log of its own, with the samples that were done
before. They are one attempt, the last. What ties the logs is `eval.task_id`; the time of their making tells which is the later."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

from rrm.readers.archive import MAGIC, Archive
from rrm.readers.jsontext import decode, parse_json
from rrm.readers.sources import load
from rrm.readers.spans import seconds

SUFFIXES = (".eval", ".json")
HEAD = 1 << 16
"""Bytes of a JSON log in which what it is of must stand."""
_TASK = re.compile(r'"task_id": ?"([^"]{1,200})"')
_CREATED = re.compile(r'"created": ?"([^"]{1,60})"')


def key_of(sample: Any) -> str:
    """What names a sample in its log, as the members of an `.eval` log are named."""
    return f"{sample.get('id')}_epoch_{sample.get('epoch')}" if isinstance(sample, dict) else ""


def superseded(paths: Iterable[str]) -> dict[str, set[str]]:
    """File → the samples of it that stand again in a later log of the same task. Only heads are read of logs without a retry; a file that
    cannot be read is passed over here, for reading it says why."""
    tasks: dict[str, list[tuple[float, str, str]]] = {}
    logs = [path for path in paths if path.endswith(SUFFIXES) and os.path.isfile(path)]  # a pipe is read once
    for path in logs if len(logs) > 1 else []:
        if (head := _head(path)) is not None:
            tasks.setdefault(head[0], []).append((seconds(head[1]) or 0.0, head[1], path))
    found: dict[str, set[str]] = {}
    for group in (sorted(group) for group in tasks.values() if len(group) > 1):
        later = set[str]()
        for *_, path in reversed(group):
            own = _samples(path)
            if again := own & later:
                found[path] = again
            later |= own
    return found


def _head(path: str) -> tuple[str, str] | None:
    """(task, time) of a log; None of another file."""
    try:
        with open(path, "rb") as file:
            begun = file.read(HEAD)
            if begun.startswith(MAGIC):
                about = _about(Archive(path, file))
            else:
                text = begun.decode("utf-8", "replace")
                task, made = _TASK.search(text), _CREATED.search(text)
                about = {"task_id": task[1], "created": made[1]} if task and made else {}
    except (OSError, ValueError, RecursionError):
        return None
    named = about.get("task_id"), about.get("created")
    return named if isinstance(named[0], str) and isinstance(named[1], str) else None  # pyright: ignore[reportReturnType]


def _about(archive: Archive) -> dict[str, Any]:
    name = next((n for n in ("header.json", "_journal/start.json") if n in archive.names), None)
    head = load(archive, name) if name else None
    about = head.get("eval") if isinstance(head, dict) else None
    return about if isinstance(about, dict) else {}


def _samples(path: str) -> set[str]:
    """The samples of a log."""
    try:
        with open(path, "rb") as file:
            if file.read(4).startswith(MAGIC):
                members = (n for n in Archive(path, file).names if n.startswith("samples/"))
                return {name.removeprefix("samples/").removesuffix(".json") for name in members}
            file.seek(0)
            log = parse_json(decode(file.read()))
    except (OSError, ValueError, RecursionError):
        return set()
    listed = log.get("samples") if isinstance(log, dict) else None
    return {key_of(sample) for sample in listed} if isinstance(listed, list) else set()
