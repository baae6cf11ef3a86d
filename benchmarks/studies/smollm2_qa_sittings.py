"""A study made in several sittings: what a folder holds beside what a record holds of folders that are gone.

A sitting: `collected` (command and commit), `made_with`, `hardware`, `environment`, `warm` (method → card of its warm start), `trainings`
(arm → runs, each with its `seed`), `asked` (set of questions → their `id` and `source`) and `rows` (set → policy → runs, `packed`). Another
machine's warm start is another policy, so that a run is compared with its own sitting's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

UNSAID = {"device": "cpu"}
"""What a record of before devices were chosen does not say."""
ASKED = ("id", "source")
KEPT = ("f1", "em", "searches", "malformed", "tokens")
"""Of a question, and of an answer to it."""
Sitting = Mapping[str, Any]
Rows = Sequence[Mapping[str, Any]]


def packed(
    policies: Mapping[str, Sequence[Mapping[str, Any]]],
) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """The questions once, and each run's answers as a list a key in the order of the questions' ids, without what was said.

    Args:
        policies: name → runs of `seed` and `rows`.

    Returns:
        `ASKED` of the questions; name → runs of `seed`, `most_said` (the answer that it gave most often, to how many questions) and
        `rows`: `KEPT`, and `answered`, 1 or 0.

    Raises:
        ValueError: the runs answered other questions.
    """
    asked: dict[str, Any] = {}
    made: dict[str, list[dict[str, Any]]] = {name: [] for name in policies}
    for name, run in ((name, run) for name, runs in policies.items() for run in runs):
        rows = sorted(run["rows"], key=lambda row: row["id"])
        questions = {key: [row[key] for row in rows] for key in ASKED}
        if asked and questions != asked:
            raise ValueError("runs of one sitting must answer the same questions")
        asked = questions
        ((said, often),) = Counter(row["answer"] for row in rows).most_common(1)
        columns = {key: [row[key] for row in rows] for key in KEPT}
        columns["answered"] = [int(row["answer"] is not None) for row in rows]
        made[name].append({"seed": run["seed"], "most_said": {"answer": said, "questions": often}, "rows": columns})
    return asked, made


def unpacked(asked: Mapping[str, Sequence[Any]], columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """A row a question of a run that `packed` made."""
    keys = (*ASKED, *columns)
    values = zip(*(asked[key] for key in ASKED), *columns.values(), strict=True)
    return [dict(zip(keys, row, strict=True)) for row in values]


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
            policies.setdefault(name, []).extend(unpacked(one["asked"][tasks], run["rows"]) for run in runs)
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
