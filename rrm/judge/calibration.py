"""Calibration: raw scores to probabilities of success, one map per mode, stored as JSON.

Platt scaling (Platt 1999), the default, is strictly increasing and so keeps all differences inside a group. It reads the logit
of the raw score, right for a probability. For graded scores `platt_score` reads the raw score itself: a few wrong runs at
0.9999 are far out on the logit and would flatten the map. Isotonic regression has plateaus, which make ties.

**Prior at the present map**, for a user's few labels (`rrm calibrate`). With N rows of raw scores x_i and labels y_i, q_i the
present map m's value at x_i, and W = `PRIOR_LABELS`, the new map p minimises the penalised cross-entropy

    Σ_i H(y_i, p(x_i)) + W · (1/N) Σ_i H(q_i, p(x_i)),     H(t, p) = −t ln p − (1 − t) ln(1 − p)

The second term is, up to a constant, W times the mean Kullback-Leibler divergence of p from m, least at p = m. As H is linear
in t, the sum is (1 + W/N) Σ_i H(t_i, p(x_i)) with t_i = (y_i + (W/N) q_i) / (1 + W/N): the same fit on labels `towards` m.
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

EPS = 1e-6  # raw scores are clipped to [EPS, 1 - EPS] before the logit
RIDGE = 100.0  # inverse weight of the squared slope, beside the summed cross-entropy
NEWTON = 30  # most Newton steps, and most halvings of one
PRIOR_LABELS = 20
"""Labels that the present map counts for beside a user's own, and fewest of those."""
FOLDS = 5  # for comparing one map with two


class Platt(BaseModel):
    """p = sigmoid(a · x + b), a > 0, where x is the raw score or its logit."""

    method: Literal["platt"] = "platt"
    a: float = Field(gt=0)
    b: float
    rows: int  # labelled rows of the fit
    reads: Literal["logit", "score"] = "logit"

    def __call__(self, raw: float) -> float:
        clipped = min(max(raw, EPS), 1 - EPS)
        z = self.a * (raw if self.reads == "score" else math.log(clipped / (1 - clipped))) + self.b
        return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


class Isotonic(BaseModel):
    method: Literal["isotonic"] = "isotonic"
    x: list[float]
    y: list[float]
    rows: int

    def __call__(self, raw: float) -> float:
        return float(np.interp(raw, self.x, self.y))


Calibrator = Annotated[Platt | Isotonic, Field(discriminator="method")]


P_GOOD = "steps_p_good"  # key of the map of single steps' probabilities
Key = Annotated[str, StringConstraints(pattern=r"^((full|critique|score|steps)(@windowed)?|steps_p_good)$")]


def key_of(mode: Mode, windowed: bool = False) -> str:
    return f"{mode}@windowed" if windowed else mode


class Calibration(BaseModel):
    """Maps by `key_of` a mode, or `P_GOOD`; a mode without one passes raw scores through."""

    modes: dict[Key, Calibrator] = Field(default_factory=dict)

    def apply(self, mode: Mode, raw: float, *, windowed: bool = False) -> float:
        """Calibrate a score; a windowed one without a map takes the mode's own (not `covers`)."""
        calibrator = self.modes.get(key_of(mode, windowed)) or self.modes.get(mode)
        return raw if calibrator is None else calibrator(raw)

    def p_good(self, raw: float) -> float:
        calibrator = self.modes.get(P_GOOD)
        return raw if calibrator is None else calibrator(raw)

    def covers(self, mode: Mode, *, windowed: bool = False) -> bool:
        return key_of(mode, windowed) in self.modes


def towards(y: np.ndarray, present: np.ndarray | None) -> np.ndarray:
    """Return (N,) labels drawn towards the present map's (N,) values with the weight of `PRIOR_LABELS`."""
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

    `present` is (N,) values of the present map, as prior. Raises TooFew with fewer than ten rows or one class only, RRMError
    if scores do not rise with the labels.
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
    """Return the raw score in [0, 1] mapped to `value`, or the end nearest to it."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if calibrator(middle) < value else (low, middle)
    return high


class CalibrationByLength(NamedTuple):
    # maps of transcripts read at once (False) and in several windows (True)

    maps: dict[bool, Platt | Isotonic]
    lacking: dict[bool, str]  # reason why a kind has no map
    apart: bool  # each kind has its own map; else all maps are one


def fit_by_reading(
    raw: Sequence[float],
    labels: Sequence[float],
    windowed: Sequence[bool],
    questions: Sequence[str],
    method: CalibrationMethod = "platt",
    present: Sequence[float] | None = None,
) -> CalibrationByLength:
    """Fit the maps of transcripts read at once and of those read in several windows, on (N,) rows.

    With enough rows of both, one map serves both unless two curves have a lower out-of-fold cross-entropy by more than its
    standard error over questions: maps of few rows differ by chance. (Of 225 rows a shift of half a logit shows once in
    twelve draws.) A kind has no map if it has too few rows, or if its scores clearly fall with the labels. A question's rows
    share a fold.
    """
    x, y, many = (
        np.asarray(raw, dtype=np.float64),
        np.asarray(labels, dtype=np.float64),
        np.asarray(windowed, dtype=bool),
    )
    now = None if present is None else np.asarray(present, dtype=np.float64)
    lacking: dict[bool, str] = {}
    for in_windows in (False, True):
        try:
            check_enough(y[many == in_windows])
        except RRMError as error:
            lacking[in_windows] = str(error)
    joint: Platt | Isotonic | None = None
    if not lacking:
        try:
            joint = fit(raw, labels, method, present)
        except RRMError:
            joint = None  # scores may rise inside each kind and fall over both
    if joint is not None and not _better_apart(x, y, many, questions, method, now):
        return CalibrationByLength({False: joint, True: joint}, {}, apart=False)
    maps: dict[bool, Platt | Isotonic] = {}
    for in_windows in {False, True} - set(lacking):
        try:
            mine = many == in_windows
            maps[in_windows] = fit(
                x[mine].tolist(), y[mine].tolist(), method, None if now is None else now[mine].tolist()
            )
        except RRMError as error:
            lacking[in_windows] = str(error)
    return CalibrationByLength(maps, lacking, apart=True)


def _better_apart(
    x: np.ndarray,
    y: np.ndarray,
    many: np.ndarray,
    questions: Sequence[str],
    method: CalibrationMethod,
    present: np.ndarray | None,
) -> bool:
    lower = np.zeros(len(y))
    try:
        folds = grouped_folds(questions, FOLDS, seed=0)
        for fold in range(FOLDS):
            rest, here = folds != fold, folds == fold
            check_enough(y[rest])
            joint = curve(x[rest], y[rest], method, None if present is None else present[rest])
            for in_windows in (False, True):
                rows, mine = here & (many == in_windows), rest & (many == in_windows)
                check_enough(y[mine])
                own = curve(x[mine], y[mine], method, None if present is None else present[mine])
                lower[rows] = _cross_entropy(joint(x[rows]), y[rows]) - _cross_entropy(own(x[rows]), y[rows])
    except TooFew:
        return False
    of_question = {q: i for i, q in enumerate(sorted(set(questions)))}
    sums = np.bincount([of_question[q] for q in questions], weights=lower - lower.mean())
    error = math.sqrt(len(sums) / (len(sums) - 1) * float((sums**2).sum())) / len(y)
    return bool(lower.mean() > error)


def curve(
    x: np.ndarray, y: np.ndarray, method: CalibrationMethod, present: np.ndarray | None = None
) -> Callable[[np.ndarray], np.ndarray]:
    """Fit (N,) scores and labels of both outcomes, with any slope; returns the map of (M,) scores."""
    y = towards(y, present)
    if method == "isotonic":
        model = _isotonic(x, y)
        return lambda raw: model.predict(raw) if len(raw) else raw
    reads = _reads(method)
    a, b = _logistic(_features(x, reads), y)
    return lambda raw: 1 / (1 + np.exp(-(a * _features(raw, reads) + b)))


def curves(
    x: np.ndarray, y: np.ndarray, weights: np.ndarray, method: CalibrationMethod, points: np.ndarray
) -> np.ndarray:
    """Fit `curve` to (N,) rows under (B, N) weights ≥ 0, each with both outcomes; (B, M) values at (M,) `points`."""
    if method == "isotonic":
        rows = np.arange(len(x))
        drawn = [np.repeat(rows, w.astype(np.int64)) for w in weights]
        return np.stack([curve(x[i], y[i], method)(points) for i in drawn]) if drawn else np.empty((0, len(points)))
    reads = _reads(method)
    a, b = _logistics(_features(x, reads), y, weights)
    return 1 / (1 + np.exp(-(a[:, None] * _features(points, reads) + b[:, None])))


def _logistics(z: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (B,) slopes and intercepts as `_logistic`, by Newton's method with step halving."""
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
    """Return slope and intercept; a weak ridge keeps a separable set finite."""
    from sklearn.linear_model import LogisticRegression

    features, classes = np.concatenate([z, z])[:, None], np.r_[np.ones(len(y)), np.zeros(len(y))]
    model = LogisticRegression(C=RIDGE).fit(features, classes, sample_weight=np.r_[y, 1 - y])
    return float(model.coef_[0, 0]), float(model.intercept_[0])


def _reads(method: CalibrationMethod) -> Literal["logit", "score"]:
    return "score" if method == "platt_score" else "logit"


def _features(x: np.ndarray, reads: Literal["logit", "score"]) -> np.ndarray:
    """The (N,) feature that a logistic map is linear in: raw scores, or their logits."""
    clipped = np.clip(x, EPS, 1 - EPS)
    return x if reads == "score" else np.log(clipped / (1 - clipped))


def _cross_entropy(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    # (N,), in nats
    sure = np.clip(p, EPS, 1 - EPS)
    return -(y * np.log(sure) + (1 - y) * np.log(1 - sure))


def check_enough(y: np.ndarray, least: int = 10) -> None:
    """Raise TooFew for fewer than `least` (N,) labels in [0, 1], or one class only."""
    if len(y) < least or y.min() >= 0.5 or y.max() < 0.5:
        raise TooFew(
            f"calibration needs at least {least} rows with successes and failures; there are {len(y)}, {int((y >= 0.5).sum())} of them successes"
        )
