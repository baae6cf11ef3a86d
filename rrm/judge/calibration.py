"""Calibration: raw scores to probabilities of success, one map per mode, stored with the judge as JSON.

A transcript read in several windows is scored in another way than one read at once, so its scores have a map of their own
(`steps@windowed`); the probabilities of single steps have theirs (`steps_p_good`).

Platt scaling (Platt 1999) is the default: it is strictly increasing, so it keeps every difference inside a group. It reads the
logit of the raw score, which is right for a probability (a map of slope 1 and intercept 0 leaves it as it is). Where scores are
grades, 0.8 of a run that succeeded, `platt_score` reads the raw score itself: a few wrong runs at 0.9999 are far out on the
logit, and would flatten the map for all others. Isotonic regression is on offer, but its plateaus make ties.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, Field, StringConstraints

from rrm.config import CalibrationMethod
from rrm.errors import RRMError
from rrm.feedback import Mode

EPS = 1e-6
"""Raw scores are kept this far from 0 and 1 before the logit."""


class Platt(BaseModel):
    """p = sigmoid(a · x + b), a > 0, where x is the raw score or its logit."""

    method: Literal["platt"] = "platt"
    a: float = Field(gt=0)
    b: float
    rows: int
    """How many labelled rows it was fitted on."""
    reads: Literal["logit", "score"] = "logit"

    def __call__(self, raw: float) -> float:
        clipped = min(max(raw, EPS), 1 - EPS)
        z = self.a * (raw if self.reads == "score" else math.log(clipped / (1 - clipped))) + self.b
        return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


class Isotonic(BaseModel):
    """Piecewise-linear through the fitted thresholds."""

    method: Literal["isotonic"] = "isotonic"
    x: list[float]
    y: list[float]
    rows: int

    def __call__(self, raw: float) -> float:
        return float(np.interp(raw, self.x, self.y))


Calibrator = Annotated[Platt | Isotonic, Field(discriminator="method")]


P_GOOD = "steps_p_good"
"""Key of the map of single steps' probabilities."""
Key = Annotated[str, StringConstraints(pattern=r"^((full|critique|score|steps)(@windowed)?|steps_p_good)$")]


def key_of(mode: Mode, windowed: bool = False) -> str:
    """The key of a mode's map, for transcripts read at once or in several windows."""
    return f"{mode}@windowed" if windowed else mode


class Calibration(BaseModel):
    """The maps of a judge, by mode; a mode without one passes raw scores through."""

    modes: dict[Key, Calibrator] = Field(default_factory=dict)
    """By `key_of` a mode, or `P_GOOD`."""

    def apply(self, mode: Mode, raw: float, *, windowed: bool = False) -> float:
        """The calibrated score of a raw one. A windowed one for which nothing was fitted takes the mode's own map: not
        calibrated for it (`covers`), but on one scale with the others."""
        calibrator = self.modes.get(key_of(mode, windowed)) or self.modes.get(mode)
        return raw if calibrator is None else calibrator(raw)

    def p_good(self, raw: float) -> float:
        """The calibrated probability that a step was good."""
        calibrator = self.modes.get(P_GOOD)
        return raw if calibrator is None else calibrator(raw)

    def covers(self, mode: Mode, *, windowed: bool = False) -> bool:
        """Whether a map was fitted on transcripts read this way."""
        return key_of(mode, windowed) in self.modes


def fit(raw: Sequence[float], labels: Sequence[float], method: CalibrationMethod = "platt") -> Platt | Isotonic:
    """Fit a map on raw scores and labels in [0, 1] (soft labels weigh both classes).

    Raises:
        RRMError: fewer than ten rows, one class only, or scores that do not rise with the labels.
    """
    x, y = np.asarray(raw, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if len(x) < 10 or y.min() >= 0.5 or y.max() < 0.5:
        raise RRMError(
            f"calibration needs at least ten rows with both outcomes, got {len(x)} with mean {y.mean() if len(y) else 0:.2f}"
        )
    if method == "isotonic":
        from sklearn.isotonic import IsotonicRegression

        model = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(x, y)
        if np.ptp(model.y_thresholds_) < EPS:
            raise RRMError(
                "no rising map fits: raw scores do not rise with the labels on the calibration rows, the judge has learned "
                "nothing usable there"
            )
        return Isotonic(x=model.X_thresholds_.tolist(), y=model.y_thresholds_.tolist(), rows=len(x))
    from sklearn.linear_model import LogisticRegression

    clipped = np.clip(x, EPS, 1 - EPS)
    reads: Literal["logit", "score"] = "score" if method == "platt_score" else "logit"
    z = (x if reads == "score" else np.log(clipped / (1 - clipped)))[:, None]
    features, classes = np.concatenate([z, z]), np.r_[np.ones(len(y)), np.zeros(len(y))]
    # a weak ridge keeps a separable set finite
    model = LogisticRegression(C=100.0).fit(features, classes, sample_weight=np.r_[y, 1 - y])
    a, b = float(model.coef_[0, 0]), float(model.intercept_[0])
    if a <= 0:
        raise RRMError(
            f"raw scores fall as labels rise on the calibration rows (slope {a:.3f}): the judge has learned nothing usable there"
        )
    return Platt(a=a, b=b, rows=len(x), reads=reads)
