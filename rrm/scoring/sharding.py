"""Shards: `--shard i/n` judges part i of n consecutive ones; `rrm merge` joins the outputs.

Of N readable transcripts shard i has those from ⌊(i − 1)·N/n⌋ up to ⌊i·N/n⌋, counted from 0.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rrm.data.output import differences, drafted, header_of, locked, write_header
from rrm.errors import ConfigError, RRMError
from rrm.scoring.row_index import facts_of

T = TypeVar("T")


@dataclass(frozen=True)
class Shard:
    """Part `number` of `of`, from 1."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Parse `2/8`; raises `ConfigError`."""
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
        number, count = (int(match[1]), int(match[2])) if match else (0, 0)
        if not 1 <= number <= count:
            raise ConfigError(f"--shard {text!r}: write i/n with i from 1 to n, e.g. 2/8")
        return cls(number, count)

    def bounds(self, total: int) -> tuple[int, int]:
        """Return the part's first transcript, from 0, and the one behind its last."""
        return (self.number - 1) * total // self.of, self.number * total // self.of

    def rows_of(self, total: int) -> int:
        start, stop = self.bounds(total)
        return stop - start

    def of_rows(self, rows: Iterable[T], total: int) -> Iterator[T]:
        return itertools.islice(rows, *self.bounds(total))

    def settings(self, total: int) -> dict[str, Any]:
        """Return fields for the output's header: another part, or an input that has grown, is another run."""
        return {"shard": f"{self.number}/{self.of}", "inputs": total}


@dataclass
class Merged:
    output: str
    rows: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)  # in the order of their rows
    missing: list[str] = field(default_factory=list)  # shards that are absent or not finished


@dataclass(frozen=True)
class _Part:
    path: Path
    made_by: dict[str, Any]
    shard: Shard | None
    inputs: int | None


def merge(paths: Sequence[Path], output: Path, *, overwrite: bool = False, partial: bool = False) -> Merged:
    """Join rows of runs of one judge: shards by number, other files in the order given.

    Args:
        partial: accept absent and unfinished shards.

    Raises:
        ConfigError: the output exists, or is one of the inputs.
        RRMError: other judges or settings, parts of different runs, an id twice, missing shards, a file still written.
    """
    if len({path.resolve() for path in paths}) < len(paths) or output.resolve() in {path.resolve() for path in paths}:
        raise ConfigError("a file is named twice; name each once, and another one with -o")
    with ExitStack() as stack:
        stack.enter_context(locked(output))
        if output.exists() and not overwrite:
            raise ConfigError(f"{output} is there already: choose another -o, or --overwrite")
        for path in paths:
            if not path.is_file():
                raise ConfigError(f"{path}: there is no such file")
            stack.enter_context(locked(path))
        files = _in_order([_part(path) for path in paths])
        done = Merged(str(output), files=[str(file.path) for file in files])
        made_by = {k: v for k, v in files[0].made_by.items() if k not in ("shard", "inputs")}
        with drafted(output, ".tmp") as draft, open(draft, "wb") as out:
            done.missing = _missing(files, _copy(files, out, done))
            if done.missing and not partial:
                raise RRMError(
                    f"{'; '.join(done.missing)}: run rrm score with the same --shard again, or take what is there with --partial"
                )
            out.flush()
            os.fsync(out.fileno())
            with open(f"{output}.run.json", "w", encoding="ascii") as header:
                write_header(header, made_by)
    return done


def _part(path: Path) -> _Part:
    made_by = header_of(path)
    shard = made_by.get("shard")
    return _Part(path, made_by, Shard.parse(shard) if isinstance(shard, str) else None, made_by.get("inputs"))


def _in_order(files: list[_Part]) -> list[_Part]:
    """Sort shards by number; refuse parts that do not belong together."""
    first = files[0]
    ignored = {"shard"}
    for file in files[1:]:
        if differs := differences(_without(first.made_by, ignored), _without(file.made_by, ignored)):
            raise RRMError(f"{first.path} and {file.path} were made otherwise: {'; '.join(differs)}")
        if (file.shard and file.shard.of) != (first.shard and first.shard.of):
            shards = [f"{p.path} is {p.made_by.get('shard', 'no shard')}" for p in (first, file)]
            raise RRMError(f"parts of different runs: {', '.join(shards)}")
    twice = [n for n, count in Counter(p.shard.number for p in files if p.shard).items() if count > 1]
    if twice:
        names = [str(p.path) for p in files if p.shard and p.shard.number == twice[0]]
        raise RRMError(f"shard {twice[0]} is there more than once: {', '.join(names)}")
    return sorted(files, key=lambda p: p.shard.number if p.shard else 0)


def _without(made_by: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {k: v for k, v in made_by.items() if k not in names}


def _copy(files: Sequence[_Part], out: Any, done: Merged) -> dict[Path, int]:
    """Copy the rows, each id once, and count them by file."""
    ids, counts, statuses = set[str](), Counter[Path](), Counter[str]()
    for file in files:
        with open(file.path, "rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    row = json.loads(line)
                    status = facts_of(row).status
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    if not line.endswith(b"\n"):
                        break  # a killed run's last line; its shard is named as not finished
                    raise RRMError(f"{file.path}:{number}: not a row of `rrm score`") from error
                if row["id"] in ids:
                    raise RRMError(
                        f"{file.path}:{number}: its id has a row in another place of these files already; leave one out"
                    )
                ids.add(row["id"])
                statuses[status] += 1
                counts[file.path] += 1
                out.write(line if line.endswith(b"\n") else line + b"\n")
    done.rows, done.statuses = len(ids), dict(sorted(statuses.items()))
    return counts


def _missing(files: Sequence[_Part], counts: Mapping[Path, int]) -> list[str]:
    """List absent shards, and those with fewer rows than their part has."""
    first = files[0].shard
    if first is None:
        return []
    there = {p.shard.number for p in files if p.shard}
    gone = [str(n) for n in range(1, first.of + 1) if n not in there]
    messages = (
        [f"of {first.of} shards {', '.join(gone[:20])}{' …' if len(gone) > 20 else ''} are missing"] if gone else []
    )
    for file in files:
        if file.shard is None or not isinstance(file.inputs, int):
            continue
        expected = file.shard.rows_of(file.inputs)
        if counts[file.path] != expected:
            messages.append(f"shard {file.shard.number} ({file.path}) has {counts[file.path]} of {expected} rows")
    return messages
