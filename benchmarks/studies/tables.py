"""Studies as rows of tables, the head first (`benchmarks.tables` writes them)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from benchmarks.record import interval
from benchmarks.studies.no_answer_key_arms import KNOWN
from rrm.evaluation.choosing import STRATEGIES

Found = Mapping[str, Any]
Rows = list[list[str]]


def arms(found: Found) -> Rows:
    """Every arm: success and area under its curve, labels, episodes, judge tokens, minutes."""
    head = "|arm|reward from|success at the end|area under the curve|labels|episodes|judge tokens|minutes|seeds"
    rows = [head.split("|")]
    for name, arm in found["arms"].items():
        tokens = statistics.fmean(arm["judge_tokens"]) / 1000
        episodes = statistics.fmean(run["episodes"] for run in arm["runs"])
        costs = [f"{episodes:,.0f}", f"{tokens:,.0f} k" if tokens else "–"]
        area = "–" if arm["area"] is None else interval(arm["area"])
        cells = [interval(arm["success"]), area, f"{statistics.fmean(arm['labels']):.0f}", *costs]
        minutes = f"{statistics.median(arm['minutes']):.1f}"
        rows.append([arm["part"], f"`{name}`", KNOWN[name].says, *cells, minutes, str(len(arm["runs"]))])
    return rows


def comparisons(found: Found) -> Rows:
    """Ratios, and paired differences."""
    rows = [["success at the end, same seeds and tasks", "", "seeds"]]
    for name, one in [*found["ratios"].items(), *found["differences"].items()]:
        rows.append([name.replace(" - ", " − "), interval(one), str(one["seeds"])])
    for arm, one in found["regained"].items():
        nothing, value = "nothing is seen to be lost", one["value"]
        share = nothing if value is None else f"{value:.2f} of {interval(one['lost'])}"
        rows.append([f"{arm} regains of what noise costs", share, str(one["seeds"])])
    field = found.get("field")
    for part, said in (("area", "area under the curve"), ("end", "success on 500 tasks")):
        for pair in ("unified - outcome", "outcome-again - outcome"):
            if field:
                rows.append([f"{pair.replace(' - ', ' − ')}, {said}", interval(field[part][pair]), str(field["seeds"])])
    return rows


def choosing(found: Found) -> Rows:
    """Success of what is chosen among 2, 4, 8, 16 attempts in the lab, with the tokens that are spent: the judge reads copies once."""
    rows = [["one of", *STRATEGIES, "judge − majority", "judge − longest", "policy tokens", "judge tokens"]]
    lab = found["choosing"].get("lab")
    if lab is None:
        return rows
    for n, one in lab["by_n"].items():
        shares = {"policy_tokens": int(n) / lab["attempts"], "judge_tokens": lab["read"][int(n)] / lab["read"][-1]}
        tokens = [f"{lab[key] * share / 1000:,.0f} k" for key, share in shares.items()]
        apart = [interval(one["judge_minus"][rival]) for rival in ("majority", "longest")]
        rows.append([n, *(interval(one["success"][name]) for name in STRATEGIES), *apart, *tokens])
    return rows


def gamed(found: Found) -> Rows:
    """The gamed runs: best success, the first guard, and what became of it."""
    head = "seed|best success, after update|first guard, after update|success then|fell twice, after update|at the end|score, from and to"
    rows = [head.split("|")]
    for run in found["gamed"]:
        guard = "–" if run["guard"] is None else f"{run['guard']}, {run['guard_update']}"
        then = "–" if run["success_then"] is None else f"{run['success_then']:.3f}"
        fell = "–" if run["fell_update"] is None else str(run["fell_update"])
        both = (run["score_first"], run["score_last"])
        scores = ", ".join("–" if score is None else f"{score:.2f}" for score in both)
        best = f"{run['best']:.3f}, {run['best_update']}"
        rows.append([str(run["seed"]), best, guard, then, fell, f"{run['last']:.3f}", scores])
    return rows


def sampled_and_greedy(found: Found) -> Rows:
    """A record of GSM8K whose questions were answered greedily and as attempts are sampled: a row a policy."""
    ways = {"sampled": found["sampled"]["figures"], "greedy": found["figures"]}
    head = [text for way in ways for text in (way, f"{way}, less the start", "by seed")]
    rows = [["policy", *head, "sampled, less the start's greedy answers"]]
    for name in found["figures"]:
        cells = [f"`{name}`"]
        for figures in ways.values():
            one = figures.get(name, {})
            seeds = ", ".join(f"{gain['value']:+.3f}" for gain in one.get("less_start_by_seed", ()))
            cells += [*(interval(one[key]) if key in one else "–" for key in ("success", "less_start")), seeds or "–"]
        surest = ways["sampled"].get(name, {}).get("less_greedy_start")
        rows.append([*cells, "–" if surest is None else interval(surest)])
    return rows
