"""The README's tables of the agent side and of the feedback modes, from benchmarks/results/*.json: what stands there is what was measured.

python -m benchmarks.tables
"""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.acceptance import interval, load

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
        lines.append([arm, str(row["seeds"]), *_attempts(row, hops), f"{tokens:,.0f} k", f"{minutes:.1f}"])
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


def main() -> None:
    found = load("rl_lab")
    if found is None:
        raise SystemExit("no benchmarks/results/rl_lab.json: run python -m benchmarks.studies.rl_lab first")
    for environment, ending in (("search", ""), ("calculator", "-calculator")):
        arms = {k: v for k, v in found["arms"].items() if k.endswith("-calculator") == bool(ending)}
        print(markdown(f"{environment} lab", {**found["baselines"].get(environment, {}), **arms}), end="\n\n")
    feedback = load("feedback_modes")
    if feedback is not None:
        print(feedback_tables(feedback))


if __name__ == "__main__":
    main()
