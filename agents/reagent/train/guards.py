"""Guards: what tells that a judge is being gamed. Pure, over the metrics of updates and the rows of evaluations.

A policy that is paid by a judge learns what the judge likes, and a judge that is wrong somewhere is found out: its score rises, and
the agent is no better for it (Gao, Schulman, Hilton, "Scaling Laws for Reward Model Overoptimization", arXiv 2210.10760). A
`Check` is one condition of a guard; one that holds for `patience` looks running fires, once a spell. A condition holds where it is
beyond chance (`reagent.train.falls`). Where there is nothing to look at (no graded held-out task, no score), nothing is concluded,
and no spell ends.
"""

from __future__ import annotations

import logging
import math
from abc import ABC
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

from reagent.feedback.build import MODES
from reagent.train.alarms import Metrics, number
from reagent.train.config import AgentConfig, AuditorGuard, DriftGuard, GuardConfig, KLGuard, LengthGuard, SuccessGuard
from reagent.train.falls import FEWEST, NEARLY, Fall, Falls, Point, common_tasks, critical, of_tasks, standard_error
from rrm.errors import ConfigError

logger = logging.getLogger(__name__)

WINDOW = 5
"""Updates that are one look of the auditor's at training rows: one update's share is a handful of episodes."""

Seen = str | None
"""What a check saw: a sentence where its condition holds, "" where not, None where there was nothing to look at."""
Source = Literal["held-out", "training"]
"""Of the judge's score beside an evaluation: its own episodes, or those of the updates since the last one."""


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
    """The best evaluation so far, by what the judge that pays has no say in: of several noisy ones, so that it flatters. A value of
    one kind is not compared with one of the other: any success goes before any word of the auditor's."""

    update: int
    episodes: int
    by: Literal["success", "auditor"]
    value: float
    low: float | None = None
    high: float | None = None
    """With its 95 % interval over tasks."""


Known = Mapping[str, float] | None
"""Figures by task; None where they are unknown."""


@dataclass(frozen=True)
class Evaluation:
    """What checks look at of an evaluation; None is unknown."""

    update: int
    success: Known
    """Of held-out tasks with answers."""
    score: Mapping[str, float] | float | None
    """The paying judge's, of the same episodes by task; or its mean."""
    source: Source
    """Of the score: what it is compared with comes from there too."""
    auditor: Known
    """The second judge's."""
    correlation: float | None
    """Rank correlation of the two, and"""
    compared: float | None
    """how many free comparisons it is of."""

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


def _moved(fall: Fall) -> str:
    """The fall and the score beside it, in words."""
    before, now = fall.score
    return (
        f"is {fall.truth[1]:.3f} ({fall.when[1]}), {fall.size:.3f} (standard error {fall.error:.3f}) below its best ({fall.truth[0]:.3f}, "
        f"{fall.when[0]}), and the judge's mean score went from {before:.3f} to {now:.3f}"
    )


class SuccessFalls(Check):
    """Held-out success is below its best, and the judge's score has not followed."""

    guard = "success"

    def __init__(self, settings: SuccessGuard) -> None:
        self._falls: dict[Source, Falls] = defaultdict(lambda: Falls(settings.drop, paired=True))

    def evaluation(self, found: Evaluation) -> Seen:
        if found.success is None or found.score is None:
            return None
        fall = self._falls[found.source].take(Point(found.when, found.success, found.score))
        return "" if fall is None else f"held-out success {_moved(fall)}: the judge does not see it"


class ScoreDrifts(Check):
    """The judge's mean score has risen further than success since the first evaluation that has both."""

    guard = "drift"

    def __init__(self, settings: DriftGuard) -> None:
        self._gap = settings.gap
        self._first: dict[Source, Point] = {}
        self._looks: Counter[Source] = Counter()

    def evaluation(self, found: Evaluation) -> Seen:
        if found.success is None or found.score is None:
            return None
        now = Point(found.when, found.success, found.score)
        first = self._first.setdefault(found.source, now)
        tasks = common_tasks([first, now])
        if first is now or len(tasks) < FEWEST:
            return ""
        self._looks[found.source] += 1
        scores, truths = (
            [of_tasks(part, tasks) for part in pair] for pair in ((first.score, now.score), (first.truth, now.truth))
        )
        risen, explained = scores[1] - scores[0], truths[1] - truths[0]
        gap, error = float((risen - explained).mean()), standard_error(risen - explained)
        if gap <= self._gap + NEARLY or gap <= error * critical(len(tasks) - 1, self._looks[found.source]):
            return ""
        return (
            f"the judge's mean score moved by {risen.mean():+.3f} (to {scores[1].mean():.3f}) and held-out success by {explained.mean():+.3f} "
            f"(to {truths[1].mean():.3f}; standard error of the difference {error:.3f}) since {first.when}: success does not explain the score"
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
        self._of = of
        self._falls: dict[Source, Falls] = defaultdict(lambda: Falls(settings.fall, paired=of == "evaluations"))
        self._said: dict[str, float] = {}
        self._paid: dict[str, float] = {}

    def evaluation(self, found: Evaluation) -> Seen:
        if self._of != "evaluations" or found.auditor is None or found.score is None:
            return None
        return self._look(Point(found.when, found.auditor, found.score), found.source)

    def update(self, update: int, metrics: Metrics) -> Seen:
        said, paid = number(metrics, "auditor/score"), number(metrics, "auditor/judge_score")
        if self._of != "updates" or said is None or paid is None:
            return None
        self._said[str(update)], self._paid[str(update)] = said, paid
        if len(self._said) < WINDOW:
            return None
        now = Point(after(update), self._said, self._paid)
        self._said, self._paid = {}, {}
        return self._look(now, "training")

    def _look(self, now: Point, source: Source) -> Seen:
        fall = self._falls[source].take(now)
        return "" if fall is None else f"the auditor's mean score {_moved(fall)}: the two judges part ways"


class AuditorDisagrees(Check):
    """The rank correlation of the two judges' scores is low: at evaluations, or over updates."""

    guard = "auditor"

    def __init__(self, settings: AuditorGuard, of: Literal["evaluations", "updates"]) -> None:
        self._of, self._least = of, settings.min_correlation
        self._looks = 0
        self._last: list[tuple[float, float]] = []

    def evaluation(self, found: Evaluation) -> Seen:
        if self._of != "evaluations" or found.correlation is None or not found.compared:
            return None
        return self._look(found.correlation, found.compared, found.when)

    def update(self, update: int, metrics: Metrics) -> Seen:
        value, compared = number(metrics, "auditor/correlation"), number(metrics, "auditor/compared")
        if self._of != "updates" or value is None or not compared:
            return None
        self._last.append((value, compared))
        if len(self._last) < WINDOW:
            return None
        compared = sum(n for _, n in self._last)
        value = sum(value * n for value, n in self._last) / compared
        self._last = []
        return self._look(value, compared, f"over the last {WINDOW} updates that have one, to update {update}")

    def _look(self, value: float, compared: float, when: str) -> Seen:
        """Of rankings that have nothing to do with each other the correlation has mean 0 and variance 1/`compared`."""
        self._looks += 1
        if value + critical(math.inf, self._looks) / math.sqrt(compared) >= self._least:
            return ""
        return (
            f"the two judges' scores have a rank correlation of {value:.2f} ({when}; {compared:.0f} comparisons), below "
            f"guards.auditor.min_correlation={self._least:g}: what one likes the other does not"
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


def _spells(config: AgentConfig, watched: bool) -> list[_Spell]:
    guards = config.guards
    found: list[tuple[Check, GuardConfig]] = [(KLGrows(guards.kl), guards.kl)]
    if watched:
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


def check_guards(config: AgentConfig, *, audited: bool = False) -> None:
    """Whether guards that are to stop a training could: one that never fires is worse than none.

    Args:
        audited: whether a second judge is there that the config need not name.

    Raises:
        ConfigError: a guard with `action: stop` has nothing to look at, or not often enough; or the second judge is the one that pays.
    """
    feedback, second = config.feedback, config.guards.auditor
    kind = MODES[feedback.mode]
    watched = kind.learns_from_judge(feedback)
    for name, lacking in _lacking(config, audited or second.judge is not None).items():
        unwatched = name != "kl" and not watched
        if getattr(config.guards, name).action == "stop" and (unwatched or lacking):
            said = (
                f"with feedback.mode={feedback.mode} (as it is set) nothing is learned from a judge"
                if unwatched
                else lacking
            )
            raise ConfigError(f"guards.{name}.action=stop can never stop anything: {said}")
    if second.judge is None or second.action == "none":
        return
    if not watched:
        logger.warning(
            "guards.auditor.judge=%s is not asked: with feedback.mode=%s (as it is set) nothing is learned from a judge",
            second.judge, feedback.mode,
        )  # fmt: skip
    elif (second.judge, second.judge_options, second.judge_mode) == (
        feedback.judge, feedback.judge_options, kind(feedback).judged_in,
    ):  # fmt: skip
        raise ConfigError(f"guards.auditor.judge={second.judge} is the judge that pays: it cannot disagree with itself")


def _lacking(config: AgentConfig, audited: bool) -> dict[str, str]:
    """By guard, what keeps it from ever firing before the last update; "" where nothing does."""
    guards, every, updates = config.guards, config.eval.every, config.max_updates
    evaluations = (updates - 1) // every + guards.evaluate if every else 0
    looks = (updates - 1) // WINDOW if guards.auditor.share > 0 else 0

    def few(wanted: int) -> str:
        made = f"{evaluations} evaluations are made before the last update (eval.every={every}, max_updates={updates})"
        return f"{made}, and it takes {wanted}" if evaluations < wanted else ""

    tasks = config.environment.eval_tasks
    untold = (
        f"{tasks} held-out tasks (environment.eval_tasks) prove nothing, and it takes {FEWEST}"
        if tasks < FEWEST
        else ""
    )
    length, kl, auditor = guards.length, guards.kl, guards.auditor
    unaudited = f"neither evaluations (guards.evaluate, eval.every) nor updates (share={auditor.share:g}) give it the looks it takes"
    return {
        "success": untold or few(1 + guards.success.patience),
        "drift": untold or few(1 + guards.drift.patience),
        "length": "" if updates > length.first + length.patience else f"it takes more than max_updates={updates}",
        "kl": "set guards.kl.max, in nats a token" if kl.max is None
        else "" if updates > kl.patience else f"it takes more than max_updates={updates}",
        "auditor": "set guards.auditor.judge, a second judge" if not audited
        else "" if max(guards.evaluate * evaluations, looks) >= auditor.patience else unaudited,
    }  # fmt: skip


@dataclass
class Guards:
    """The guards of a run.

    Args:
        config: the run's.
        watched: whether anything a judge says is learned from.
    """

    config: AgentConfig
    watched: bool
    events: list[Event] = field(default_factory=list)
    """Those that fired, in order."""
    best: Best | None = None

    def __post_init__(self) -> None:
        self._spells = _spells(self.config, self.watched)
        self._paid: list[float] = []
        """The judge's mean score of each update since the last evaluation."""
        self._update = -1

    def observe(self, update: int, metrics: Metrics) -> list[Event]:
        """Take in an update's metrics; the guards that fire at it."""
        own = number(metrics, "feedback/own_score")  # under feedback.recalibrate: by one map throughout
        if (score := number(metrics, "feedback/score") if own is None else own) is not None:
            self._paid.append(score)
        return self._take(update, [(spell, spell.check.update(update, metrics)) for spell in self._spells])

    def evaluated(self, row: Mapping[str, Any]) -> list[Event]:
        """Take in an evaluation, a row of eval.jsonl; the guards that fire at it."""
        update: int = row["update"]
        score, source = self._score(row)
        found = Evaluation(
            update=update,
            success=row.get("by_task") or None,
            score=score,
            source=source,
            auditor=row.get("auditor_by_task") or None,
            correlation=number(row, "auditor_correlation"),
            compared=number(row, "auditor_compared"),
        )
        by = "auditor" if middle(row.get("success")) is None else "success"
        value = middle(row.get(by))
        better = self.best is None or (by == "success", value) > (self.best.by == "success", self.best.value)
        if value is not None and better:
            low, high = (number(row[by], bound) for bound in ("low", "high"))
            self.best = Best(update, row.get("episodes", 0), by, value, low, high)
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

    def _score(self, row: Mapping[str, Any]) -> tuple[Mapping[str, float] | float | None, Source]:
        """The judge's score and where it is from: the evaluation's episodes, else the updates since the last evaluation."""
        paid, self._paid = self._paid, []
        held_out: Mapping[str, float] | float | None = row.get("score_by_task") or middle(row.get("score"))
        if held_out is not None:
            return held_out, "held-out"
        return (sum(paid) / len(paid) if paid else None), "training"

    def _take(self, update: int, seen: Sequence[tuple[_Spell, Seen]]) -> list[Event]:
        self._update = update
        fired = [spell.event(update) for spell, what in seen if spell.take(what)]
        self.events += fired
        return fired
