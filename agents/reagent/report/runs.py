"""Run folders of `reagent train` and `reagent distil`, as the report's table and curves need them."""

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from rrm.data.plain_yaml import plain_yaml
from rrm.errors import ConfigError, ReadError, RRMError

Row = dict[str, Any]
SPENT = ("time/sync_s", "time/rollout_s", "time/update_s", "time/judge_s")
"""What an update's wall-clock time is made of."""
JUDGED = ("feedback/judge_tokens", "auditor/judge_tokens")
"""Tokens of an update's judges; an evaluation's are its `judge_tokens`."""

OWN = ("seed", "output_dir", "report_to")
"""Of a config, what makes no other setting."""
LINKED = ("config.yaml", "metrics.jsonl", "eval.jsonl", "guards.jsonl")
"""A run's files that the page links, beside the pages in its folder."""
PAGES = 4
"""Most of those pages."""


DISTILLED = ("chosen.jsonl", "choice.json")
"""What `reagent distil` leaves before its first step, and no other training."""


@dataclass(frozen=True)
class Distillation:
    """What the steps of `reagent distil` were chosen from: its metrics do not say."""

    attempts: int | None
    """Episodes played; None where the folder holds them no more."""
    judge_tokens: float | None


@dataclass(frozen=True)
class RecordedRun:
    """One training: its config's main settings and its logs."""

    folder: Path
    name: str
    """As much of the folder's path as tells it from the other runs."""
    mode: str
    algorithm: str
    environment: str
    seed: str
    planned: int | None
    """Updates the config asks for."""
    rows: list[Row]
    """An update each, in order; never empty."""
    evaluations: list[Row]
    """Held-out evaluations, in order."""
    seconds: float | None
    """Of the whole command, where the folder's done.json says so."""
    fired: list[Row]
    """Guards that fired, in order."""
    setting: str
    """How it learned and its config but for the seed and where it is written: runs that share it differ by chance alone."""
    criteria: str | None = None
    """What its judge was asked instead of the fixed rubric, and from which update on; None where no judge was, or nothing else."""
    distillation: Distillation | None = None
    """Of a folder of `reagent distil`, whose config's algorithm, max_updates and feedback.mode say nothing."""

    @property
    def label(self) -> str:
        """Name, feedback mode and algorithm."""
        return f"{self.name} ({self.mode}, {self.algorithm})"

    @property
    def episodes(self) -> int | None:
        """Episodes played, second attempts included."""
        if self.distillation is not None:
            return self.distillation.attempts
        return next((int(n) for row in reversed(self.rows) if (n := number(row.get("episodes"))) is not None), None)

    def series(self, key: str) -> list[tuple[float, float]]:
        """(episodes so far, value) of each update that has the figure."""
        points = [(number(row.get("episodes")), number(row.get(key))) for row in self.rows]
        return [(x, y) for x, y in points if x is not None and y is not None]

    def total(self, key: str) -> float | None:
        """Sum over updates, None where no update has the figure."""
        found = [value for row in self.rows if (value := number(row.get(key))) is not None]
        return sum(found) if found else None

    @property
    def judge_tokens(self) -> float | None:
        """What judges read and wrote: of an update's episodes, of held-out ones for the guards, and a second judge's."""
        if self.distillation is not None:
            return self.distillation.judge_tokens
        rows = [row.get(key) for row in self.rows for key in JUDGED]
        found = [
            n
            for value in [*rows, *(row.get("judge_tokens") for row in self.evaluations)]
            if (n := number(value)) is not None
        ]
        return sum(found) if found else None

    @property
    def minutes(self) -> tuple[float | None, bool]:
        """Wall-clock minutes, and whether they are the whole command's (else the updates' alone)."""
        if self.seconds is not None:
            return self.seconds / 60, True
        found = [part for key in SPENT if (part := self.total(key)) is not None]
        return (sum(found) / 60 if found else None), False


def links(run: RecordedRun, page: Path) -> list[tuple[str, str]]:
    """(name, address relative to the page) of the run's folder and what stands in it.

    An address begins with `./` and is percent-encoded, so that no folder's name makes a scheme or leaves the attribute.
    """
    here = os.path.abspath(page.parent)
    pages = sorted(path.name for path in run.folder.glob("*.html") if path.is_file())[:PAGES]
    names = ["", *(name for name in LINKED if (run.folder / name).is_file()), *pages]
    paths = [os.path.relpath(os.path.abspath(run.folder / name), here) for name in names]
    return [(name, "./" + quote(os.fsencode(path))) for name, path in zip(names, paths, strict=True)]


def number(value: Any) -> float | None:
    """A finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def interval(value: Any) -> tuple[float, float | None, float | None] | None:
    """`{value, low, high}` as value and bounds; None without a value."""
    if not isinstance(value, dict) or (middle := number(value.get("value"))) is None:
        return None
    return middle, number(value.get("low")), number(value.get("high"))


def read_runs(folders: Sequence[str | Path]) -> list[RecordedRun]:
    """The runs in the order given.

    Raises:
        ConfigError: no folder, one given twice, or one that is no run folder.
        RRMError: a log that is empty or cannot be read.
    """
    if not folders:
        raise ConfigError("give at least one run folder of `reagent train`")
    paths = [Path(os.path.abspath(folder)) for folder in folders]
    for given, path in zip(folders, paths, strict=True):
        if paths.count(path) > 1:
            raise ConfigError(f"the run {str(given)!r} is given twice")
    return [_read_run(Path(given), name) for given, name in zip(folders, _names(paths), strict=True)]


def read_rows(path: Path, what: str) -> list[Row]:
    """JSON objects, one a line. A last line without its end is left out: the run may be writing it. Raises ReadError: the file or a line of
    it cannot be read."""
    rows: list[Row] = []
    lines = read_text(path).split("\n")
    for n, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError("no JSON object")
        except (ValueError, RecursionError) as error:
            if n == len(lines):
                break
            raise ReadError(str(path), n, f"not {what}: {error}") from error
        rows.append(row)
    return rows


def read_text(path: Path) -> str:
    """A UTF-8 file's text. Raises ReadError: it cannot be opened or is no UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ReadError(str(path), None, f"cannot be opened: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ReadError(str(path), None, f"not UTF-8 text: {error.reason} at byte {error.start}") from error


def read_json(path: Path) -> Any:
    """A file's JSON. Raises ReadError: it cannot be opened, or is none."""
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ReadError(str(path), None, f"not JSON: {error}") from error


def _names(paths: Sequence[Path]) -> list[str]:
    """Of each path as few of its last parts as tell it from the others."""

    def shortest(path: Path) -> str:
        for n in range(1, len(path.parts)):
            tail = path.parts[-n:]
            if sum(other.parts[-n:] == tail for other in paths) == 1:
                return "/".join(tail)
        return str(path)

    return [shortest(path) for path in paths]


def _read_run(folder: Path, name: str) -> RecordedRun:
    if not folder.is_dir():
        hint = "; write --policy before each NAME=TRANSCRIPTS.jsonl,FEEDBACK.jsonl" if "=" in str(folder) else ""
        raise ConfigError(f"{folder} is not a folder: give a run folder of `reagent train`{hint}")
    lacking = [wanted for wanted in ("config.yaml", "metrics.jsonl") if not (folder / wanted).is_file()]
    if lacking:
        raise ConfigError(
            f"{folder} is no run folder of `reagent train`: looked for config.yaml and metrics.jsonl, "
            f"found no {' and no '.join(lacking)}"
        )
    config = _config(folder / "config.yaml")
    rows = read_rows(folder / "metrics.jsonl", "a row of metrics")
    if not rows:
        raise RRMError(f"{folder / 'metrics.jsonl'} is empty: the run has not finished its first update")
    evaluations, fired = folder / "eval.jsonl", folder / "guards.jsonl"
    mode, algorithm = str(_section(config, "feedback").get("mode", "none")), str(config["algorithm"])
    planned = config.get("max_updates")
    distillation = _distillation(folder)
    if distillation is not None:
        mode, algorithm = "none", f"distil (by {_section(config, 'distil').get('by', 'judge')})"
        planned = None
    learned = {k: v for k, v in config.items() if k not in OWN} | {"algorithm": algorithm}
    return RecordedRun(
        folder=folder,
        name=name,
        mode=mode,
        algorithm=algorithm,
        environment=str(_section(config, "environment").get("name", "search")),
        seed=str(config.get("seed", 0)),
        planned=planned if isinstance(planned, int) else None,
        rows=rows,
        evaluations=read_rows(evaluations, "a held-out evaluation") if evaluations.is_file() else [],
        seconds=_seconds(folder / "done.json"),
        fired=read_rows(fired, "a guard that fired") if fired.is_file() else [],
        setting=json.dumps(learned, sort_keys=True, default=str),
        criteria=_criteria(_section(config, "feedback").get("criteria")) if any(map(_was_judged, rows)) else None,
        distillation=distillation,
    )


def _was_judged(row: Row) -> bool:
    return bool(number(row.get("feedback/judged")))


def _criteria(asked: Any) -> str | None:
    """A config's `feedback.criteria` in words."""
    if not isinstance(asked, list):
        return asked if isinstance(asked, str) else None
    stages = [stage for stage in asked if isinstance(stage, dict)]
    later = [f"from update {stage.get('from')} {stage.get('file')}" for stage in stages[1:]]
    return ", ".join([*(str(stage.get("file")) for stage in stages[:1]), *later]) or None


def _distillation(folder: Path) -> Distillation | None:
    """What a folder of `reagent distil` says of its choice; None of another run's."""
    if not all((folder / name).is_file() for name in DISTILLED):
        return None
    found = read_json(folder / "choice.json")
    return Distillation(
        attempts=sum(map(_lines, folder.glob("episodes-*.jsonl"))) or None,
        judge_tokens=number(found.get("judge_tokens")) if isinstance(found, dict) else None,
    )


def _lines(path: Path) -> int:
    """How many lines a file has: of episodes, which are long, none is read."""
    try:
        with open(path, "rb") as file:
            return sum(1 for _ in file)
    except OSError as error:
        raise ReadError(str(path), None, f"cannot be opened: {error.strerror}") from error


def _config(path: Path) -> Row:
    """A run's config.yaml as it stands: of runs of older versions only what the report shows matters."""
    try:
        tree = plain_yaml(read_text(path))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(tree, dict) or "algorithm" not in tree:
        raise ConfigError(f"{path} is no config of `reagent train`: it has no `algorithm`")
    return tree


def _section(config: Row, name: str) -> Row:
    found = config.get(name)
    return found if isinstance(found, dict) else {}


def _seconds(path: Path) -> float | None:
    """What a study noted beside its run: `{"seconds": …}` or the bare number."""
    if not path.is_file():
        return None
    found = read_json(path)
    return number(found.get("seconds") if isinstance(found, dict) else found)
