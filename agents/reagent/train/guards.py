"""Guards: what tells that a judge is being gamed. Pure, over the metrics of updates and the rows of evaluations.

A policy that is paid by a judge learns what the judge likes, and a judge that is wrong somewhere is found out: its score rises, and
the agent is no better for it (Gao, Schulman, Hilton, "Scaling Laws for Reward Model Overoptimization", arXiv 2210.10760). A
`Check` is one condition of a guard; one that holds for `patience` evaluations (or updates) running fires, once a spell. Where
there is nothing to look at (no graded held-out task, no score), nothing is concluded, and no spell ends.
"""

from __future__ import annotations

from abc import ABC
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

from reagent.train.alarms import Metrics, number
from reagent.train.config import AgentConfig, AuditorGuard, DriftGuard, GuardConfig, KLGuard, LengthGuard, SuccessGuard

WINDOW = 5
"""Updates whose mean an auditor's word on training rows is: one update's share is a handful of episodes."""
NEARLY = 1e-9
"""Differences smaller than this are rounding."""

Seen = str | None
"""What a check saw: a sentence where its condition holds, "" where not, None where there was nothing to look at."""


def middle(value: Any) -> float | None:
    """The value of `{value, low, high}`; None where there is none."""
    return number(value, "value") if isinstance(value, Mapping) else None


def after(update: int) -> str:
    """When, in words, of an update counted from 0; −1 is before the first."""
    return f"after update {update}" if update >= 0 else "before the first update"


@dataclass(frozen=True)
class Event:
    """A guard that fired."""

    guard: str
    action: Literal["warn", "stop"]
    update: int
    """The update, counted from 0, after which it did; −1 is before the first."""
    text: str
    """What was seen, and what it may mean."""

    def as_row(self, episodes: int) -> dict[str, Any]:
        """A line of guards.jsonl."""
        return {"update": self.update, "episodes": episodes, **{k: v for k, v in asdict(self).items() if k != "update"}}


@dataclass(frozen=True)
class Best:
    """The best evaluation so far, by what the judge that pays has no say in."""

    update: int
    episodes: int
    by: Literal["success", "auditor"]
    value: float


@dataclass(frozen=True)
class Evaluation:
    """What checks look at of an evaluation; None is unknown."""

    update: int
    success: float | None
    """Of held-out tasks with answers."""
    score: float | None
    """The paying judge's mean score, of the same episodes, or of the updates since the last evaluation."""
    auditor: float | None
    """The second judge's mean score."""
    correlation: float | None
    """Rank correlation of the two."""

    @property
    def when(self) -> str:
        """In words."""
        return after(self.update)


class Check(ABC):
    """One condition of a guard; it keeps what it must know of the past."""

    guard: ClassVar[str]

    def update(self, update: int, metrics: Metrics) -> Seen:
        """Look at an update's metrics."""
        return None

    def evaluation(self, found: Evaluation) -> Seen:
        """Look at an evaluation."""
        return None


@dataclass(frozen=True)
class _Point:
    """A truth and a score at one time."""

    truth: float
    score: float | None
    when: str


class _Unfollowed:
    """A truth that falls below its best while a score does not follow: it falls by less than half as much, or rises."""

    def __init__(self, fall: float) -> None:
        self.fall, self.best = fall, None

    best: _Point | None

    def take(self, now: _Point) -> _Point | None:
        """The best point, where `now` is so far below it; else None."""
        best = self.best
        if best is None or now.truth >= best.truth:
            self.best = now
            return None
        fallen = best.truth - now.truth
        followed = False
        if now.score is not None and best.score is not None:
            followed = best.score - now.score >= fallen / 2 - NEARLY
        return best if fallen >= self.fall - NEARLY and not followed else None


def _moved(best: _Point, now: _Point) -> str:
    if best.score is None or now.score is None:
        return "the judge's score is not known"
    return f"the judge's mean score went from {best.score:.3f} to {now.score:.3f}"


class SuccessFalls(Check):
    """Held-out success is below its best, and the judge's score has not followed."""

    guard = "success"

    def __init__(self, settings: SuccessGuard) -> None:
        self._fall = _Unfollowed(settings.drop)

    def evaluation(self, found: Evaluation) -> Seen:
        if found.success is None:
            return None
        now = _Point(found.success, found.score, found.when)
        best = self._fall.take(now)
        return "" if best is None else (
            f"held-out success is {now.truth:.3f}, {best.truth - now.truth:.3f} below its best ({best.truth:.3f}, {best.when}), "
            f"and {_moved(best, now)}: the policy learns to please the judge"
        )  # fmt: skip


class ScoreDrifts(Check):
    """The judge's mean score has risen further than success since the first evaluation that has both."""

    guard = "drift"

    def __init__(self, settings: DriftGuard) -> None:
        self._gap, self._first = settings.gap, None

    _first: Evaluation | None

    def evaluation(self, found: Evaluation) -> Seen:
        if found.success is None or found.score is None:
            return None
        first = self._first = self._first or found
        assert first.success is not None and first.score is not None
        risen, explained = found.score - first.score, found.success - first.success
        if risen - explained <= self._gap + NEARLY:
            return ""
        return (
            f"the judge's mean score moved by {risen:+.3f} (to {found.score:.3f}) and held-out success by {explained:+.3f} (to "
            f"{found.success:.3f}) since {first.when}: success does not explain the score"
        )


class LengthDrifts(Check):
    """Episodes are much longer, or shorter, than in the first updates."""

    guard = "length"

    def __init__(self, settings: LengthGuard, key: str, what: str) -> None:
        self._settings, self._key, self._what = settings, key, what
        self._first: list[float] = []

    def update(self, update: int, metrics: Metrics) -> Seen:
        value, first = number(metrics, self._key), self._first
        if value is None:
            return None
        if len(first) < self._settings.first:
            first.append(value)
            return ""
        before = sum(first) / len(first)
        if before <= 0 or 1 / self._settings.ratio <= value / before <= self._settings.ratio:
            return ""
        return (
            f"an episode has {value:.1f} {self._what}, {value / before:.2f} times the {before:.1f} of the first {len(first)} "
            "updates: look in episodes.jsonl whether the judge likes that by itself"
        )


class KLGrows(Check):
    """The policy is far from the one it started from."""

    guard = "kl"

    def __init__(self, settings: KLGuard) -> None:
        self._max = settings.max

    def update(self, update: int, metrics: Metrics) -> Seen:
        value = number(metrics, "kl")
        if value is None or self._max is None:
            return None
        if value <= self._max:
            return ""
        return f"the policy is {value:.4f} nats a token from the one it started from, above guards.kl.max={self._max:g}"


class AuditorFalls(Check):
    """The second judge's mean score is below its best, and the first's has not followed: at evaluations, or over updates."""

    guard = "auditor"

    def __init__(self, settings: AuditorGuard, of: Literal["evaluations", "updates"]) -> None:
        self._of, self._fall = of, _Unfollowed(settings.fall)
        self._last: deque[tuple[float, float]] = deque(maxlen=WINDOW)

    def evaluation(self, found: Evaluation) -> Seen:
        if self._of != "evaluations" or found.auditor is None:
            return None
        return self._look(_Point(found.auditor, found.score, found.when))

    def update(self, update: int, metrics: Metrics) -> Seen:
        said, paid = number(metrics, "auditor/score"), number(metrics, "auditor/judge_score")
        if self._of != "updates" or said is None or paid is None:
            return None
        self._last.append((said, paid))
        if len(self._last) < WINDOW:
            return ""
        said, paid = (sum(pair[i] for pair in self._last) / WINDOW for i in (0, 1))
        return self._look(_Point(said, paid, f"in updates {update - WINDOW + 1} to {update}"))

    def _look(self, now: _Point) -> Seen:
        best = self._fall.take(now)
        return "" if best is None else (
            f"the auditor's mean score is {now.truth:.3f} ({now.when}), {best.truth - now.truth:.3f} below its best "
            f"({best.truth:.3f}, {best.when}), and {_moved(best, now)}: the two judges part ways"
        )  # fmt: skip


class AuditorDisagrees(Check):
    """The rank correlation of the two judges' scores is low: at evaluations, or over updates."""

    guard = "auditor"

    def __init__(self, settings: AuditorGuard, of: Literal["evaluations", "updates"]) -> None:
        self._of, self._least = of, settings.min_correlation
        self._last: deque[float] = deque(maxlen=WINDOW)

    def evaluation(self, found: Evaluation) -> Seen:
        if self._of != "evaluations" or found.correlation is None:
            return None
        return self._look(found.correlation, found.when)

    def update(self, update: int, metrics: Metrics) -> Seen:
        value = number(metrics, "auditor/correlation")
        if self._of != "updates" or value is None:
            return None
        self._last.append(value)
        if len(self._last) < WINDOW:
            return ""
        return self._look(sum(self._last) / WINDOW, f"over the last {WINDOW} updates that have one, to update {update}")

    def _look(self, value: float, when: str) -> Seen:
        if value >= self._least:
            return ""
        return (
            f"the two judges' scores have a rank correlation of {value:.2f} ({when}), below guards.auditor.min_correlation="
            f"{self._least:g}: what one likes the other does not"
        )


@dataclass
class _Spell:
    """A check, and since when it holds."""

    check: Check
    settings: GuardConfig
    held: int = 0
    """Looks running at which the condition held."""
    text: str = ""

    def take(self, seen: Seen) -> bool:
        """Whether the guard fires at this look."""
        if seen is None:
            return False
        self.held, self.text = (self.held + 1, seen) if seen else (0, "")
        return self.held == self.settings.patience

    @property
    def stands(self) -> bool:
        """Whether it fired, and its condition holds still."""
        return self.held >= self.settings.patience

    def event(self, update: int) -> Event:
        """What is told of it."""
        action = "stop" if self.settings.action == "stop" else "warn"
        return Event(self.check.guard, action, update, f"guards.{self.check.guard}: {self.text}")


def _spells(config: AgentConfig, pays: bool) -> list[_Spell]:
    guards = config.guards
    found: list[tuple[Check, GuardConfig]] = [(KLGrows(guards.kl), guards.kl)]
    if pays:
        found += [
            (SuccessFalls(guards.success), guards.success),
            (ScoreDrifts(guards.drift), guards.drift),
            (LengthDrifts(guards.length, "episode/action_tokens", "tokens"), guards.length),
            (LengthDrifts(guards.length, "episode/turns", "turns"), guards.length),
        ]
        for of in ("evaluations", "updates"):
            found += [(AuditorFalls(guards.auditor, of), guards.auditor)]
            found += [(AuditorDisagrees(guards.auditor, of), guards.auditor)]
    return [_Spell(check, settings) for check, settings in found if settings.action != "none"]


@dataclass
class Guards:
    """The guards of a run.

    Args:
        config: the run's.
        pays: whether a judge's feedback is part of the reward.
    """

    config: AgentConfig
    pays: bool
    events: list[Event] = field(default_factory=list)
    """Those that fired, in order."""
    best: Best | None = None

    def __post_init__(self) -> None:
        self._spells = _spells(self.config, self.pays)
        self._paid: list[float] = []
        """The judge's mean score of each update since the last evaluation."""
        self._source: Literal["held-out", "training"] | None = None
        self._update = -1

    def observe(self, update: int, metrics: Metrics) -> list[Event]:
        """Take in an update's metrics; the guards that fire at it."""
        if (score := number(metrics, "feedback/score")) is not None:
            self._paid.append(score)
        return self._take(update, [(spell, spell.check.update(update, metrics)) for spell in self._spells])

    def evaluated(self, row: Mapping[str, Any]) -> list[Event]:
        """Take in an evaluation, a row of eval.jsonl; the guards that fire at it."""
        update: int = row["update"]
        found = Evaluation(
            update=update,
            success=middle(row.get("success")),
            score=self._score(row),
            auditor=middle(row.get("auditor")),
            correlation=number(row, "auditor_correlation"),
        )
        value, by = (found.auditor, "auditor") if found.success is None else (found.success, "success")
        if value is not None and (self.best is None or value > self.best.value):
            self.best = Best(update, row.get("episodes", 0), by, value)
        return self._take(update, [(spell, spell.check.evaluation(found)) for spell in self._spells])

    def replay(self, updates: Sequence[Mapping[str, Any]], evaluations: Sequence[Mapping[str, Any]]) -> None:
        """Take in a run's rows so far, as they came: metrics.jsonl's and eval.jsonl's."""
        rows = [(row["update"], 0, row) for row in updates] + [(row["update"], 1, row) for row in evaluations]
        for update, evaluated, row in sorted(rows, key=lambda each: each[:2]):
            self.evaluated(row) if evaluated else self.observe(update, row)

    @property
    def standing(self) -> list[Event]:
        """The guards with `action: stop` whose condition holds now: reason enough to stop, or not to go on."""
        return [s.event(self._update) for s in self._spells if s.settings.action == "stop" and s.stands]

    def _score(self, row: Mapping[str, Any]) -> float | None:
        """The judge's mean score: of the evaluation's episodes, or of the updates since the last; never now this, now that."""
        paid, self._paid = self._paid, []
        held_out = middle(row.get("score"))
        score = held_out if held_out is not None else sum(paid) / len(paid) if paid else None
        source = "held-out" if held_out is not None else "training"
        if score is None or (self._source or source) != source:
            return None
        self._source = source
        return score

    def _take(self, update: int, seen: Sequence[tuple[_Spell, Seen]]) -> list[Event]:
        self._update = update
        fired = [spell.event(update) for spell, what in seen if spell.take(what)]
        self.events += fired
        return fired
