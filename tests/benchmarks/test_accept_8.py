"""The bars of `make accept-8` miss what was not measured, and what the raw rows do not say."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import study_records

from benchmarks import accept_8, record
from benchmarks.acceptance import Bar

HERE = (record.commit() or "0123456789ab").rstrip("+")
MADE = {"command": "python -m benchmarks.x", "commit": HERE, "versions": {"torch": "2"}, "vllm": "0.32.0", "model": "m"}
SAID = {
    "hf": [[i, 2] for i in range(12)],
    "vllm": [[i, 2] for i in range(12)],
    "hf_logprobs": [[-0.5, -0.25]] * 12,
    "vllm_logprobs": [[-0.50001, -0.25]] * 12,
}
UPDATES = [{"logprob_gap": 1e-5, "grad_norm": 0.1}] * 3
AGREE = {
    **MADE,
    "greedy": SAID,
    "trained": {**SAID, "hf": [[i, 9] for i in range(12)], "vllm": [[i, 9] for i in range(12)]},
    "updates": UPDATES,
}
WHOLE = {"value": 0.7, "low": 0.6, "high": 0.8}
ARM = {"by_seed": [0.7, 0.68, 0.72], "success": WHOLE, "less_hf": {"value": 0.0, "low": -0.09, "high": 0.09}, "commits": [HERE],
       "logprob_gap": 1e-5, "staleness": 0.0, "update_seconds": {"whole": 5.0}, "action_tokens_per_s": 900.0}  # fmt: skip
LAB = {**MADE, "start": 0.25, "arms": {name: copy.deepcopy(ARM) for name in ("hf", "vllm", "hf-again")}}
LAB["arms"] |= {
    f"{name}-ahead": {**copy.deepcopy(ARM), "logprob_gap": 0.7, "staleness": 0.9} for name in ("hf", "vllm")
}
SECONDS = {"hf": [10.0], "vllm": [9.0], "trl": [30.0]}
WAITING = {"seconds": {"quick": [90.0], "slow": [100.0], "lock-step": [130.0]}}
SPEED = {**MADE, "rollouts": [{"turns": t, "action_tokens": 900, "seconds": copy.deepcopy(SECONDS)} for t in accept_8.TURNS],
         "waiting": {"hf": WAITING, "vllm": copy.deepcopy(WAITING), "tool_s": [0.1, 3.0]}}  # fmt: skip
RUN = {
    "memory": {"planned_gib": 2.1, "measured_gib": 2.0},
    "seconds": {"planned": {"rollout": 10, "update": 50}, "measured": {"rollout": 11, "update": 52}},
}
PLAN = {
    **MADE,
    "runs": {name: copy.deepcopy(RUN) for name in accept_8.PLANS},
    "qwen3": {"how": "derived", "qwen3-8b": {"update_gib": 25.0}},
}
GOOD = {"engines_agree": AGREE, "engines_lab": LAB, "engines_speed": SPEED, "plan": PLAN}
OF: dict[str, Callable[[], Iterable[Bar]]] = {
    "engines_agree": accept_8.agreement_bars, "engines_lab": accept_8.lab_bars, "engines_speed": accept_8.speed_bars, "plan": accept_8.plan_bars,
}  # fmt: skip


def missed(monkeypatch: pytest.MonkeyPatch, name: str, found: Any) -> list[str]:
    monkeypatch.setattr(accept_8, "load", {name: found}.get)
    return [bar.what for bar in OF[name]() if bar.ok is False]


def changed(found: Any, path: str, value: Any) -> Any:
    """A copy with another value at `a/b/0/c`."""
    return study_records.changed(found, tuple(int(part) if part.isdigit() else part for part in path.split("/")), value)


@pytest.mark.parametrize("name", list(GOOD))
def test_a_good_record_passes_and_none_does_not(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert missed(monkeypatch, name, GOOD[name]) == []
    assert len(missed(monkeypatch, name, None)) == 1


@pytest.mark.parametrize(
    ("name", "path", "value", "what"),
    [
        ("engines_agree", "greedy/vllm/3", [4, 4], "before training"),
        ("engines_agree", "trained/vllm_logprobs", [[-0.5, -0.27]] * 12, "the trained adapter"),
        ("engines_agree", "updates/1/logprob_gap", 0.3, "updates through vLLM"),
        ("engines_agree", "updates", UPDATES[:2], "updates through vLLM"),
        ("engines_agree", "trained/hf", SAID["hf"], "the trained adapter"),
        ("engines_agree", "commit", "0" * 12, "the record"),
        ("engines_lab", "arms/vllm/by_seed", [0.5, 0.55, 0.5], "learned through vLLM less"),
        ("engines_lab", "arms/vllm/by_seed", [0.7, 0.7], "learned through vLLM less"),
        ("engines_lab", "start", 0.65, "learned through vLLM less"),
        ("engines_lab", "arms/vllm/less_hf/low", -0.15, "learned through vLLM less"),
        ("engines_lab", "arms/vllm/logprob_gap", 0.4, "largest difference"),
        ("engines_lab", "arms/vllm/commits", ["0" * 12], "the record"),
        ("engines_speed", "rollouts/1/seconds/vllm", [16.0], "8 turns"),
        ("engines_speed", "waiting/vllm/seconds/slow", [120.0], "lost to tools"),
        ("engines_speed", "waiting/hf/seconds/lock-step", [105.0], "lost to tools"),
        ("plan", "runs", {"lora": RUN}, "--plan, whole"),
        ("plan", "runs/whole/memory/measured_gib", 1.5, "whole: memory"),
        ("plan", "runs/lora/seconds/measured/update", 80, "lora: seconds learning"),
        ("plan", "runs/lora/seconds/measured/rollout", 8, "lora: seconds at play"),
    ],
)  # fmt: skip
def test_a_bar_is_missed_by_what_misses_it(
    monkeypatch: pytest.MonkeyPatch, name: str, path: str, value: Any, what: str
) -> None:
    found = missed(monkeypatch, name, changed(GOOD[name], path, value))
    assert len(found) >= 1 and any(what in bar for bar in found)
