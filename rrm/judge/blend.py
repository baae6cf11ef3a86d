"""Blending: a judge's score and a lexical model's (`rrm.judge.lexical`), which err differently.

    raw = sigmoid((1 − w) · (logit(judge's raw score) − μ_j) / σ_j + w · (lexical log-odds − μ_l) / σ_l)

Means, deviations and the weight w are fitted on calibration questions, and are one for all transcripts: `raw` compares them. The
map from `raw` to a probability is one too, or two, as of the judge alone (`rrm.judge.calibration.fit_by_reading`): of transcripts
read at once, and of those read in windows. Words are
easy to write: an agent that is rewarded by them learns to write them. A blend is therefore a wrapper around a judge, made
where transcripts of finished runs are scored (`rrm.judge.blended`); rewards hold the judge itself and cannot reach it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rrm.config import CalibrationMethod
from rrm.errors import RRMError
from rrm.feedback import Mode
from rrm.judge.calibration import EPS, Calibrator, fit, fit_by_reading


class BlendMap(BaseModel):
    """How the two scores of one mode go together."""

    model_config = ConfigDict(extra="forbid")

    weight: float = Field(ge=0.0, le=1.0)
    """Of the lexical model."""
    judge_mean: float
    judge_std: float = Field(gt=0.0)
    lexical_mean: float
    lexical_std: float = Field(gt=0.0)
    calibrator: Calibrator
    """Of transcripts read at once; of all where too little is known of these (`pooled`)."""
    windowed: Calibrator | None = None
    """Of those read in windows; None where too little is known of them, and they take the other: not calibrated, but on one scale."""
    pooled: bool = False
    """Whether `calibrator` is of all transcripts because too little is known of those read at once, for which it is not calibrated."""
    rows: int

    def __call__(self, raw: float, log_odds: float) -> float:
        """The blended raw score in (0, 1)."""
        judge = (_logit(raw) - self.judge_mean) / self.judge_std
        words = (log_odds - self.lexical_mean) / self.lexical_std
        return _sigmoid((1.0 - self.weight) * judge + self.weight * words)

    def probability(self, blended: float, *, windowed: bool = False) -> float:
        """The calibrated score of a blended raw one."""
        return ((self.windowed if windowed else None) or self.calibrator)(blended)

    def covers(self, *, windowed: bool = False) -> bool:
        """Whether a map was fitted on transcripts read this way."""
        return self.windowed is not None if windowed else not self.pooled


class Blend(BaseModel):
    """What `judge.json` says of blending."""

    model_config = ConfigDict(extra="forbid")

    lexical_sha256: str
    """Of the `lexical.json` beside it, whose numbers the maps were fitted to."""
    modes: dict[Mode, BlendMap]


def _logit(p: float) -> float:
    clipped = min(max(p, EPS), 1 - EPS)
    return math.log(clipped / (1 - clipped))


def _sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


def fit_blend(
    raw: Sequence[float],
    log_odds: Sequence[float],
    labels: Sequence[float],
    method: CalibrationMethod = "platt",
    windowed: Sequence[bool] | None = None,
    questions: Sequence[str] | None = None,
) -> BlendMap:
    """Fit one mode's weights and maps on calibration rows: (N,) raw scores of the judge, log-odds of a lexical model that was
    trained on other questions, and labels in [0, 1].

    The weight is the lexical share of a logistic regression on both standardised scores; one that does not rise with the
    labels beside the other gets none.

    Args:
        windowed: (N,) whether a row was read in windows; None: none was.
        questions: (N,) what a row is an attempt at; None: each of its own.

    Raises:
        RRMError: fewer than ten rows, one class only, a constant score, or neither score rises with the labels.
    """
    from sklearn.linear_model import LogisticRegression

    judge = np.array([_logit(r) for r in raw])
    words, y = np.asarray(log_odds, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if len(y) < 10 or y.min() >= 0.5 or y.max() < 0.5:
        raise RRMError(f"a blend needs at least ten calibration rows with both outcomes, got {len(y)}")
    if not (judge.std() > 0 and words.std() > 0):
        raise RRMError("nothing to blend: the judge's or the lexical score is the same for all calibration rows")
    z = np.stack([(judge - judge.mean()) / judge.std(), (words - words.mean()) / words.std()], axis=1)
    rows, classes = np.concatenate([z, z]), np.r_[np.ones(len(y)), np.zeros(len(y))]
    a, b = LogisticRegression(C=100.0).fit(rows, classes, sample_weight=np.r_[y, 1 - y]).coef_[0].clip(min=0.0)
    if a + b <= 0:
        raise RRMError("neither the judge's nor the lexical score rises with the labels of the calibration rows")
    weight = float(b / (a + b))
    blended = [_sigmoid(float(v)) for v in z @ np.array([1.0 - weight, weight])]
    of_all = fit(blended, y.tolist(), method)
    kinds = [False] * len(y) if windowed is None else windowed
    asked = [str(i) for i in range(len(y))] if questions is None else questions
    maps = fit_by_reading(blended, y.tolist(), kinds, asked, method).maps
    return BlendMap(
        weight=weight,
        judge_mean=float(judge.mean()),
        judge_std=float(judge.std()),
        lexical_mean=float(words.mean()),
        lexical_std=float(words.std()),
        calibrator=maps.get(False) or of_all,
        windowed=maps.get(True),
        pooled=False not in maps,
        rows=len(y),
    )
