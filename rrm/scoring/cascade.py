"""The cascade: a small judge reads every transcript, a stronger one those that the small one is unsure of.

    OUT.small.jsonl       the small judge's rows: an output of `rrm.scoring.run`, appended to and resumed
    OUT.escalated.jsonl   the stronger judge's rows, likewise: no judgement is paid twice
    OUT.jsonl             a row a transcript, made of both at the end of a run, also of one that stopped early

A row of OUT.jsonl is the stronger judge's where that gave a score and does not abstain, else the small judge's. Its `judge` says which one.
Beside that:

| field | what |
|---|---|
| `escalated` | true; "control": the small judge was sure; false: the row is the small judge's |
| `small_judge` | of an escalated row: the small judge's feedback, without fields at their defaults |
| `escalation_failed` | where the stronger judge gave no score: its `model`, and the `status` and `reason` of its row; where it abstains the `status` is "unsure" |

`usage` is of both judges.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrm.data.feedback import Feedback, Mode
from rrm.data.output import differences, header_of, open_output
from rrm.data.seeds import derive_seed
from rrm.data.trajectory import Trajectory
from rrm.data.usage import Usage, total_of
from rrm.scoring.rows import Escalation, Kept, MergedRows, feedback_of, is_sure, rows_in
from rrm.scoring.run import ScoreSummary, ScoringJudge, fingerprint_of, score_file

CONTROL_SHARE = 0.05
"""Of the rows that the small judge is sure of: those that go to the stronger one nevertheless."""
AT_ONCE = 32
"""Transcripts that a stronger judge which takes lists is given at once; within a list the order is its own."""


def sureness(feedback: Feedback) -> tuple[bool, int, float, float]:
    """Rank a row, the least sure lowest: no score, most unsure steps, a p_good nearest one half, the lowest score."""
    unsure = sum(finding.verdict == "unsure" for finding in feedback.findings)
    nearest = min((abs(f.p_good - 0.5) for f in feedback.findings if f.p_good is not None), default=0.5)
    return feedback.status == "scored", -unsure, nearest, feedback.score or 0.0


def order_of_escalation(feedbacks: Iterable[Feedback], seed: int, share: float = CONTROL_SHARE) -> list[str]:
    """Order the ids that go to the stronger judge: rows that are not sure, the worst first, and a sample of the sure ones.

    The sample is drawn by (seed, id) and spread evenly, so that a run which stops early has its share of it.

    Args:
        share: of the sure rows, in [0, 1], rounded up to whole rows.
    """
    doubtful: list[tuple[tuple[bool, int, float, float], str]] = []
    sure: list[tuple[int, str]] = []
    for feedback in feedbacks:
        if is_sure(feedback):
            sure.append((derive_seed(seed, "control", feedback.id), feedback.id))
        else:
            doubtful.append((sureness(feedback), feedback.id))
    control = sorted(sure)[: math.ceil(round(share * len(sure), 6))]
    places = [(float(place), id) for place, (_, id) in enumerate(sorted(doubtful))]
    places += [((place + 0.5) * len(doubtful) / len(control), id) for place, (_, id) in enumerate(control)]
    return [id for _, id in sorted(places, key=lambda item: item[0])]


@dataclass
class CascadeSummary(ScoreSummary):
    """The small judge's run; `statuses`, `usage`, `usage_now` and `stopped` are of both judges."""

    escalation: Escalation | None = None


def score_cascade(
    small: ScoringJudge,
    stronger: ScoringJudge,
    inputs: Iterable[Trajectory],
    output: Path,
    *,
    mode: Mode = "steps",
    stronger_mode: Mode = "full",
    samples: int = 1,
    seed: int = 0,
    share: float = CONTROL_SHARE,
    overwrite: bool = False,
    retry_errors: bool = False,
    settings: dict[str, Any] | None = None,
    total: int | None = None,
    progress: bool = True,
) -> CascadeSummary:
    """Judge every input with the small judge, then those of `order_of_escalation` with the stronger one.

    An output that the small judge made alone is gone on with.

    Args:
        share: of the sure rows that go to the stronger judge for control; another one goes on with the same output.
        settings, total, progress: as `score_file` takes them.

    Raises:
        RRMError: as `score_file`; where the stronger judge ends the run, OUT.jsonl holds what there is.
    """
    output = output.resolve() if output.is_symlink() else output
    made_by = fingerprint_of(small, mode=mode, samples=samples, seed=seed, settings=settings)
    first, second = beside(output, "small"), beside(output, "escalated")
    if not overwrite:
        _take_over(output, first, made_by)
    how: dict[str, Any] = {"samples": samples, "seed": seed, "retry_errors": retry_errors, "progress": progress}
    model = str(stronger.describe()["model"])
    made_by["escalate"] = model.rpartition("#")[2]  # a server may move
    with (
        open_output(output, made_by, overwrite=overwrite) as out,
        tempfile.TemporaryFile(dir=output.parent) as spool,
    ):
        kept = Kept(spool)
        done = score_file(
            small, kept.passing(inputs), first, mode=mode, settings=settings, total=total, overwrite=overwrite, **how
        )
        if overwrite:
            for path in (second, Path(f"{second}.run.json")):
                path.unlink(missing_ok=True)
        order = [id for id in order_of_escalation(map(feedback_of, rows_in(first)), seed, share) if id in kept]
        escalation = Escalation(model)
        rows = MergedRows(first, second, escalation)
        streams = getattr(stronger, "streams", None)
        at_once = 1 if streams is not None and streams(stronger_mode) else AT_ONCE
        how |= {"mode": stronger_mode, "total": len(order), "chunk_size": at_once}
        try:
            later = score_file(stronger, kept.of(order), second, **how)
        finally:
            out.replace(rows)
    escalation.left = len(set(order) - rows.tried)
    escalation.usage = later.usage
    return CascadeSummary(**{
        **vars(done),
        "output": str(output),
        "statuses": dict(sorted(rows.statuses.items())),
        "usage": _sum(done.usage, later.usage),
        "usage_now": _sum(done.usage_now, later.usage_now),
        "stopped": done.stopped or later.stopped,
        "seconds": round(done.seconds + later.seconds, 3),
        "escalation": escalation,
    })  # fmt: skip


def beside(output: Path, what: str) -> Path:
    """`OUT.jsonl` → `OUT.what.jsonl`."""
    return output.with_name(f"{output.stem if output.suffix in ('.jsonl', '.json') else output.name}.{what}.jsonl")


def _sum(*usages: dict[str, Any] | None) -> dict[str, Any] | None:
    total = total_of(None if usage is None else Usage.model_validate(usage) for usage in usages)
    return None if total is None else total.model_dump()


def _take_over(output: Path, first: Path, made_by: dict[str, Any]) -> None:
    """Let the rows of a run without a stronger judge be the small judge's."""
    from filelock import FileLock, Timeout

    if first.exists() or not output.is_file() or not output.stat().st_size:
        return
    with suppress(Timeout), FileLock(f"{output}.lock", timeout=0):  # `open_output` says who has it
        if not differences(header_of(output), json.loads(json.dumps(made_by))):
            shutil.copyfile(f"{output}.run.json", f"{first}.run.json")
            os.replace(output, first)
