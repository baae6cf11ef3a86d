"""What a rater said of all transcripts: the actions of her journal, taken in their order.

An action has an id, so one that is sent twice, because its answer was lost, counts once; one that changed nothing is remembered like any other, since sent
again after a later one it would change something. Actions are numbered as they are taken, also those that change nothing, so that a page can
say up to which one it has seen, and one that contradicts what it has not seen is refused (`stale`); what it undoes it names by its number (`last`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field

from rrm.annotate.label import RULES, Change, Label, annotation_of, changed


class StaleError(Exception):
    """A page acts on what it has not seen."""


class Entry(BaseModel):
    """A line of the journal: a change, or with `undo` the taking back of the last one that stands."""

    model_config = ConfigDict(extra="forbid")

    action: str = Field(min_length=1, max_length=64)
    """The page's id of it."""
    at: str
    """When, ISO 8601 in UTC."""
    page: str | None = None
    """The tab that sent it; None: not known."""
    rules: int = Field(default=1, ge=1, le=RULES)
    """Of what it does (`rrm.annotate.label.RULES`)."""
    undo: bool = False
    digest: str | None = None
    """Of the transcript; it and what follows are None where `undo` is set."""
    trajectory_id: str | None = None
    steps: int | None = Field(default=None, ge=0)
    """How many the transcript has."""
    change: Change | None = None


@dataclass(frozen=True)
class PageState:
    """How far a page that acts has seen."""

    page: str
    """Its id, new with every load."""
    version: int
    """Number of the last action that it knows the effects of (`LabelStore.version`)."""


@dataclass
class Held:
    """What is known of one transcript that was labelled."""

    trajectory_id: str
    steps: int
    said: Label = field(default_factory=Label)
    line: str = ""
    """Its annotation, ended by a newline; empty where it makes none."""
    pages: dict[str | None, int] = field(default_factory=dict)
    """Page → number of the last action by which it changed what is said here."""


@dataclass(frozen=True)
class UndoableChange:
    """A change that stands, and what it replaced: what undoing goes back to."""

    digest: str
    said: Label
    """Before it."""
    page: str | None
    number: int


class LabelStore:
    """All of a rater, in memory."""

    def __init__(self, rater: str) -> None:
        self.rater = rater
        self._held: dict[str, Held] = {}
        self.size = 0
        """Characters of `lines`."""
        self._before: list[UndoableChange] = []
        self._taken: dict[str, str | None] = {}
        """Action → the digest of the transcript it was of; None where there was nothing to undo."""

    @property
    def version(self) -> int:
        """Number of the last action."""
        return len(self._taken)

    @property
    def last(self) -> UndoableChange | None:
        """The change that undoing takes back; None where none stands."""
        return self._before[-1] if self._before else None

    @property
    def all(self) -> dict[str, Label]:
        """Digest → what is said, of the transcripts of which something is."""
        return {digest: held.said for digest, held in self._held.items() if held.said != Label()}

    @property
    def lines(self) -> str:
        """The annotations, a line each."""
        return "".join(held.line for held in self._held.values())

    def said(self, digest: str) -> Label:
        """What was said of a transcript."""
        return self._held[digest].said if digest in self._held else Label()

    def taken(self, action: str) -> bool:
        """Whether an action of that id was taken."""
        return action in self._taken

    def of(self, action: str) -> str | None:
        """The digest of the transcript that an action was of; None where it undid nothing."""
        return self._taken.get(action)

    def stale(self, seen: PageState, digest: str) -> bool:
        """Whether another page said something of the transcript that this one has not seen."""
        pages = self._held[digest].pages if digest in self._held else {}
        return any(page != seen.page and number > seen.version for page, number in pages.items())

    def take(self, entry: Entry) -> None:
        """What an action does; one that was taken before does nothing.

        Raises:
            ValueError: the transcript cannot have it.
        """
        if entry.action in self._taken:
            return
        if entry.undo:
            before = self._before.pop() if self._before else None
            self._taken[entry.action] = before and before.digest
            if before is not None:
                self._set(before.digest, before.said, entry.page)
            return
        if entry.digest is None or entry.trajectory_id is None or entry.steps is None or entry.change is None:
            raise ValueError("a change needs digest, trajectory_id, steps and change")
        said = changed(self.said(entry.digest), entry.change, entry.steps, entry.rules)
        held = self._held.setdefault(entry.digest, Held(entry.trajectory_id, entry.steps))
        self._taken[entry.action] = entry.digest
        if said != held.said:
            self._before.append(UndoableChange(entry.digest, held.said, entry.page, self.version))
            self._set(entry.digest, said, entry.page)

    def _set(self, digest: str, said: Label, page: str | None) -> None:
        held = self._held[digest]
        held.said = said
        held.pages[page] = self.version
        annotation = annotation_of(said, held.trajectory_id, digest, self.rater)
        self.size -= len(held.line)
        held.line = annotation.to_json() + "\n" if annotation else ""
        self.size += len(held.line)
