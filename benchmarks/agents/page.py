"""The table as JSON, as Markdown, and every judged transcript on one page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.agents.cells import EPISODES, FAILURE, METRICS, Cell, benchmark_of, read_json, scored_path, write_whole
from benchmarks.agents.figures import difference
from benchmarks.agents.methods import NotApplicable
from rrm.cli.score_cmd import pair_rows
from rrm.data.output import file_when_whole
from rrm.data.trajectory import Trajectory, read_canonical
from rrm.report import write_report

TABLE, MARKDOWN, REPORT = "table.json", "table.md", "report.html"
HEAD = [
    "method", "success", "EM", "F1", "questions", "left out", "turns", "malformed", "tokens", "judge", "Brier", "AUROC",
]  # fmt: skip
NONE = "–"

Row = dict[str, Any]


def rows_of(cells: Sequence[Cell], against: str | None) -> list[Row]:
    """A row a cell: its metrics, or its `failure`; with the difference from the row `against` of the same benchmark."""
    rows: list[Row] = []
    for cell in cells:
        row: Row = {"task": cell.task, "label": cell.entry.label, "method": cell.method.name}
        failed = read_json(cell.folder / FAILURE)
        metrics = None if failed is not None else read_json(cell.folder / METRICS)
        rows.append(row | (metrics or {"failure": failed or {"kind": "NotPlayed", "message": "not played yet"}}))
    by_name = {(row["task"], row["label"]): row for row in rows}
    for row in rows:
        other = by_name.get((row["task"], against or ""))
        if other is None or other is row or "figures" not in row or "figures" not in other:
            continue
        ours, theirs = row["figures"]["by_question"], other["figures"]["by_question"]
        alike = row["figures"].get("asked_alike")
        row["minus"] = {name: difference(ours[name], theirs[name], 0, alike) for name in ours if name in theirs}
    return rows


def write_table(cells: Sequence[Cell], folder: Path, against: str | None, about: Mapping[str, Any]) -> list[Row]:
    """`table.json`, `table.md` and, where a judge has read them, `report.html` with all transcripts; returns the rows."""
    rows = rows_of(cells, against)
    write_whole(folder / TABLE, {**about, "against": against, "rows": rows})
    with file_when_whole(folder / MARKDOWN) as file:
        file.write(markdown(rows, cells, against))
    scored = ((cell, scored_path(cell.folder, row)) for cell, row in zip(cells, rows, strict=True) if "figures" in row)
    judged = [(cell, path) for cell, path in scored if path is not None]
    if judged:
        write_report(_pairs(judged), folder / REPORT, title="Benchmarks by method")
    else:
        (folder / REPORT).unlink(missing_ok=True)  # of another judge
    return rows


def _pairs(judged: Sequence[tuple[Cell, Path]]) -> Iterator[tuple[Trajectory, dict[str, Any]]]:
    for cell, rows in judged:
        spoken = (t for t in read_canonical(cell.folder / EPISODES) if t.steps)
        yield from pair_rows(spoken, rows)


def markdown(rows: Sequence[Row], cells: Sequence[Cell], against: str | None) -> str:
    """A table a benchmark; under a method with several kinds of attempt a row each."""
    environments = {cell.task: cell.config.environment.name for cell in cells}
    parts: list[str] = []
    for task, of_task in groupby(rows, key=lambda row: row["task"]):
        found = list(of_task)
        benchmark = benchmark_of(environments[task])
        extra = [name for name in benchmark.metrics if name not in ("exact_match", "f1")]
        head = [*HEAD[:4], *extra, *HEAD[4:], *([f"minus {against}"] if against else [])]
        lines = [head, ["---"] * len(head)]
        for row in found:
            lines += _lines(row, extra, against)
        judged = ((row["label"], row.get("figures", {}).get("judge") or {}) for row in found)
        strange = [f"{label} {judge['outside']}" for label, judge in judged if judge.get("outside")]
        note = f"\nOutside what the judge was measured on: {', '.join(strange)} transcripts.\n" if strange else ""
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        parts.append(f"## {benchmark.title}\n\nSuccess: {benchmark.metric}.\n\n{table}\n{note}")
    return "\n".join(parts)


def _lines(row: Row, extra: Sequence[str], against: str | None) -> list[list[str]]:
    columns = len(HEAD) + len(extra) + bool(against)
    if "figures" not in row:
        failure = row["failure"]
        said = "not applicable" if failure["kind"] == NotApplicable.__name__ else f"**{failure['kind']}**"
        return [[row["label"], f"{said}: {_cell(failure['message'])}", *[""] * (columns - 2)]]
    found = row["figures"]
    first = [row["label"], *_line(found, extra)]
    if against:
        first.append(interval(row["minus"]["success"], signed=True) if "minus" in row else NONE)
    lines = [first]
    if "first" in found:
        lines.append(["– first attempts", *_line(found["first"], extra)])
    for name, value in found.get("choose", {}).get("success", {}).items():
        if name != "judge":
            lines.append([f"– by {name}", interval(value)])
    return [line + [""] * (columns - len(line)) for line in lines]


def _line(found: Mapping[str, Any], extra: Sequence[str]) -> list[str]:
    judge = found.get("judge") or {}
    return [
        *(interval(found.get(name)) for name in ("success", "exact_match", "f1", *extra)),
        str(found.get("questions", found.get("tasks", NONE))),
        ", ".join(f"{count} {kind}" for kind, count in found.get("left_out", {}).items()),
        *(_number(found.get(name), 2) for name in ("turns", "malformed")),
        _number(found.get("policy_tokens"), 0),
        *(interval(judge.get(name)) for name in ("mean", "brier", "auroc")),
    ]


def interval(value: Mapping[str, float | None] | None, signed: bool = False) -> str:
    """`0.312 [0.290, 0.334]`, the value alone where too little carries it, a dash where there is none."""
    if value is None or value.get("value") is None:
        return NONE
    sign = "+" if signed else ""
    bounds = "" if value.get("low") is None else f" [{value['low']:{sign}.3f}, {value['high']:{sign}.3f}]"
    return f"{value['value']:{sign}.3f}{bounds}"


def _number(value: float | None, digits: int) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")[:300]
