"""What `smollm2_gsm8k` reports: success with intervals over questions and paired differences."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.studies.smollm2_qa_figures import OVER_SEEDS, difference, interval, table
from benchmarks.studies.study import lines, two_way_interval

START = "start"
CONTROLS = {arm: f"{arm}-shuffled" for arm in ("filled", "wide")}
"""Arm → the one that differs from it in what its rewards say alone."""
GREEDY, SAMPLED = "held_out", "sampled"
TEMPERATURES = {GREEDY: 0.0, SAMPLED: 1.0}
"""How held-out questions are answered: greedily, and as attempts are sampled."""
LESS_GREEDY = "less_greedy_start"
"""Of a policy that samples: less what the warm start answers greedily."""


def answers(
    places: Mapping[str, Mapping[int, Path]], asked: int, updates: int, way: str
) -> dict[str, list[dict[str, Any]]]:
    """Policy → its runs that answered in a way, as `answered` finds them."""
    found = {
        name: [
            {"seed": seed, **one} for seed, folder in folders.items() if (one := answered(folder, asked, updates, way))
        ]
        for name, folders in places.items()
    }
    return {name: runs for name, runs in found.items() if runs}


def who(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Runs as a record has them: policy → `seed` and `by` of each, without its rows."""
    return {name: [{key: run[key] for key in ("seed", "by")} for run in runs] for name, runs in rows.items()}


def answered(folder: Path, asked: int, updates: int, way: str = GREEDY) -> dict[str, Any]:
    """`rows` of the held-out questions that a policy answered, and what asked it: `evaluate`, or where a machine was gone before, the last
    evaluation of its training, which asks the same greedily, `id` and `correct` alone. Empty where neither is whole.

    Args:
        asked: how many they are; updates: of the training.
        way: of `TEMPERATURES`.
    """
    if (kept := folder / f"{way}.json").is_file():
        rows = json.loads(kept.read_text())
        return {"by": "evaluate", "rows": rows} if len(rows) == asked else {}
    if way != GREEDY:
        return {}
    last = lines(own)[-1:] if (own := folder / "eval.jsonl").is_file() else []
    right = last[0]["by_task"] if last and last[0]["update"] == updates - 1 else {}
    rows = [{"id": id, "correct": float(right[id])} for id in sorted(right)]
    return {"by": "the training's last evaluation", "rows": rows} if len(rows) == asked else {}


def figures(
    rows: Mapping[str, Sequence[Mapping[str, Any]]], greedy: Sequence[Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """Success of the warm start and after training, paired difference, and what each does; of what there is.

    Args:
        rows: policy → its runs. greedy: where these are sampled, the warm start's runs that answered greedily.

    Raises:
        ValueError: the runs answer other questions.
    """
    if not rows:
        return {}
    found: dict[str, Any] = {}
    whole = table([run["rows"] for runs in (*rows.values(), greedy or ()) for run in runs], "correct")
    *each, surest = np.split(whole, np.cumsum([len(runs) for runs in rows.values()]))
    tables = dict(zip(rows, each, strict=True))
    for name, mine in tables.items():
        flat = [one for run in rows[name] for one in run["rows"]]
        found[name] = {
            "questions": mine.shape[1],
            "success": interval(mine),
            "by_seed": [round(float(value), 4) for value in mine.mean(axis=1)],
        }
        if all("calls" in one for one in flat):
            means = {key: sum(one[key] for one in flat) / len(flat) for key in ("calls", "malformed", "tokens")}
            found[name] |= {key: round(mean, 3) for key, mean in means.items()}
            found[name]["unanswered"] = round(sum(one["answer"] is None for one in flat) / len(flat), 4)
        if name != START and START in tables:
            base, control = tables[START], tables.get(CONTROLS.get(name, ""))
            found[name]["less_start"] = difference(mine, base)
            found[name]["less_start_by_seed"] = [difference(seed[None], base) for seed in mine]
            found[name]["solved_anew_by_seed"] = [int((seed > base[0]).sum()) for seed in mine]
            found[name]["lost_by_seed"] = [int((seed < base[0]).sum()) for seed in mine]
            if len(mine) >= OVER_SEEDS:
                both = two_way_interval(mine - base)
                found[name]["less_start_over_seeds"] = {key: round(value, 4) for key, value in both.items()}
            if control is not None:
                found[name]["less_control"] = difference(mine, control)
        if name != START and len(surest):
            found[name][LESS_GREEDY] = difference(mine, surest)
    return found


def both_ways(found: Mapping[str, Any], shown: Callable[[dict[str, Any]], str]) -> list[list[str]]:
    """A record with sampled answers as rows of a table, the first its head.

    Args:
        shown: an interval as text.
    """
    ways = {"sampled": found[SAMPLED]["figures"], "greedy": found["figures"]}
    head = [text for way in ways for text in (way, f"{way}, less the start", "by seed")]
    rows = [["policy", *head, "sampled, less the start's greedy answers"]]
    for name in found["figures"]:
        cells = [f"`{name}`"]
        for told in ways.values():
            one = told.get(name, {})
            seeds = ", ".join(f"{gain['value']:+.3f}" for gain in one.get("less_start_by_seed", ()))
            cells += [*(shown(one[key]) if key in one else "–" for key in ("success", "less_start")), seeds or "–"]
        surest = ways["sampled"].get(name, {}).get(LESS_GREEDY)
        rows.append([*cells, "–" if surest is None else shown(surest)])
    return rows
