"""Metrics of episodes: reward, success, turns, lengths, tool errors, endings."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from reagent.algorithms.groups import differs
from reagent.rollout.episode import Episode, Turn

COUNTED = ("tool_calls", "denied", "invented_results", "malformed")


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


def episode_metrics(episodes: Sequence[Episode], prefix: str = "episode") -> dict[str, float]:
    """Means over episodes, `<prefix>/…`; rewards and success over those where they are known.

    `tokens` are all of an episode's, `longest_tokens` those of the longest one. `ungraded`: share of episodes without a grader;
    `unknown`: with a failed environment, or no room to begin; `unknown_long_answers`: the same where the last turn is longer
    than the median; `failed_grades`: whose answer kept it from being graded; `denied`: pages kept from the agent;
    `invented_results`: turns that made up results; `malformed_share`: of calls, a turn without any and a cut one counted as one;
    `malformed_turns`: of turns. `zero_variance_groups`: share of groups whose known rewards are all equal."""
    rewarded = [e for e in episodes if e.reward is not None]
    groups: dict[str, list[float]] = defaultdict(list)
    for e in rewarded:
        groups[e.group_id].append(float(e.reward or 0.0))
    turns = [turn for e in episodes for turn in e.turns]
    lengths = [
        float(len(e.prompt_ids) + sum(len(t.output_ids) + len(t.observation_ids) for t in e.turns)) for e in episodes
    ]
    means = {
        "reward": mean([float(e.reward or 0.0) for e in rewarded]),
        "process_reward": mean([sum(turn.reward for turn in e.turns) for e in rewarded]),
        "success": mean([float(e.success) for e in episodes if e.success is not None]),
        "turns": mean([float(len(e.turns)) for e in episodes]),
        "action_tokens": mean([float(sum(len(t.output_ids) for t in e.turns)) for e in episodes]),
        "tokens": mean(lengths),
        "longest_tokens": max(lengths, default=float("nan")),
        "turn_tokens": mean([float(len(t.output_ids)) for t in turns]),
        **{key: mean([float(sum(t.info.get(key, 0) for t in e.turns)) for e in episodes]) for key in COUNTED},
        "tool_errors": mean([float(sum(len(t.info.get("tool_errors", ())) for t in e.turns)) for e in episodes]),
        "malformed_share": mean([float(v == "malformed") for t in turns for v in _verdicts(t)]),
        "malformed_turns": mean([float("malformed" in _verdicts(t)) for t in turns]),
        "ungraded": mean([float(e.ungraded) for e in episodes]),
        "unknown": mean([float(e.reward is None and not e.ungraded) for e in episodes]),
        "unknown_long_answers": mean([float(e.reward is None and not e.ungraded) for e in _long(episodes)]),
        "failed_grades": mean([float(e.grade_failed) for e in episodes]),
        "cut_turns": mean([float(t.stop_reason == "length") for t in turns]),
        "zero_variance_groups": mean([float(not differs(max(values), min(values))) for values in groups.values()]),
    }
    for status in ("turn_limit", "token_limit", "halted", "env_error"):
        means[status] = mean([float(e.status == status) for e in episodes])
    by_hops: dict[str, list[float]] = defaultdict(list)
    for e in episodes:
        if "hops" in e.task.meta and e.success is not None:
            by_hops[f"success_hops_{e.task.meta['hops']}"].append(float(e.success))
    return {f"{prefix}/{k}": v for k, v in {**means, **{k: mean(v) for k, v in sorted(by_hops.items())}}.items()}


def _long(episodes: Sequence[Episode]) -> list[Episode]:
    ended = [(len(e.turns[-1].output_ids), e) for e in episodes if e.turns]
    middle = median([length for length, _ in ended]) if ended else 0
    return [e for length, e in ended if length > middle]


def _verdicts(turn: Turn) -> list[str]:
    verdicts = turn.info.get("verdicts")
    if isinstance(verdicts, list):
        return [str(v) for v in verdicts]
    bad, calls = turn.info.get("malformed", 0), turn.info.get("tool_calls", 0)
    return ["malformed"] * bad + ["called"] * max(calls - bad, 0)


def learned_metrics(rows: Sequence[tuple[str, float | None, Sequence[float]]]) -> dict[str, float]:
    """Metrics `learned/…` of an update's rows: (group, reward with feedback or None, turn rewards).

    `rows` that are known, their mean `reward`, `best`, `spread` (largest less smallest), `flat_groups`, the share of groups of
    two and more whose rewards are equal, and `flat_turns`, whose turns' are too."""
    groups: dict[str, list[float]] = defaultdict(list)
    earned: dict[str, list[Sequence[float]]] = defaultdict(list)
    for group, reward, turns in rows:
        if reward is not None:
            groups[group].append(reward)
            earned[group].append(turns)
    rewards = [reward for values in groups.values() for reward in values]
    compared = [
        differs(max(values), min(values), max(1.0, *map(abs, values))) for values in groups.values() if len(values) > 1
    ]
    return {
        "learned/rows": float(len(rewards)),
        "learned/reward": mean(rewards),
        "learned/best": max(rewards, default=float("nan")),
        "learned/spread": max(rewards) - min(rewards) if rewards else float("nan"),
        "learned/flat_groups": mean([float(not differing) for differing in compared]),
        "learned/flat_turns": mean([float(_alike(values)) for values in earned.values() if len(values) > 1]),
    }


def _alike(rows: Sequence[Sequence[float]]) -> bool:
    first = rows[0]
    return all(
        len(row) == len(first) and not any(differs(a, b) for a, b in zip(row, first, strict=True)) for row in rows
    )


def pass_at_k(successes: Sequence[int], samples: int, k: int) -> float:
    """Unbiased pass@k, mean over tasks: 1 − C(n − c, k) / C(n, k), c of n right (Codex, 2107.03374 eq. 1)."""
    from math import comb

    return mean([1.0 - comb(samples - c, k) / comb(samples, k) for c in successes])
