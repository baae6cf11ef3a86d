"""ShareEstimate shares of all runs from rows of `rrm score` and labels of some of them (`rrm estimate`)."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rrm.data.annotation import Annotation
from rrm.data.jsonl import read_lines
from rrm.errors import ConfigError, RRMError
from rrm.evaluation.share_estimate import ShareEstimate, difference, estimate
from rrm.scoring.row_matching import digest_of

log = logging.getLogger(__name__)
SUCCEEDED, BAD_STEP = "succeeded", "has a bad step"
MOST_KINDS = 35


@dataclass(frozen=True)
class ScoredRun:
    digest: str
    id: str
    score: float | None
    group: str  # value of the field `by`, else the file of rows
    kind: str  # its file's format


def read_scored(paths: Sequence[Path], by: str | None = None) -> list[ScoredRun]:
    """Read rows of `rrm score`, each content once in a group (the last row counts): a label is of a content.

    Args:
        by: dotted path of the row's field that groups runs (`source.file`); None: the file of rows.

    Raises:
        ReadError: a line that is no row of `rrm score`. ConfigError: no row has the field, or a row has no digest.
    """
    runs: dict[tuple[str, str], ScoredRun] = {}
    ids: dict[tuple[str, str], set[str]] = {}
    for path in paths:
        for row in read_lines(path, _row, "a row of `rrm score`"):
            digest = digest_of(row)
            if digest is None:
                raise ConfigError(f"{path} has a row without source.digest: it is no output of `rrm score`")
            group = str(path) if by is None else str(field_of(row, by))
            run = ScoredRun(digest, row["id"], row.get("score"), group, str(field_of(row, "source.format")))
            runs[group, digest] = run
            ids.setdefault((group, digest), set()).add(run.id)
    if not runs:
        raise RRMError(f"{', '.join(map(str, paths))}: there are no rows")
    if by is not None and {run.group for run in runs.values()} == {"None"}:
        raise ConfigError(f"--by {by}: no row has such a field; one has {', '.join(sorted(row))}")
    if repeated := sum(len(same) - 1 for same in ids.values()):
        log.warning("%d rows have the content of another row: each content counts once", repeated)
    return list(runs.values())


def _row(line: str) -> dict[str, Any]:
    row = json.loads(line)
    if not isinstance(row, dict) or (digest_of(row) and not isinstance(row.get("id"), str)):
        raise ValueError("it has no id")
    if not isinstance(row.get("score"), float | int | None):
        raise ValueError(f"its score is {row['score']!r}")
    return row


def field_of(row: Any, path: str) -> Any:
    """Return the value at a dotted path, or None."""
    for name in path.split("."):
        row = row.get(name) if isinstance(row, dict) else None
    return row


def score_by_digest(runs: Iterable[ScoredRun]) -> dict[str, float]:
    return {run.digest: run.score for run in runs if run.score is not None}


def label_figures(annotations: Sequence[Annotation], runs: Sequence[ScoredRun]) -> dict[str, dict[str, float]]:
    """Average raters' labels: figure (`succeeded`, `has a bad step`, each category) → digest → mean.
    Labels without a digest are of the id's only run; others are kept under their id, as of no run."""
    ids: dict[str, set[str]] = {}
    for run in runs:
        ids.setdefault(run.id, set()).add(run.digest)
    for run in runs:  # `x#2` is `x` in its own file
        if (own := run.id.rpartition("#")[0]) in ids:
            ids[own].add(run.digest)
    values_of: dict[str, dict[str, list[float]]] = {SUCCEEDED: {}}
    steps: dict[str, list[Annotation]] = {}
    for annotation in annotations:
        named = ids.get(annotation.trajectory_id, set())
        digest = annotation.digest or (next(iter(named)) if len(named) == 1 else f"id {annotation.trajectory_id}")
        if annotation.score is not None:
            values_of[SUCCEEDED].setdefault(digest, []).append(annotation.score)
        if annotation.findings:
            steps.setdefault(digest, []).append(annotation)
    times = Counter(
        name for labels in steps.values() for annotation in labels for name in sorted(categories_of(annotation))
    )
    categories = sorted(name for name, _ in times.most_common(MOST_KINDS))
    for digest, labels in steps.items():
        for annotation in labels:
            bad = any(finding.verdict == "bad" for finding in annotation.findings or ())
            values_of.setdefault(BAD_STEP, {}).setdefault(digest, []).append(float(bad))
            for name in categories:
                values_of.setdefault(name, {}).setdefault(digest, []).append(float(name in categories_of(annotation)))
    return {
        figure: {d: float(np.mean(values)) for d, values in by_digest.items()}
        for figure, by_digest in values_of.items()
        if by_digest
    }


def categories_of(annotation: Annotation) -> set[str]:
    """Return categories of bad steps: a finding's text before the colon, as `rrm label` writes it."""
    texts = [f.text for f in annotation.findings or () if f.verdict == "bad" and f.text]
    return {text.partition(":")[0] for text in texts if len(text.partition(":")[0]) <= 40}


def estimates(
    runs: Sequence[ScoredRun], figures: Mapping[str, Mapping[str, float]], chances: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """ShareEstimate every figure over all runs and by group, each later group against the first.

    Args:
        figures: of `label_figures`.
        chances: digest → chance to be labelled; labels of other runs are left out, and counted. None: all alike.

    Raises:
        RRMError: no label matches a run, or no group has two.
    """
    groups: dict[str, list[ScoredRun]] = {}
    for run in runs:
        groups.setdefault(run.group, []).append(run)
    here = {run.digest for run in runs}
    labelled = {digest for labels in figures.values() for digest in labels}
    usable = labelled & here if chances is None else labelled & here & chances.keys()
    if not usable:
        raise RRMError(
            "No label matches a run: other or changed transcripts, or an id used twice (a column `digest` tells them apart)"
        )
    to_label = usable if chances is None else here & chances.keys()
    result: dict[str, Any] = {
        "runs": len(runs),
        "labels": len(usable),
        "labels_of_other_runs": len(labelled - here),
        "labels_not_chosen": len((labelled & here) - usable),
        "without_a_label": {
            figure: len(to_label - figures[figure].keys()) for figure in (SUCCEEDED, BAD_STEP) if figure in figures
        },
        "without_a_score": sum(run.score is None for run in runs),
        "groups": {},
    }
    first_group, first = next(iter(groups)), dict[str, ShareEstimate]()
    for name, members in groups.items():
        of_group: dict[str, Any] = {"runs": len(members)}
        for figure, labels in figures.items():
            estimated = _estimate(members, figure, labels, chances)
            if estimated is None:
                continue
            of_group[figure] = {**asdict(estimated), "to_halve": estimated.to_halve}
            if first_group != name and figure in first:
                keys = ("value", "low", "high")
                of_group[figure]["against_first"] = dict(zip(keys, difference(first[figure], estimated), strict=True))
            elif first_group == name:
                first[figure] = estimated
        result["groups"][name] = of_group
    if not any(figures.keys() & group.keys() for group in result["groups"].values()):
        raise RRMError(
            f"an interval takes two labels of a group's runs, and {len(usable)} labels are of {len(groups)} groups"
        )
    return result


def _estimate(
    runs: Sequence[ScoredRun], figure: str, label_of: Mapping[str, float], chances: Mapping[str, float] | None
) -> ShareEstimate | None:
    """ShareEstimate a figure; None: fewer than two runs have the label."""
    indices = [i for i, run in enumerate(runs) if run.digest in label_of and (chances is None or run.digest in chances)]
    if len(indices) < 2:
        return None
    scores = np.array([np.nan if run.score is None else run.score for run in runs])
    scores = scores if figure == SUCCEEDED else 1 - scores
    labels = np.array([label_of[runs[i].digest] for i in indices])
    drawn = None if chances is None else np.array([chances[runs[i].digest] for i in indices])
    return estimate(scores, np.array(indices), labels, drawn)
