"""All labels of a rater, replayed from the actions of her journal.

An action with a known id does nothing, so it may be sent twice. Actions are numbered as they are taken, also those that change
nothing: a page names the last one it has seen, and one that contradicts what it has not seen is refused (`stale`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from rrm.annotate.label import RULES, Change, Label, annotation_of, changed


class LabelRefused(Exception):
    """A request of the page that changes nothing; CONFLICT: it acts on what it has not seen."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status, self.more = status, dict[str, Any]()


class Entry(BaseModel):
    """A line of the journal: a change, or an undo of the last one that stands."""

    model_config = ConfigDict(extra="forbid")

    action: str = Field(min_length=1, max_length=64)
    at: str
    """ISO 8601 in UTC."""
    page: str | None = None
    rules: int = Field(default=1, ge=1, le=RULES)
    """`rrm.annotate.label.RULES` of the change."""
    undo: bool = False
    digest: str | None = None
    """Digest of the transcript; with `undo` this and the next fields are None."""
    trajectory_id: str | None = None
    steps: int | None = Field(default=None, ge=0)
    change: Change | None = None


@dataclass(frozen=True)
class PageState:
    page: str
    version: int
    """`LabelStore.version` as it was sent to the page."""


@dataclass
class LabelledTranscript:
    trajectory_id: str
    steps: int
    label: Label = field(default_factory=Label)
    line: str = ""
    """Its annotation with a newline; empty without one."""
    pages: dict[str | None, int] = field(default_factory=dict)
    """Page → number of its last action that changed this label."""


@dataclass(frozen=True)
class UndoableChange:
    digest: str
    label: Label
    """Before the change."""
    page: str | None
    number: int


class LabelStore:
    def __init__(self, rater: str) -> None:
        self.rater = rater
        self._labelled: dict[str, LabelledTranscript] = {}
        self.size = 0
        """Characters of `lines`."""
        self._before: list[UndoableChange] = []
        self._taken: dict[str, str | None] = {}
        """Action → digest of its transcript; None where there was nothing to undo."""

    @property
    def version(self) -> int:
        return len(self._taken)

    @property
    def last(self) -> UndoableChange | None:
        """The change that undo takes back; None without any."""
        return self._before[-1] if self._before else None

    @property
    def all(self) -> dict[str, Label]:
        """Digest → label, without empty ones."""
        return {digest: entry.label for digest, entry in self._labelled.items() if entry.label != Label()}

    @property
    def lines(self) -> str:
        return "".join(entry.line for entry in self._labelled.values())

    def said(self, digest: str) -> Label:
        return self._labelled[digest].label if digest in self._labelled else Label()

    def taken(self, action: str) -> bool:
        return action in self._taken

    def of(self, action: str) -> str | None:
        """Return the digest of an action's transcript; None where it undid nothing."""
        return self._taken.get(action)

    def stale(self, state: PageState, digest: str) -> bool:
        """Tell whether another page changed the transcript unseen by this one."""
        pages = self._labelled[digest].pages if digest in self._labelled else {}
        return any(page != state.page and number > state.version for page, number in pages.items())

    def take(self, entry: Entry) -> None:
        """Apply an action that was not applied before; raises ValueError where the transcript cannot have it."""
        if entry.action in self._taken:
            return
        if entry.undo:
            before = self._before.pop() if self._before else None
            self._taken[entry.action] = before and before.digest
            if before is not None:
                self._set(before.digest, before.label, entry.page)
            return
        if entry.digest is None or entry.trajectory_id is None or entry.steps is None or entry.change is None:
            raise ValueError("a change needs digest, trajectory_id, steps and change")
        label = changed(self.said(entry.digest), entry.change, entry.steps, entry.rules)
        labelled = self._labelled.setdefault(entry.digest, LabelledTranscript(entry.trajectory_id, entry.steps))
        self._taken[entry.action] = entry.digest
        if label != labelled.label:
            self._before.append(UndoableChange(entry.digest, labelled.label, entry.page, self.version))
            self._set(entry.digest, label, entry.page)

    def _set(self, digest: str, label: Label, page: str | None) -> None:
        labelled = self._labelled[digest]
        labelled.label = label
        labelled.pages[page] = self.version
        annotation = annotation_of(label, labelled.trajectory_id, digest, self.rater)
        self.size -= len(labelled.line)
        labelled.line = annotation.to_json() + "\n" if annotation else ""
        self.size += len(labelled.line)
