"""The labels of one rater on disk.

LABELS.jsonl                    the annotations, as `rrm train` and `rrm eval` take them; whole at every moment, on the disk at the end
LABELS.jsonl.journal            every action in its order, appended and on the disk before it counts
LABELS.jsonl.journal.run.json   whose it is
LABELS.jsonl.journal.lock       locked while the page is served

The journal is what counts: the annotations are made from it after each action, and again at the start. An action has an id, so one that is
sent twice, because its answer was lost, counts once; one that changed nothing is remembered like any other, since sent again after a later one it
would change something.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rrm.errors import RRMError
from rrm.labelling.said import Change, Said, annotation_of, changed
from rrm.output import Output, file_when_whole, header_of, open_output

log = logging.getLogger(__name__)


class Entry(BaseModel):
    """A line of the journal: a change, or with `undo` the taking back of the last one that stands."""

    model_config = ConfigDict(extra="forbid")

    action: str = Field(min_length=1, max_length=64)
    """The page's id of it."""
    at: str
    """When, ISO 8601 in UTC."""
    undo: bool = False
    digest: str | None = None
    """Of the transcript; it and what follows are None where `undo` is set."""
    trajectory_id: str | None = None
    steps: int | None = Field(default=None, ge=0)
    """How many the transcript has."""
    change: Change | None = None


@dataclass
class _Held:
    """What is known of one transcript that was labelled."""

    trajectory_id: str
    steps: int
    said: Said = field(default_factory=Said)
    line: str = ""
    """Its annotation, ended by a newline; empty where it makes none."""


class Journal:
    """A rater's labels, in memory and on disk (see `open_journal`). One caller at a time."""

    def __init__(self, path: Path, rater: str, output: Output) -> None:
        self.path, self.rater = path, rater
        self._output = output
        self._held: dict[str, _Held] = {}
        self._before: list[tuple[str, Said]] = []
        """(digest, what was said before) of each change that stands and changed something: what undoing goes back to."""
        self._seen: dict[str, str | None] = {}
        """Action → the digest of the transcript it was of; None where there was nothing to undo."""
        for number, row in output.rows():
            try:
                self._take(Entry.model_validate(row))
            except (ValidationError, ValueError) as error:
                raise RRMError(f"{output.path}:{number}: not an action of `rrm label`: {error}") from error
        self._keep_other()
        self._write()

    def said(self, digest: str) -> Said:
        """What was said of a transcript."""
        return self._held[digest].said if digest in self._held else Said()

    @property
    def digests(self) -> set[str]:
        """Of the transcripts of which something is said."""
        return {digest for digest, held in self._held.items() if held.said != Said()}

    def change(self, action: str, digest: str, trajectory_id: str, steps: int, change: Change) -> None:
        """Take a change and keep it; one that was taken before is passed over.

        Raises:
            ValueError: the transcript cannot have it.
            RRMError: it cannot be written; it does not count then.
        """
        changed(self.said(digest), change, steps)  # refused before it is written
        self._append(
            Entry(action=action, at=_now(), digest=digest, trajectory_id=trajectory_id, steps=steps, change=change)
        )

    def undo(self, action: str) -> str | None:
        """Take back the last change that stands; returns the digest of its transcript, None where there is none.

        Raises:
            RRMError: it cannot be written; it does not count then.
        """
        self._append(Entry(action=action, at=_now(), undo=True))
        return self._seen.get(action)

    def _append(self, entry: Entry) -> None:
        if entry.action in self._seen:
            return
        self._output.append([entry.model_dump(exclude_none=True, exclude_defaults=True)])
        self._take(entry)
        self._write()

    def _take(self, entry: Entry) -> None:
        """What a line of the journal does in memory."""
        if entry.action in self._seen:
            return
        if entry.undo:
            digest, said = self._before.pop() if self._before else (None, Said())
            self._seen[entry.action] = digest
            if digest is not None:
                self._set(digest, said)
            return
        if entry.digest is None or entry.trajectory_id is None or entry.steps is None or entry.change is None:
            raise ValueError("a change needs digest, trajectory_id, steps and change")
        self._seen[entry.action] = entry.digest
        held = self._held.setdefault(entry.digest, _Held(entry.trajectory_id, entry.steps))
        said = changed(held.said, entry.change, entry.steps)
        if said != held.said:
            self._before.append((entry.digest, held.said))
            self._set(entry.digest, said)

    def _set(self, digest: str, said: Said) -> None:
        held = self._held[digest]
        held.said = said
        annotation = annotation_of(said, held.trajectory_id, digest, self.rater)
        held.line = annotation.to_json() + "\n" if annotation else ""

    def _text(self) -> str:
        return "".join(held.line for held in self._held.values())

    def _write(self) -> None:
        with file_when_whole(self.path, encoding="ascii") as file:
            file.write(self._text())

    def sync(self) -> None:
        """The annotations are on the disk as well."""
        with open(self.path, "rb") as file:
            os.fsync(file.fileno())

    def _keep_other(self) -> None:
        """A file of annotations that the journal does not make (a person's edit) is kept under another name."""
        try:
            stands = self.path.read_bytes()
        except FileNotFoundError:
            return
        if stands and stands != self._text().encode("ascii"):
            kept = _first_free(self.path.with_name(self.path.name + ".before"))
            with open(kept, "xb") as file:
                file.write(stands)
            log.warning("%s is not what its journal makes: it is made anew, and was kept as %s", self.path, kept)


@contextmanager
def open_journal(path: Path, rater: str) -> Iterator[Journal]:
    """The labels of a rater, locked for this process.

    Raises:
        RRMError: another rater's file, one that `rrm label` did not write, or one that another process writes.
    """
    journal = Path(f"{path}.journal")
    made_by = {"command": "label", "rater": rater}
    if path.exists() and path.stat().st_size and not journal.exists():
        raise RRMError(f"{path} holds labels that `rrm label` did not write: name another file (-o)")
    if journal.exists() and journal.stat().st_size and (whose := header_of(journal).get("rater")) != rater:
        raise RRMError(f"{path} holds the labels of {whose!r}: say --rater {whose!r}, or name another file (-o)")
    with open_output(journal, made_by, sync_seconds=0.0) as output:
        opened = Journal(path, rater, output)
        try:
            yield opened
        finally:
            opened.sync()


def _first_free(path: Path) -> Path:
    """The path, or with `.2`, `.3`, … behind it the first that is not taken."""
    return next(p for n in count(1) if not os.path.lexists(p := Path(f"{path}.{n}" if n > 1 else path)))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def as_json(said: Said) -> dict[str, Any]:
    """What the page is told."""
    return said.model_dump()
