"""Annotation: a training label for one trajectory. Several may stand for one trajectory.

A label belongs to what was said, not to a name: `match` joins annotations and transcripts by the digest of the transcript's
content (`Trajectory.digest`). The id is for people, and for labels written by hand, which have no digest.
"""

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

MAX_WEIGHT = 1e9
"""Of a label: what is made of several such, and the loss in float32, stays finite."""
Verdict = Literal["good", "bad", "unclear", "unsure"]
"""`unclear`: something was said of the step, but not whether it was good. `unsure`: the judge abstains (`rrm.judge.abstention`).
Neither counts as good or as bad anywhere."""
OutOfDomain = Literal["keep", "unsure"]
"""What becomes of a judge's verdicts on a transcript outside what it was measured on: they stay, or it abstains."""


class Finding(BaseModel):
    """What was good or bad about one step (k counts from 1)."""

    model_config = ConfigDict(extra="forbid")

    step: int = Field(ge=1)
    verdict: Verdict
    p_good: float | None = Field(default=None, ge=0.0, le=1.0)
    """The judge's probability that the step was good, where it gives one."""
    text: str = ""

    @property
    def decided(self) -> bool:
        """Whether it says good or bad."""
        return self.verdict in ("good", "bad")


class Annotation(BaseModel):
    """A label: who said it, of what kind, and what was said. Empty parts are simply not trained on."""

    model_config = ConfigDict(extra="forbid")

    trajectory_id: str
    """The id the transcript's file gives it (`Trajectory.own_id`)."""
    digest: str | None = None
    """`Trajectory.digest` of the transcript that was read. None (a label written by hand): matched by the id."""
    score: float | None = Field(default=None, ge=0.0, le=1.0)
    """Process quality in [0, 1]. Where absent the trajectory's outcome is the score target."""
    trace: str | None = None
    critique: str | None = None
    findings: list[Finding] | None = None
    annotator: str
    """Name of the person, model or rule set that wrote it."""
    kind: Literal["human", "llm", "rules", "self"]
    weight: float = Field(default=1.0, ge=0.0, le=MAX_WEIGHT, allow_inf_nan=False)
    """Of this label among those of the same trajectory, and of its row in the loss."""

    def to_json(self) -> str:
        """One ASCII-only line of JSON (lone surrogates survive as escapes)."""
        return json.dumps(self.model_dump(exclude_none=True), ensure_ascii=True)

    @classmethod
    def from_json(cls, line: str) -> Annotation:
        """The inverse of `to_json`; raises `ValueError` on a bad line, in one sentence."""
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
        """An annotation of these fields; `ValueError` in one sentence where they make none."""
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise ValueError(describe(error)) from error


_NEEDED = {
    "trajectory_id": "the id that the transcript's file gives it",
    "annotator": "who wrote it",
    "kind": "human, llm, rules or self",
}
"""Fields without which a line is no annotation, and what they are."""


@dataclass(frozen=True)
class Critique:
    """An entry of `meta["critiques"]` as MINT-bench has them: `{after_message, text, good}`."""

    step: int | None
    """The step it speaks of; None where `after_message` is no index of an assistant message."""
    text: str
    good: bool | None
    """None where the entry does not say true or false."""


def critiques_of(trajectory: Trajectory) -> list[Critique]:
    """The critiques that came with a transcript, one an entry of the list; what an entry does not say is None or ''.

    A log's `critiques` may be anything: an entry that is no object says nothing, and so does anything but a list.
    """
    given = trajectory.meta.get("critiques")
    steps = {step.message_index: step.index for step in trajectory.steps}
    found: list[Critique] = []
    for entry in given if isinstance(given, list) else []:
        entry = entry if isinstance(entry, dict) else {}
        after, text, good = (entry.get(name) for name in ("after_message", "text", "good"))
        if isinstance(after, float) and after.is_integer():  # parquet keeps a column with gaps as floats
            after = int(after)
        step = steps.get(after) if isinstance(after, int) and not isinstance(after, bool) else None
        found.append(Critique(step, text if isinstance(text, str) else "", good if isinstance(good, bool) else None))
    return found


def own_annotations(trajectory: Trajectory) -> tuple[list[Annotation], int]:
    """The labels that a transcript brings with it, and how many entries are none (`carried_and_rest`)."""
    found, rest = carried_and_rest(trajectory)
    return found, len(rest)


def carried_and_rest(trajectory: Trajectory) -> tuple[list[Annotation], list[Any]]:
    """The labels that a transcript brings with it, and the entries that are none.

    They stand in `meta["annotations"]` as readers of labelled data leave them: an annotation's fields without id and digest, which are
    the transcript's; where the source has something else of that name, under `meta["agent_rrm"]`. An entry that is no annotation, or
    that speaks of a step that there is not, is none.
    """
    from rrm.data.own_entries import under_our_name  # with it come all readers, which `import rrm` does without

    given, ours = (meta.get("annotations") for meta in (trajectory.meta, under_our_name(trajectory.meta)))
    entries = [*(given if isinstance(given, list) else []), *(ours if isinstance(ours, list) else [])]
    found, rest = list[Annotation](), list[Any]()
    for entry in entries:
        annotation = _carried(entry, trajectory)
        if annotation is None:
            rest.append(entry)
        else:
            found.append(annotation)
    return found, rest


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
    """The annotations of all files, in order: JSON lines, or tables with a header (`rrm.data.csv_labels`). `match` says which transcript each is of.

    Raises:
        ReadError: as `rrm.data.jsonl.read_lines`, naming file and line; a key that no annotation has is an error too.
    """
    found = list[Annotation]()
    for path in paths:
        if is_table(path):
            found += _of_table(path)
        else:
            found += read_lines(path, Annotation.from_json, "an annotation")
    return found


def _of_table(path: str | Path) -> Iterator[Annotation]:
    """The labels of a table. A person who says two scores of one run has made a mistake, and their mean is none of the two."""
    said = dict[tuple[str, str | None, str], tuple[float, int]]()
    for line, fields in label_rows(path):
        try:
            label = Annotation.checked(fields)
        except ValueError as error:
            raise ReadError(str(path), line, f"not a label: {error}") from error
        if label.score is not None and label.kind == "human":
            score, first = said.setdefault((label.trajectory_id, label.digest, label.annotator), (label.score, line))
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
    """What `match` found."""

    by_id: dict[str, list[Annotation]] = field(default_factory=dict)
    """Trajectory id (unique, as the readers give it) → its annotations in their order; none for an unlabelled one."""
    strays: list[Annotation] = field(default_factory=list)
    """Annotations that belong to no transcript."""
    total: int = 0
    """Annotations looked at."""
    changed: int = 0
    """Strays whose id names a transcript whose content is not what was labelled."""
    a_name: str | None = None
    """The first transcript's own id: what an annotation would have to name."""

    def complaint(self) -> str | None:
        """One sentence on the strays for a warning or an error; None where every annotation found its transcript."""
        if not self.strays:
            return None
        said = f"{len(self.strays)} of {self.total} annotations belong to no transcript"
        said += f", e.g. {printable(self.strays[0].trajectory_id)!r}"
        if len(self.strays) == self.total and not self.changed and self.a_name is not None:
            said += f" (a transcript is called {printable(self.a_name)!r})"
        if self.changed:
            said += f"; {self.changed} name one whose messages, task or tools are not those that were labelled"
        return said


def match(trajectories: Sequence[Trajectory], annotations: Iterable[Annotation]) -> Matched:
    """Join annotations and transcripts; the one join for training, evaluation and export.

    With a digest, an annotation is of the transcripts with that content, whatever they are called; where several share
    the content, each takes those that name it, or all where none does. Without one it is of the transcript whose file
    gives it that id.

    Args:
        trajectories: with unique ids, as one call of `rrm.readers.read` gives them.

    Raises:
        RRMError: two trajectories share an id; or an annotation without a digest has an id that two transcripts of
            different content have in their files, or one that only the order of reading gave (`x#2`).
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
    found = Matched(total=len(labels), a_name=next(iter(own_ids), None))
    for a in labels:
        if a.digest is not None:
            owners = [t for t in contents.get(a.digest, ()) if a.trajectory_id == t.own_id or t.id not in named]
        else:
            owners = _by_name(a, own_ids, names)
        for t in owners:
            found.by_id.setdefault(t.id, []).append(a)
        if not owners:
            found.strays.append(a)
            found.changed += a.digest is not None and (a.trajectory_id in own_ids or a.trajectory_id in names)
    return found


def _by_name(
    annotation: Annotation, own_ids: Mapping[str, list[Trajectory]], names: Mapping[str, Trajectory]
) -> list[Trajectory]:
    """The transcripts an annotation without a digest is of: one, or several with the same content."""
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
    """`file:line`, or the id of a trajectory made in memory."""
    source = trajectory.source
    if source is None:
        return repr(printable(trajectory.id))
    return printable(source.file if source.line is None else f"{source.file}:{source.line}")
