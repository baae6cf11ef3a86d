"""The readers' shared parts: items, the reader protocols, and `make`, which builds a Trajectory.

A reader is a module with `NAME`, `sniff(value) -> bool` and `parse(item) -> Trajectory`. It raises `ValueError` with a
one-sentence reason where the item cannot be read; `rrm.readers.read` adds the path and the line. Optional: `MARKS`, paths by which
an error names it as the nearest format (`rrm.readers.formats`); `explode`, where one document holds several runs (`Container`);
`gather`, where one run is spread over lines or files (`Gatherer`); `unpack`, where a zip archive is one document
(`rrm.readers.archive.Unpacker`); `outcome`, where labels are written in a way of the format's own (`Labeller`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Protocol, runtime_checkable

from rrm.data.printing import describe as describe
from rrm.data.printing import printable as printable
from rrm.data.questions import question_hash
from rrm.data.trajectory import Source, Trajectory
from rrm.errors import ReadError
from rrm.readers.chat import text_of
from rrm.readers.leaks import outcome_leaks
from rrm.readers.left import FIELD, come_out_empty, left_behind
from rrm.readers.outcomes import RunOutcome, as_outcome, find_outcome

REFERENCE_KEYS = (
    "reference",
    "reference_answer",
    "gt",
    "gold",
    "ground_truth",
    "golden_answers",
    "gold_answer",
    "expected_answer",
    "answer",
)
DATA_SUFFIXES = (".gz", ".jsonl", ".ndjson", ".json", ".parquet", ".txt", ".log", ".traj")


class AttachmentBudget:
    """Limit on the characters that named attachments unfold to.

    Args:
        most: total for all that is read with it.
    """

    def __init__(self, most: int) -> None:
        self.most = self.left = most

    def take(self, characters: int) -> None:
        """Count an attachment where it is named.

        Raises:
            ValueError: it is too many.
        """
        self.left -= characters
        if self.left < 0:
            raise ValueError(f"attachments unfold to more than {self.most:,} characters")


@dataclass(frozen=True)
class SourceItem:
    """One thing to parse, and its place."""

    value: Any
    """The parsed JSON (or, for a plain text file, its text)."""
    path: str
    line: int | None = None
    """1-based line, or position in an array; None for a whole file."""
    key: str | None = None
    """The item's key, where the file is one JSON object of runs."""
    context: dict[str, Any] = field(default_factory=dict)
    """The file's words on all of its runs (tau2: domain, policy, task). `lines`, `lines_of` (how many,
    of which session or trace) end an error's reason."""
    mapping: dict[str, str] | None = None
    """`field -> path`, for the `mapping` reader."""
    format: str | None = None
    """The reader that must parse it, where its document says so; None: `sniff` decides."""
    unfolding: AttachmentBudget | None = None
    """Shared with other items; None: of this one alone, as its reader allows."""

    def default_id(self) -> str:
        """`stem:key`, `stem:line` or `stem`, where the record has no id of its own."""
        suffix = self.key if self.key is not None else self.line
        return stem(self.path) if suffix is None else f"{stem(self.path)}:{suffix}"


class Reader(Protocol):
    """The contract of a reader module."""

    @property
    def NAME(self) -> str:
        """The format's name, as in `--format`."""
        ...

    def sniff(self, value: Any, /) -> bool:
        """Return whether this looks like the reader's format; cheap, never raises."""
        ...

    def parse(self, item: SourceItem, /) -> Trajectory:
        """The item as a Trajectory; `ValueError` with a reason where it cannot be one."""
        ...


@runtime_checkable
class Container(Reader, Protocol):
    """A reader of documents that hold several runs."""

    def explode(self, value: Any, /) -> Iterator[tuple[Any, dict[str, Any]]] | None:
        """Yield a document's runs, each with its `SourceItem.context`; None for other values. Never raises."""


@runtime_checkable
class Gatherer(Reader, Protocol):
    """A reader whose runs are spread over several items (session lines, spans of a trace).

    All items of the format are held in memory until the end of their file, or of their folder.
    """

    @property
    def OVER_FOLDER(self) -> bool:
        """True where a run may be spread over the files of one folder (one file per event)."""
        ...

    def gather(self, items: Iterable[SourceItem], /) -> Iterator[SourceItem | ReadError]:
        """Yield one item per run, in order of appearance, from the items of one file (or folder).

        The results go to `parse`; make their `value` an object, as `--outcome` names a path in it. A part that belongs to no run
        is a `ReadError`; nothing is left out without one. Put the number of lines into the context (`lines`, and `lines_of`, which
        begins with "session" or "trace") and into the run's `meta["lines"]`: tests count them.
        """
        ...


@runtime_checkable
class Labeller(Reader, Protocol):
    """A reader of records that write labels in a way of their own (Inspect's C and I)."""

    def outcome(self, record: Any, path: str, /) -> RunOutcome | None:
        """The label at the path that `--outcome` names, as `rrm.readers.outcomes.outcome_at`."""


def stem(path: str) -> str:
    """Return a file's name without its data suffixes (`a/b.jsonl.gz` -> `b`); `stdin` for `-`."""
    name = "stdin" if path == "-" else PurePath(path).name
    while PurePath(name).suffix.lower() in DATA_SUFFIXES:
        name = PurePath(name).stem
    return name


def without(record: dict[str, Any], *used: str) -> dict[str, Any]:
    """Return the unused fields, the trajectory's meta; the reference answer is renamed `reference`."""
    meta = {k: v for k, v in record.items() if k not in used and k != "outcome"}
    meta.update(meta.pop("meta") if isinstance(meta.get("meta"), dict) else {})
    if meta.get("reference") is None:
        key = next((k for k in REFERENCE_KEYS if meta.get(k) is not None), None)
        if key is not None:
            meta["reference"] = meta.pop(key)
    if record.get("outcome") is not None and as_outcome(record["outcome"]) is None:
        meta["outcome"] = record["outcome"]
    return meta


def own_id(record: dict[str, Any], *keys: str) -> str | None:
    """Return the first id under `keys` (default `id`) as text; numbers, booleans and lists as JSON."""
    for key in keys or ("id",):
        value = record.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, int | float) or (isinstance(value, list) and value):
            return json.dumps(value, ensure_ascii=False, default=str)
    return None


def text_field(record: dict[str, Any], *keys: str) -> str | None:
    return next((v for k in keys if isinstance(v := record.get(k), str) and v.strip()), None)


def first_user_text(messages: list[dict[str, Any]]) -> str:
    return next((text_of(m.get("content")) for m in messages if m["role"] == "user"), "")


def make(
    item: SourceItem,
    name: str,
    messages: list[dict[str, Any]],
    *,
    meta: dict[str, Any],
    id: str | None = None,
    task: str | None = None,
    question_id: str | None = None,
    outcome: RunOutcome | None = None,
    tools: list[dict[str, Any]] | None = None,
) -> Trajectory:
    """Assemble a Trajectory from normalised messages; what is not given is derived.

    The task defaults to the first user message, the question id to the hash of the task, the id to the place in the
    file. Messages in which the environment reveals the verdict are listed in `meta["outcome_leaks"]`, and texts of the item that
    stand in nothing that was read are counted in `meta["left_behind"]`. A run in which the agent never spoke is kept: it has no
    steps, and real logs hold such runs.

    Raises:
        ValueError: no messages or only empty ones, or parts of the wrong type.
    """
    if not messages:
        raise ValueError("no messages: there is nothing to judge")
    task = first_user_text(messages) if task is None else task
    left = None
    if "root" not in item.context:  # else it is counted with the run that holds the others
        left = left_behind(item.value, messages, meta, tools, task, id, question_id, item.context.get("elsewhere"))
    if come_out_empty(messages):
        behind = f"; {left['texts']} texts stay behind, the first at {left['at'][0]}" if left else ""
        raise ValueError(
            f"its {len(messages)} messages come out empty{behind}: name where their text stands with --map message.content=…"
        )
    if left:
        meta = {**meta, FIELD: left}
    if outcome and outcome.unscored:
        meta, outcome = {**meta, "unscored": outcome.field}, None
    if leaks := outcome_leaks(messages):
        meta = {**meta, "outcome_leaks": leaks}
    return Trajectory(
        id=id if id is not None else item.default_id(),
        task=task,
        question_id=question_id if question_id is not None else question_hash(task),
        messages=messages,  # pyright: ignore[reportArgumentType]  # validated by pydantic
        tools=tools,
        outcome=outcome and outcome.value,
        meta=meta,
        source=Source(file=item.path, line=item.line, format=name, outcome_field=outcome and outcome.field),
    )


def conversation(
    item: SourceItem,
    name: str,
    record: dict[str, Any],
    messages: list[dict[str, Any]],
    used: Iterable[str],
    *,
    ids: tuple[str, ...] = ("id",),
    meta: dict[str, Any] | None = None,
    task: str | None = None,
    question_id: str | None = None,
    tools: list[dict[str, Any]] | None = None,
) -> Trajectory:
    """Call `make` for a record with the usual names of question and outcome; unused fields go to meta."""
    task = text_field(record, "question") if task is None else task
    all_meta = without(record, *used) | (meta or {})
    more: dict[str, Any] = {"id": own_id(record, *ids), "outcome": find_outcome(record)}
    return make(item, name, messages, meta=all_meta, task=task, question_id=question_id, tools=tools, **more)


def record_of(item: SourceItem, key: str) -> dict[str, Any]:
    """Return the item's record, which has a list under `key`, or is that list."""
    record = item.value if isinstance(item.value, dict) else {key: item.value}
    if not isinstance(record.get(key), list):
        raise ValueError(f"no list of `{key}`")
    return record


def key_list(record: dict[str, Any]) -> str:
    """The record's keys for an error message, at most eight."""
    names = ", ".join(json.dumps(k)[:40] for k in list(record)[:8])
    return names + (", …" if len(record) > 8 else "")
