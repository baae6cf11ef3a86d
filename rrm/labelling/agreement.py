"""The labels of several raters held against one another: outcomes, steps, and where they part."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rrm.annotation import Annotation, read_annotations
from rrm.errors import RRMError
from rrm.evaluation.agreement import Unit, agreement
from rrm.questions import question_of
from rrm.readers.base import printable
from rrm.trajectory import Trajectory

_Of = tuple[str, str]
"""(digest or "", trajectory id): what a label is of."""


def read_raters(paths: Sequence[Path]) -> list[Annotation]:
    """The annotations of all files.

    Raises:
        ReadError: as `read_annotations`.
        RRMError: a rater said two things of one transcript, or all labels are one rater's.
    """
    found = read_annotations(*paths)
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


def compared(
    annotations: Iterable[Annotation],
    questions: Mapping[str, str] | None = None,
    *,
    resamples: int = 10_000,
    seed: int = 0,
) -> dict[str, Any]:
    """Agreement on outcomes (a score from 0.5 on is good) and on steps (good or bad; what is unclear is no label).

    Args:
        questions: digest → question: intervals are then over questions, else over transcripts.

    Returns:
        `raters`, `outcome` and `steps` as `rrm.evaluation.agreement.agreement` gives them, and `disagreements`: of each unit with two labels
        `{trajectory_id, digest, step, labels}`, `step` None for an outcome.
    """
    outcomes, steps = dict[_Of, dict[str, str]](), dict[tuple[_Of, int], dict[str, str]]()
    raters, names = set[str](), dict[_Of, str]()
    for one in annotations:
        raters.add(one.annotator)
        names.setdefault(_of(one), one.trajectory_id)
        if one.score is not None:
            outcomes.setdefault(_of(one), {})[one.annotator] = "good" if one.score >= 0.5 else "bad"
        for finding in one.findings or ():
            if finding.verdict != "unclear":
                of = steps.setdefault((_of(one), finding.step), {})
                # of several findings on a step one that is bad decides, as everywhere (`rrm.parts`)
                of[one.annotator] = "bad" if "bad" in (finding.verdict, of.get(one.annotator)) else "good"

    def cluster(of: _Of) -> Hashable:
        return (questions or {}).get(of[0], of)

    how = {"resamples": resamples, "seed": seed}
    return {
        "raters": sorted(raters),
        "outcome": agreement([Unit(cluster(of), said) for of, said in outcomes.items()], **how),
        "steps": agreement([Unit(cluster(of), said) for (of, _), said in steps.items()], **how),
        "disagreements": [_row(names[of], of, None, said) for of, said in outcomes.items() if _part(said)]
        + [_row(names[of], of, step, said) for (of, step), said in steps.items() if _part(said)],
    }


def questions_of(trajectories: Iterable[Trajectory]) -> dict[str, str]:
    """Digest → question, for intervals over questions."""
    return {t.digest: question_of(t) for t in trajectories}


def _of(annotation: Annotation) -> _Of:
    return annotation.digest or "", "" if annotation.digest else annotation.trajectory_id


def _part(said: Mapping[str, str]) -> bool:
    return len(set(said.values())) > 1


def _row(name: str, of: _Of, step: int | None, said: Mapping[str, str]) -> dict[str, Any]:
    return {"trajectory_id": name, "digest": of[0] or None, "step": step, "labels": dict(sorted(said.items()))}
