"""An annotation file that a killed run leaves usable: whole lines, one appended as each annotation is made."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from rrm.annotation import Annotation
from rrm.errors import RRMError


def read_done(path: Path, annotator: str | None) -> set[str]:
    """Ids annotated already; a half-written last line is cut off the file.

    One line is enough for a trajectory to count as done, also where a killed run had more to write (`self --keep 2`).

    Raises:
        RRMError: a line that is no annotation, or one by another annotator than this run's (None: any is fine).
    """
    done: set[str] = set()
    if not path.exists():
        return done
    whole = 0
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            try:
                annotation = Annotation.model_validate(json.loads(line))
            except ValueError as error:
                raise RRMError(f"{path}:{number}: not an annotation; choose another -o, or --overwrite") from error
            if annotator is not None and annotation.annotator != annotator:
                raise RRMError(
                    f"{path}:{number}: written by {annotation.annotator!r}, this run's annotator is {annotator!r}; "
                    "choose another -o, or --overwrite"
                )
            done.add(annotation.trajectory_id)
    if whole != path.stat().st_size:
        os.truncate(path, whole)
    return done


def append(path: Path, annotations: Iterable[Annotation]) -> int:
    """Append annotations as they come, each line flushed, all synced at the end; returns how many were written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with open(path, "a", encoding="ascii") as out:
        for annotation in annotations:
            out.write(to_line(annotation))
            out.flush()
            count += 1
        os.fsync(out.fileno())
    return count


def to_line(annotation: Annotation) -> str:
    """One ASCII-only line of JSON (lone surrogates survive as escapes)."""
    return json.dumps(annotation.model_dump(exclude_none=True), ensure_ascii=True) + "\n"
