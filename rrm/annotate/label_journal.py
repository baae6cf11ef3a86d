"""The labels of one rater on disk.

LABELS.jsonl                    the annotations for `rrm train` and `rrm eval`; whole at every moment
LABELS.jsonl.journal            every action in its order, on the disk before it counts
LABELS.jsonl.journal.run.json   the rater
LABELS.jsonl.journal.lock       locked while the page is served
LABELS.jsonl.journal.page.json  the page's address (`rrm.annotate.label_address`)

The journal counts: the annotations are made from it after each action, and at the start.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from itertools import count
from pathlib import Path

from filelock import Timeout

from rrm.annotate.label import RULES, Change, Label, changed, objection
from rrm.annotate.label_address import address_file, kept_address
from rrm.annotate.label_store import Entry, LabelRefused, LabelStore, PageState
from rrm.data.output import RowFile, file_when_whole, header_of, read_rows, writing
from rrm.errors import RRMError

log = logging.getLogger(__name__)


class Journal:
    """A rater's labels, in memory and on disk (see `open_journal`). One caller at a time."""

    def __init__(self, path: Path, rater: str, output: RowFile) -> None:
        self.path, self.rater = path, rater
        self._output = output
        self._behind = False
        self.sayings = _replayed(rater, output.path)
        self._keep_other()
        self._write()

    @property
    def key(self) -> str:
        """Key of the browser's storage: the same at every start, another for every file."""
        return hashlib.sha256(os.fsencode(self.path.resolve())).hexdigest()[:16]

    def said(self, digest: str) -> Label:
        return self.sayings.said(digest)

    def change(
        self, action: str, digest: str, trajectory_id: str, steps: int, change: Change, state: PageState | None = None
    ) -> None:
        """Store a change; one that was taken before is skipped. `state`: what the page has seen, None: all.

        Raises:
            LabelRefused: another page changed the transcript unseen by this one.
            ValueError: the transcript cannot have it, or nobody can mean it.
            RRMError: it cannot be written, yet; it may be sent again.
        """
        if self.sayings.taken(action):
            return self._catch_up()
        if state is not None and self.sayings.stale(state, digest):
            raise LabelRefused(HTTPStatus.CONFLICT, "another tab of this page has changed this transcript since")
        if why := objection(self.said(digest), change):
            raise ValueError(why)
        changed(self.said(digest), change, steps)  # refused before it is written
        page = state and state.page
        self._append(
            Entry(
                action=action,
                at=_now(),
                page=page,
                rules=RULES,
                digest=digest,
                trajectory_id=trajectory_id,
                steps=steps,
                change=change,
            )
        )

    def undo(self, action: str, page: str | None = None, undoes: int | None = None) -> str | None:
        """Take back the last change that stands; return the digest of its transcript, None without any.
        `undoes`: number of the change that is meant, 0: none; None: the last, of that page where one is named. Raises LabelRefused where another
        is the last, RRMError where it cannot be written, yet."""
        if self.sayings.taken(action):
            self._catch_up()
        else:
            last = self.sayings.last
            if undoes is None:
                other = last is not None and page is not None and last.page != page
            else:
                other = undoes != (last.number if last else 0)
            if other:
                raise LabelRefused(HTTPStatus.CONFLICT, "what it would take back now is not what this tab showed last")
            self._append(Entry(action=action, at=_now(), page=page, rules=RULES, undo=True))
        return self.sayings.of(action)

    def _append(self, entry: Entry) -> None:
        self._output.append([entry.model_dump(exclude_none=True, exclude_defaults=True)])
        self.sayings.take(entry)
        self._write()

    def _catch_up(self) -> None:
        if self._behind:
            self._write()

    def _write(self) -> None:
        self._behind = True
        with self._writing(), file_when_whole(self.path, encoding="ascii") as file:
            file.write(self.sayings.lines)
        self._behind = False

    def sync(self) -> None:
        """Put the annotations on the disk; raises RRMError where that fails."""
        self._behind = self._behind or not self.path.exists()
        self._catch_up()
        with self._writing(), open(self.path, "rb") as file:
            os.fsync(file.fileno())

    def _writing(self) -> AbstractContextManager[None]:
        return writing(self.path, f"what was said is in {self._output.path}: mend that, and it is written")

    def _keep_other(self) -> None:
        """Keep annotations that the journal never made (a person's edit) under another name."""
        try:
            stands = self.path.read_bytes()
        except FileNotFoundError:
            return
        if stands and stands != self.sayings.lines.encode("ascii") and not self._made(stands):
            copy = _first_free(self.path.with_name(self.path.name + ".before"))
            with open(copy, "xb") as file:
                file.write(stands)
            log.warning("%s is not what its journal makes: it is made anew, and was kept as %s", self.path, copy)

    def _made(self, stands: bytes) -> bool:
        """Tell whether the journal made these annotations at some time."""
        past = _replay(LabelStore(self.rater), self._output.path)
        return any(store.size == len(stands) and store.lines.encode("ascii") == stands for store in past)


@contextmanager
def open_journal(path: Path, rater: str) -> Iterator[Journal]:
    """Open a rater's labels, locked for this process; an error before the first action removes new files.
    Raises RRMError for another rater's file, one that `rrm label` did not write, or one that another process writes."""
    journal = journal_of(path)
    made_by = {"command": "label", "rater": rater}
    if path.exists() and path.stat().st_size and not journal.exists():
        raise RRMError(f"{path} holds labels that `rrm label` did not write: name another file (-o)")
    if journal.exists() and journal.stat().st_size and (whose := header_of(journal).get("rater")) != rater:
        raise RRMError(f"{path} holds the labels of {whose!r}: say --rater {whose!r}, or name another file (-o)")
    ours = (path, journal, Path(f"{journal}.run.json"), Path(f"{journal}.lock"), address_file(path))
    new_files = [file for file in ours if not os.path.lexists(file)]
    with ExitStack() as stack:
        try:
            output = stack.enter_context(RowFile.open(journal, made_by, sync_seconds=0.0))
        except RRMError as error:
            if isinstance(error.__cause__, Timeout):
                raise RRMError(_at_work(path)) from error
            raise
        try:
            opened = Journal(path, rater, output)
            try:
                yield opened
            finally:
                opened.sync()
        except BaseException:
            if not journal.stat().st_size:  # while it is locked: nobody else has begun
                for file in new_files:
                    file.unlink(missing_ok=True)
            raise


def journal_of(path: Path) -> Path:
    return Path(f"{path}.journal")


def read_sayings(path: Path) -> LabelStore | None:
    """Read the journal beside a file of labels, also while it is written; None without one or its rater."""
    journal = journal_of(path)
    if not journal.exists():
        return None
    try:
        rater = header_of(journal)["rater"]
    except (RRMError, KeyError):
        return None
    return _replayed(str(rater), journal)


def _replayed(rater: str, path: Path) -> LabelStore:
    sayings = LabelStore(rater)
    for _ in _replay(sayings, path):
        pass
    return sayings


def _replay(sayings: LabelStore, path: Path) -> Iterator[LabelStore]:
    way_out = "bring it back from a copy, or name another file (-o)"
    take = lambda row: sayings.take(Entry.model_validate(row))  # noqa: E731
    for _ in read_rows(path, take, "an action of `rrm label`", way_out):
        yield sayings


def _at_work(path: Path) -> str:
    address = kept_address(path)
    if address is None:
        return f"{path} is being labelled by another `rrm label`, which says nowhere that you may read at what address: end it, or wait for it"
    return f"{path} is being labelled at {address.url} by another `rrm label`: go on there, or end that one (Ctrl-C)"


def _first_free(path: Path) -> Path:
    """Return the first free path of PATH, PATH.2, PATH.3, …"""
    return next(p for n in count(1) if not os.path.lexists(p := Path(f"{path}.{n}" if n > 1 else path)))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
