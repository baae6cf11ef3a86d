"""Annotation: a training label of one trajectory, which may have several."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rrm.data.csv_labels import NAMES, is_table, label_rows
from rrm.data.jsonl import read_lines
from rrm.data.printing import describe, printable
from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError, RRMError

MAX_WEIGHT = 1e9  # products with it, and the loss in float32, stay finite
# `unclear`: the text names the step but no verdict. `unsure`: the judge abstains (`rrm.judge.abstention`). Neither counts.
Verdict = Literal["good", "bad", "unclear", "unsure"]
# a judge's verdicts on a transcript outside its domain: kept, or replaced by `unsure`
OutOfDomain = Literal["keep", "unsure"]


class Finding(BaseModel):
    model_config = ConfigDict(extra="forbid")

    step: int = Field(ge=1)
    verdict: Verdict
    p_good: float | None = Field(default=None, ge=0.0, le=1.0)
    """The judge's probability that the step was good; None: it gives none."""
    text: str = ""

    @property
    def decided(self) -> bool:
        return self.verdict in ("good", "bad")


class Annotation(BaseModel):
    """A label. Empty fields are not trained on."""

    model_config = ConfigDict(extra="forbid")

    trajectory_id: str
    """The id in the transcript's file (`Trajectory.own_id`)."""
    digest: str | None = None
    """`Trajectory.digest` of the transcript. None (written by hand): matched by id."""
    score: float | None = Field(default=None, ge=0.0, le=1.0)
    """Process quality in [0, 1]; None: the trajectory's outcome is the score target."""
    trace: str | None = None
    critique: str | None = None
    findings: list[Finding] | None = None
    annotator: str
    """Name of the person, model or rule set."""
    kind: Literal["human", "llm", "rules", "self"]
    weight: float = Field(default=1.0, ge=0.0, le=MAX_WEIGHT, allow_inf_nan=False)
    """Weight of this label among those of its trajectory, and of its row in the loss."""

    def to_json(self) -> str:
        """One ASCII-only line of JSON (lone surrogates survive as escapes)."""
        return json.dumps(self.model_dump(exclude_none=True), ensure_ascii=True)

    @classmethod
    def from_json(cls, line: str) -> Annotation:
        """Parse `to_json`'s line; raises `ValueError` in one sentence."""
        row = json.loads(line)
        unknown = sorted(row.keys() - cls.model_fields.keys()) if isinstance(row, dict) else []
        if unknown:
            names = ", ".join(f"{printable(n)} (write {NAMES[n]})" if n in NAMES else printable(n) for n in unknown)
            raise ValueError(f"unknown {names}: the keys are {', '.join(cls.model_fields)}")
        if isinstance(row, dict) and (missing := [name for name in _NEEDED if row.get(name) is None]):
            raise ValueError(f"lacks {', '.join(f'{name} ({_NEEDED[name]})' for name in missing)}")
        return cls.checked(row)

    @classmethod
    def checked(cls, fields: Any) -> Annotation:
        """Validate fields; raises `ValueError` in one sentence."""
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise ValueError(describe(error)) from error


# required fields, with the hint of the error message
_NEEDED = {
    "trajectory_id": "the id that the transcript's file gives it",
    "annotator": "who wrote it",
    "kind": "human, llm, rules or self",
}


@dataclass(frozen=True)
class Critique:
    """An entry `{after_message, text, good}` of `meta["critiques"]`, as MINT-bench has them."""

    step: int | None  # None: `after_message` is no index of an assistant message
    text: str
    good: bool | None


def critiques_of(trajectory: Trajectory) -> list[Critique]:
    """Parse `meta["critiques"]`, one result an entry; malformed entries and fields become None or ''."""
    entries = trajectory.meta.get("critiques")
    steps = {step.message_index: step.index for step in trajectory.steps}
    critiques: list[Critique] = []
    for entry in entries if isinstance(entries, list) else []:
        entry = entry if isinstance(entry, dict) else {}
        after, text, good = (entry.get(name) for name in ("after_message", "text", "good"))
        if isinstance(after, float) and after.is_integer():  # parquet keeps a column with gaps as floats
            after = int(after)
        step = steps.get(after) if isinstance(after, int) and not isinstance(after, bool) else None
        critiques.append(
            Critique(step, text if isinstance(text, str) else "", good if isinstance(good, bool) else None)
        )
    return critiques


def own_annotations(trajectory: Trajectory) -> tuple[list[Annotation], int]:
    """Return the labels in `meta["annotations"]` (also under `agent_rrm`), and the number of invalid ones."""
    from rrm.data.own_entries import under_our_name  # with it come all readers, which `import rrm` does without

    own, ours = (meta.get("annotations") for meta in (trajectory.meta, under_our_name(trajectory.meta)))
    entries = [*(own if isinstance(own, list) else []), *(ours if isinstance(ours, list) else [])]
    labels = [label for entry in entries if (label := _carried(entry, trajectory)) is not None]
    return labels, len(entries) - len(labels)


def _carried(entry: Any, trajectory: Trajectory) -> Annotation | None:
    if not isinstance(entry, dict):
        return None
    try:
        own = {"trajectory_id": trajectory.own_id, "digest": trajectory.digest}
        annotation = Annotation.model_validate({**entry, **own})
    except ValidationError:
        return None
    return annotation if all(f.step <= len(trajectory.steps) for f in annotation.findings or ()) else None


def read_annotations(*paths: str | Path) -> list[Annotation]:
    """Read annotations of all files in order: JSON lines, or tables with a header (`rrm.data.csv_labels`).

    Raises:
        ReadError: as `rrm.data.jsonl.read_lines`; also for an unknown key.
    """
    annotations = list[Annotation]()
    for path in paths:
        if is_table(path):
            annotations += _of_table(path)
        else:
            annotations += read_lines(path, Annotation.from_json, "an annotation")
    return annotations


def _of_table(path: str | Path) -> Iterator[Annotation]:
    """Parse a table; two scores by one person for one run are an error."""
    first_scores = dict[tuple[str, str | None, str], tuple[float, int]]()
    for line, fields in label_rows(path):
        try:
            label = Annotation.checked(fields)
        except ValueError as error:
            raise ReadError(str(path), line, f"not a label: {error}") from error
        if label.score is not None and label.kind == "human":
            score, first = first_scores.setdefault(
                (label.trajectory_id, label.digest, label.annotator), (label.score, line)
            )
            if score != label.score:
                raise ReadError(
                    str(path),
                    line,
                    f"{printable(label.trajectory_id, 80)!r} has the score {label.score:g} here and {score:g} in line {first}: keep one of "
                    "them, or say in a column `annotator` whose each is (several people's are averaged)",
                )
        yield label


@dataclass
class Matched:
    by_id: dict[str, list[Annotation]] = field(default_factory=dict)
    """Unique trajectory id → its annotations in order; unlabelled ones are absent."""
    strays: list[Annotation] = field(default_factory=list)
    total: int = 0
    changed: int = 0
    """Strays whose id names a transcript with other content."""
    a_name: str | None = None  # the first transcript's own id, as an example for the message

    def complaint(self) -> str | None:
        """Describe the strays in one sentence; None without strays."""
        if not self.strays:
            return None
        text = f"{len(self.strays)} of {self.total} annotations belong to no transcript"
        text += f", e.g. {printable(self.strays[0].trajectory_id)!r}"
        if len(self.strays) == self.total and not self.changed and self.a_name is not None:
            text += f" (a transcript is called {printable(self.a_name)!r})"
        if self.changed:
            text += f"; {self.changed} name one whose messages, task or tools are not those that were labelled"
        return text


def match(trajectories: Sequence[Trajectory], annotations: Iterable[Annotation]) -> Matched:
    """Join annotations and transcripts by content digest, or, without one (labels written by hand), by id.

    Where several transcripts share the content, a digest's annotation goes to those it names, or to all if it names none.

    Raises:
        RRMError: two trajectories share an id; or an annotation without a digest names several transcripts of different
            content, or an id that only the order of reading gave (`x#2`).
    """
    labels = list(annotations)
    names = {t.id: t for t in trajectories}
    if len(names) != len(trajectories):
        raise RRMError("two transcripts have the same id: read them all in one call, which makes their ids unique")
    contents, own_ids = defaultdict[str, list[Trajectory]](list), defaultdict[str, list[Trajectory]](list)
    for t in trajectories:
        own_ids[t.own_id].append(t)
    if any(a.digest for a in labels):  # digests take a pass over all text
        for t in trajectories:
            contents[t.digest].append(t)
    named = {t.id for a in labels for t in contents.get(a.digest or "", ()) if a.trajectory_id == t.own_id}
    result = Matched(total=len(labels), a_name=next(iter(own_ids), None))
    for a in labels:
        if a.digest is not None:
            owners = [t for t in contents.get(a.digest, ()) if a.trajectory_id == t.own_id or t.id not in named]
        else:
            owners = _by_name(a, own_ids, names)
        for t in owners:
            result.by_id.setdefault(t.id, []).append(a)
        if not owners:
            result.strays.append(a)
            result.changed += a.digest is not None and (a.trajectory_id in own_ids or a.trajectory_id in names)
    return result


def _by_name(
    annotation: Annotation, own_ids: Mapping[str, list[Trajectory]], names: Mapping[str, Trajectory]
) -> list[Trajectory]:
    """Return an annotation's transcripts by id: several only with the same content."""
    name = annotation.trajectory_id
    owners = own_ids.get(name, [])
    if len(owners) > 1 and len({t.digest for t in owners}) > 1:
        places = ", ".join(_place(t) for t in owners[:5]) + (", …" if len(owners) > 5 else "")
        raise RRMError(
            f"an annotation by {printable(annotation.annotator)!r} has the id {printable(name)!r} and no digest, but "
            f"{len(owners)} different transcripts have that id: {places}. Give it the digest of its own "
            "(`rrm annotate` writes them), or name these files in runs of their own"
        )
    if not owners and name in names:
        raise RRMError(
            f"an annotation by {printable(annotation.annotator)!r} has the id {printable(name)!r} and no digest, but only "
            f"the order of reading gave {_place(names[name])} that id: its file says {printable(names[name].own_id)!r}. "
            "Give the annotation the digest of its transcript (`rrm annotate` writes them)"
        )
    return owners


def _place(trajectory: Trajectory) -> str:
    source = trajectory.source
    if source is None:
        return repr(printable(trajectory.id))
    return printable(source.file if source.line is None else f"{source.file}:{source.line}")
