"""Shared by Inspect's scorer and Scout's scanner, importing neither: transcripts and links to steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rrm.data.feedback import OUTSIDE, Feedback, format_findings
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError
from rrm.readers import inspect_ai
from rrm.readers.base import SourceItem

# what the reader uses of an event; a model's event also holds its whole input
EVENT_FIELDS: Any = {
    "event": True,
    "id": True,
    "tools": True,
    "timestamp": True,
    "completed": True,
    "working_time": True,
    "output": {"choices": {"__all__": {"message": {"id": True}}}},
}


def trajectory_of(
    where: str, messages: Sequence[Any], events: Iterable[Any], about: dict[str, Any], **sample: Any
) -> Trajectory:
    """Convert Inspect's objects, with a log's `eval` entry, to the transcript that `rrm score` reads."""
    value = {key: _plain(entry) for key, entry in sample.items() if entry is not None}
    value["messages"] = _plain(list(messages))
    value["events"] = [
        event.model_dump(mode="json", exclude_none=True, include=EVENT_FIELDS)
        for event in events
        if event.event in ("model", "tool")
    ]
    try:
        return inspect_ai.parse(SourceItem(value, where, context={"eval": about}, format=inspect_ai.NAME))
    except ValueError as error:
        raise RRMError(f"{where}: {error}") from error


def explanation(feedback: Feedback) -> str | None:
    """Return the critique, or a line for each step; of a failure or abstention its reason."""
    if feedback.score is None:
        return f"{feedback.status}: {feedback.reason}" if feedback.reason else feedback.status
    if feedback.abstains:
        return f"the judge gives no verdict on any step: the run is {OUTSIDE}"
    return feedback.critique or format_findings(feedback.findings) or None


def references(trajectory: Trajectory, feedback: Feedback) -> list[dict[str, str]]:
    """Return Inspect `Reference`s that link `[step k]` in the text to messages."""
    steps = sorted({finding.step for finding in feedback.findings if not feedback.abstains})
    ids = {step.index: (step.message.model_extra or {}).get("id") for step in trajectory.steps}
    return [
        {"type": "message", "cite": f"[step {k}]", "id": id} for k in steps if isinstance(id := ids.get(k), str) and id
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.model_dump(mode="json", exclude_none=True) if hasattr(value, "model_dump") else value
