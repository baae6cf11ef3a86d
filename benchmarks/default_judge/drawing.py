"""Which rows of the mixture an evaluation reads: two draws, for two kinds of figures.

  by question   at random, whatever the outcome: AUROC, calibration error, best of n, steps. Outcomes keep their natural rate.
  in pairs      groups of one question and number of steps that hold both outcomes, by whole groups: pair accuracy alone, which
                a draw at random has hardly any pairs for. These rows are balanced by their making, and tell nothing else.

A row in both is read once. Among a question's groups, and inside a group's class, rows of the first draw come first: that draw is
blind to outcomes, so which of two attempts succeeded it does not tell.
Limits are given as `N` and `SOURCE=N`, the longest beginning of a source's name that fits.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from benchmarks.default_judge.scorers import Parts
from benchmarks.default_judge.sources import Example
from benchmarks.default_judge.subset import characters
from benchmarks.judge_mint import by_question
from rrm.data.questions import question_of

SIDE = 2
"""Rows of one outcome that a group gives to the pairs at most: questions differ more than attempts at one do, so many groups
of few rows tell more than few whole ones."""
Limits = Mapping[str, int]


@dataclass(frozen=True)
class Draw:
    """How rows are drawn; a limit of 0 is none."""

    limits: Limits = field(default_factory=dict)
    """Rows of a source and part, by question."""
    attempts: Limits = field(default_factory=dict)
    """Rows of one question at most in that draw."""
    calibration: Limits = field(default_factory=dict)
    """Calibration rows of a source, spread over its questions; sources without one: as `limits`."""
    pairs: Limits = field(default_factory=dict)
    """Rows of a source drawn in pairs; sources without one have no such draw."""
    pairs_longest: int = 0
    """Characters of a transcript that is drawn for pairs, at most; 0: any."""
    side: int = SIDE
    seed: int = 0

    def told(self) -> dict[str, Any]:
        """For a record: the settings, and the rules in words."""
        shorter = f"; transcripts above {self.pairs_longest} characters are left out" if self.pairs_longest else ""
        return {
            **{name: dict(getattr(self, name)) for name in ("limits", "attempts", "calibration", "pairs")},
            **{name: getattr(self, name) for name in ("pairs_longest", "side", "seed")},
            "rules": {
                "by_question": "attempts of a question at random, whole questions at random; all figures but pair accuracy",
                "in_pairs": f"(question, steps) groups with both outcomes, one a question at a time, up to {self.side} rows of "
                f"each outcome, rows read anyway before others{shorter}; pair accuracy alone",
                "calibration": "one row a question at a time, at random; outcomes at their natural rate",
            },
        }


def limits_of(given: Sequence[str], option: str = "--limit") -> dict[str, int]:
    """`N` and `SOURCE=N` as beginning of a source's name → most rows.

    Raises:
        ValueError: not of this form.
    """
    found: dict[str, int] = {}
    for text in given:
        name, _, number = text.rpartition("=")
        if not number.isdecimal():
            raise ValueError(f"{option} {text!r}: a number of rows, or SOURCE=ROWS")
        found[name] = int(number)
    return found


def limit_of(source: str, limits: Limits, otherwise: int = 0) -> int:
    """The limit whose name is the longest beginning of the source's."""
    fits = [name for name in limits if source.startswith(name)]
    return limits[max(fits, key=len)] if fits else otherwise


def named(rows: Sequence[Example]) -> dict[str, list[Example]]:
    """Rows by source."""
    return {name: [r for r in rows if r.source == name] for name in sorted({r.source for r in rows})}


def drawn(rows: Sequence[Example], most: int, attempts: int, seed: int) -> list[Example]:
    """At most `attempts` rows of a question, at random; of these about `most`, by whole questions (0: all)."""
    chosen = [row.trajectory for row in rows]
    if attempts:
        of: dict[str, list[str]] = {}
        for t in chosen:
            of.setdefault(question_of(t), []).append(t.id)
        kept = {id for q, ids in of.items() for id in random.Random(f"{seed}/{q}").sample(ids, min(attempts, len(ids)))}
        chosen = [t for t in chosen if t.id in kept]
    wanted = {t.id for t in by_question(chosen, most, seed)}
    return [row for row in rows if row.trajectory.id in wanted]


def spread(rows: Sequence[Example], most: int, seed: int) -> list[Example]:
    """At most `most` rows, one a question at a time, at random and blind to outcomes (0: all).

    Many questions tell a rate better than many attempts at few.
    """
    if not most or len(rows) <= most:
        return list(rows)
    of: dict[str, list[Example]] = defaultdict(list)
    for row in rows:
        of[question_of(row.trajectory)].append(row)
    rng = random.Random(f"{seed}/spread")
    questions = sorted(of)
    rng.shuffle(questions)
    turns = zip_longest(*(rng.sample(of[question], len(of[question])) for question in questions))
    chosen = [row.trajectory.id for turn in turns for row in turn if row is not None]
    wanted = set(chosen[:most])
    return [row for row in rows if row.trajectory.id in wanted]


Group = tuple[list[Example], list[Example]]
"""Failures and successes at one question with one number of steps."""


def groups_of(rows: Sequence[Example]) -> dict[str, dict[int, Group]]:
    """question → number of steps → the group, of those that hold both outcomes."""
    found: dict[str, dict[int, Group]] = defaultdict(lambda: defaultdict(lambda: ([], [])))
    for row in rows:
        t = row.trajectory
        if t.outcome is not None:
            found[question_of(t)][len(t.steps)][t.outcome >= 0.5].append(row)
    both = {q: {n: group for n, group in of.items() if all(group)} for q, of in found.items()}
    return {q: of for q, of in both.items() if of}


def pairs_of(rows: Sequence[Example]) -> int:
    """Pairs of a success and a failure at one question with one number of steps."""
    return sum(len(bad) * len(good) for of in groups_of(rows).values() for bad, good in of.values())


def in_pairs(
    rows: Sequence[Example],
    most: int,
    *,
    seed: int,
    side: int = SIDE,
    longest: int = 0,
    first: Collection[str] = (),
) -> list[Example]:
    """At most `most` rows (0: as many as there are) in groups of one question and number of steps that hold both outcomes.

    One group a question at a time, in random order of questions; a question's groups with most rows of `first` before others, else
    at random; of each group up to `side` rows of each outcome, those in `first` before others, else at random. The last groups
    may be cut, but never to one outcome.

    Args:
        longest: characters of a transcript, at most; 0: any.
        first: ids of rows that are read anyway.
    """
    rng = random.Random(f"{seed}/pairs")
    found = groups_of([row for row in rows if not longest or characters(row.trajectory) <= longest])

    def new(row: Example) -> bool:
        return row.trajectory.id not in first

    units: dict[str, list[list[Example]]] = {}
    for question in sorted(found):
        of: list[list[Example]] = []
        for n in rng.sample(sorted(found[question]), len(found[question])):
            sides = [sorted(rng.sample(mine, len(mine)), key=new)[:side] for mine in found[question][n]]
            of.append([row for two in zip_longest(*sides) for row in two if row is not None])
        units[question] = sorted(of, key=lambda unit: -sum(not new(row) for row in unit))
    order = sorted(units)
    rng.shuffle(order)
    chosen: set[str] = set()
    for turn in zip_longest(*(units[question] for question in order)):
        for unit in turn:
            fits = (unit or [])[: most - len(chosen)] if most else unit or []
            if len(fits) > 1:
                chosen |= {row.trajectory.id for row in fits}
    return [row for row in rows if row.trajectory.id in chosen]


def draw(parts: Parts, how: Draw) -> tuple[Parts, list[Example]]:
    """The rows drawn by question, by part (`calibration`, `test`, `unseen`); and the test rows drawn in pairs."""
    chosen: Parts = {}
    for part in ("calibration", "test", "unseen"):
        chosen[part] = []
        for name, rows in named(parts.get(part, ())).items():
            most, attempts = limit_of(name, how.limits), limit_of(name, how.attempts)
            if part == "calibration":
                chosen[part] += spread(rows, limit_of(name, how.calibration, most), how.seed)
            else:
                chosen[part] += drawn(rows, most, attempts, how.seed)
    read = {row.trajectory.id for row in chosen["test"]}
    paired: list[Example] = []
    for name, rows in named(parts.get("test", ())).items():
        most = limit_of(name, how.pairs, -1)
        if most >= 0:
            paired += in_pairs(rows, most, seed=how.seed, side=how.side, longest=how.pairs_longest, first=read)
    return chosen, paired


def to_read(parts: Parts, paired: Sequence[Example]) -> Parts:
    """Each part's rows to judge: a row of both draws once."""
    have = {row.trajectory.id for row in parts["test"]}
    return {**parts, "test": [*parts["test"], *(row for row in paired if row.trajectory.id not in have)]}


def counted(rows: Sequence[Example]) -> dict[str, Any]:
    """What a draw holds: rows, graded ones, successes among them, questions, pairs, and questions and groups that have pairs."""
    graded = [row.trajectory.outcome for row in rows if row.trajectory.outcome is not None]
    groups = groups_of(rows)
    return {
        "rows": len(rows),
        "graded": len(graded),
        "successes": sum(y >= 0.5 for y in graded),
        "questions": len({question_of(row.trajectory) for row in rows}),
        "pairs": pairs_of(rows),
        "pair_questions": len(groups),
        "pair_groups": sum(map(len, groups.values())),
    }
