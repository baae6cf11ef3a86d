"""A study made in several sittings: what a folder holds beside what a record holds of folders that are gone.

A sitting: `collected` (command and commit), `made_with`, `hardware`, `environment`, `warm` (method → card of its warm start), `trainings`
(arm → runs, each with its `seed`) and `rows` (set of questions → policy → runs of `seed` and `rows`). Another machine's warm start is another
policy, so that a run is compared with its own sitting's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

UNSAID = {"device": "cpu"}
"""What a record of before devices were chosen does not say."""
Sitting = Mapping[str, Any]
Rows = Sequence[Mapping[str, Any]]


def together(kept: Sequence[Sitting], mine: Sitting, start: str) -> list[Sitting]:
    """The kept sittings and this one: a kept one with the same warm start is this one, and a run that was made again is not there twice. One
    with neither trainings nor rows is left out."""
    answers = list(mine["rows"].values())
    again = {(arm, run["seed"]) for by in (mine["trainings"], *answers) for arm, runs in by.items() for run in runs}
    again = {(arm, seed) for arm, seed in again if arm not in mine["warm"]}  # each sitting has warm starts of its own
    others = [one for one in kept if not _same(one, mine, start)]
    left = [
        {
            **one,
            "trainings": _without(one["trainings"], again),
            "rows": {tasks: _without(policies, again) for tasks, policies in one["rows"].items()},
            **({"reading": _without(one["reading"], again)} if "reading" in one else {}),
        }
        for one in others
    ]
    return [one for one in (*left, mine) if one["trainings"] or any(one["rows"].values())]


def _same(one: Sitting, other: Sitting, start: str) -> bool:
    card = one["warm"].get(start)
    return card is not None and card == other["warm"].get(start)


def _without(by: Mapping[str, Sequence[Mapping[str, Any]]], again: Collection[tuple[str, int]]) -> dict[str, list[Any]]:
    left = {name: [run for run in runs if (name, run["seed"]) not in again] for name, runs in by.items()}
    return {name: runs for name, runs in left.items() if runs}


def trained(found: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """A record's trainings, arm → runs."""
    made: dict[str, list[dict[str, Any]]] = {}
    for one in found.get("sittings", ()):
        for arm, runs in one["trainings"].items():
            made.setdefault(arm, []).extend(runs)
    return made


def whole(sittings: Sequence[Sitting], sets: Collection[str]) -> set[tuple[str, int]]:
    """The runs that were trained and answered every set of questions: what is missing of another can only be had by making it again."""
    return {
        (arm, run["seed"])
        for one in sittings
        for arm, runs in one["trainings"].items()
        for run in runs
        if all(run["seed"] in [r["seed"] for r in one["rows"].get(tasks, {}).get(arm, ())] for tasks in sets)
    }


def pooled(sittings: Sequence[Sitting], tasks: str) -> tuple[dict[str, list[Rows]], dict[str, list[int]]]:
    """Policy → the rows of each of its runs, and policy → the sitting of each, of one set of questions."""
    policies: dict[str, list[Rows]] = {}
    of: dict[str, list[int]] = {}
    for number, one in enumerate(sittings):
        for name, runs in one["rows"].get(tasks, {}).items():
            policies.setdefault(name, []).extend(run["rows"] for run in runs)
            of.setdefault(name, []).extend([number] * len(runs))
    return policies, of


def held_alike(sittings: Sequence[Sitting], facts: Mapping[str, Any], output: Path) -> None:
    """Whether a record's sittings were made as this one is.

    Raises:
        SystemExit: they were not; says how.
    """
    mine = UNSAID | dict(facts)
    for one in sittings:
        made = UNSAID | dict(one["made_with"])
        if other := {key: made.get(key) for key in sorted(made.keys() | mine) if made.get(key) != mine.get(key)}:
            raise SystemExit(
                f"{output} holds a sitting made with {other}: one record has one way, so name another --output"
            )


def none_lost(before: Sequence[Sitting], after: Sequence[Sitting], start: str, output: Path) -> None:
    """Whether a record that is to be written over loses a sitting.

    Raises:
        SystemExit: it does.
    """
    if lost := [one for one in before if not any(_same(one, other, start) for other in after)]:
        raise SystemExit(
            f"{output} holds {len(lost)} sittings that are not here: keep them with --keep, or name another --output"
        )
