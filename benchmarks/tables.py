"""All tables of docs/results.md, from benchmarks/results/*.json: what stands there is what was measured.

    python -m benchmarks.tables            (writes docs/results.md)
    python -m benchmarks.tables --check    (exit code 1 where it is out of date)

The page's prose is written by hand; between `<!-- table: NAME -->` and `<!-- end -->` stands what `TABLES[NAME]` makes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from benchmarks.engines_tables import PARTS
from benchmarks.record import ROOT, interval, load
from benchmarks.studies import tables as of_studies
from rrm.evaluation.bootstrap import MIN_ROWS

PAGE = ROOT / "docs" / "results.md"
_BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
# fmt: off
LABELS = {
    "ppo": "PPO", "grpo": "GRPO", "rloo": "RLOO", "reinforce++": "REINFORCE++", "ppo-no-advantage-mask": "PPO, no advantage mask",
    "ppo-no-masks": "PPO, neither mask", "grpo-no-masks": "GRPO, no action mask", "ppo-no-process": "PPO, no process rewards",
    "grpo-no-process": "GRPO, no process rewards", "direct": "answer at once (direct)",
    "naive_rag": "naive RAG", "tool_call": "base policy (tool calls, before RL)",
    "sft": "SFT*", "rl": "+ RL*", "calibration": "+ calibration", "shipped": "five rounds (shipped)",
    "judge": "judge", "tfidf_same": "TF-IDF, same rows", "tfidf_all": "TF-IDF, whole mixture",
}
# fmt: on
"""What a record calls an arm, a stage or a scorer → what the page does."""
# fmt: off
FEEDBACK_ARMS = ("none", "c", "r", "u", "process", "retry", "placebo")
FEEDBACK_DIFFERENCES = ("u - none", "u - r", "u - c", "r - none", "c - none", "c - placebo", "placebo - retry")
SHOWN: dict[str, dict[str, Any]] = {
    "steps_outcomes": {"columns": (0, 1, 2, 3, 4, 5), "rows": ("fireact", "intercode/sql", "mint", "home", "never trained on, mean")},
    "steps_verdicts": {"columns": (0, 1, 2, 3, 5, 7), "rows": ("intercode/bash", "intercode/sql", "mint_critic", "home")},
    "rl_search": {"rows": (
        "base policy (tool calls, before RL)", "PPO", "GRPO", "RLOO", "REINFORCE++", "PPO, no advantage mask", "PPO, neither mask", "GRPO, no action mask")},
    "smollm2_gsm8k_few": {"columns": (0, 1, 2, 4, 5, 7)},
    "smollm2_qa": {"columns": (0, 1, 2, 3, 7, 9), "rows": ("`naive_rag`", "`tool_call`", "`grpo`", "`filled`", "`judge`", "`ppo`")},
    "no_answer_key_arms": {"columns": (1, 2, 3, 5, 9), "named": 1, "rows": tuple(f"`{arm}`" for arm in (
        "outcome", "judge", "nothing", "tenth+judge", "tenth", "weak", "placebo", "outcome+judge", "gamed", "noisy",
        "noisy+judge", "noisy+overruled", "rows-10000", "unified"))},
    "no_answer_key_comparisons": {"rows": (
        "judge / outcome", "judge / outcome, the other algorithms together", "judge − nothing", "judge − weak",
        "judge − placebo", "tenth+judge − tenth", "outcome+judge − outcome", "noisy+judge − noisy", "noisy+overruled − noisy")},
    "no_answer_key_choosing": {"rows": ("4", "8"), "columns": (0, 1, 2, 3, 7, 8)},
    "engines_learned": {"columns": (0, 1, 2, 4, 5, 7)},
}
# fmt: on
"""Table → the rows and columns that the page shows, where it does not show all."""


def needed(name: str) -> dict[str, Any]:
    """A results file that a table cannot do without.

    Raises:
        SystemExit: it was never made; names the file.
    """
    found = load(name)
    if found is None:
        raise SystemExit(f"no benchmarks/results/{name}.json, which docs/results.md has a table of")
    return found


def _table(rows: list[list[str]]) -> str:
    """Markdown; the first row is the head."""
    head, *others = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *others])


def part(table: str, rows: tuple[str, ...] = (), columns: tuple[int, ...] = (), named: int = 0) -> str:
    """A table's part that the page shows: rows by the cell `named`, columns by number; all where none are told.

    Raises:
        SystemExit: a row is told that the table has not.
    """
    head, rule, *others = ([*line[2:-2].split(" | ")] for line in table.splitlines())
    if missing := {*rows} - {row[named] for row in others}:
        raise SystemExit(f"no rows {', '.join(sorted(missing))} in the table {' | '.join(head)}")
    kept = [head, rule, *(row for row in others if not rows or row[named] in rows)]
    return "\n".join(f"| {' | '.join(row[n] for n in columns or range(len(row)))} |" for row in kept)


def _head(text: str, *more: str) -> list[str]:
    """Cells of a head, written as one text."""
    return [*text.split(" | "), *more]


def _cells(scorers: Mapping[str, Any], names: tuple[str, ...], key: str) -> list[str]:
    """One figure of each scorer; a dash where it has none."""
    return [interval(scorers[name][key]) if key in scorers.get(name, {}) else "–" for name in names]


# ---- the judges ----


def steps_outcomes() -> str:
    """Mode `steps`, outcomes: each source beside TF-IDF on the same rows and on the whole mixture."""
    found, key = needed("default_judge")["modes"]["steps"], "pair_accuracy_same_turns"
    scorers = ("judge", "tfidf_same", "tfidf_all", "length")
    rivals = [LABELS.get(name, name) for name in scorers[1:]]
    rows = [_head("source | rows | AUROC", *rivals, "pairs", "pair accuracy", *rivals)]
    for name, report in found["sources"].items():
        if not report["scored_labelled"] or name == "mint_critic":
            continue
        drawn = report.get("in_pairs")
        pairs, in_pairs = (drawn["pairs"], drawn["metrics"]) if drawn else (report["pairs"][key], report["metrics"])
        accuracy = _cells(in_pairs if pairs >= MIN_ROWS else {}, scorers, key)
        auroc = _cells(report["metrics"], scorers, "auroc")
        rows.append([name, str(report["scored_labelled"]), *auroc, str(pairs), *accuracy])
    empty = [""] * len(scorers)
    for part, name in (("pooled", "sources with ≥ 200 pairs in the whole test part"), ("pooled_mint", "MINT's tasks")):
        rows.append([f"{name}, mean", "", *empty, "", *_cells(found[part]["metrics"], scorers, key)])
    rows.append(["never trained on, mean", "", *_cells(found["unseen"]["metrics"], scorers, "auroc"), "", *empty])
    return _table(rows)


def steps_verdicts() -> str:
    """Mode `steps`, p_good: AUROC and MCC by source."""
    scorers = ("judge", "tfidf_same", "tfidf_all", "position", "rules")
    said = [f"AUROC, {name if name == 'rules' else LABELS.get(name, name)}" for name in scorers]
    rows = [_head("source | steps", *said, "MCC, judge")]
    for name, report in needed("default_judge")["modes"]["steps"]["sources"].items():
        steps = report.get("step_scores") or {"steps": 0}
        if steps["steps"] >= MIN_ROWS:
            of = steps["metrics"]
            rows.append([name, str(steps["steps"]), *_cells(of, scorers, "auroc"), interval(of["judge"]["mcc"])])
    return _table(rows)


def lab_stages() -> str:
    """What each training stage brings to the lab judge."""
    rows = [
        _head(
            "stage | well-formed | planted step, false alarms | held out | agent | trained agents | AUROC, Brier, ECE | process MSE"
        )
    ]
    for stage in ("sft", "rl", "calibration", "shipped"):
        found = needed("lab_stages")["stages"][stage]
        planted = [
            f"{p['named_step']:.0%}, {p['false_alarms']:.0%}" if (p := found.get(part, {}).get("full", {}).get("planted")) else "–"
            for part in ("fresh", "heldout_kinds", "agent", "trained_agents")
        ]  # fmt: skip
        full = found["fresh"]["full"]
        numbers = ", ".join(f"{full['metrics']['judge'][k]['value']:.3f}" for k in ("auroc", "brier", "ece"))
        rows.append(
            [LABELS[stage], f"{full['format_validity']:.0%}", *planted, numbers, f"{full['process']['mse']:.3f}"]
        )
    return _table(rows)


# ---- the agents ----


def rl_search() -> str:
    """The search lab's arms of the study of algorithms: success, by hops, malformed calls an episode."""
    found = needed("rl_lab")
    arms = {k: v for k, v in found["arms"].items() if not k.endswith("-calculator")}
    arms = {**found["baselines"].get("search", {}), **arms}
    hops = list(next(iter(arms.values()))["success_by_hops"])
    rows = [["search lab", "held-out success", *(f"{h} hop{'s' * (h != '1')}" for h in hops), "malformed", "seeds"]]
    for name, row in arms.items():
        by_hops = [f"{row['success_by_hops'][h]['value']:.2f}" for h in hops]
        cells = [LABELS[name], interval(row["success"]), *by_hops, f"{row['malformed']:.2f}"]
        rows.append([*cells, str(row.get("seeds", "–"))])
    return _table(rows)


def feedback() -> str:
    """Every arm's first and second attempts; then the paired differences."""
    found = needed("feedback_modes")
    frozen = found["frozen"]
    arms = [_head("mode | seeds | first attempt | second, after a critique")]
    differences = [_head("difference, same seeds and questions | first attempt | second, after a critique | seeds")]

    def attempts(row: dict[str, Any]) -> list[str]:
        return [interval(row[stage]["success"]) for stage in ("first", "refined")]

    arms.append(["before training", "–", *attempts(frozen["c"])])
    for arm in FEEDBACK_ARMS:
        row = found["arms"][arm]
        arms.append([arm, str(row["seeds"]), *attempts(row)])
    for name in FEEDBACK_DIFFERENCES:
        pair = found["differences"][name]
        cells = [interval(pair["first"]), interval(pair["refined"]), str(pair["first"]["seeds"])]
        differences.append([name.replace(" - ", " − "), *cells])
    return "\n\n".join(map(_table, (arms, differences)))


def no_answer_key(rows: Callable[[dict[str, Any]], list[list[str]]]) -> str:
    """A table of the study without an answer key; a line in its place before it was made."""
    found = load("no_answer_key")
    return _table(rows(found)) if found else "Not measured yet: `python -m benchmarks.studies.no_answer_key`."


def smollm2_qa() -> str:
    """SmolLM2 on held-out multi-hop questions, by policy."""
    told = needed("smollm2_qa")["figures"]["held_out"]
    sources = sorted(next(iter(told.values()))["by_source"])
    head = _head(
        "policy | F1 | exact match | F1 less `tool_call` | F1 over `naive_rag`", *(f"F1, {s}" for s in sources)
    )
    rows = [[*head, "searches", "tokens", "runs"]]
    for name, one in told.items():
        beside = [interval(one[key]) if key in one else "–" for key in ("f1_less_start", "f1_over_rival")]
        counts = [f"{one['searches']:.2f}", f"{one['tokens']:.0f}", str(one["seeds"])]
        apart = [f"{one['by_source'][source]['f1']:.3f}" for source in sources]
        rows.append([f"`{name}`", interval(one["f1"]), interval(one["em"]), *beside, *apart, *counts])
    return _table(rows)


TABLES: dict[str, Callable[[], str]] = {
    made.__name__: made
    for made in (steps_outcomes, steps_verdicts, lab_stages, rl_search, feedback, smollm2_qa)
}  # fmt: skip
TABLES["smollm2_gsm8k_few"] = lambda: _table(of_studies.sampled_and_greedy(needed("smollm2_gsm8k_few")))
TABLES |= {name: partial(lambda of, rows: _table(rows(needed(of))), of, rows) for name, (of, rows) in PARTS.items()}
TABLES |= {
    f"no_answer_key_{rows.__name__}": partial(no_answer_key, rows)
    for rows in (of_studies.arms, of_studies.comparisons, of_studies.choosing, of_studies.gamed)
}


def filled(page: str) -> str:
    """The page with every table made anew.

    Raises:
        SystemExit: the page names a table there is not.
    """

    def made(match: re.Match[str]) -> str:
        if match[2] not in TABLES:
            raise SystemExit(f"{PAGE.name} names a table {match[2]!r}; there are {', '.join(TABLES)}")
        made = TABLES[match[2]]()
        return f"{match[1]}{part(made, **SHOWN[match[2]]) if match[2] in SHOWN else made}\n{match[3]}"

    return _BLOCK.sub(made, page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where the page is out of date")
    args = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    now = filled(page)
    if not args.check:
        PAGE.write_text(now, encoding="utf-8")
    print(json.dumps({"page": str(PAGE.relative_to(ROOT)), "tables": len(TABLES), "changed": now != page}))
    sys.exit(1 if args.check and now != page else 0)


if __name__ == "__main__":
    main()
