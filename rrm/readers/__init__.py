"""Read transcripts of any framework as `Trajectory`.

`for trajectory in rrm.readers.read(["runs/", "-"]): …`. Each format is one small module with `NAME`, `sniff` and `parse`, and
optionally `explode`, `gather` or `unpack` (see `rrm.readers.base`); add yours to `READERS`. Each item is sniffed by itself, so a
folder or a file may mix formats.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

from rrm.data.printing import nearest, printable
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError, ReadError
from rrm.readers import (
    adk,
    anthropic,
    atif,
    autogen,
    bedrock,
    calls,
    canonical,
    claude_code,
    codex,
    crewai,
    gemini,
    inspect_ai,
    judge_sft,
    langchain,
    langfuse,
    langgraph,
    langsmith,
    llama_index,
    mapping,
    mini_swe_agent,
    openai,
    openhands,
    openhands_events,
    otel,
    prm800k,
    processbench,
    pydantic_ai,
    react,
    responses,
    search_tags,
    sharegpt,
    smolagents,
    swe_agent,
    tau2,
    tau_bench,
    vercel_ai,
    verl,
)
from rrm.readers.archive import Archive, Unpacker
from rrm.readers.base import AttachmentBudget, Container, Gatherer, Labeller, Reader, SourceItem, describe
from rrm.readers.chat import is_chat
from rrm.readers.formats import unknown
from rrm.readers.inspect_ai import key_of, superseded
from rrm.readers.left import Notes
from rrm.readers.mapping import check as check_mapping
from rrm.readers.outcomes import RunOutcome, Scales, outcome_at
from rrm.readers.paths import expand
from rrm.readers.sources import Value, members, values
from rrm.readers.unique import UniqueIds

log = logging.getLogger(__name__)
# fmt: off
READERS: tuple[Reader, ...] = (
    canonical, atif, mini_swe_agent, swe_agent, openhands, openhands_events, claude_code, codex, gemini, inspect_ai, otel, langfuse,
    langsmith, langgraph, smolagents, crewai, adk, autogen, pydantic_ai, llama_index, tau2, tau_bench, verl, prm800k, processbench,
    judge_sft, sharegpt, calls, langchain, vercel_ai, responses, bedrock, anthropic, openai, search_tags, react, mapping,
)
# fmt: on
"""Readers in the order they are tried: particular formats first."""
FORMATS: dict[str, Reader] = {reader.NAME: reader for reader in READERS}
# looked up once: to ask an object for a protocol costs more than to read a small transcript
_CONTAINERS = {reader.NAME: reader for reader in READERS if isinstance(reader, Container)}
_GATHERERS = {reader.NAME: reader for reader in READERS if isinstance(reader, Gatherer)}

OnError = Callable[[ReadError], None]


def read(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    format: str = "auto",
    mapping: dict[str, str] | None = None,
    outcome: str | None = None,
    on_error: OnError | None = None,
    strict: bool = False,
) -> Iterator[Trajectory]:
    """Trajectories from files, folders (recursive, sorted) or `-` (standard input), streamed.

    Files are JSON, JSONL or parquet, each plain or gzipped, or zip archives of such, told apart by what they hold. Ids are
    unique over the whole call: a repeated id gets `#2`, `#3`, … and keeps its original in `meta["original_id"]`.

    Args:
        format: a name in `FORMATS`, or `auto` to decide for each item.
        mapping: `field -> path` for the format `mapping` (which it implies); see `rrm.readers.mapping`.
        outcome: path of the field that says how a run ended, in place of those that `rrm.readers.outcomes` knows; an item
            without it is an error, unless the path ends in `?`.
        on_error: called with each `ReadError`, after which reading goes on. None: the first one is raised.
        strict: call `on_error` for the first error, then raise it.

    Raises:
        ConfigError: an unknown format or mapping, or an outcome named twice, at once.
        ReadError: while iterating, see above.
    """
    if mapping is not None:
        if format not in ("auto", "mapping"):
            raise ConfigError(f"--map goes with the format 'mapping', not with {format!r}: leave --format out")
        check_mapping(mapping)
        if outcome is not None and "outcome" in mapping:
            raise ConfigError("the outcome is named twice: by --outcome and by --map outcome=…")
        format = "mapping"
    check_format(format)
    if format == "mapping" and mapping is None:
        raise ConfigError("the format 'mapping' needs --map field=path, for example --map messages=log.turns")
    listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    return _read(listed, _Options(format, mapping, outcome), on_error, strict)


def read_value(
    data: Any, name: str, *, format: str = "auto", unfolding: AttachmentBudget | None = None
) -> list[Trajectory | ReadError]:
    """Read the runs in one parsed JSON value, of any format that a line of a file may have.

    Unreadable runs come back as errors, in their place.

    Args:
        name: stands for the file's name, in ids of runs without their own and in errors.
        unfolding: what attachments may unfold to, over several values; None: as in a file.

    Raises:
        ConfigError: no such format.
    """
    check_format(format)
    pending: _Pending = {}
    options = _Options(format, None, None, unfolding)
    results = list(_file(name, iter([Value(None, data, whole=True)]), options, pending))
    for (_, name), items in pending.items():
        results += _gathered(name, items, options)
    return results


@dataclass(frozen=True)
class _Options:
    """Options of `read`."""

    format: str
    mapping: dict[str, str] | None
    outcome: str | None
    unfolding: AttachmentBudget | None = None
    superseded: dict[str, set[str]] = field(default_factory=dict)
    """File -> samples of it that a later log holds again."""

    def passes(self, path: str, item: SourceItem) -> bool:
        """Return whether an item stands again in a later log of its task."""
        return path in self.superseded and key_of(item.value) in self.superseded[path]


def check_format(format: str) -> None:
    """Raise a `ConfigError` that names the nearest format for one that does not exist."""
    if format != "auto" and format not in FORMATS:
        near = nearest(format.replace("-", "_"), FORMATS)
        hint = f" did you mean {near!r}?" if near else ""
        raise ConfigError(f"unknown format {format!r};{hint} formats: auto, {', '.join(FORMATS)}")


def sniff(value: Any) -> str | None:
    """Return the name of a parsed item's format; None where it is unknown."""
    return next((reader.NAME for reader in READERS if reader.sniff(value)), None)


def _read(
    paths: list[str | os.PathLike[str]], options: _Options, on_error: OnError | None, strict: bool
) -> Iterator[Trajectory]:
    ids, scales, notes = UniqueIds(), Scales(), Notes()
    for result in _results(paths, options):
        if isinstance(result, ReadError):
            if on_error is not None:
                on_error(result)
            if on_error is None or strict:
                raise result
            continue
        unique = ids.take(result.id)
        if unique != result.id:
            result.rename(unique)
        scales.add(result)
        notes.add(result)
        yield result
    for note in (scales.complaint(), *notes.lines()):  # known only now: rows are handed on as they are read
        if note:
            log.warning("%s", printable(note))


_Pending = dict[tuple[PurePath, str], list[SourceItem]]
"""(folder, format) -> the items of runs that are spread over the files of that folder"""


def _results(paths: list[str | os.PathLike[str]], options: _Options) -> Iterator[Trajectory | ReadError]:
    """Read all paths; runs spread over a folder follow the folder's last file."""
    pending: _Pending = {}
    listed = list(expand(paths))
    options = replace(options, superseded=superseded(path for path in listed if isinstance(path, str)))
    if again := sum(map(len, options.superseded.values())):
        log.warning(
            "%d samples stand again in a later log of their task, a retry: only the last of each is read", again
        )
    for path in listed:
        if isinstance(path, ReadError):
            yield path
            continue
        for key in [p for p in pending if not PurePath(path).is_relative_to(p[0])]:  # files come sorted: it is complete
            yield from _gathered(key[1], pending.pop(key), options)
        yield from _file(path, values(path), options, pending)
    for (_, name), items in pending.items():
        yield from _gathered(name, items, options)


def _file(
    path: str,
    entries: Iterator[Value | Archive | ReadError] | Iterator[Value | ReadError],
    options: _Options,
    pending: _Pending,
) -> Iterator[Trajectory | ReadError]:
    """Read one file; runs spread over its lines follow at its end."""
    spread: dict[str, list[SourceItem]] = {}
    for value in entries:
        if isinstance(value, ReadError):
            yield value
            continue
        if isinstance(value, Archive):
            yield from _archive(value, options, pending)
            continue
        items = list(_items(path, value, options.format, options.mapping))
        if not items:
            yield ReadError(path, value.line, "an empty list: nothing to read")
        for item in (
            items if options.unfolding is None else [replace(item, unfolding=options.unfolding) for item in items]
        ):
            name = item.format or (options.format if options.format != "auto" else sniff(item.value))
            if options.passes(path, item):
                continue
            if name is None:
                yield ReadError(path, item.line, unknown(item.value, READERS))
            elif (reader := _GATHERERS.get(name)) is None:
                yield _parse(FORMATS[name], item, options.outcome)
            elif reader.OVER_FOLDER:
                pending.setdefault((PurePath(path).parent, name), []).append(item)
            else:
                spread.setdefault(name, []).append(item)
    for name, items in spread.items():
        yield from _gathered(name, items, options)


def _archive(archive: Archive, options: _Options, pending: _Pending) -> Iterator[Trajectory | ReadError]:
    """Read a zip: one format's own document, or files like those of a folder."""
    for reader in READERS if options.format == "auto" else [FORMATS[options.format]]:
        if isinstance(reader, Unpacker) and (runs := reader.unpack(archive)) is not None:
            for run in runs:
                if isinstance(run, ReadError):
                    yield run
                elif not options.passes(archive.path, run):
                    yield _parse(reader, run, options.outcome)
            return
    for member, entries in members(archive):
        yield from _file(member, entries, options, pending)


def _gathered(name: str, items: list[SourceItem], options: _Options) -> Iterator[Trajectory | ReadError]:
    reader = _GATHERERS[name]
    for run in reader.gather(items):
        yield run if isinstance(run, ReadError) else _parse(reader, run, options.outcome)


def _parse(reader: Reader, item: SourceItem, outcome: str | None) -> Trajectory | ReadError:
    try:
        trajectory = reader.parse(item)
        if outcome is not None:
            label = reader.outcome if isinstance(reader, Labeller) else outcome_at
            # `rrm check` proposes paths of meta, whose fields may stand elsewhere in the record
            record = {**trajectory.meta, **item.value} if isinstance(item.value, dict) else item.value
            _set_outcome(trajectory, item.value, outcome, label(record, outcome))
        return trajectory
    except (ValueError, RecursionError) as error:
        lines = (
            f" ({item.context['lines']} lines of {printable(item.context['lines_of'])})"
            if "lines_of" in item.context
            else ""
        )
        return ReadError(item.path, item.line, f"{describe(error)}{lines} (format {reader.NAME})")


def _set_outcome(trajectory: Trajectory, record: Any, path: str, outcome: RunOutcome | None) -> None:
    """Take the outcome from a named field; the record's own outcome becomes an ordinary field."""
    if isinstance(record, dict) and record.get("outcome") is not None and path.removesuffix("?") != "outcome":
        trajectory.meta.setdefault("outcome", record["outcome"])
    trajectory.outcome = outcome and outcome.value
    if trajectory.source is not None:
        trajectory.source.outcome_field = outcome and outcome.field


def _items(path: str, value: Value, format: str, fields: dict[str, str] | None) -> Iterator[SourceItem]:
    """Yield the runs in one JSON value: itself, or the elements where the file is nothing but a container."""
    data = value.data
    for name, reader in _CONTAINERS.items():
        if format in ("auto", name) and (runs := reader.explode(data)) is not None:
            for number, (run, context) in enumerate(runs, 1):
                yield SourceItem(run, path, number if value.whole else value.line, context=context, format=name)
            return
    if not value.whole or _is_run(data, format, fields):
        yield SourceItem(data, path, value.line, mapping=fields)
    elif isinstance(data, list):
        for number, element in enumerate(data, 1):
            yield SourceItem(element, path, number, mapping=fields)
    elif isinstance(data, dict) and data and all(isinstance(v, dict) for v in data.values()):
        for number, (key, element) in enumerate(data.items(), 1):
            yield SourceItem(element, path, number, key=key, mapping=fields)
    else:
        yield SourceItem(data, path, value.line, mapping=fields)


def _is_run(data: Any, format: str, fields: dict[str, str] | None) -> bool:
    """Return whether a whole document is one run rather than a list or an object of runs."""
    if fields is not None:
        return mapping.fits(data, fields)
    if format == "auto":
        return sniff(data) is not None
    return FORMATS[format].sniff(data) or (isinstance(data, list) and is_chat(data))
