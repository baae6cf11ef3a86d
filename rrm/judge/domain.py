"""The out-of-domain detector: a transcript's distance, in form, from those a judge was measured on.

Form is turns, tools called and their arguments, tags, and each line's first two words or marks (`features`). Each group of training
transcripts (`meta.source`, or all as one) has a mean vector c_g of TF-IDF weights; a feature of no group adds to the length of x alone.

    distance(x) = min_g  -ln cos(x, c_g) / m_g / t

m_g is the group's median, t the quantile of 1 - share over calibration transcripts, of other questions. Above 1 a transcript is outside,
and still scored. Version 2 describes shapes, to which all languages are alike; so its distance is at least the share of words that the
training transcripts do not have in common, over the largest of calibration transcripts but the strangest (`UNKNOWN_SHARE`).
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from rrm.data.feedback import Feedback, ImagesRead
from rrm.data.pictures import told_of
from rrm.data.questions import question_of
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError
from rrm.judge.abstention import abstain, contradiction, run_verdict
from rrm.judge.transcript_form import features, step_features, words_of

FILE = "domain.json"
MOST_BYTES = 1_000_000  # of the file
MOST_ROWS = 300  # training transcripts of a group, drawn by seed
LEAST_ROWS = 20  # transcripts of a group of its own, and of calibration: a twentieth of fewer is none
SEEN = 0.02  # share of some group's transcripts that must have a feature
FOLDS = 5  # in which a further group's transcripts are compared with each other
LEAST_COSINE = 1e-3
LEAST_SCALE = 0.05
_DIGITS = 3
COMMON = 0.1  # share of the training transcripts that must have a common word
LEAST_WORDS = 12  # fewer say nothing of a language
LEAST_UNKNOWN = 0.5  # lowest limit of the share of unknown words: other subjects have words of their own
UNKNOWN_SHARE = 0.01  # of the calibration transcripts that are above that limit
R = TypeVar("R")


FEATURES = {1: features, 2: step_features}  # by version of the stored description


class Group(BaseModel):
    """Training transcripts of one source."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    rows: int
    scale: float = Field(gt=0.0, allow_inf_nan=False)  # m_g: the median of -ln cos of its own transcripts
    centroid: dict[str, float]  # feature → weight, of length one


class OutOfDomainDetector(BaseModel):
    """The training transcripts' form, in numbers that JSON brings back exactly."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int = 1
    threshold: float = Field(gt=0.0, allow_inf_nan=False)  # t: distances are divided by it
    share: float  # of the calibration transcripts that lie beyond the threshold
    rows: int
    calibration_rows: int
    unknown: float = Field(gt=0.0, allow_inf_nan=False)  # weight of a feature that is not listed
    idf: dict[str, float]  # feature → weight
    groups: list[Group] = Field(min_length=1)
    # common word → share of the training transcripts that have it; in version 1 none
    words: dict[str, float] = Field(default_factory=dict)
    # share of a transcript's words that are not common, above which it is outside
    unknown_words: float = Field(default=1.0, gt=0.0, le=1.0)

    @field_validator("version")
    @classmethod
    def _known(cls, version: int) -> int:
        if version not in FEATURES:
            versions = ", ".join(map(str, FEATURES))
            raise ValueError(f"it is of version {version} and this reads {versions}: install a newer agent-rrm")
        return version

    @model_validator(mode="after")
    def _finite(self) -> OutOfDomainDetector:
        numbers = [*self.idf.values(), *(w for group in self.groups for w in group.centroid.values())]
        if not np.isfinite(numbers).all():
            raise ValueError("weights must be finite numbers")
        return self

    def to_json(self) -> str:
        return json.dumps(self.model_dump(), ensure_ascii=False, separators=(",", ":"))

    def save(self, folder: Path) -> Path:
        path = folder / FILE
        path.write_text(self.to_json(), encoding="utf-8")
        return path

    @classmethod
    def load(cls, folder: Path) -> OutOfDomainDetector:
        """Read the file; RRMError where it is absent or damaged."""
        path = folder / FILE
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise RRMError(
                f"{path}: the description of what the judge was measured on cannot be read: {error}"
            ) from error
        except ValidationError as error:
            raise RRMError(
                f"{path}: not a description of what a judge was measured on: {error.errors()[0]['msg']}"
            ) from error

    def distance(self, trajectory: Trajectory) -> float:
        """Return the distance to the nearest group; above 1 the transcript is outside."""
        form = self.distance_of(FEATURES[self.version](trajectory))
        return max(form, self.unknown_share(words_of(trajectory)) / self.unknown_words) if self.words else form

    def unknown_share(self, counts: Counter[str]) -> float:
        """Return the share of words that are not common; 0 of fewer than `LEAST_WORDS`."""
        total = counts.total()
        return sum(n for word, n in counts.items() if word not in self.words) / total if total >= LEAST_WORDS else 0.0

    def flag(self, trajectory: Trajectory) -> tuple[bool, float]:
        """Return (is outside, distance), by the distance's four digits that rows have."""
        return _told(self.distance(trajectory))

    def told_of(self, counts: Counter[str]) -> tuple[bool, float]:
        """Return `flag` of features counted before, without words."""
        return _told(self.distance_of(counts))

    def distance_of(self, counts: Counter[str]) -> float:
        """Return `distance` of features counted before, without words."""
        x, length = _vector(counts, self.idf, self.unknown)
        listed = [(f, v) for f, v in x.items() if f in self.idf]
        best = math.inf
        for group in self.groups:
            cosine = math.fsum(v * group.centroid.get(f, 0.0) for f, v in listed) / length if length else 0.0
            best = min(best, -math.log(min(max(cosine, LEAST_COSINE), 1.0)) / group.scale)
        return best / self.threshold


def _told(distance: float) -> tuple[bool, float]:
    distance = float(f"{distance:.4g}")
    return distance > 1.0, distance


def load_domain(folder: Path | None) -> OutOfDomainDetector | None:
    """Read a judge directory's detector; None where it has none, RRMError where it is damaged."""
    return OutOfDomainDetector.load(folder) if folder is not None and (folder / FILE).is_file() else None


class DomainFlagger:
    """Marks rows with their distance; on rows outside the judge may abstain (`rrm.judge.abstention`)."""

    def __init__(self, domain: OutOfDomainDetector | None, trajectories: Sequence[Trajectory]) -> None:
        self._domain, self._known = domain, dict[int, tuple[bool, float]]()
        times = Counter(t.id for t in trajectories)
        self._by_id = {t.id: t for t in trajectories if times[t.id] == 1}

    def heard(self, feedback: Feedback) -> Feedback:
        """Mark a row as it ends, unless several transcripts have its id."""
        trajectory = self._by_id.get(feedback.id)
        return feedback if trajectory is None else self.mark(feedback, trajectory)

    def mark(self, feedback: Feedback, trajectory: Trajectory) -> Feedback:
        """Set `images` where absent and, of a transcript with a step, the domain's fields, in place."""
        if feedback.images is None and (images := told_of(trajectory)) is not None:
            feedback.images = ImagesRead.model_validate(images)
        if self._domain is not None and any(m.role == "assistant" for m in trajectory.messages):
            if id(trajectory) not in self._known:
                self._known[id(trajectory)] = self._domain.flag(trajectory)
            feedback.out_of_domain, feedback.domain_distance = self._known[id(trajectory)]
            if feedback.abstains:
                abstain(feedback)
        feedback.verdict = run_verdict(feedback)
        if (note := contradiction(feedback)) is not None and note not in (feedback.reason or ""):
            feedback.reason = "; ".join(filter(None, (feedback.reason, note)))
        return feedback


def fit_domain(
    train: Sequence[Trajectory],
    calibration: Sequence[Trajectory],
    *,
    share: float = 0.05,
    seed: int = 0,
    most_bytes: int = MOST_BYTES,
    version: int = 1,
) -> OutOfDomainDetector:
    """Fit a detector; RRMError for fewer than `LEAST_ROWS` transcripts of either kind.

    Args:
        calibration: transcripts of other questions, of which `share` will lie outside.
        most_bytes: size of the stored file; the features of least weight go first.
        version: 1 the form of the log; 2 the shapes of canonical steps.
    """
    if min(len(train), len(calibration)) < LEAST_ROWS:
        raise RRMError(
            f"{len(train)} training and {len(calibration)} calibration transcripts: {LEAST_ROWS} of each are needed to say what "
            "is outside"
        )
    by_source: dict[str, list[Trajectory]] = {}
    for t in train:
        by_source.setdefault(_source(t), []).append(t)
    count_features, chosen = FEATURES[version], grouped(by_source, seed)
    counts = {name: [count_features(t) for t in rows] for name, rows in chosen.items()}
    detector = fit_counts(counts, [count_features(t) for t in calibration], share=share, most_bytes=most_bytes)
    detector = detector.model_copy(update={"version": version})
    return (
        detector if version == 1 else with_words(detector, [t for rows in chosen.values() for t in rows], calibration)
    )


def with_words(
    domain: OutOfDomainDetector, rows: Sequence[Trajectory], held_out: Sequence[Trajectory]
) -> OutOfDomainDetector:
    """Add the rows' common words; the limit of unknown words does not sink."""
    counters = [words_of(t) for t in rows]
    shares = {word: n / len(counters) for word, n in Counter(word for counter in counters for word in counter).items()}
    common = {w: _rounded(n) for w, n in sorted(shares.items()) if n >= COMMON and len(w) <= 24 and w.isprintable()}
    detector = domain.model_copy(update={"words": common | domain.words})
    least = domain.unknown_words if domain.words else LEAST_UNKNOWN
    strange = [detector.unknown_share(words_of(t)) for t in held_out]
    limit = max(least, float(np.quantile(strange, 1.0 - UNKNOWN_SHARE)))
    return detector.model_copy(update={"unknown_words": limit})


def widened(domain: OutOfDomainDetector, rows: Sequence[Trajectory], name: str) -> OutOfDomainDetector:
    """Add a group, of which `domain.share` lie outside; what was inside stays. RRMError for too few rows."""
    if len(rows) < LEAST_ROWS:
        raise RRMError(f"{len(rows)} transcripts with a step: {LEAST_ROWS} are needed to say what is like them")
    rows = random.Random(name).sample(list(rows), min(len(rows), MOST_ROWS))
    counts = [FEATURES[domain.version](t) for t in rows]
    row_counts, total = Counter(f for row in counts for f in row), domain.rows + len(rows)
    new = {f: n for f, n in row_counts.items() if n >= max(2.0, SEEN * len(rows)) and f.isprintable()}
    idf = {f: min(domain.unknown, _rounded(math.log((1 + total) / (1 + n)) + 1.0)) for f, n in sorted(new.items())}
    idf |= domain.idf
    fold_by_question = {q: i % FOLDS for i, q in enumerate(sorted({question_of(t) for t in rows}))}
    folds = [fold_by_question[question_of(t)] for t in rows]

    def group(without: int | None, scale: float) -> Group:
        others = [c for c, fold in zip(counts, folds, strict=True) if fold != without] or counts
        centroid = _centroid(others, idf, domain.unknown)
        return Group(name=name, rows=len(rows), scale=scale, centroid=centroid)

    apart = {fold: _domain(idf, domain.unknown, [group(fold, 1.0)]) for fold in set(folds)}
    far = [apart[fold].distance_of(c) for c, fold in zip(counts, folds, strict=True)]
    scale = max(float(np.quantile(far, 1.0 - domain.share)) / domain.threshold, LEAST_SCALE)
    facts = {"idf": idf, "rows": total, "groups": [*domain.groups, group(None, scale)]}
    detector = domain.model_copy(update=facts)
    return with_words(detector, rows, rows) if domain.words else detector


def grouped(by_source: Mapping[str, Sequence[R]], seed: int) -> dict[str, list[R]]:
    """Group rows by source, those of fewer than `LEAST_ROWS` as ""; draw at most `MOST_ROWS` of each."""
    groups: dict[str, list[R]] = {}
    for source, rows in by_source.items():
        groups.setdefault(source if len(rows) >= LEAST_ROWS else "", []).extend(rows)
    return {
        name: random.Random(f"{seed}/{name}").sample(rows, min(len(rows), MOST_ROWS))
        for name, rows in sorted(groups.items())
    }


def _source(trajectory: Trajectory) -> str:
    source = trajectory.meta.get("source")
    return source[:80] if isinstance(source, str) and source.isprintable() else ""


def fit_counts(
    counts: dict[str, list[Counter[str]]],
    calibration: Sequence[Counter[str]],
    *,
    share: float,
    most_bytes: int = MOST_BYTES,
) -> OutOfDomainDetector:
    """Fit as `fit_domain`, to features counted before: group → those of its training transcripts."""
    n = sum(map(len, counts.values()))
    row_counts = {name: Counter(f for row in rows for f in row) for name, rows in counts.items()}
    frequent = {
        f
        for name, counter in row_counts.items()
        for f, rows in counter.items()
        if rows >= max(2.0, SEEN * len(counts[name])) and f.isprintable()  # lone surrogates have no place in a file
    }
    total = sum(row_counts.values(), Counter[str]())
    idf = {f: _rounded(math.log((1 + n) / (1 + total[f])) + 1.0) for f in sorted(frequent)}
    unknown = _rounded(math.log(1 + n) + 1.0)
    centroids = {name: _centroid(rows, idf, unknown) for name, rows in counts.items()}
    affordable = _affordable(idf, centroids, most_bytes)
    idf = {f: v for f, v in idf.items() if f in affordable}
    groups = []
    for name, rows in counts.items():
        centroid = {f: v for f, v in centroids[name].items() if f in affordable}
        unscaled = _domain(idf, unknown, [Group(name=name, rows=len(rows), scale=1.0, centroid=centroid)])
        scale = max(float(np.median([unscaled.distance_of(row) for row in rows])), LEAST_SCALE)
        groups.append(Group(name=name, rows=len(rows), scale=_rounded(scale), centroid=centroid))
    detector = _domain(idf, unknown, groups)
    threshold = float(np.quantile([detector.distance_of(row) for row in calibration], 1.0 - share))
    facts = {"share": share, "rows": n, "calibration_rows": len(calibration)}
    return detector.model_copy(update={"threshold": max(threshold, 1e-6), **facts})


def _domain(idf: dict[str, float], unknown: float, groups: list[Group]) -> OutOfDomainDetector:
    return OutOfDomainDetector(
        threshold=1.0, share=0.0, rows=0, calibration_rows=0, unknown=unknown, idf=idf, groups=groups
    )


def _vector(counts: Mapping[str, int], idf: Mapping[str, float], unknown: float) -> tuple[dict[str, float], float]:
    """Return (TF-IDF weights, their length)."""
    x = {f: (1.0 + math.log(n)) * idf.get(f, unknown) for f, n in counts.items()}
    return x, math.sqrt(math.fsum(v * v for v in x.values()))


def _centroid(rows: Iterable[Counter[str]], idf: dict[str, float], unknown: float) -> dict[str, float]:
    """Return the mean of the rows' unit vectors as a unit vector, over the features of `idf`."""
    total: Counter[str] = Counter()
    for row in rows:
        x, length = _vector(row, idf, unknown)
        for f, v in x.items():
            if f in idf and length:
                total[f] += v / length  # pyright: ignore[reportArgumentType]
    length = math.sqrt(math.fsum(v * v for v in total.values())) or 1.0
    return {f: _rounded(total[f] / length) for f in sorted(total) if total[f] / length >= 5e-4}


def _affordable(idf: dict[str, float], centroids: dict[str, dict[str, float]], most_bytes: int) -> set[str]:
    """Return as many features as fit, in order of their largest weight in a centroid."""
    uses, weight = Counter(f for c in centroids.values() for f in c), dict.fromkeys(idf, 0.0)
    for centroid in centroids.values():
        for f, v in centroid.items():
            weight[f] = max(weight[f], v)
    number = _DIGITS + len("-0.e-05") + 2
    left, chosen = most_bytes - 2000 - 300 * len(centroids), set[str]()
    for f in sorted(idf, key=lambda f: (-weight[f], f)):
        left -= (1 + uses[f]) * (len(json.dumps(f, ensure_ascii=False).encode("utf-8")) + number)
        if left < 0:
            break
        chosen.add(f)
    return chosen


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
