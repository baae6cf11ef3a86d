"""The labels of several raters held against one another: outcomes, steps, and where they part."""

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
"""(digest or "", trajectory id): what a label is of."""


@dataclass
class LabelledContents:
    """What transcripts say to labels of them."""

    questions: dict[str, str] = field(default_factory=dict)
    """Digest → question, for intervals over questions."""
    digests: dict[str, set[str]] = field(default_factory=dict)
    """Id in its file → the contents that have it: more than one where files repeat an id."""


def known_of(trajectories: Iterable[Trajectory]) -> LabelledContents:
    """What transcripts say, read once."""
    known = LabelledContents()
    for t in trajectories:
        known.questions[t.digest] = question_of(t)
        known.digests.setdefault(t.own_id, set()).add(t.digest)
    return known


def read_raters(paths: Sequence[Path], known: LabelledContents | None = None) -> list[Annotation]:
    """The annotations of all files.

    Args:
        known: transcripts, by which a label without a digest gets that of the one with its id, and so meets labels that have one.

    Raises:
        ReadError: as `read_annotations`.
        RRMError: a file without a label, a rater who said two things of one transcript, labels of one rater alone, or a label without a digest whose id
            transcripts of different contents share.
    """
    found = [_with_digest(one, known) for path in paths for one in _labels(path)]
    seen = dict[tuple[str, _Of], Annotation]()
    for one in found:
        first = seen.setdefault((one.annotator, _of(one)), one)
        if first is not one and (first.score, first.findings) != (one.score, one.findings):
            raise RRMError(
                f"{printable(one.annotator)!r} has two labels of {printable(one.trajectory_id)!r}: a rater's labels stand in one file, once "
                "each; give two people two names (--rater)"
            )
    raters = {one.annotator for one in found}
    if len(raters) < 2:
        whose = f"all labels are by {printable(min(raters))!r}" if raters else "the files hold no label"
        raise RRMError(f"{whose}: agreement needs two raters or more (each names herself with --rater)")
    return list(seen.values())


def unsure_of(paths: Iterable[Path]) -> dict[str, int]:
    """Rater → how many outcomes she was unsure of. That makes no label, so it stands in the journal beside a file alone; who has none there is missing.

    Raises:
        RRMError: a journal that cannot be read.
    """
    found = dict[str, set[str]]()
    for path in paths:  # a file may be named twice, or stand in two copies
        sayings = read_sayings(path)
        if sayings is not None:
            found.setdefault(sayings.rater, set()).update(_unsure(sayings))
    return {rater: len(digests) for rater, digests in found.items()}


def strangers(annotations: Iterable[Annotation], known: LabelledContents) -> list[Annotation]:
    """Labels, as `read_raters` gives them, of none of the transcripts."""
    return [one for one in annotations if one.digest not in known.questions]


def compared(
    annotations: Iterable[Annotation],
    questions: Mapping[str, str] | None = None,
    *,
    unsure: Mapping[str, int] | None = None,
    resamples: int = 10_000,
    seed: int = 0,
) -> dict[str, Any]:
    """Agreement on outcomes (a score from 0.5 on is good) and on steps (good or bad; what is unclear is no label).

    Args:
        questions: digest → question: intervals are then over questions, else over transcripts.
        unsure: rater → outcomes she was unsure of, as `unsure_of` says.

    Returns:
        `raters`, `outcome` and `steps` as `rrm.evaluation.agreement.agreement` gives them, with `unsure` and `unclear` by rater (None:
        not known) of what was said and is no label; `disagreements`: of each unit with two labels
        `{trajectory_id, digest, step, labels}`, `step` None for an outcome; and `apart`: how many ids some labels have with a digest and some
        without, which are not held against each other.
    """
    outcomes, steps = dict[_Of, dict[str, str]](), dict[tuple[_Of, int], dict[str, str]]()
    raters, names = set[str](), dict[_Of, str]()
    named, bare = set[str](), set[str]()
    unclear = dict[str, set[tuple[_Of, int]]]()
    for one in annotations:
        (named if one.digest else bare).add(one.trajectory_id)
        raters.add(one.annotator)
        names.setdefault(_of(one), one.trajectory_id)
        if one.score is not None:
            outcomes.setdefault(_of(one), {})[one.annotator] = "good" if one.score >= 0.5 else "bad"
        for finding in one.findings or ():
            if not finding.decided:
                unclear.setdefault(one.annotator, set()).add((_of(one), finding.step))
            else:
                of = steps.setdefault((_of(one), finding.step), {})
                # of several findings on a step one that is bad decides, as everywhere (`rrm.judge.abstention`)
                of[one.annotator] = "bad" if "bad" in (finding.verdict, of.get(one.annotator)) else "good"

    def cluster(of: _Of) -> Hashable:
        return (questions or {}).get(of[0], of)

    how = {"resamples": resamples, "seed": seed}
    outcome = agreement([Unit(cluster(of), said) for of, said in outcomes.items()], **how)
    step = agreement([Unit(cluster(of), said) for (of, _), said in steps.items()], **how)
    no_verdict = {who: sum(who not in steps.get(of, {}) for of in unclear.get(who, ())) for who in sorted(raters)}
    return {
        "raters": sorted(raters),
        "outcome": {**outcome, "unsure": {who: (unsure or {}).get(who) for who in sorted(raters)}},
        "steps": {**step, "unclear": no_verdict},
        "apart": len(named & bare),
        "disagreements": [_row(names[of], of, None, said) for of, said in outcomes.items() if _part(said)]
        + [_row(names[of], of, step, said) for (of, step), said in steps.items() if _part(said)],
    }


def _labels(path: Path) -> list[Annotation]:
    found = read_annotations(path)
    if not found:
        sayings = read_sayings(path)
        unsure = len(_unsure(sayings)) if sayings else 0
        but = f" (its rater was unsure of {unsure} outcomes, which makes none)" if unsure else ""
        raise RRMError(f"{path} holds no label{but}: leave it out, or wait until something is labelled in it")
    return found


def _unsure(sayings: LabelStore) -> set[str]:
    """Digests of the transcripts of whose outcome a rater is unsure."""
    return {digest for digest, said in sayings.all.items() if said.outcome == "unsure"}


def _with_digest(label: Annotation, known: LabelledContents | None) -> Annotation:
    """The label, with the digest of the transcript of its id where it has none and there is one."""
    found = set[str]() if known is None or label.digest else known.digests.get(label.trajectory_id, set())
    if len(found) > 1:
        raise RRMError(
            f"a label by {printable(label.annotator)!r} has the id {printable(label.trajectory_id)!r} and no digest, but {len(found)} different "
            "transcripts have that id: give it the digest of its own, or leave the others out of --transcripts"
        )
    return label.model_copy(update={"digest": next(iter(found))}) if found else label


def _of(annotation: Annotation) -> _Of:
    return annotation.digest or "", "" if annotation.digest else annotation.trajectory_id


def _part(said: Mapping[str, str]) -> bool:
    return len(set(said.values())) > 1


def _row(name: str, of: _Of, step: int | None, said: Mapping[str, str]) -> dict[str, Any]:
    return {"trajectory_id": name, "digest": of[0] or None, "step": step, "labels": dict(sorted(said.items()))}
