"""The conditions of guards: what each looks at in a training, and when it holds. Pure, over metrics of updates and evaluations.

A condition holds where it is beyond chance (`reagent.train.drop_detector`). Where there is nothing to look at (no graded held-out task, no
score), a check concludes nothing.
"""

import math
from abc import ABC
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from reagent.train.alarms import ConsecutiveCount, Metrics, number
from reagent.train.drop_detector import (
    FEWEST,
    LEVEL,
    NEARLY,
    DropDetector,
    Point,
    Score,
    aligned,
    critical,
    mean_error,
    noise_std,
    welch_df,
)
from reagent.train.guard_settings import AuditorGuard, DriftGuard, LengthGuard, SuccessGuard

FIRST_UPDATES = 3
"""The first updates, whose mean length is the measure of `guards.length`."""
WINDOW = 5
"""Updates that are one look of the auditor's at training rows: one update's share is a handful of episodes."""

Seen = str | None
"""What a check saw: a sentence where its condition holds, "" where not, None where there was nothing to look at."""
Source = Literal["held-out", "training"]
"""Of the judge's score beside an evaluation: its own episodes, or those of the updates since the last one."""


def after(update: int) -> str:
    """When, in words, of an update counted from 0; −1 is before the first."""
    return f"after update {update}" if update >= 0 else "before the first update"


Known = Mapping[str, float] | None
"""Figures by task; None where they are unknown."""


@dataclass(frozen=True)
class Evaluation:
    """What checks look at of an evaluation; None is unknown."""

    update: int
    success: Known
    """Of held-out tasks with answers."""
    score: Score | None
    """The paying judge's, of the same episodes by task; or its means."""
    source: Source
    """Of the score: what it is compared with comes from there too. Beside means of training updates the figures by task are those in
    the middle of this evaluation and the one before."""
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
    """One condition of a guard; it keeps what it must know of the past, and for how long the condition has held."""

    guard: ClassVar[str]

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.spell = ConsecutiveCount(settings.patience)

    def update(self, update: int, metrics: Metrics) -> Seen:
        """Look at an update's metrics."""
        return None

    def evaluation(self, found: Evaluation) -> Seen:
        """Look at an evaluation."""
        return None

    def begin_stage(self) -> None:  # noqa: B027 - most look at no score
        """From here on the judge that pays is asked other criteria: its scores are compared with none from before."""


class FallCheck(Check):
    """A truth is below its best, and the judge's score has not followed."""

    what: ClassVar[str]
    so: ClassVar[str]

    def __init__(self, settings: Any, least: float, *, paired: bool = True) -> None:
        super().__init__(settings)
        self._falls: dict[Source, DropDetector] = defaultdict(lambda: DropDetector(least, paired=paired))

    def look(self, when: str, truth: Known, score: Score | None, source: Source) -> Seen:
        """The fall and the score beside it, in words."""
        if truth is None or score is None:
            return None
        look = self._falls[source].take(Point(when, truth, score))
        if (fall := look.fall) is None:
            return "" if look.comparisons else None
        before, now = fall.score
        return (
            f"{self.what} is {fall.truth[1]:.3f} ({fall.when[1]}), {fall.size:.3f} (standard error {fall.error:.3f}) below its best "
            f"({fall.truth[0]:.3f}, {fall.when[0]}), and the judge's mean score went from {before:.3f} to {now:.3f}: {self.so}"
        )

    def begin_stage(self) -> None:
        self._falls.clear()


class SuccessFalls(FallCheck):
    """Held-out success is below its best, and the judge's score has not followed."""

    guard, what, so = "success", "held-out success", "the judge does not see it"

    def __init__(self, settings: SuccessGuard) -> None:
        super().__init__(settings, settings.drop)

    def evaluation(self, found: Evaluation) -> Seen:
        return self.look(found.when, found.success, found.score, found.source)


class ScoreDrifts(Check):
    """The judge's mean score has risen further than success since the first evaluation that has both."""

    guard = "drift"

    def __init__(self, settings: DriftGuard) -> None:
        super().__init__(settings)
        self._first: dict[Source, Point] = {}
        self._looks: Counter[Source] = Counter()
        self._means: dict[Source, list[float]] = defaultdict(list)
        """All scores since the first of which means alone are known."""

    def evaluation(self, found: Evaluation) -> Seen:
        if found.success is None or found.score is None:
            return None
        now = Point(found.when, found.success, found.score)
        first = self._first.setdefault(found.source, now)
        if isinstance(now.score, tuple):
            self._means[found.source] += now.score
        truth, score = aligned([first, now])
        known = ~np.isnan(truth).any(0)
        tasks = int(known.sum())
        if first is now or tasks < FEWEST:
            return None
        self._looks[found.source] += 1
        risen, explained = (part[1, known] - part[0, known] for part in (score, truth))
        gap = risen - explained
        error, freedom = self._error(gap, (first, now), self._means[found.source])
        wide, least = float(gap.mean()), error * critical(freedom, LEVEL / self._looks[found.source])
        if wide <= max(self.settings.gap + NEARLY, least):
            return ""
        return (
            f"the judge's mean score moved by {risen.mean():+.3f} (to {score[1, known].mean():.3f}) and held-out success by "
            f"{explained.mean():+.3f} (to {truth[1, known].mean():.3f}; standard error of the difference {error:.3f}) since {first.when}: "
            "success does not explain the score"
        )

    @staticmethod
    def _error(gap: np.ndarray, points: tuple[Point, Point], means: Sequence[float]) -> tuple[float, float]:
        """Standard error of the gap's mean over tasks, and its degrees of freedom. `means`: the whole series where scores are means: these
        have noise of their own, that of neighbours."""
        error, freedom = mean_error(gap)
        counts = [len(p.score) for p in points if isinstance(p.score, tuple)]
        if len(counts) < len(points):
            return error, freedom
        noise, theirs = noise_std(np.array(means))
        noise *= math.sqrt(sum(1 / n for n in counts))
        return math.hypot(error, noise), welch_df(error, freedom, noise, theirs)

    def begin_stage(self) -> None:
        self._first.clear()
        self._means.clear()


class LengthDrifts(Check):
    """Episodes are much longer, or shorter, than in the first updates."""

    guard = "length"

    def __init__(self, settings: LengthGuard, key: str, what: str) -> None:
        super().__init__(settings)
        self._key, self._what = key, what
        self._first: list[float] = []

    def update(self, update: int, metrics: Metrics) -> Seen:
        value, first = number(metrics, self._key), self._first
        if value is None:
            return None
        if len(first) < FIRST_UPDATES:
            first.append(value)
            return ""
        before = sum(first) / len(first)
        if before <= 0 or 1 / self.settings.ratio <= value / before <= self.settings.ratio:
            return ""
        return (
            f"an episode has {value:.1f} {self._what}, {value / before:.2f} times the {before:.1f} of the first {len(first)} "
            "updates: look in episodes.jsonl whether the judge likes that by itself"
        )


class LiesOutside(Check):
    """Most of what was judged lies outside of what the judge was measured on: attempts, and where steps are paid by them their beginnings."""

    guard = "out_of_domain"

    def update(self, update: int, metrics: Metrics) -> Seen:
        outside, told = number(metrics, "feedback/outside"), number(metrics, "feedback/placed")
        if outside is None or not told:
            return None
        if outside / told <= self.settings.share:
            return ""
        return (
            f"{outside:.0f} of {told:.0f} judgements are of what lies outside of what the judge was measured on, a share above "
            f"guards.out_of_domain.share={self.settings.share:g}: what it pays for there is not known; measure it on labelled attempts of this agent "
            "(rrm eval), or train one on them"
        )


class KLGrows(Check):
    """The policy is far from the one it started from."""

    guard = "kl"

    def update(self, update: int, metrics: Metrics) -> Seen:
        value, most = number(metrics, "kl"), self.settings.max
        if value is None or most is None:
            return None
        if value <= most:
            return ""
        return f"the policy is {value:.4f} nats a token from the one it started from, above guards.kl.max={most:g}"


class AuditorFalls(FallCheck):
    """The second judge's mean score is below its best, and the first's has not followed: at evaluations, or over updates."""

    guard, what, so = "auditor", "the auditor's mean score", "the two judges part ways"

    def __init__(self, settings: AuditorGuard, of: Literal["evaluations", "updates"]) -> None:
        super().__init__(settings, settings.fall, paired=of == "evaluations")
        self._of = of
        self._said: dict[str, float] = {}
        self._paid: dict[str, float] = {}

    def evaluation(self, found: Evaluation) -> Seen:
        if self._of != "evaluations":
            return None
        return self.look(found.when, found.auditor, found.score, found.source)

    def update(self, update: int, metrics: Metrics) -> Seen:
        said, paid = number(metrics, "auditor/score"), number(metrics, "auditor/judge_score")
        if self._of != "updates" or said is None or paid is None:
            return None
        self._said[str(update)], self._paid[str(update)] = said, paid
        if len(self._said) < WINDOW:
            return None
        looked_at, self._said, self._paid = (self._said, self._paid), {}, {}
        return self.look(after(update), *looked_at, "training")

    def begin_stage(self) -> None:
        super().begin_stage()
        self._said, self._paid = {}, {}


class AuditorDisagrees(Check):
    """The rank correlation of the two judges' scores is low: at evaluations, or over updates."""

    guard = "auditor"

    def __init__(self, settings: AuditorGuard, of: Literal["evaluations", "updates"]) -> None:
        super().__init__(settings)
        self._of, self._looks = of, 0
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

    def begin_stage(self) -> None:
        self._last = []

    def _look(self, value: float, compared: float, when: str) -> Seen:
        """Of rankings that have nothing to do with each other the correlation has mean 0 and variance 1/`compared`."""
        self._looks += 1
        if value + critical(math.inf, LEVEL / self._looks) / math.sqrt(compared) >= self.settings.min_correlation:
            return ""
        return (
            f"the two judges' scores have a rank correlation of {value:.2f} ({when}; {compared:.0f} comparisons), below "
            f"guards.auditor.min_correlation={self.settings.min_correlation:g}: what one likes the other does not"
        )
