"""Whether recorded trainings are those of a study: made by commits, whole, as many as wanted, each as its arm says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.acceptance import Bar, unmade

Found = Mapping[str, Any]


def commits_bar(what: str, found: Mapping[str, Sequence[Found]], seeds: Mapping[str, int], updates: int) -> Bar:
    """Whether trainings name commits of this repository, are whole, and are as many of each arm as are wanted, or more.

    Args:
        updates: that each is to have at least.
    """
    made = [one for arm in found.values() for one in arm]
    few = [arm for arm, n in seeds.items() if len({one["seed"] for one in found.get(arm, ())}) < n]
    wrong = [why for one in made for commit in one["commits"] if (why := unmade(commit))]
    short = [one["updates"] for one in made if one["updates"] < updates]
    shown = (
        "; ".join(dict.fromkeys(wrong)) or f"{len(made)} runs of {min((o['updates'] for o in made), default=0)} updates"
    )
    return Bar(
        what,
        shown,
        f"{sum(seeds.values())} runs of ≥ {updates} updates, made by commits",
        not wrong and not short and not few,
    )


def otherwise(found: Mapping[str, Sequence[Found]], arms: Mapping[str, Sequence[str]], common: Sequence[str]) -> str:
    """The first training that was not made as its arm says; empty where all were.

    Args:
        found: arm → its trainings, each with its `options`, of which the last of a name holds.
        arms: arm → what it alone says; common: what all say, where an arm says nothing else.
    """
    names = {_name(option) for options in (common, *arms.values()) for option in options}
    for arm, runs in found.items():
        if arm not in arms:
            return f"no arm is named {arm}"
        wanted = {_name(option): option for option in (*common, *arms[arm])}
        for run in runs:
            made = {_name(option): option for option in run["options"] if _name(option) in names}
            if unlike := sorted(name for name in made.keys() | wanted if made.get(name) != wanted.get(name)):
                return f"{arm}, seed {run['seed']}: {', '.join(unlike)} not as the arm says"
    return ""


def seeds_of(runs: Sequence[Found]) -> list[int]:
    """In order."""
    return sorted(run["seed"] for run in runs)


def _name(option: str) -> str:
    return option.partition("=")[0]
