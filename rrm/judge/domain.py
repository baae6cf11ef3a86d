"""What a judge was measured on: how near a transcript is, in form, to those it was trained on and calibrated with.

A transcript is described by its form, not by its subject: turns, tools called and their arguments, tags, and for each line its
first two words or marks (`features`). Each group of training transcripts (`meta.source`, or all as one) has a mean vector c_g of
TF-IDF weights; a feature that no group has counts in the length of x alone, as much as the rarest.

    distance(x) = min_g  -ln cos(x, c_g) / m_g / t

m_g is the group's own median, so that groups of loose and of strict form compare; t the quantile of 1 - share over *calibration*
transcripts, which are of other questions. Above 1 a transcript is "outside what this judge was measured on". That
says nothing of the run; it is still scored. No language model is asked: its perplexity would cost a further prefill.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from rrm.errors import RRMError
from rrm.feedback import Feedback, ImagesRead
from rrm.judge.abstaining import abstain
from rrm.pictures import told_of
from rrm.prompt.canonical import canonical_step
from rrm.text import STOP_WORDS
from rrm.trajectory import Message, Trajectory

FILE = "domain.json"
MOST_BYTES = 1_000_000
"""The file is cut to this."""
MOST_ROWS = 300
"""Training transcripts of a group that are used, drawn by seed."""
LEAST_ROWS = 20
"""Fewest transcripts of a group of its own, and fewest calibration transcripts: a twentieth of fewer is none."""
SEEN = 0.02
"""Share of some group's transcripts that must have a feature that is kept."""
LEAST_COSINE = 1e-3
LEAST_SCALE = 0.05
_CHARACTERS, _LINES, _TAGS = 20_000, 200, 200
"""Of a message that are looked at: more is more of the same."""
_ROLES = {"tool": "o", "user": "u", "system": "s", "developer": "s", "assistant": "a"}
_WORD = re.compile(r"[^\W\d_]+")
_LATIN = "\u024f"
"""The last letter of the Latin blocks."""
_MARK = re.compile(r"[^\W\d_]{1,24}|\d+|[^\w\s]")
_TAG = re.compile(r"</?\w{1,24}>?")
_DIGITS = 3
R = TypeVar("R")


def features(trajectory: Trajectory) -> Counter[str]:
    """How often each element of form occurs; time is linear in the messages and bounded for each."""
    found: Counter[str] = Counter()
    roles = "^" + "".join(_ROLES[m.role] for m in trajectory.messages) + "$"
    found.update(f"turns:{roles[i : i + 3]}" for i in range(len(roles) - 2))
    for message in trajectory.messages:
        _add_message(found, message)
    return found


def _add_message(found: Counter[str], message: Message) -> None:
    role = _ROLES[message.role]
    if message.reasoning_content:
        found[f"{role}:reasoning"] += 1
    if message.name:
        found[f"{role}:name:{message.name[:60]}"] += 1
    for call in message.tool_calls or []:
        name = call.name[:60]
        found[f"call:{name}"] += 1
        if isinstance(call.arguments, dict):
            found.update(f"argument:{name}.{key[:20]}" for key in call.arguments)
    whole = message.text()
    text = whole[:_CHARACTERS]
    lines = [line for line in text.split("\n") if line.strip()]
    for line in lines[:_LINES]:
        marks = _MARK.findall(line[:60].lower())[:2]
        found[f"{role}:line:" + " ".join("0" if mark.isdigit() else mark for mark in marks)] += 1
    found.update(f"{role}:tag:{tag}" for tag in _TAG.findall(text)[:_TAGS])
    found[f"{role}:lines:{min(len(lines), 50).bit_length()}"] += 1
    found[f"{role}:characters:{len(whole).bit_length()}"] += 1


def step_features(trajectory: Trajectory) -> Counter[str]:
    """How often each shape of a canonical step occurs: what stands in it, of what length, and in which language. No name, no word.

    For judges that read canonical steps (prompt version 3), to which the form of a log does not matter.
    """
    found: Counter[str] = Counter()
    before, texts = "^", [trajectory.task]
    steps = [canonical_step(step) for step in trajectory.steps]
    for step in steps:
        returned = "".join(sorted({label[0] for label, _ in step.returns}))
        shape = "t" * bool(step.thought) + "c" * min(len(step.calls), 3) + "a" * (step.answer is not None) + returned
        found.update((f"step:{shape}", f"steps:{before}>{shape}"))
        before = shape
        sizes = {"thought": len(step.thought), "call": sum(len(call.text) for call in step.calls)}
        sizes["return"] = sum(len(text) for _, text in step.returns)
        found.update(f"{name}:{size.bit_length() // 2}" for name, size in sizes.items())
        texts += [step.thought, *(text for _, text in step.returns)]
    told = " ".join(texts)[:_CHARACTERS].lower()
    words = _WORD.findall(told)
    english = sum(word in STOP_WORDS for word in words) / max(len(words), 1)
    foreign = sum(c.isalpha() and c > _LATIN for c in told) / max(len(told), 1)
    for name in (
        f"english:{min(int(10 * english), 4)}",
        f"foreign:{min(int(20 * foreign), 4)}",
        f"length:{len(steps).bit_length()}",
    ):
        found[name] += max(len(steps), 1)
    return found


FEATURES = {1: features, 2: step_features}
"""Of a stored description, by its version."""


class Group(BaseModel):
    """Training transcripts of one source."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    rows: int
    scale: float = Field(gt=0.0, allow_inf_nan=False)
    """m_g: the median of -ln cos of its own transcripts."""
    centroid: dict[str, float]
    """Feature → weight, of length one."""


class Domain(BaseModel):
    """The training transcripts' form as it is stored: every number is one that JSON brings back exactly."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int = 1
    threshold: float = Field(gt=0.0, allow_inf_nan=False)
    """t: distances are divided by it."""
    share: float
    """Of the calibration transcripts that lie beyond the threshold."""
    rows: int
    calibration_rows: int
    unknown: float = Field(gt=0.0, allow_inf_nan=False)
    """Weight of a feature that is not listed."""
    idf: dict[str, float]
    """Feature → weight."""
    groups: list[Group] = Field(min_length=1)

    @field_validator("version")
    @classmethod
    def _known(cls, version: int) -> int:
        if version not in FEATURES:
            known = ", ".join(map(str, FEATURES))
            raise ValueError(f"it is of version {version} and this reads {known}: install a newer agent-rrm")
        return version

    @model_validator(mode="after")
    def _finite(self) -> Domain:
        numbers = [*self.idf.values(), *(w for group in self.groups for w in group.centroid.values())]
        if not np.isfinite(numbers).all():
            raise ValueError("weights must be finite numbers")
        return self

    def to_json(self) -> str:
        """The stored form."""
        return json.dumps(self.model_dump(), ensure_ascii=False, separators=(",", ":"))

    def save(self, folder: Path) -> Path:
        """Write the file; returns its path."""
        path = folder / FILE
        path.write_text(self.to_json(), encoding="utf-8")
        return path

    @classmethod
    def load(cls, folder: Path) -> Domain:
        """Read the file.

        Raises:
            RRMError: it is not there, or holds something else.
        """
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
        """How far the transcript's form is from the nearest group's; above 1: outside what the judge was measured on."""
        return self.distance_of(FEATURES[self.version](trajectory))

    def told(self, trajectory: Trajectory) -> tuple[bool, float]:
        """Whether the transcript is outside, and the distance as rows say it, in four digits: by these it is outside."""
        return self.told_of(FEATURES[self.version](trajectory))

    def told_of(self, counts: Counter[str]) -> tuple[bool, float]:
        """The same of features that were counted before."""
        distance = float(f"{self.distance_of(counts):.4g}")
        return distance > 1.0, distance

    def distance_of(self, counts: Counter[str]) -> float:
        """`distance` of features that were counted before."""
        x, length = _vector(counts, self.idf, self.unknown)
        known = [(f, v) for f, v in x.items() if f in self.idf]
        best = math.inf
        for group in self.groups:
            cosine = math.fsum(v * group.centroid.get(f, 0.0) for f, v in known) / length if length else 0.0
            best = min(best, -math.log(min(max(cosine, LEAST_COSINE), 1.0)) / group.scale)
        return best / self.threshold


def load_domain(folder: Path | None) -> Domain | None:
    """A judge directory's domain; None where it has none.

    Raises:
        RRMError: its `domain.json` is damaged.
    """
    return Domain.load(folder) if folder is not None and (folder / FILE).is_file() else None


class Marker:
    """Marks rows with their distance; each transcript is looked at once. Where `judge.out_of_domain` of a row outside says `unsure`, the
    judge abstains (`rrm.judge.abstaining`)."""

    def __init__(self, domain: Domain | None, trajectories: Sequence[Trajectory]) -> None:
        self._domain, self._known = domain, dict[int, tuple[bool, float]]()
        times = Counter(t.id for t in trajectories)
        self._by_id = {t.id: t for t in trajectories if times[t.id] == 1}

    def heard(self, feedback: Feedback) -> Feedback:
        """Mark a row that is handed over as it ends; where several transcripts have its id, nobody can say yet which it is of."""
        trajectory = self._by_id.get(feedback.id)
        return feedback if trajectory is None else self.mark(feedback, trajectory)

    def mark(self, feedback: Feedback, trajectory: Trajectory) -> Feedback:
        """Set `out_of_domain` and `outside_distance` in place, and `images` where nobody has; a transcript without a step has nothing to be compared."""
        if feedback.images is None and (told := told_of(trajectory)) is not None:
            feedback.images = ImagesRead.model_validate(told)
        if self._domain is not None and any(m.role == "assistant" for m in trajectory.messages):
            if id(trajectory) not in self._known:
                self._known[id(trajectory)] = self._domain.told(trajectory)
            feedback.out_of_domain, feedback.outside_distance = self._known[id(trajectory)]
            if feedback.abstains:
                abstain(feedback)
        return feedback


def fit_domain(
    train: Sequence[Trajectory],
    calibration: Sequence[Trajectory],
    *,
    share: float = 0.05,
    seed: int = 0,
    most_bytes: int = MOST_BYTES,
    version: int = 1,
) -> Domain:
    """Describe what a judge was trained on.

    Args:
        calibration: transcripts of other questions, of which `share` will lie outside.
        most_bytes: size of the stored file; the features of least weight go first.
        version: 1 the form of the log; 2 the shapes of canonical steps.

    Raises:
        RRMError: fewer than `LEAST_ROWS` transcripts of either kind.
    """
    if min(len(train), len(calibration)) < LEAST_ROWS:
        raise RRMError(
            f"{len(train)} training and {len(calibration)} calibration transcripts: {LEAST_ROWS} of each are needed to say what "
            "is outside"
        )
    by_source: dict[str, list[Trajectory]] = {}
    for t in train:
        by_source.setdefault(_source(t), []).append(t)
    of = FEATURES[version]
    counts = {name: [of(t) for t in rows] for name, rows in grouped(by_source, seed).items()}
    found = fit_counts(counts, [of(t) for t in calibration], share=share, most_bytes=most_bytes)
    return found.model_copy(update={"version": version})


def grouped(by_source: Mapping[str, Sequence[R]], seed: int) -> dict[str, list[R]]:
    """Training rows by group: each source is one, but those with fewer than `LEAST_ROWS` are one together, named "". Of a group at
    most `MOST_ROWS`, drawn by seed."""
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
) -> Domain:
    """`fit_domain` of features that were counted before: group → its training transcripts."""
    n = sum(map(len, counts.values()))
    seen = {name: Counter(f for row in rows for f in row) for name, rows in counts.items()}
    kept = {
        f
        for name, found in seen.items()
        for f, rows in found.items()
        if rows >= max(2.0, SEEN * len(counts[name])) and f.isprintable()  # lone surrogates have no place in a file
    }
    total = sum(seen.values(), Counter[str]())
    idf = {f: _rounded(math.log((1 + n) / (1 + total[f])) + 1.0) for f in sorted(kept)}
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
    found = _domain(idf, unknown, groups)
    threshold = float(np.quantile([found.distance_of(row) for row in calibration], 1.0 - share))
    facts = {"share": share, "rows": n, "calibration_rows": len(calibration)}
    return found.model_copy(update={"threshold": max(threshold, 1e-6), **facts})


def _domain(idf: dict[str, float], unknown: float, groups: list[Group]) -> Domain:
    return Domain(threshold=1.0, share=0.0, rows=0, calibration_rows=0, unknown=unknown, idf=idf, groups=groups)


def _vector(counts: Mapping[str, int], idf: Mapping[str, float], unknown: float) -> tuple[dict[str, float], float]:
    """TF-IDF weights of counted features, and their length."""
    x = {f: (1.0 + math.log(n)) * idf.get(f, unknown) for f, n in counts.items()}
    return x, math.sqrt(math.fsum(v * v for v in x.values()))


def _centroid(rows: Iterable[Counter[str]], idf: dict[str, float], unknown: float) -> dict[str, float]:
    """The mean of the rows' vectors of length one, itself made of length one, over the kept features."""
    total: Counter[str] = Counter()
    for row in rows:
        x, length = _vector(row, idf, unknown)
        for f, v in x.items():
            if f in idf and length:
                total[f] += v / length  # pyright: ignore[reportArgumentType]
    length = math.sqrt(math.fsum(v * v for v in total.values())) or 1.0
    return {f: _rounded(total[f] / length) for f in sorted(total) if total[f] / length >= 5e-4}


def _affordable(idf: dict[str, float], centroids: dict[str, dict[str, float]], most_bytes: int) -> set[str]:
    """The features whose largest weight in a centroid is largest, as many as fit."""
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
