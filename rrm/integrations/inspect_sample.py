"""What Inspect's scorer and Scout's scanner share: a sample as the reader of Inspect's logs has it, and references to steps.

Nothing here imports either framework.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rrm.data.feedback import OUTSIDE, Feedback, format_findings
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError
from rrm.readers import inspect_ai
from rrm.readers.base import SourceItem

EVENT_FIELDS: Any = {
    "event": True,
    "id": True,
    "tools": True,
    "timestamp": True,
    "completed": True,
    "working_time": True,
    "output": {"choices": {"__all__": {"message": {"id": True}}}},
}
"""What the reader uses of an event; a model's event holds its whole input besides."""


def trajectory_of(
    place: str, messages: Sequence[Any], events: Iterable[Any], about: dict[str, Any], **sample: Any
) -> Trajectory:
    """A sample's messages and events (Inspect's own objects) as the transcript that `rrm score` reads in its log.

    Args:
        place: where it lies, for errors.
        about: what a log's `eval` says.
        sample: further fields of a sample: `id`, `epoch`, `input`, `target`.

    Raises:
        RRMError: there are no messages, or some that cannot be read.
    """
    value = {key: _plain(given) for key, given in sample.items() if given is not None}
    value["messages"] = _plain(list(messages))
    value["events"] = [
        event.model_dump(mode="json", exclude_none=True, include=EVENT_FIELDS)
        for event in events
        if event.event in ("model", "tool")
    ]
    try:
        return inspect_ai.parse(SourceItem(value, place, context={"eval": about}, format=inspect_ai.NAME))
    except ValueError as error:
        raise RRMError(f"{place}: {error}") from error


def explanation(feedback: Feedback) -> str | None:
    """What the judge wrote: the critique, or a line for each step; of a failure how it failed; where it abstains, that and why."""
    if feedback.score is None:
        return f"{feedback.status}: {feedback.reason}" if feedback.reason else feedback.status
    if feedback.abstains:
        return f"the judge gives no verdict on any step: the run is {OUTSIDE}"
    return feedback.critique or format_findings(feedback.findings) or None


def references(trajectory: Trajectory, feedback: Feedback) -> list[dict[str, str]]:
    """The messages of the steps that were spoken of, as Inspect's `Reference`: `[step k]` in the text becomes a link. None where the
    judge abstains."""
    steps = sorted({finding.step for finding in feedback.findings if not feedback.abstains})
    ids = {step.index: (step.message.model_extra or {}).get("id") for step in trajectory.steps}
    return [
        {"type": "message", "cite": f"[step {k}]", "id": id} for k in steps if isinstance(id := ids.get(k), str) and id
    ]


def _plain(value: Any) -> Any:
    """Messages as their JSON, texts as they are."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value.model_dump(mode="json", exclude_none=True) if hasattr(value, "model_dump") else value
