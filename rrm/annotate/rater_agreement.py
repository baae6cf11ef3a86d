"""The agreement of several raters' labels on outcomes and steps, and their disagreements."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rrm.annotate.label_journal import read_sayings
from rrm.annotate.label_store import LabelStore
from rrm.data.annotation import Annotation, read_annotations
from rrm.data.questions import question_of
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError
from rrm.evaluation.agreement import Unit, agreement
from rrm.readers.base import printable

_Of = tuple[str, str]
"""(digest or "", trajectory id): the transcript of a label."""


@dataclass
class LabelledContents:
    questions: dict[str, str] = field(default_factory=dict)
    """Digest → question, for intervals over questions."""
    digests: dict[str, set[str]] = field(default_factory=dict)
    """Id in its file → the contents that have it: several where files repeat an id."""


def known_of(trajectories: Iterable[Trajectory]) -> LabelledContents:
    contents = LabelledContents()
    for t in trajectories:
        contents.questions[t.digest] = question_of(t)
        contents.digests.setdefault(t.own_id, set()).add(t.digest)
    return contents


def read_raters(paths: Sequence[Path], contents: LabelledContents | None = None) -> list[Annotation]:
    """Read the annotations of all files; `contents` gives labels without a digest that of their id.
    Raises RRMError for a file without a label, two different labels of one transcript by a rater, labels of one rater alone, or a label
    without a digest whose id is that of different contents."""
    labels = [_with_digest(label, contents) for path in paths for label in _labels(path)]
    by_rater = dict[tuple[str, _Of], Annotation]()
    for label in labels:
        first = by_rater.setdefault((label.annotator, _of(label)), label)
        if first is not label and (first.score, first.findings) != (label.score, label.findings):
            raise RRMError(
                f"{printable(label.annotator)!r} has two labels of {printable(label.trajectory_id)!r}: a rater's labels stand in one file, once "
                "each; give two people two names (--rater)"
            )
    raters = {label.annotator for label in labels}
    if len(raters) < 2:
        whose = f"all labels are by {printable(min(raters))!r}" if raters else "the files hold no label"
        raise RRMError(f"{whose}: agreement needs two raters or more (each names herself with --rater)")
    return list(by_rater.values())


def unsure_of(paths: Iterable[Path]) -> dict[str, int]:
    """Count each rater's unsure outcomes: they stand only in the journal beside a file."""
    by_rater = dict[str, set[str]]()
    for path in paths:  # a file may be named twice, or stand in two copies
        sayings = read_sayings(path)
        if sayings is not None:
            by_rater.setdefault(sayings.rater, set()).update(_unsure(sayings))
    return {rater: len(digests) for rater, digests in by_rater.items()}


def strangers(annotations: Iterable[Annotation], contents: LabelledContents) -> list[Annotation]:
    """Select labels, as `read_raters` gives them, of none of the transcripts."""
    return [label for label in annotations if label.digest not in contents.questions]


def compared(
    annotations: Iterable[Annotation],
    questions: Mapping[str, str] | None = None,
    *,
    unsure: Mapping[str, int] | None = None,
    resamples: int = 10_000,
    seed: int = 0,
) -> dict[str, Any]:
    """Compute agreement on outcomes (good from 0.5) and on steps (good or bad; unclear is no label).

    Args:
        questions: digest → question: intervals are then over questions, else over transcripts.
        unsure: rater → outcomes she was unsure of (`unsure_of`).

    Returns:
        `raters`; `outcome` and `steps` of `rrm.evaluation.agreement.agreement`, with `unsure` and `unclear` by rater (None: not known);
        `disagreements`: of each unit with two labels `{trajectory_id, digest, step, labels}`, `step` None for an outcome; and `apart`:
        ids that some labels have with a digest and some without, which are not compared.
    """
    outcomes, steps = dict[_Of, dict[str, str]](), dict[tuple[_Of, int], dict[str, str]]()
    raters, names = set[str](), dict[_Of, str]()
    named, bare = set[str](), set[str]()
    unclear = dict[str, set[tuple[_Of, int]]]()
    for label in annotations:
        (named if label.digest else bare).add(label.trajectory_id)
        raters.add(label.annotator)
        names.setdefault(_of(label), label.trajectory_id)
        if label.score is not None:
            outcomes.setdefault(_of(label), {})[label.annotator] = "good" if label.score >= 0.5 else "bad"
        for finding in label.findings or ():
            if not finding.decided:
                unclear.setdefault(label.annotator, set()).add((_of(label), finding.step))
            else:
                by_rater = steps.setdefault((_of(label), finding.step), {})
                # of several findings on a step one that is bad decides, as everywhere (`rrm.judge.abstention`)
                by_rater[label.annotator] = (
                    "bad" if "bad" in (finding.verdict, by_rater.get(label.annotator)) else "good"
                )

    def cluster(key: _Of) -> Hashable:
        return (questions or {}).get(key[0], key)

    how = {"resamples": resamples, "seed": seed}
    outcome = agreement([Unit(cluster(key), labels) for key, labels in outcomes.items()], **how)
    step = agreement([Unit(cluster(key), labels) for (key, _), labels in steps.items()], **how)
    no_verdict = {who: sum(who not in steps.get(key, {}) for key in unclear.get(who, ())) for who in sorted(raters)}
    return {
        "raters": sorted(raters),
        "outcome": {**outcome, "unsure": {who: (unsure or {}).get(who) for who in sorted(raters)}},
        "steps": {**step, "unclear": no_verdict},
        "apart": len(named & bare),
        "disagreements": [_row(names[key], key, None, labels) for key, labels in outcomes.items() if _part(labels)]
        + [_row(names[key], key, step, labels) for (key, step), labels in steps.items() if _part(labels)],
    }


def _labels(path: Path) -> list[Annotation]:
    labels = read_annotations(path)
    if not labels:
        sayings = read_sayings(path)
        unsure = len(_unsure(sayings)) if sayings else 0
        but = f" (its rater was unsure of {unsure} outcomes, which makes none)" if unsure else ""
        raise RRMError(f"{path} holds no label{but}: leave it out, or wait until something is labelled in it")
    return labels


def _unsure(sayings: LabelStore) -> set[str]:
    return {digest for digest, label in sayings.all.items() if label.outcome == "unsure"}


def _with_digest(label: Annotation, contents: LabelledContents | None) -> Annotation:
    """Add the digest of the one transcript with the label's id, where the label has none."""
    digests = set[str]() if contents is None or label.digest else contents.digests.get(label.trajectory_id, set())
    if len(digests) > 1:
        raise RRMError(
            f"a label by {printable(label.annotator)!r} has the id {printable(label.trajectory_id)!r} and no digest, but {len(digests)} different "
            "transcripts have that id: give it the digest of its own, or leave the others out of --transcripts"
        )
    return label.model_copy(update={"digest": next(iter(digests))}) if digests else label


def _of(annotation: Annotation) -> _Of:
    return annotation.digest or "", "" if annotation.digest else annotation.trajectory_id


def _part(labels: Mapping[str, str]) -> bool:
    return len(set(labels.values())) > 1


def _row(name: str, key: _Of, step: int | None, labels: Mapping[str, str]) -> dict[str, Any]:
    return {"trajectory_id": name, "digest": key[0] or None, "step": step, "labels": dict(sorted(labels.items()))}
