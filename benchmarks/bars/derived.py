"""Figures that stand in no single place of a record: ratios, gaps, counts.

Each function is the figure of a record, or makes one from paths as `recorded.at` reads them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from benchmarks.bars.recorded import at, number

Found = Mapping[str, Any]
Figure = Callable[[Found], Any]
TYPED = frozenset({"scored", "unparsable", "truncated", "too_long"})
"""How a row may end where the server answers; `judge_error` is none of them."""
FAULTS = ("malformed", "invalid", "large", "no key", "wrong key", "hang up", "leave stream", "cut body", "drip", "slow reader", "unfinished")  # fmt: skip


def over(one: str, other: str) -> Figure:
    """A figure by another."""
    return lambda found: _plain(found, one) / _plain(found, other)


def off(one: str, other: str) -> Figure:
    """By which share a figure is off another."""
    return lambda found: over(one, other)(found) - 1


def less(one: str, other: str) -> Figure:
    """A figure less another."""
    return lambda found: _plain(found, one) - _plain(found, other)


def total(path: str) -> Figure:
    """The sum of the figures at a path."""
    return lambda found: sum(at(found, path))


def seeds(path: str) -> Figure:
    """How many seeds the runs at a path have."""
    return lambda found: len({run["seed"] for run in at(found, path)})


def distinct(path: str) -> Figure:
    """How many figures at a path differ."""
    return lambda found: len(set(at(found, path)))


def _plain(found: Found, path: str) -> float:
    value = number(at(found, path))
    if value is None:
        raise KeyError(path)
    return value


# ---- speed and servers ----


def rollout(model: str, part: str, key: str, **where: Any) -> Figure:
    """The worst (`ours_over_plain`: highest, else lowest) of a model's rows of rollout_speed.json."""

    def figure(found: Found) -> Any:
        runs = [run for run in found["runs"] if model in str(run["options"]["model"]).lower()]
        rows = [row for run in runs for row in run.get(part, ()) if where.items() <= row.items()]
        return (max if key == "ours_over_plain" else min)(row[key] for row in rows)

    return figure


def server_ratio(found: Found) -> float:
    """Throughput over the server's own benchmark, the median of pairs."""
    return statistics.median(pair["rrm"] / pair["server"] for pair in found["pairs"])


def alternate(found: Found) -> bool:
    """Whether the pairs were interleaved: no two of them begin alike."""
    return all(one["first"] != other["first"] for one, other in pairwise(found["pairs"]))


def growth(kind: str, steepest: bool = False) -> Figure:
    """Bytes of peak memory that a row adds, from the fewest rows to the most; or the most on the way there."""

    def figure(found: Found) -> float:
        first, *later = found[kind]
        adds = [(run["peak_mib"] - first["peak_mib"]) * 2**20 / (run["rows"] - first["rows"]) for run in later]
        return max(adds) if steepest else adds[-1]

    return figure


def kept_at_64(found: Found) -> float:
    """Requests a second of 64 clients over the judge in process, the median of rounds."""
    return statistics.median(one["64"]["per_s"] / one["in_process"]["per_s"] for one in found["speed"]["rounds"])


def faults(part: str) -> Figure:
    """Kinds of faults among a soak's requests."""
    return lambda found: sum(bool(found[part]["kinds"].get(kind)) for kind in FAULTS)


def vllm_over_trl(found: Found) -> float:
    """Action tokens a second at 8 turns."""
    (row,) = at(found, "rollouts.turns=8.seconds")
    return statistics.median(row["trl"]) / statistics.median(row["vllm"])


def lost(engine: str, kind: str) -> Figure:
    """The share of the time that waiting for tools takes: `slow`, or `lock-step`, where all wait for a turn's slowest."""
    return lambda found: 1 - (of := found["waiting"][engine]["seconds"])["quick"][0] / of[kind][0]


def greedy(part: str, key: str = "") -> Figure:
    """Of greedy answers of both engines: prompts answered otherwise; with `gap` how far log-probabilities lie apart, in nats."""

    def figure(found: Found) -> float:
        of = found[part]
        if key != "gap":
            return sum(a != b for a, b in zip(of["hf"], of["vllm"], strict=True))
        rows = zip(of["hf_logprobs"], of["vllm_logprobs"], strict=True)
        return max(abs(x - y) for mine, theirs in rows for x, y in zip(mine, theirs, strict=False))

    return figure


def moved(found: Found) -> int:
    """Greedy answers that training changed."""
    return sum(a != b for a, b in zip(found["greedy"]["hf"], found["trained"]["hf"], strict=True))


def served(path: str, key: str) -> Figure:
    """Of a judge in its directory and served: `apart` at most (infinite where one has a score alone), `rows`, `spread` of scores."""

    def figure(found: Found) -> float:
        local, away = at(found, path)["local"], at(found, path)["served"]
        both = [(a, b) for a, b in zip(local, away, strict=True) if a is not None and b is not None]
        if key == "rows":
            return len(both)
        if key == "spread":
            return max(a for a, _ in both) - min(a for a, _ in both)
        return max(abs(a - b) for a, b in both) if len(both) == sum(a is not None for a in local) else math.inf

    return figure


def ended(path: str, *statuses: str) -> Figure:
    """The share of rows that ended in one of these statuses; by default typed."""

    def figure(found: Found) -> float:
        counts = at(found, path)
        return sum(counts.get(status, 0) for status in statuses or TYPED) / sum(counts.values())

    return figure


def estimates(
    key: str, worst: Callable[..., float], auroc: float = 0.0, labels: Sequence[str] = ("30", "100")
) -> Figure:
    """The worst of a figure over sources, judges of that AUROC and numbers of labels."""

    def figure(found: Found) -> float | None:
        judges = (judge for source in found["sources"].values() for judge in source.values() if judge["auroc"] >= auroc)
        return worst((judge[n][key] for judge in judges for n in labels if n in judge), default=None)

    return figure


def as_it_stands(found: Found) -> bool:
    """Whether the quickstart was timed of the script as it stands."""
    from benchmarks.timings import script_hash

    return found.get("quickstart_script") == script_hash()


# ---- studies ----


def in_time(found: Found) -> float:
    """The share of the runs whose success fell in which a guard fired in time."""
    fell = [run["in_time"] for run in found["gamed"] if run["in_time"] is not None]
    return sum(fell) / len(fell)


def fell(found: Found) -> int:
    """Runs of the gamed judge whose success fell."""
    return sum(run["in_time"] is not None for run in found["gamed"])


def alarmed(found: Found) -> int:
    """Honest runs in which one of the guards that count fires."""
    counted = set(found["guards_counted"])
    return sum(bool(counted & {row["guard"] for row in run["guards"]}) for run in found["arms"]["honest"]["runs"])
