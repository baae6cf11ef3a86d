"""`rrm estimate`: rows of `rrm score` and labels of some of them, joined, as shares of all runs with intervals."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rrm.data.annotation import Annotation
from rrm.data.jsonl import read_lines
from rrm.errors import ConfigError, RRMError
from rrm.evaluation.estimate import Estimate, difference, estimate
from rrm.scoring.row_matching import digest_of

SUCCEEDED, BAD_STEP = "succeeded", "has a bad step"
MOST_KINDS = 35


@dataclass(frozen=True)
class ScoredRun:
    """One run that a judge read."""

    digest: str
    id: str
    score: float | None
    group: str
    """What `by` says of it."""
    kind: str
    """Its file's format."""


def read_scored(paths: Sequence[Path], by: str | None = None) -> list[ScoredRun]:
    """The rows of files of `rrm score`, each content once in a group: the last row counts.

    Args:
        by: path of a field of the row that groups runs (`source.file`); None: the file of rows where there are several.

    Raises:
        ReadError: a line that is no row of `rrm score`. ConfigError: no row has the field, or a row says no digest.
    """
    found: dict[tuple[str, str], ScoredRun] = {}
    for path in paths:
        for row in read_lines(path, json.loads, "a row of `rrm score`"):
            digest = digest_of(row) if isinstance(row, dict) else None
            if digest is None:
                raise ConfigError(f"{path} has a row without source.digest: it is no output of `rrm score`")
            group = str(path) if by is None else str(field_of(row, by))
            run = ScoredRun(digest, str(row["id"]), row.get("score"), group, str(field_of(row, "source.format")))
            found[group, digest] = run
    if not found:
        raise RRMError(f"{', '.join(map(str, paths))}: there are no rows")
    if by is not None and {run.group for run in found.values()} == {"None"}:
        raise ConfigError(f"--by {by}: no row has such a field; one has {', '.join(sorted(row))}")
    return list(found.values())


def field_of(row: Any, path: str) -> Any:
    """The value at a dotted path; None where there is none."""
    for name in path.split("."):
        row = row.get(name) if isinstance(row, dict) else None
    return row


def score_by_digest(runs: Iterable[ScoredRun]) -> dict[str, float]:
    """Digest → score, of the runs that have one."""
    return {run.digest: run.score for run in runs if run.score is not None}


def label_figures(annotations: Sequence[Annotation], runs: Sequence[ScoredRun]) -> dict[str, dict[str, float]]:
    """What people said: figure → digest → mean over raters. Figures are `succeeded`, and, where steps were labelled, `has a bad step`
    and each category that a bad step was given."""
    ids: dict[str, set[str]] = {}
    for run in runs:
        ids.setdefault(run.id, set()).add(run.digest)
    said: dict[str, dict[str, list[float]]] = {SUCCEEDED: {}}
    steps: dict[str, list[Annotation]] = {}
    for one in annotations:
        named = ids.get(one.trajectory_id, set())
        digest = one.digest or (next(iter(named)) if len(named) == 1 else None)
        if digest is None:
            continue
        if one.score is not None:
            said[SUCCEEDED].setdefault(digest, []).append(one.score)
        if one.findings:
            steps.setdefault(digest, []).append(one)
    categories = sorted({name for labels in steps.values() for one in labels for name in categories_of(one)})
    for digest, labels in steps.items():
        for one in labels:
            bad = any(finding.verdict == "bad" for finding in one.findings or ())
            said.setdefault(BAD_STEP, {}).setdefault(digest, []).append(float(bad))
            for name in categories[:MOST_KINDS]:
                said.setdefault(name, {}).setdefault(digest, []).append(float(name in categories_of(one)))
    return {figure: {d: float(np.mean(values)) for d, values in of.items()} for figure, of in said.items() if of}


def categories_of(annotation: Annotation) -> set[str]:
    """Categories of an annotation's bad steps: what stands before the colon of a finding, as `rrm label` writes it."""
    texts = [f.text for f in annotation.findings or () if f.verdict == "bad" and f.text]
    return {text.partition(":")[0] for text in texts if len(text.partition(":")[0]) <= 40}


def estimates(
    runs: Sequence[ScoredRun], figures: Mapping[str, Mapping[str, float]], chances: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Every figure over all runs, and by group where there are several, each later group against the first.

    Args:
        figures: as of `label_figures`.
        chances: digest → chance to be labelled; None: all alike. Labels of runs without one are left out, and counted.

    Raises:
        RRMError: no label is of one of these runs.
    """
    groups: dict[str, list[ScoredRun]] = {}
    for run in runs:
        groups.setdefault(run.group, []).append(run)
    here = {run.digest for run in runs}
    labelled = {digest for of in figures.values() for digest in of}
    usable = labelled & here if chances is None else labelled & here & chances.keys()
    if not usable:
        raise RRMError("no label is of one of these runs: were other transcripts labelled, or did they change since?")
    found: dict[str, Any] = {
        "runs": len(runs),
        "labels": len(usable),
        "labels_of_other_runs": len(labelled - here),
        "labels_not_chosen": len((labelled & here) - usable),
        "without_a_score": sum(run.score is None for run in runs),
        "groups": {},
    }
    first: dict[str, Estimate] = {}
    for name, members in groups.items():
        of_group: dict[str, Any] = {"runs": len(members)}
        for figure, of in figures.items():
            made = _estimate(members, figure, of, chances)
            if made is None:
                continue
            of_group[figure] = {**asdict(made), "to_halve": made.to_halve}
            if figure in first:
                keys = ("value", "low", "high")
                of_group[figure]["against_first"] = dict(zip(keys, difference(first[figure], made), strict=True))
            else:
                first[figure] = made
        found["groups"][name] = of_group
    return found


def _estimate(
    runs: Sequence[ScoredRun], figure: str, of: Mapping[str, float], chances: Mapping[str, float] | None
) -> Estimate | None:
    """None where fewer than two runs have the label."""
    places = [
        place for place, run in enumerate(runs) if run.digest in of and (chances is None or run.digest in chances)
    ]
    if len(places) < 2:
        return None
    scores = np.array([np.nan if run.score is None else run.score for run in runs])
    scores = scores if figure == SUCCEEDED else 1 - scores
    labels = np.array([of[runs[place].digest] for place in places])
    drawn = None if chances is None else np.array([chances[runs[place].digest] for place in places])
    return estimate(scores, np.array(places), labels, drawn)
