"""Run folders of `reagent train` and `reagent distil`, for the report's table and curves."""

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
SPENT = ("time/sync_s", "time/rollout_s", "time/update_s", "time/judge_s")  # parts of an update's wall-clock time
JUDGED = ("feedback/judge_tokens", "auditor/judge_tokens")
"""Tokens of an update's judges; an evaluation's are its `judge_tokens`."""

OWN = ("seed", "output_dir", "report_to")  # config keys that make no other setting
LINKED = ("config.yaml", "metrics.jsonl", "eval.jsonl", "guards.jsonl")
"""A run's files that the page links, beside the pages in its folder."""
PAGES = 4  # most linked pages


DISTILLED = ("chosen.jsonl", "choice.json")
"""Files of `reagent distil` before its first step, and of no other training."""


@dataclass(frozen=True)
class Distillation:
    """Totals of the attempts that `reagent distil` chose from: its metrics lack them."""

    attempts: int | None  # episodes played; None where the folder no longer holds them
    judge_tokens: float | None


@dataclass(frozen=True)
class RecordedRun:
    """One training: its config's main settings and its logs."""

    folder: Path
    name: str  # as much of the folder's path as tells it from the other runs
    mode: str
    algorithm: str
    environment: str
    seed: str
    planned: int | None  # updates the config asks for
    rows: list[Row]  # one an update, in order; never empty
    evaluations: list[Row]  # held-out evaluations, in order
    seconds: float | None  # of the whole command, from the folder's done.json
    fired: list[Row]  # guards that fired, in order
    setting: str
    """Method and config without seed and output folder: runs that share it differ by chance alone."""
    criteria: str | None = None
    """Its judge's criteria, and the updates they begin at; None for the fixed rubric, or no judge."""
    distillation: Distillation | None = None
    """Set for `reagent distil`, which ignores the config's algorithm, max_updates and feedback.mode."""

    @property
    def label(self) -> str:
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
        values = [value for row in self.rows if (value := number(row.get(key))) is not None]
        return sum(values) if values else None

    @property
    def judge_tokens(self) -> float | None:
        """Tokens that judges read and wrote: on an update's episodes, on held-out ones, and a second judge's."""
        if self.distillation is not None:
            return self.distillation.judge_tokens
        rows = [row.get(key) for row in self.rows for key in JUDGED]
        tokens = [
            n
            for value in [*rows, *(row.get("judge_tokens") for row in self.evaluations)]
            if (n := number(value)) is not None
        ]
        return sum(tokens) if tokens else None

    @property
    def minutes(self) -> tuple[float | None, bool]:
        """(wall-clock minutes, True for the whole command's and False for the updates' alone)."""
        if self.seconds is not None:
            return self.seconds / 60, True
        totals = [total for key in SPENT if (total := self.total(key)) is not None]
        return (sum(totals) / 60 if totals else None), False


def links(run: RecordedRun, page: Path) -> list[tuple[str, str]]:
    """(name, address relative to the page) of the run's folder and the files in it.
    An address begins with `./` and is percent-encoded, so that no folder's name makes a scheme or leaves the attribute."""
    here = os.path.abspath(page.parent)
    pages = sorted(path.name for path in run.folder.glob("*.html") if path.is_file())[:PAGES]
    names = ["", *(name for name in LINKED if (run.folder / name).is_file()), *pages]
    paths = [os.path.relpath(os.path.abspath(run.folder / name), here) for name in names]
    return [(name, "./" + quote(os.fsencode(path))) for name, path in zip(names, paths, strict=True)]


def number(value: Any) -> float | None:
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
    Raises ConfigError: no folder, one given twice, or one that is no run folder; RRMError: a log that is empty or cannot be read."""
    if not folders:
        raise ConfigError("give at least one run folder of `reagent train`")
    paths = [Path(os.path.abspath(folder)) for folder in folders]
    for run_folder, path in zip(folders, paths, strict=True):
        if paths.count(path) > 1:
            raise ConfigError(f"the run {str(run_folder)!r} is given twice")
    return [_read_run(Path(run_folder), name) for run_folder, name in zip(folders, _names(paths), strict=True)]


def read_rows(path: Path, row_name: str) -> list[Row]:
    """JSON objects, one a line. An unfinished last line is left out: the run may be writing it."""
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
            raise ReadError(str(path), n, f"not {row_name}: {error}") from error
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
    """The fewest last parts of each path that tell it from the others."""

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
    lacking = [file for file in ("config.yaml", "metrics.jsonl") if not (folder / file).is_file()]
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


def _criteria(criteria: Any) -> str | None:
    if not isinstance(criteria, list):
        return criteria if isinstance(criteria, str) else None
    stages = [stage for stage in criteria if isinstance(stage, dict)]
    later = [f"from update {stage.get('from')} {stage.get('file')}" for stage in stages[1:]]
    return ", ".join([*(str(stage.get("file")) for stage in stages[:1]), *later]) or None


def _distillation(folder: Path) -> Distillation | None:
    if not all((folder / name).is_file() for name in DISTILLED):
        return None
    choice = read_json(folder / "choice.json")
    return Distillation(
        attempts=sum(map(_lines, folder.glob("episodes-*.jsonl"))) or None,
        judge_tokens=number(choice.get("judge_tokens")) if isinstance(choice, dict) else None,
    )


def _lines(path: Path) -> int:
    try:
        with open(path, "rb") as file:
            return sum(1 for _ in file)
    except OSError as error:
        raise ReadError(str(path), None, f"cannot be opened: {error.strerror}") from error


def _config(path: Path) -> Row:
    """A run's config.yaml as it stands, whatever version wrote it."""
    try:
        tree = plain_yaml(read_text(path))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(tree, dict) or "algorithm" not in tree:
        raise ConfigError(f"{path} is no config of `reagent train`: it has no `algorithm`")
    return tree


def _section(config: Row, name: str) -> Row:
    section = config.get(name)
    return section if isinstance(section, dict) else {}


def _seconds(path: Path) -> float | None:
    """A study's note beside its run: `{"seconds": …}` or the bare number."""
    if not path.is_file():
        return None
    note = read_json(path)
    return number(note.get("seconds") if isinstance(note, dict) else note)
