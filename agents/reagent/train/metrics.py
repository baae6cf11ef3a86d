"""What is logged of episodes: reward, success, turns, lengths, tool errors, and how many ended how."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from reagent.rollout.episode import Episode


def mean(values: Sequence[float]) -> float:
    """The mean, or NaN of nothing."""
    return sum(values) / len(values) if values else float("nan")


def episode_metrics(episodes: Sequence[Episode], prefix: str = "episode") -> dict[str, float]:
    """Means over episodes; rewards and success over those where they are known. Keys are `<prefix>/…`.

    `zero_variance_groups` is the share of groups whose known rewards are all equal: they teach a group method nothing.
    """
    known = [e for e in episodes if e.reward is not None]
    groups: dict[str, set[float]] = defaultdict(set)
    for e in known:
        groups[e.group_id].add(round(float(e.reward or 0.0), 9))
    turns = [turn for e in episodes for turn in e.turns]
    found = {
        "reward": mean([float(e.reward or 0.0) for e in known]),
        "process_reward": mean([sum(turn.reward for turn in e.turns) for e in known]),
        "success": mean([float(e.success) for e in episodes if e.success is not None]),
        "turns": mean([float(len(e.turns)) for e in episodes]),
        "action_tokens": mean([float(sum(len(t.output_ids) for t in e.turns)) for e in episodes]),
        "turn_tokens": mean([float(len(t.output_ids)) for t in turns]),
        "tool_calls": mean([float(sum(t.info.get("tool_calls", 0) for t in e.turns)) for e in episodes]),
        "tool_errors": mean([float(sum(len(t.info.get("tool_errors", ())) for t in e.turns)) for e in episodes]),
        "malformed": mean([float(sum(t.info.get("malformed", 0) for t in e.turns)) for e in episodes]),
        "cut_turns": mean([float(t.stop_reason == "length") for t in turns]),
        "zero_variance_groups": mean([float(len(values) == 1) for values in groups.values()]),
    }
    for status in ("turn_limit", "token_limit", "env_error"):
        found[status] = mean([float(e.status == status) for e in episodes])
    by_hops: dict[str, list[float]] = defaultdict(list)
    for e in episodes:
        if "hops" in e.task.meta and e.success is not None:
            by_hops[f"success_hops_{e.task.meta['hops']}"].append(float(e.success))
    return {f"{prefix}/{k}": v for k, v in {**found, **{k: mean(v) for k, v in sorted(by_hops.items())}}.items()}


def pass_at_k(successes: Sequence[int], samples: int, k: int) -> float:
    """Unbiased pass@k, mean over tasks: 1 − C(n − c, k) / C(n, k) with c of n samples right (Codex, 2107.03374 eq. 1)."""
    from math import comb

    return mean([1.0 - comb(samples - c, k) / comb(samples, k) for c in successes])
