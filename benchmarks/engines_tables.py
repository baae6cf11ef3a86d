"""Tables of engines_lab.json and engines_speed.json, for docs/results.md."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.record import interval

Found = Mapping[str, Any]
ENGINES = {"hf": "`hf`", "vllm": "vLLM", "trl": "TRL"}
ARMS = {
    "hf": "`hf`", "vllm": "vLLM", "hf-again": "`hf`, other seeds", "hf-ahead": "`hf`, one update ahead", "vllm-ahead": "vLLM, one update ahead",
}  # fmt: skip


def learned(found: Found) -> list[list[str]]:
    """What a policy learns through either engine: a row an arm."""
    head = "seeds | success | by seed | less `hf` | seconds an update | action tokens/s | largest gap, nats | staleness"
    rows = [["", *head.split(" | ")]]
    for name, arm in found["arms"].items():
        by_seed = ", ".join(f"{value:.2f}" for value in arm["by_seed"])
        less = interval(arm["less_hf"]) if "less_hf" in arm else ""
        cells = [ARMS[name], str(len(arm["by_seed"])), interval(arm["success"]), by_seed, less]
        cells += [f"{arm['update_seconds']['whole']:.0f}", f"{arm['action_tokens_per_s']:.0f}"]
        rows.append([*cells, f"{arm['logprob_gap']:.0e}", f"{arm['staleness']:.2f}"])
    return rows


def rollouts(found: Found) -> list[list[str]]:
    """Action tokens a second in each loop: a row a number of turns."""
    rows = [["turns", "tokens an episode", *ENGINES.values(), "`hf` over TRL", "vLLM over TRL"]]
    for row in found["rollouts"]:
        rates = {name: row["action_tokens"] / statistics.median(row["seconds"][name]) for name in ENGINES}
        over = [f"{rates[name] / rates['trl']:.1f}" for name in ("hf", "vllm")]
        rows.append([str(row["turns"]), str(row["episode_tokens"]), *(f"{rate:.0f}" for rate in rates.values()), *over])
    return rows


PARTS: dict[str, tuple[str, Callable[[Found], list[list[str]]]]] = {
    "engines_learned": ("engines_lab", learned),
    "engines_rollouts": ("engines_speed", rollouts),
}
"""Table → (the record it is of, what makes its rows)."""
