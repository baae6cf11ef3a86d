"""Count the failures of many runs: shares with intervals, groups, examples, and two sets compared (`rrm failures`).

The share p of n runs has Wilson's 95 % interval, with n divided by the design effect where runs of one question fail alike
(Kish 1965), or the number of questions where no effect can be estimated; differences have Newcombe's (1998, method 10) of the two.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from rrm.data.jsonl import read_lines
from rrm.errors import RRMError

Row = dict[str, Any]
EXAMPLES = 3
Z = 1.959964


@dataclass(frozen=True)
class Share:
    runs: int
    of: int
    value: float
    low: float
    high: float


def share(hits: Sequence[bool], questions: Sequence[str]) -> Share:
    """Return the share of runs that are hits; both sequences have one entry a run, at least one."""
    n, p = len(hits), float(np.mean(hits))
    codes: dict[str, int] = {}
    question_index = [codes.setdefault(question, len(codes)) for question in questions]
    effective_n = float(len(codes))
    if 1 < len(codes) < n and 0 < p < 1:
        hits_by_question = np.bincount(question_index, weights=np.asarray(hits, float))
        question_residuals = hits_by_question - p * np.bincount(question_index)
        variance = float(question_residuals @ question_residuals) * len(codes) / (len(codes) - 1)
        design_effect = variance / (n * p * (1 - p))
        effective_n = n / max(1.0, design_effect)
    middle = p + Z**2 / (2 * effective_n)
    root = Z * math.sqrt(p * (1 - p) / effective_n + Z**2 / (4 * effective_n**2))
    low, high = ((middle + sign * root) / (1 + Z**2 / effective_n) for sign in (-1, 1))
    return Share(sum(hits), n, round(p, 4), round(max(0.0, min(low, p)), 4), round(min(1.0, max(high, p)), 4))


def difference(before: Share, now: Share) -> dict[str, float]:
    """Return `value`, `low`, `high` of now − before."""
    value = now.value - before.value
    lower_width = math.hypot(now.value - now.low, before.high - before.value)
    upper_width = math.hypot(now.high - now.value, before.value - before.low)
    return {"value": round(value, 4), "low": round(value - lower_width, 4), "high": round(value + upper_width, 4)}


def kind_shares(rows: Sequence[Row], kinds: Iterable[str], tool: str | None = None) -> dict[str, Share]:
    """Return each kind's share of the runs asked about it, if any; with `tool` only mistakes in a step that calls it count."""
    of_rows = [({m["kind"] for m in row["mistakes"] if tool is None or tool in m["tools"]}, row) for row in rows]
    asked = {
        name: [(name in names, row["question"]) for names, row in of_rows if name in row["asked"]] for name in kinds
    }
    return {name: share(*zip(*runs, strict=True)) for name, runs in asked.items() if runs}


def count_failures(rows: Sequence[Row], kinds: Sequence[str], by: Sequence[str] = ()) -> dict[str, Any]:
    """Return the figures of rows of `failures_of`; raises `RRMError` without runs."""
    if not rows:
        raise RRMError("there are no runs to count: the input holds none that could be read")
    questions = [row["question"] for row in rows]
    calls = Counter[str]()
    for row in rows:
        calls.update(row["calls"])
    counted = _kinds(rows, kinds)
    firsts = [row["first_step"] for row in rows if row["first_step"]]
    looping = sorted((row for row in rows if row["loops"]), key=lambda row: -max(x["steps"] for x in row["loops"]))
    return {
        "runs": len(rows),
        "failing": asdict(share([bool(row["mistakes"]) for row in rows], questions)),
        "first_step": median(firsts) if firsts else None,
        "kinds": counted,
        "not_asked": [name for name in kinds if name not in counted],
        "by": {field: _groups(rows, kinds, field) for field in by},
        "calls": dict(calls),
        "looping": asdict(share([bool(row["loops"]) for row in rows], questions)),
        "loops": [{"id": r["id"], **max(r["loops"], key=lambda x: x["steps"])} for r in looping[:EXAMPLES]],
        "quotes": {name: sum(row["quotes"][name] for row in rows) for name in ("checked", "dropped", "unplaced")},
        "unsure_runs": sum(bool(row["judge"] and row["judge"]["unsure_steps"]) for row in rows),
        "unjudged": sum(bool(row["judge"] and row["judge"]["status"] != "scored") for row in rows),
    }


def _kinds(rows: Sequence[Row], kinds: Sequence[str]) -> dict[str, Any]:
    """Return the figures of each kind, commonest first."""
    mistakes: dict[str, list[tuple[Row, Row]]] = defaultdict(list)
    for row in rows:
        for mistake in row["mistakes"]:
            mistakes[mistake["kind"]].append((row, mistake))
    counted = {}
    for name, figures in sorted(kind_shares(rows, kinds).items(), key=lambda item: -item[1].runs):
        firsts: dict[int, int] = {}
        for row, mistake in mistakes[name]:
            firsts.setdefault(id(row), mistake["step"])
        counted[name] = {
            **asdict(figures),
            "mistakes": len(mistakes[name]),
            "by": dict(Counter(m["by"] for _, m in mistakes[name])),
            "first_step": median(firsts.values()) if firsts else None,
            "examples": clearest(mistakes[name]),
        }
    return counted


def clearest(mistakes: Sequence[tuple[Row, Row]]) -> list[Row]:
    """Return the clearest runs, of different questions if there are: proven, then least `p_good`, then short."""
    order = sorted(
        ((row, m) for row, m in mistakes if m.get("quote")),
        key=lambda pair: (pair[1]["by"] != "rules", pair[1].get("p_good", 0.0), pair[0]["steps"]),
    )
    chosen: dict[str, Row] = {}
    for one_per_question in (True, False):  # first pass: a run of each question; second: any others, to fill up
        questions = set[str]()
        for row, m in order:
            if (
                len(chosen) < EXAMPLES
                and row["id"] not in chosen
                and not (one_per_question and row["question"] in questions)
            ):
                questions.add(row["question"])
                chosen[row["id"]] = {"id": row["id"], **{n: m.get(n) for n in ("step", "quote", "why", "by")}}
    return list(chosen.values())


def _groups(rows: Sequence[Row], kinds: Sequence[str], field: str) -> dict[str, Any]:
    members: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        for value in row["groups"][field]:
            members[value].append(row)
    if not members:
        raise RRMError(
            f"--by {field}: no run has such a field; model, task and tool are known, others are paths in meta"
        )
    groups = {}
    for value, mine in members.items():
        tool = value if field == "tool" else None
        shares = {name: asdict(figures) for name, figures in kind_shares(mine, kinds, tool).items() if figures.runs}
        failing = [any(tool is None or tool in m["tools"] for m in row["mistakes"]) for row in mine]
        groups[value] = {"failing": asdict(share(failing, [r["question"] for r in mine])), "kinds": shares}
    return dict(sorted(groups.items(), key=lambda item: -item[1]["failing"]["runs"]))


def changes_since(before: Sequence[Row], now: Sequence[Row], kinds: Sequence[str]) -> dict[str, Any]:
    """Return kind → share before, and the difference, of the kinds asked in both; most grown first."""
    earlier, later = kind_shares(before, kinds), kind_shares(now, kinds)
    changes = {
        k: {"before": asdict(earlier[k]), **difference(earlier[k], later[k])}
        for k in kinds
        if k in earlier and k in later
    }
    return dict(sorted(changes.items(), key=lambda item: -item[1]["value"]))


def read_failures(path: Path) -> list[Row]:
    """Read the rows of `rrm failures`; raises `ReadError` for a line that is none, `RRMError` without rows."""
    rows = list(read_lines(path, _row, "a row of `rrm failures`"))
    if not rows:
        raise RRMError(f"{path} holds no rows: write them with rrm failures RUNS -o {path}")
    return rows


def _row(line: str) -> Row:
    row = json.loads(line)
    mistakes = row.get("mistakes") if isinstance(row, dict) else None
    if not isinstance(mistakes, list) or not isinstance(row.get("question"), str):
        raise ValueError("it has no `mistakes` and `question`: write it with rrm failures RUNS -o FILE")
    if not isinstance(row.get("asked"), list):
        raise ValueError("it has no `asked`, as those of an earlier version: run rrm failures again")
    if not all(isinstance(m, dict) and isinstance(m.get("kind"), str) for m in mistakes):
        raise ValueError("a mistake has no `kind`")
    return row
