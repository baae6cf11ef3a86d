"""The conditions of guards; pure functions of metrics and evaluations.

A condition holds where it is beyond chance (`reagent.train.drop_detector`); a check without data concludes nothing."""

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
WINDOW = 5
"""Updates of one look of the auditor's at training rows."""

Seen = str | None
"""A sentence where the condition holds, "" where not, None without data."""
Source = Literal["held-out", "training"]
"""Source of the judge's score beside an evaluation: its episodes, or the updates since the last."""


def after(update: int) -> str:
    """An update, counted from 0, in words; −1 is before the first."""
    return f"after update {update}" if update >= 0 else "before the first update"


Known = Mapping[str, float] | None


@dataclass(frozen=True)
class Evaluation:
    update: int
    success: Known
    score: Score | None
    """The paying judge's, of the same episodes by task; or its means."""
    source: Source
    """Beside means of training updates, figures by task are in the middle of two evaluations."""
    auditor: Known
    correlation: float | None
    compared: float | None
    """Number of free comparisons of `correlation`."""

    @property
    def when(self) -> str:
        return after(self.update)


class Check(ABC):
    """One condition of a guard, with its past."""

    guard: ClassVar[str]

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.spell = ConsecutiveCount(settings.patience)

    def update(self, update: int, metrics: Metrics) -> Seen:
        return None

    def evaluation(self, evaluation: Evaluation) -> Seen:
        return None

    def begin_stage(self) -> None:  # noqa: B027 - most look at no score
        """Compare no scores with those from before: the criteria have changed."""


class FallCheck(Check):
    quantity: ClassVar[str]
    so: ClassVar[str]

    def __init__(self, settings: Any, least: float, *, paired: bool = True) -> None:
        super().__init__(settings)
        self._falls: dict[Source, DropDetector] = defaultdict(lambda: DropDetector(least, paired=paired))

    def look(self, when: str, truth: Known, score: Score | None, source: Source) -> Seen:
        if truth is None or score is None:
            return None
        look = self._falls[source].take(Point(when, truth, score))
        if (fall := look.fall) is None:
            return "" if look.comparisons else None
        before, now = fall.score
        return (
            f"{self.quantity} is {fall.truth[1]:.3f} ({fall.when[1]}), {fall.size:.3f} (standard error {fall.error:.3f}) below its best "
            f"({fall.truth[0]:.3f}, {fall.when[0]}), and the judge's mean score went from {before:.3f} to {now:.3f}: {self.so}"
        )

    def begin_stage(self) -> None:
        self._falls.clear()


class SuccessFalls(FallCheck):
    guard, quantity, so = "success", "held-out success", "the judge does not see it"

    def __init__(self, settings: SuccessGuard) -> None:
        super().__init__(settings, settings.drop)

    def evaluation(self, evaluation: Evaluation) -> Seen:
        return self.look(evaluation.when, evaluation.success, evaluation.score, evaluation.source)


class ScoreDrifts(Check):
    """The judge's mean score has risen further than success since the first evaluation with both."""

    guard = "drift"

    def __init__(self, settings: DriftGuard) -> None:
        super().__init__(settings)
        self._first: dict[Source, Point] = {}
        self._looks: Counter[Source] = Counter()
        self._means: dict[Source, list[float]] = defaultdict(list)

    def evaluation(self, evaluation: Evaluation) -> Seen:
        if evaluation.success is None or evaluation.score is None:
            return None
        now = Point(evaluation.when, evaluation.success, evaluation.score)
        first = self._first.setdefault(evaluation.source, now)
        if isinstance(now.score, tuple):
            self._means[evaluation.source] += now.score
        truth, score = aligned([first, now])
        shared = ~np.isnan(truth).any(0)
        tasks = int(shared.sum())
        if first is now or tasks < FEWEST:
            return None
        self._looks[evaluation.source] += 1
        risen, explained = (figures[1, shared] - figures[0, shared] for figures in (score, truth))
        gap = risen - explained
        error, freedom = self._error(gap, (first, now), self._means[evaluation.source])
        wide, least = float(gap.mean()), error * critical(freedom, LEVEL / self._looks[evaluation.source])
        if wide <= max(self.settings.gap + NEARLY, least):
            return ""
        return (
            f"the judge's mean score moved by {risen.mean():+.3f} (to {score[1, shared].mean():.3f}) and held-out success by "
            f"{explained.mean():+.3f} (to {truth[1, shared].mean():.3f}; standard error of the difference {error:.3f}) since {first.when}: "
            "success does not explain the score"
        )

    @staticmethod
    def _error(gap: np.ndarray, points: tuple[Point, Point], means: Sequence[float]) -> tuple[float, float]:
        """Standard error of the gap's mean, and its degrees of freedom; means have noise of their own."""
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
    guard = "length"

    def __init__(self, settings: LengthGuard, key: str, unit: str) -> None:
        super().__init__(settings)
        self._key, self._unit = key, unit
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
            f"an episode has {value:.1f} {self._unit}, {value / before:.2f} times the {before:.1f} of the first {len(first)} "
            "updates: look in episodes.jsonl whether the judge likes that by itself"
        )


class LiesOutside(Check):
    """Most judgements are of attempts (or their beginnings) outside of the judge's domain."""

    guard = "out_of_domain"

    def update(self, update: int, metrics: Metrics) -> Seen:
        outside, placed = number(metrics, "feedback/outside"), number(metrics, "feedback/placed")
        if outside is None or not placed:
            return None
        if outside / placed <= self.settings.share:
            return ""
        return (
            f"{outside:.0f} of {placed:.0f} judgements are of what lies outside of what the judge was measured on, a share above "
            f"guards.out_of_domain.share={self.settings.share:g}: what it pays for there is not known; measure it on labelled attempts of this agent "
            "(rrm eval), or train one on them"
        )


class KLGrows(Check):
    guard = "kl"

    def update(self, update: int, metrics: Metrics) -> Seen:
        value, most = number(metrics, "kl"), self.settings.max
        if value is None or most is None:
            return None
        if value <= most:
            return ""
        return f"the policy is {value:.4f} nats a token from the one it started from, above guards.kl.max={most:g}"


class AuditorFalls(FallCheck):
    guard, quantity, so = "auditor", "the auditor's mean score", "the two judges part ways"

    def __init__(self, settings: AuditorGuard, source: Literal["evaluations", "updates"]) -> None:
        super().__init__(settings, settings.fall, paired=source == "evaluations")
        self._source = source
        self._said: dict[str, float] = {}
        self._paid: dict[str, float] = {}

    def evaluation(self, evaluation: Evaluation) -> Seen:
        if self._source != "evaluations":
            return None
        return self.look(evaluation.when, evaluation.auditor, evaluation.score, evaluation.source)

    def update(self, update: int, metrics: Metrics) -> Seen:
        second, paid = number(metrics, "auditor/score"), number(metrics, "auditor/judge_score")
        if self._source != "updates" or second is None or paid is None:
            return None
        self._said[str(update)], self._paid[str(update)] = second, paid
        if len(self._said) < WINDOW:
            return None
        looked_at, self._said, self._paid = (self._said, self._paid), {}, {}
        return self.look(after(update), *looked_at, "training")

    def begin_stage(self) -> None:
        super().begin_stage()
        self._said, self._paid = {}, {}


class AuditorDisagrees(Check):
    guard = "auditor"

    def __init__(self, settings: AuditorGuard, source: Literal["evaluations", "updates"]) -> None:
        super().__init__(settings)
        self._source, self._looks = source, 0
        self._last: list[tuple[float, float]] = []

    def evaluation(self, evaluation: Evaluation) -> Seen:
        if self._source != "evaluations" or evaluation.correlation is None or not evaluation.compared:
            return None
        return self._look(evaluation.correlation, evaluation.compared, evaluation.when)

    def update(self, update: int, metrics: Metrics) -> Seen:
        value, compared = number(metrics, "auditor/correlation"), number(metrics, "auditor/compared")
        if self._source != "updates" or value is None or not compared:
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
        """Unrelated rankings have mean 0 and variance 1/`compared`."""
        self._looks += 1
        if value + critical(math.inf, LEVEL / self._looks) / math.sqrt(compared) >= self.settings.min_correlation:
            return ""
        return (
            f"the two judges' scores have a rank correlation of {value:.2f} ({when}; {compared:.0f} comparisons), below "
            f"guards.auditor.min_correlation={self.settings.min_correlation:g}: what one likes the other does not"
        )
