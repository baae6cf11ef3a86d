"""Transcripts from any framework as `Trajectory`: `for trajectory in rrm.readers.read(["runs/", "-"]): …`

Each format is one small module with `NAME`, `sniff` and `parse` (see `rrm.readers.base`); add yours to `READERS`. The
format is decided for each item by what it holds, so a folder or a file may mix formats.
"""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rrm.errors import ConfigError, ReadError
from rrm.readers import (
    anthropic,
    canonical,
    claude_code,
    langchain,
    mapping,
    openai,
    react,
    responses,
    search_tags,
    tau2,
    tau_bench,
)
from rrm.readers.base import Item, Reader, describe, key_list
from rrm.readers.chat import is_chat
from rrm.readers.outcomes import Scales, outcome_at
from rrm.readers.sources import Value, expand, values
from rrm.readers.unique import UniqueIds
from rrm.trajectory import Trajectory

log = logging.getLogger(__name__)
READERS: tuple[Reader, ...] = (
    canonical,
    claude_code,
    tau2,
    tau_bench,
    langchain,
    responses,
    anthropic,
    openai,
    search_tags,
    react,
    mapping,
)
"""In the order they are asked: the more particular a format's marks, the earlier."""
FORMATS: dict[str, Reader] = {reader.NAME: reader for reader in READERS}

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

    Files are JSON, JSONL or parquet, each plain or gzipped, told apart by what they hold. Ids are unique over the whole
    call: a repeated id gets `#2`, `#3`, … and keeps its original in `meta["original_id"]`.

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
    return _read(listed, _How(format, mapping, outcome), on_error, strict)


@dataclass(frozen=True)
class _How:
    """How items are read: the options of `read`."""

    format: str
    mapping: dict[str, str] | None
    outcome: str | None


def check_mapping(fields: dict[str, str]) -> None:
    """`ConfigError` for a mapping with unknown fields or without messages."""
    mapping.check(fields)


def check_format(format: str) -> None:
    """`ConfigError` that names the nearest format for one that does not exist."""
    if format != "auto" and format not in FORMATS:
        near = difflib.get_close_matches(format.lower().replace("-", "_"), FORMATS, n=1)
        hint = f" did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"unknown format {format!r};{hint} formats: auto, {', '.join(FORMATS)}")


def sniff(value: Any) -> str | None:
    """The name of the format one parsed item is in; None where nobody knows it."""
    return next((reader.NAME for reader in READERS if reader.sniff(value)), None)


def _read(
    paths: list[str | os.PathLike[str]],
    how: _How,
    on_error: OnError | None,
    strict: bool,
) -> Iterator[Trajectory]:
    ids, scales = UniqueIds(), Scales()
    for path in expand(paths):
        for result in [path] if isinstance(path, ReadError) else _file(path, how):
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
            yield result
    if complaint := scales.complaint():  # known only now: rows are handed on as they are read
        log.warning("%s", complaint)


def _file(path: str, how: _How) -> Iterator[Trajectory | ReadError]:
    """Everything one file holds; session lines are held back until its end (a session is many lines)."""
    session = list[Item]()
    for value in values(path):
        if isinstance(value, ReadError):
            yield value
            continue
        items = list(_items(path, value, how.format, how.mapping))
        if not items:
            yield ReadError(path, value.line, "an empty list: nothing to read")
        for item in items:
            name = how.format if how.format != "auto" else sniff(item.value)
            if name is None:
                yield ReadError(path, item.line, _unknown(item.value))
            elif name == claude_code.NAME:
                session.append(item)
            else:
                yield _parse(FORMATS[name], item, how.outcome)
    if session and how.outcome is not None and not how.outcome.endswith("?"):
        reason = f"a session has no outcome at {how.outcome!r}; write {how.outcome + '?'!r} where some runs have none"
        yield ReadError(path, session[0].line, f"{reason} (format {claude_code.NAME})")
    elif session:
        yield from claude_code.group(session)


def _parse(reader: Reader, item: Item, outcome: str | None) -> Trajectory | ReadError:
    try:
        trajectory = reader.parse(item)
        if outcome is not None:
            _set_outcome(trajectory, item.value, outcome)
        return trajectory
    except (ValueError, RecursionError) as error:
        return ReadError(item.path, item.line, f"{describe(error)} (format {reader.NAME})")


def _set_outcome(trajectory: Trajectory, record: Any, path: str) -> None:
    """Take the outcome from a named field; what the record calls its outcome is then a field like any other."""
    said = outcome_at(record, path)
    if isinstance(record, dict) and record.get("outcome") is not None and path.removesuffix("?") != "outcome":
        trajectory.meta.setdefault("outcome", record["outcome"])
    trajectory.outcome = said and said.value
    if trajectory.source is not None:
        trajectory.source.outcome_field = said and said.field


def _unknown(value: Any) -> str:
    what = f"an object with {key_list(value)}" if isinstance(value, dict) else f"a JSON {type(value).__name__}"
    what = "plain text" if isinstance(value, str) else "an empty object" if value == {} else what
    return f"no known transcript format: {what}; name its parts with --map messages=PATH, or give --format"


def _items(path: str, value: Value, format: str, fields: dict[str, str] | None) -> Iterator[Item]:
    """The runs in one JSON value: itself, or the elements of a container where the file is nothing but that container."""
    data = value.data
    if (simulations := tau2.explode(data) if format in ("auto", "tau2") else None) is not None:
        for number, (simulation, context) in enumerate(simulations, 1):
            yield Item(simulation, path, number if value.whole else value.line, context=context)
    elif not value.whole or _is_run(data, format, fields):
        yield Item(data, path, value.line, mapping=fields)
    elif isinstance(data, list):
        for number, element in enumerate(data, 1):
            yield Item(element, path, number, mapping=fields)
    elif isinstance(data, dict) and data and all(isinstance(v, dict) for v in data.values()):
        for number, (key, element) in enumerate(data.items(), 1):
            yield Item(element, path, number, key=key, mapping=fields)
    else:
        yield Item(data, path, value.line, mapping=fields)


def _is_run(data: Any, format: str, fields: dict[str, str] | None) -> bool:
    """Whether a whole document is one run rather than a list or an object of runs."""
    if fields is not None:
        return mapping.fits(data, fields)
    if format == "auto":
        return sniff(data) is not None
    return FORMATS[format].sniff(data) or (isinstance(data, list) and is_chat(data))
