"""All tables of docs/results.md, from benchmarks/results/*.json: what stands there is what was measured.

    python -m benchmarks.tables            (writes docs/results.md)
    python -m benchmarks.tables --check    (exit code 1 where it is out of date)

The page's prose is written by hand; between `<!-- table: NAME -->` and `<!-- end -->` stands what `TABLES[NAME]` makes.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.default_judge.scorers import SAME
from benchmarks.engines_tables import PARTS
from benchmarks.record import ROOT, interval, load
from benchmarks.studies import tables as of_studies
from rrm.evaluation.bootstrap import MIN_ROWS

PAGE = ROOT / "docs" / "results.md"
_BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
SAID = {
    "ppo": "PPO",
    "grpo": "GRPO",
    "rloo": "RLOO",
    "reinforce++": "REINFORCE++",
    "ppo-no-advantage-mask": "PPO, no advantage mask",
    "ppo-no-masks": "PPO, neither mask",
    "grpo-no-masks": "GRPO, no action mask",
    "ppo-no-process": "PPO, no process rewards",
    "grpo-no-process": "GRPO, no process rewards",
    "ppo-calculator": "PPO",
    "grpo-calculator": "GRPO",
    "direct": "answer at once (direct)",
    "naive_rag": "naive RAG",
    "tool_call": "base policy (tool calls, before RL)",
}


def markdown(title: str, rows: dict[str, Any]) -> str:
    """A table: success with its interval, success by hops, malformed calls an episode, seeds."""
    hops = list(next(iter(rows.values()))["success_by_hops"])
    head = [title, "held-out success", *(f"{h} hop{'s' * (h != '1')}" for h in hops), "malformed", "seeds"]
    lines = [head]
    for name, row in rows.items():
        by_hops = [f"{row['success_by_hops'][h]['value']:.2f}" for h in hops]
        cells = [SAID.get(name, name), interval(row["success"]), *by_hops, f"{row['malformed']:.2f}"]
        lines.append([*cells, str(row.get("seeds", "–"))])
    return _table(lines)


def feedback_tables(found: dict[str, Any]) -> str:
    """Every arm's first and second attempts and costs; then the paired differences, and what kind of second attempt helps."""
    hops = list(next(iter(found["arms"].values()))["first"]["by_hops"])
    head = ["mode", "seeds", "first attempt", "second, after a critique", *hops, "judge tokens", "minutes"]
    base = found["frozen"]["c"]
    lines = [head, ["before training", "–", *_attempts(base, hops), "–", "–"]]
    for arm, row in found["arms"].items():
        tokens = row["judge"]["judge_tokens"] / row["seeds"] / 1000
        minutes = statistics.median(row["seconds"]) / 60
        lines.append(
            [arm, str(row["seeds"]), *_attempts(row, hops), f"{tokens:,.0f} k" if tokens else "–", f"{minutes:.1f}"]
        )
    differences = [
        [
            "difference, same seeds and questions",
            "first attempt",
            "second, after a critique",
            "second, as trained",
            "seeds",
        ]
    ]
    for name, pair in found["differences"].items():
        second = [interval(pair[stage]) if pair[stage] else "–" for stage in ("refined", "own")]
        said = [interval(pair["first"]), *second, str(pair["first"]["seeds"])]
        differences.append([name.replace(" - ", " − "), *said])
    head = [
        "second attempt after",
        "own critique",
        "another task's",
        "none",
        "own − another's",
        "another's − none",
        "seeds",
    ]
    kinds = [head, ["before training", *(interval(found["frozen"][k]["refined"]["success"]) for k in ("c", "placebo", "retry")), "–", "–", "–"]]  # fmt: skip
    for arm, row in found["arms"].items():
        second = row.get("second_attempts")
        if second:
            cells = [interval(second[k]) for k in ("c", "placebo", "retry", "c - placebo", "placebo - retry")]
            kinds.append([arm, *cells, str(second["seeds"])])
    return "\n\n".join(_table(rows) for rows in (lines, differences, kinds))


def _attempts(row: dict[str, Any], hops: list[str]) -> list[str]:
    """First and second attempts, and first ones by hops."""
    by_hops = [f"{row['first']['by_hops'][h]['value']:.2f}" for h in hops]
    return [interval(row["first"]["success"]), interval(row["refined"]["success"]), *by_hops]


def _table(rows: list[list[str]]) -> str:
    """Markdown; the first row is the head."""
    head, *others = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *others])


def needed(name: str) -> dict[str, Any]:
    """A results file that a table cannot do without.

    Raises:
        SystemExit: it was never made; names the file.
    """
    found = load(name)
    if found is None:
        raise SystemExit(f"no benchmarks/results/{name}.json, which docs/results.md has a table of")
    return found


# ---- the judge ----


def default_judge() -> str:
    """The default judge in `score` mode beside what it must beat."""
    score = needed("judge_mint")["parts"]["score"]["all"]
    of = score["metrics"]
    arms = ("judge", "tfidf", "agent", "length")
    rows = [["`score` mode", "judge", "TF-IDF", "agent identity", "length"]]
    for key, said in (
        ("pair_accuracy_same_turns", "same question and turns, pairs"),
        ("pair_accuracy_same_question", "same question, pairs"),
        ("auroc", "AUROC"),
        ("best_of_n_gain", "best-of-n gain"),
        ("ece", "ECE"),
    ):
        rows.append([said, *(interval(of[arm][key]) if key in of[arm] else "–" for arm in arms)])
    paired = [interval(score["differences"][arm]["pair_accuracy_same_turns"]) for arm in arms[1:]]
    rows.append(["judge − baseline, paired (first row)", "", *paired])
    return _table(rows)


def default_judge_modes() -> str:
    """The two modes of the same judge."""
    parts = needed("judge_mint")["parts"]
    modes = {"score": parts["score"]["all"], "full": parts["critiques"]}
    rows = [["mode", "rows, questions", "pairs, same turns", "pairs, same question", "AUROC", "ECE"]]
    for mode, found in modes.items():
        of = found["metrics"]["judge"]
        shown = [interval(of[k]) for k in ("pair_accuracy_same_turns", "pair_accuracy_same_question", "auroc", "ece")]
        for place, key in enumerate(("pair_accuracy_same_turns", "pair_accuracy_same_question")):
            pairs = found["pairs"][key]
            if pairs < MIN_ROWS:  # as `rrm eval` has it; older files hold an interval of any number
                shown[place] = f"{of[key]['value']:.3f} [too few]"
            shown[place] += f" of {pairs}"
        rows.append([f"`{mode}`", f"{found['rows']}, {found['questions']}", *shown])
    return _table(rows)


def default_judge_elsewhere() -> str:
    """Sources the judge was never trained on."""
    rows = [["source, never trained on", "rows", "AUROC"]]
    for name, found in needed("judge_mint")["parts"]["sources"].items():
        rows.append([name, str(found["rows"]), interval(found["metrics"]["judge"]["auroc"])])
    return _table(rows)


def steps_outcomes() -> str:
    """Mode `steps`, outcomes: each source beside TF-IDF on the same rows and on the whole mixture."""
    found = needed("default_judge")["modes"]["steps"]
    scorers = {
        "judge": "judge",
        SAME: "TF-IDF, same rows",
        "tfidf_all": "TF-IDF, whole mixture",
        "length": "length",
    }
    said = list(scorers.values())[1:]
    rows = [["source", "rows", "AUROC", *said, "pairs", "pair accuracy", *said]]
    for name, report in found["sources"].items():
        of, key = report["metrics"], "pair_accuracy_same_turns"
        if not report["scored_labelled"] or name == "mint_critic":
            continue
        drawn = report.get("in_pairs")
        pairs, in_pairs = (drawn["pairs"], drawn["metrics"]) if drawn else (report["pairs"][key], of)
        accuracy = [interval(in_pairs[s][key]) if pairs >= MIN_ROWS and s in in_pairs else "–" for s in scorers]
        auroc = [interval(of[s]["auroc"]) if s in of else "–" for s in scorers]
        rows.append([name, str(report["scored_labelled"]), *auroc, str(pairs), *accuracy])
    empty = [""] * len(scorers)
    for key, name in (("pooled", "sources with ≥ 200 pairs in the whole test part"), ("pooled_mint", "MINT's tasks")):
        of = found[key]["metrics"]
        cells = [interval(of[s]["pair_accuracy_same_turns"]) if s in of else "–" for s in scorers]
        rows.append([f"{name}, mean", "", *empty, "", *cells])
    of = found["unseen"]["metrics"]
    cells = [interval(of[s]["auroc"]) if s in of else "–" for s in scorers]
    rows.append(["never trained on, mean", "", *cells, "", *empty])
    return _table(rows)


def steps_verdicts() -> str:
    """Mode `steps`, p_good: AUROC and MCC by source."""
    found = needed("default_judge")["modes"]["steps"]["sources"]
    names = {
        "judge": "judge",
        SAME: "TF-IDF, same rows",
        "tfidf_all": "TF-IDF, whole mixture",
        "position": "position",
        "rules": "rules",
    }
    rows = [["source", "steps", *(f"AUROC, {said}" for said in names.values()), "MCC, judge"]]
    for name, report in found.items():
        of = (report.get("step_scores") or {}).get("metrics")
        if of is None or report["step_scores"]["steps"] < MIN_ROWS:
            continue
        cells = [interval(of[s]["auroc"]) if s in of else "–" for s in names]
        rows.append([name, str(report["step_scores"]["steps"]), *cells, interval(of["judge"]["mcc"])])
    return _table(rows)


def critiques() -> str:
    """Where the default judge points, beside what needs no judge."""
    steps = needed("judge_mint")["parts"]["critiques"]["steps"]
    rows = [["findings against GPT-4's step labels", "MCC", "macro-F1"]]
    for name, said in (
        ("judge", "the judge"),
        ("all_bad", "every step bad"),
        ("position_only", "position alone"),
        ("shuffled", "findings of another transcript"),
    ):
        rows.append([said, interval(steps["metrics"][name]["mcc"]), interval(steps["metrics"][name]["macro_f1"])])
    return _table(rows)


def judge_speed() -> str:
    """Transcripts a second, and what they are times the plain loop's."""
    found = needed("judge_speed")
    rate, ratio = found["transcripts_per_s"], found["ratios"]
    rows = [["mode", "seconds a transcript", "times a plain loop"]]
    rows += [[f"`{m}`", f"{1 / rate[m]:.2f}", f"{ratio[f'{m}_over_plain']:.2f}"] for m in ("full", "score")]
    return _table(rows)


STAGES = {
    "sft": "SFT*",
    "rl": "+ RL*",
    "calibration": "+ calibration",
    "shipped": "five rounds (shipped)",
}


def lab_stages() -> str:
    """What each training stage brings to the lab judge."""
    rows = [
        [
            "stage",
            "well-formed",
            "planted step, false alarms",
            "held out",
            "agent",
            "trained agents",
            "AUROC, Brier, ECE",
            "process MSE",
        ]
    ]
    for stage, said in STAGES.items():
        found = needed("lab_stages")["stages"][stage]
        planted = [
            f"{p['named_step']:.0%}, {p['false_alarms']:.0%}" if (p := found.get(part, {}).get("full", {}).get("planted")) else "–"
            for part in ("fresh", "heldout_kinds", "agent", "trained_agents")
        ]  # fmt: skip
        full = found["fresh"]["full"]
        of = full["metrics"]["judge"]
        numbers = ", ".join(f"{of[k]['value']:.3f}" for k in ("auroc", "brier", "ece"))
        rows.append([said, f"{full['format_validity']:.0%}", *planted, numbers, f"{full['process']['mse']:.3f}"])
    return _table(rows)


def needle() -> str:
    """The one line that decides, by who reads: windows of 1,024 and 8,192, found and alarms."""
    rows = [["judge", "window", "log", "found", "alarms", "tokens read a token", "readings"]]
    for name, said in (("needle", "scripted"), ("needle_lab", "trained on logs up to 3,000 tokens")):
        for row in needed(name)["rows"]:
            cells = [f"{row['window']:,}", f"{row['tokens']:,}", *(f"{row[key]:.3f}" for key in ("found", "alarms"))]
            rows.append([said, *cells, f"{row['read_per_token']:.2f}", f"{row['readings']:.1f}"])
    return _table(rows)


def lab_steps() -> str:
    """The lab judge in one prefill: first planted faults, and the same of position and rules."""
    rows = [
        ["arm", "runs", "scorer", "first fault named", "false alarms", "lowest p_good names it", "AUROC over steps"]
    ]
    for arm, found in needed("lab_steps")["arms"].items():
        for part, said in (("fresh", "fresh"), ("heldout_kinds", "held out")):
            report = found["parts"][part]
            for scorer in ("judge", "position", "rules"):
                of = report["alarms"]["metrics"][scorer]
                cells = [interval(of[key]) for key in ("first_error", "false_alarms")]
                lowest = interval(report["lowest"]["metrics"][scorer]["lowest"])
                rows.append([arm, f"{report['runs']} {said}", scorer, *cells, lowest, interval(of["auroc"])])
    return _table(rows)


# ---- the agents ----


def rl(environment: str) -> str:
    """One lab's arms of the study of algorithms."""
    found, ending = needed("rl_lab"), "-calculator" if environment == "calculator" else ""
    arms = {k: v for k, v in found["arms"].items() if k.endswith("-calculator") == bool(ending)}
    return markdown(f"{environment} lab", {**found["baselines"].get(environment, {}), **arms})


def rl_mended() -> str:
    """Every arm before and after `credit: turn` and the other faults of training were mended."""
    now, before = needed("rl_lab")["arms"], needed("rl_lab_before")["arms"]
    rows = [["arm", "before (9fb068e)", "seeds", "now", "seeds", "commit"]]
    for arm, row in now.items():
        if row != before[arm]:
            rows.append([SAID[arm] + (", calculator" if arm.endswith("-calculator") else ""),
                         interval(before[arm]["success"]), str(before[arm]["seeds"]),
                         interval(row["success"]), str(row["seeds"]), row["commit"]])  # fmt: skip
    return _table(rows)


def self_labels() -> str:
    """The weak judge retrained on labels made in four ways."""
    found = needed("self_labels")["arms"]
    said = {"start": "none: the weak judge", "rules": "`rules`", "self": "`self`", "both": "`self`, else `rules`"}
    keys = ("auroc", "verdicts", "named_first", "false_alarms", "score_mse")
    rows = [["labels", "AUROC", "step verdicts, macro-F1", "first wrong step named", "false alarms", "process MSE"]]
    for name, arm in found.items():
        rows.append([said.get(name, "replayed in the world"), *(_ranged(arm[key]) for key in keys)])
    return _table(rows)


def _ranged(value: dict[str, float]) -> str:
    """`0.54 (0.47–0.61)`, without the range where it vanishes."""
    mean, low, high = (f"{value[k]:.2f}" for k in ("mean", "low", "high"))
    return mean if low == high else f"{mean} ({low}–{high})"


def no_answer_key(rows: Callable[[dict[str, Any]], list[list[str]]]) -> str:
    """A table of the study without an answer key; a line in its place before it was made."""
    found = load("no_answer_key")
    if found is None:
        return "Not measured yet: `python -m benchmarks.studies.no_answer_key`."
    return _table(rows(found))


def smollm2_qa() -> str:
    """SmolLM2 on held-out multi-hop questions, by policy."""
    told = needed("smollm2_qa")["figures"]["held_out"]
    sources = sorted(next(iter(told.values()))["by_source"])
    head = ["policy", "F1", "exact match", "F1 less `tool_call`", "F1 over `naive_rag`"]
    rows = [[*head, *(f"F1, {source}" for source in sources), "searches", "tokens", "runs"]]
    for name, one in told.items():
        beside = [interval(one[key]) if key in one else "–" for key in ("f1_less_start", "f1_over_rival")]
        counts = [f"{one['searches']:.2f}", f"{one['tokens']:.0f}", str(one["seeds"])]
        apart = [f"{one['by_source'][source]['f1']:.3f}" for source in sources]
        rows.append([f"`{name}`", interval(one["f1"]), interval(one["em"]), *beside, *apart, *counts])
    return _table(rows)


def agent_table() -> str:
    """Tasks × methods: exact match, F1, what the judge says, and what a question costs the policy."""
    rows = [["task", "method", "exact match", "F1", "judge's mean score", "judge's AUROC", "policy tokens a question"]]
    for one in needed("agent_table")["rows"]:
        name = [one["task"], f"`{one['label']}`"]
        if (figures := one.get("figures")) is None:  # the cell failed
            rows.append([*name, one["failure"]["kind"], "–", "–", "–", "–"])
            continue
        judge = figures.get("judge") or {}
        judged = ["–" if judge.get(key, {}).get("value") is None else interval(judge[key]) for key in ("mean", "auroc")]
        told = [interval(figures["exact_match"]), interval(figures["f1"]), *judged]
        rows.append([*name, *told, f"{figures['policy_tokens']:.0f}"])
    return _table(rows)


TABLES: dict[str, Callable[[], str]] = {
    "default_judge": default_judge,
    "default_judge_modes": default_judge_modes,
    "default_judge_elsewhere": default_judge_elsewhere,
    "steps_outcomes": steps_outcomes,
    "steps_verdicts": steps_verdicts,
    "critiques": critiques,
    "judge_speed": judge_speed,
    "lab_stages": lab_stages,
    "lab_steps": lab_steps,
    "needle": needle,
    "rl_search": lambda: rl("search"),
    "rl_calculator": lambda: rl("calculator"),
    "rl_mended": rl_mended,
    "feedback": lambda: feedback_tables(needed("feedback_modes")),
    "self_labels": self_labels,
    "smollm2_qa": smollm2_qa,
    "smollm2_gsm8k_few": lambda: _table(of_studies.sampled_and_greedy(needed("smollm2_gsm8k_few"))),
    "agent_table": agent_table,
    **{name: partial(lambda of, rows: _table(rows(needed(of))), of, rows) for name, (of, rows) in PARTS.items()},
    **{
        f"no_answer_key_{rows.__name__}": partial(no_answer_key, rows)
        for rows in (
            of_studies.arms,
            of_studies.comparisons,
            of_studies.choosing,
            of_studies.gamed,
        )
    },
}


def filled(page: str) -> str:
    """The page with every table made anew.

    Raises:
        SystemExit: the page names a table there is not.
    """

    def made(match: re.Match[str]) -> str:
        if match[2] not in TABLES:
            raise SystemExit(f"{PAGE.name} names a table {match[2]!r}; there are {', '.join(TABLES)}")
        return f"{match[1]}{TABLES[match[2]]()}\n{match[3]}"

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
