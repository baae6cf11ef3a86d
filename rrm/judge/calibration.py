"""Calibration: raw scores to probabilities of success, one map per mode, stored with the judge as JSON.

A transcript read in several windows is scored in another way than one read at once, so its scores have a map of their own
(`steps@windowed`) where the labelled rows show that it takes one (`fit_by_reading`); the probabilities of single steps have
theirs (`steps_p_good`).

Platt scaling (Platt 1999) is the default: it is strictly increasing, so it keeps every difference inside a group. It reads the
logit of the raw score, which is right for a probability (a map of slope 1 and intercept 0 leaves it as it is). Where scores are
grades, 0.8 of a run that succeeded, `platt_score` reads the raw score itself: a few wrong runs at 0.9999 are far out on the
logit, and would flatten the map for all others. Isotonic regression is on offer, but its plateaus make ties.

**A prior at the present map**, for a user's few labels (`rrm calibrate`). With N rows of raw scores x_i and labels y_i, q_i what the present
map m says of x_i, and W = `PRIOR_LABELS`, the new map p minimises the penalised cross-entropy

    Σ_i H(y_i, p(x_i)) + W · (1/N) Σ_i H(q_i, p(x_i)),     H(t, p) = −t ln p − (1 − t) ln(1 − p)

The second term is, but for a constant, W times the mean Kullback-Leibler divergence of p from m at these scores: the log-likelihood
of W further labels of which m is right. It is least at p = m, so without labels the present map stays; with many it counts for nothing. As H is
linear in its first argument, the sum is (1 + W/N) Σ_i H(t_i, p(x_i)) with t_i = (y_i + (W/N) q_i) / (1 + W/N): the same fit on labels that
are drawn towards the present map (`towards`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, Field, StringConstraints

from rrm.config import CalibrationMethod
from rrm.data.feedback import Mode
from rrm.data.splits import TooFew, grouped_folds
from rrm.errors import RRMError

EPS = 1e-6
"""Raw scores are kept this far from 0 and 1 before the logit."""
RIDGE = 100.0
"""One over the weight of a slope's square, beside the summed cross-entropy."""
NEWTON = 30
"""Most steps of Newton's method, and most halvings of one."""
PRIOR_LABELS = 20
"""Labels that the present map counts for where a user's are added to it, and the fewest of these."""
FOLDS = 5
"""In which one map is compared with two."""


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


def towards(y: np.ndarray, present: np.ndarray | None) -> np.ndarray:
    """(N,) labels drawn towards what the present map says of these rows, (N,), as if it were `PRIOR_LABELS` of them; None: as they are."""
    if present is None:
        return y
    weight = PRIOR_LABELS / len(y)
    return (y + weight * present) / (1.0 + weight)


def fit(
    raw: Sequence[float],
    labels: Sequence[float],
    method: CalibrationMethod = "platt",
    present: Sequence[float] | None = None,
) -> Platt | Isotonic:
    """Fit a map on raw scores and labels in [0, 1] (soft labels weigh both classes).

    Args:
        present: (N,) what the present map says of these rows, which is then the prior; None: the labels alone decide.

    Raises:
        TooFew: fewer than ten rows, or one class only.
        RRMError: scores that do not rise with the labels.
    """
    x, y = np.asarray(raw, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    check_enough(y)
    y = towards(y, None if present is None else np.asarray(present, dtype=np.float64))
    if method == "isotonic":
        model = _isotonic(x, y)
        if np.ptp(model.y_thresholds_) < EPS:
            raise RRMError(
                "no rising map fits: raw scores do not rise with the labels on the calibration rows, the judge has learned "
                "nothing usable there"
            )
        return Isotonic(x=model.X_thresholds_.tolist(), y=model.y_thresholds_.tolist(), rows=len(x))
    reads = _reads(method)
    a, b = _logistic(_features(x, reads), y)
    if a <= 0:
        raise RRMError(
            f"raw scores fall as labels rise on the calibration rows (slope {a:.3f}): the judge has learned nothing usable there"
        )
    return Platt(a=a, b=b, rows=len(x), reads=reads)


def half_of(calibrator: Calibrator, value: float = 0.5) -> float:
    """The raw value in [0, 1] that is mapped to one half, or this value; an end of [0, 1] where all are mapped to one side of it."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if calibrator(middle) < value else (low, middle)
    return high


class CalibrationByLength(NamedTuple):
    """What was fitted for transcripts read at once (False) and for those read in several windows (True)."""

    maps: dict[bool, Platt | Isotonic]
    lacking: dict[bool, str]
    """Why a kind has no map."""
    apart: bool
    """Whether each kind has a map of its own; else all maps are one."""


def fit_by_reading(
    raw: Sequence[float],
    labels: Sequence[float],
    windowed: Sequence[bool],
    questions: Sequence[str],
    method: CalibrationMethod = "platt",
    present: Sequence[float] | None = None,
) -> CalibrationByLength:
    """Fit the maps of transcripts read at once and of those read in several windows, on (N,) rows of each.

    Where enough is known of both, one map of all rows serves both, unless two curves say the labels of other questions better: a
    mean cross-entropy, out of fold, that is lower by more than its standard error over questions. Two maps of few rows
    differ by chance, and then a transcript that grows past a window gains or loses by that alone. What few rows cannot show stays: of
    225 rows a shift of half a logit is seen once in twelve draws. A kind of which too little is known has no map, nor one whose
    scores clearly fall with the labels: there a curve of its own, that falls, is the better one.

    Args:
        windowed: whether a row was read in several windows.
        questions: what a row is an attempt at; a question's rows share a fold.
        present: as in `fit`, of each map.
    """
    x, y, many = (
        np.asarray(raw, dtype=np.float64),
        np.asarray(labels, dtype=np.float64),
        np.asarray(windowed, dtype=bool),
    )
    now = None if present is None else np.asarray(present, dtype=np.float64)
    lacking: dict[bool, str] = {}
    for kind in (False, True):
        try:
            check_enough(y[many == kind])
        except RRMError as error:
            lacking[kind] = str(error)
    one: Platt | Isotonic | None = None
    if not lacking:
        try:
            one = fit(raw, labels, method, present)
        except RRMError:
            one = None  # scores may rise inside each kind and fall over both
    if one is not None and not _better_apart(x, y, many, questions, method, now):
        return CalibrationByLength({False: one, True: one}, {}, apart=False)
    maps: dict[bool, Platt | Isotonic] = {}
    for kind in {False, True} - set(lacking):
        try:
            mine = many == kind
            maps[kind] = fit(x[mine].tolist(), y[mine].tolist(), method, None if now is None else now[mine].tolist())
        except RRMError as error:
            lacking[kind] = str(error)
    return CalibrationByLength(maps, lacking, apart=True)


def _better_apart(
    x: np.ndarray,
    y: np.ndarray,
    many: np.ndarray,
    questions: Sequence[str],
    method: CalibrationMethod,
    present: np.ndarray | None,
) -> bool:
    """Whether two curves, which may fall, have a lower cross-entropy than one, out of fold, by more than one standard error."""
    lower = np.zeros(len(y))
    try:
        folds = grouped_folds(questions, FOLDS, seed=0)
        for fold in range(FOLDS):
            rest, here = folds != fold, folds == fold
            check_enough(y[rest])
            one = curve(x[rest], y[rest], method, None if present is None else present[rest])
            for kind in (False, True):
                rows, mine = here & (many == kind), rest & (many == kind)
                check_enough(y[mine])
                own = curve(x[mine], y[mine], method, None if present is None else present[mine])
                lower[rows] = _cross_entropy(one(x[rows]), y[rows]) - _cross_entropy(own(x[rows]), y[rows])
    except TooFew:
        return False
    of_question = {q: i for i, q in enumerate(sorted(set(questions)))}
    sums = np.bincount([of_question[q] for q in questions], weights=lower - lower.mean())
    error = math.sqrt(len(sums) / (len(sums) - 1) * float((sums**2).sum())) / len(y)
    return bool(lower.mean() > error)


def curve(
    x: np.ndarray, y: np.ndarray, method: CalibrationMethod, present: np.ndarray | None = None
) -> Callable[[np.ndarray], np.ndarray]:
    """`fit`'s map of (N,) raw scores and labels of both outcomes, whatever its slope: (M,) raw scores → (M,) calibrated ones."""
    y = towards(y, present)
    if method == "isotonic":
        model = _isotonic(x, y)
        return lambda raw: model.predict(raw) if len(raw) else raw
    reads = _reads(method)
    a, b = _logistic(_features(x, reads), y)
    return lambda raw: 1 / (1 + np.exp(-(a * _features(raw, reads) + b)))


def curves(x: np.ndarray, y: np.ndarray, weights: np.ndarray, method: CalibrationMethod, at: np.ndarray) -> np.ndarray:
    """`curve` of many weightings of the same rows at once: (N,) raw scores and labels, (B, N) weights ≥ 0, each with both outcomes
    → (B, M) calibrated scores at (M,) raw ones."""
    if method == "isotonic":
        rows = np.arange(len(x))
        drawn = [np.repeat(rows, w.astype(np.int64)) for w in weights]
        return np.stack([curve(x[i], y[i], method)(at) for i in drawn]) if drawn else np.empty((0, len(at)))
    reads = _reads(method)
    a, b = _logistics(_features(x, reads), y, weights)
    return 1 / (1 + np.exp(-(a[:, None] * _features(at, reads) + b[:, None])))


def _logistics(z: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(B,) slopes and intercepts as `_logistic`'s, by Newton's method with its steps halved until the loss falls."""
    middle, scale = z.mean(), z.std() or 1.0
    u, ridge = (z - middle) / scale, 1 / (RIDGE * scale**2)

    def loss(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        t = a[:, None] * u + b[:, None]
        return (weights * (np.logaddexp(0, t) - y * t)).sum(axis=1) + ridge * a**2 / 2

    mean = np.clip((weights @ y) / weights.sum(axis=1), EPS, 1 - EPS)
    a, b = np.zeros(len(weights)), np.log(mean / (1 - mean))
    now = loss(a, b)
    for _ in range(NEWTON):
        p = 1 / (1 + np.exp(-(a[:, None] * u + b[:, None])))
        r, h = weights * (p - y), weights * p * (1 - p)
        ga, gb = r @ u + ridge * a, r.sum(axis=1)
        haa, hab, hbb = h @ u**2 + ridge, h @ u, h.sum(axis=1) + EPS
        det = haa * hbb - hab**2
        da, db = (hbb * ga - hab * gb) / det, (haa * gb - hab * ga) / det
        step = np.ones(len(a))
        for _ in range(NEWTON):
            new = loss(a - step * da, b - step * db)
            if (worse := new > now).sum() == 0:
                break
            step[worse] /= 2
        a, b, now = a - step * da, b - step * db, np.minimum(new, now)
        if float(np.abs(np.r_[step * da, step * db]).max(initial=0.0)) < EPS:
            break
    return a / scale, b - a * middle / scale


def _isotonic(x: np.ndarray, y: np.ndarray) -> Any:
    from sklearn.isotonic import IsotonicRegression

    return IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(x, y)


def _logistic(z: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Slope and intercept; a weak ridge keeps a separable set finite."""
    from sklearn.linear_model import LogisticRegression

    features, classes = np.concatenate([z, z])[:, None], np.r_[np.ones(len(y)), np.zeros(len(y))]
    model = LogisticRegression(C=RIDGE).fit(features, classes, sample_weight=np.r_[y, 1 - y])
    return float(model.coef_[0, 0]), float(model.intercept_[0])


def _reads(method: CalibrationMethod) -> Literal["logit", "score"]:
    return "score" if method == "platt_score" else "logit"


def _features(x: np.ndarray, reads: Literal["logit", "score"]) -> np.ndarray:
    """(N,) what a logistic map is linear in."""
    clipped = np.clip(x, EPS, 1 - EPS)
    return x if reads == "score" else np.log(clipped / (1 - clipped))


def _cross_entropy(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(N,) of each row, in nats."""
    sure = np.clip(p, EPS, 1 - EPS)
    return -(y * np.log(sure) + (1 - y) * np.log(1 - sure))


def check_enough(y: np.ndarray, least: int = 10) -> None:
    """Refuse (N,) labels in [0, 1] on which no map can be fitted.

    Raises:
        TooFew: fewer than `least`, or one class only.
    """
    if len(y) < least or y.min() >= 0.5 or y.max() < 0.5:
        raise TooFew(
            f"calibration needs at least {least} rows with both outcomes, got {len(y)} with mean {y.mean() if len(y) else 0:.2f}"
        )
