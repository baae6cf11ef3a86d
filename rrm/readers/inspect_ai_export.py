"""What a judge said of an Inspect sample, in the fields of Inspect's own `Score`, ready to be put into the log it came from.

`examples/inspect_scores.py` puts the lines into a log, in an environment with `inspect_ai`.
"""

from __future__ import annotations

from typing import Any

from rrm.data.feedback import Feedback
from rrm.data.own_entries import OURS
from rrm.data.trajectory import Trajectory
from rrm.readers.export_names import name_of

Object = dict[str, Any]


def to_inspect(trajectory: Trajectory, feedback: Feedback) -> Object:
    """One line: which log, sample and epoch, and its scores by scorer: `agent_rrm` (`agent_rrm.rank` where it is relative), and
    `agent_rrm.CRITERION` of each criterion.

    Raises:
        ValueError: the transcript is of no Inspect sample, or the row has no score (a failure is never a number).
    """
    meta, source = trajectory.meta, trajectory.source
    sample, epoch = meta.get("sample_id"), meta.get("epoch")
    missing = [
        f"meta.{name}"
        for name, value in (("sample_id", sample), ("epoch", epoch))
        if not isinstance(value, str | int if name == "sample_id" else int) or isinstance(value, bool)
    ]
    if missing:
        format = (source.format if source else None) or "unknown"
        raise ValueError(
            f"transcript {trajectory.id!r} (format {format}) has no {' and no '.join(missing)}: it is no Inspect sample"
        )
    if feedback.score is None:
        raise ValueError(f"transcript {trajectory.id!r} has no score: {feedback.status}")
    place = {"log": source.file if source else None, "eval_id": meta.get("eval_id")}
    return {
        **{key: value for key, value in place.items() if isinstance(value, str)},
        "sample_id": sample,
        "epoch": epoch,
        "scores": _scores(feedback),
    }


def said(feedback: Feedback) -> Object:
    """What of a judgement goes into a score's metadata."""
    kept = {"status", "raw_score", "coverage", "judge", "findings", "criteria", "rank"}
    return feedback.model_dump(mode="json", exclude_none=True, include=kept)


def _scores(feedback: Feedback) -> dict[str, Object]:
    scores = {name_of(feedback): _score(feedback.score, None, feedback.critique, said(feedback))}
    for name, answer in (feedback.criteria or {}).items():
        if answer.value is not None:  # one that does not apply has none: Inspect would count a word as 0
            scores[f"{OURS}.{name}"] = _score(answer.value, answer.label, answer.why, {"steps": answer.steps})
    return scores


def _score(value: float | None, answer: str | None, explanation: str | None, metadata: Object) -> Object:
    return {"value": value, "answer": answer, "explanation": explanation, "metadata": metadata}
