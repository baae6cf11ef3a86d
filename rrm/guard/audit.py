"""The audit trail: one JSON line a step, whatever became of it. A half-written end counts for nothing, and several processes may write one file.

What the agent's messages hold is shown as far as `MOST` characters; what has the form of a key or a password is taken out
(`rrm.data.secrets`). The guard itself adds nothing from the environment.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from rrm.data.jsonl import append_line, read_lines
from rrm.data.secrets import clean
from rrm.data.trajectory import ToolCall
from rrm.guard.policy import Action

MOST = 500
"""Characters of a text from the run that are kept."""
NOT_JUDGED, EXHAUSTED = "not_judged", "exhausted"
"""Statuses beside those of a Feedback: the policy leaves the step out; the budget is used up."""
BEGINS = '{"version"'
"""How a row's line begins."""
UNASKED = (NOT_JUDGED, EXHAUSTED)


class AuditCall(BaseModel):
    """One tool call."""

    name: str
    arguments: str = ""
    """As JSON, or as the agent wrote them; cut at `MOST` characters."""
    seconds: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)
    """What it took: the result's own `duration_s`, or the time between the guard's seeing call and result."""
    answered: bool = False
    """Whether its result was there when the step was judged."""


class AuditRow(BaseModel):
    """One step of one run."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    version: int = 1
    run: str
    """The run's id."""
    began: str
    """When the guard's session began (ISO 8601, UTC): the same run may be watched twice."""
    step: int = Field(ge=0)
    """From 1. A later row of the same step takes an earlier one's place (its result came)."""
    before: str | None = None
    """A digest of the messages before it: with another one the same number is another step, of a history that was cut."""
    at: str
    """When it was judged."""
    calls: list[AuditCall] = Field(default_factory=list)
    verdict: Action
    status: str
    """Of the judgement (`rrm.data.feedback.Status`), or `not_judged`, `exhausted`."""
    score: float | None = None
    p_good: float | None = None
    reason: str | None = None
    """Why the verdict is not `continue`, or why there is no score or no signal."""
    tokens: int = Field(default=0, ge=0)
    """That the judge read for it."""
    seconds: float = Field(default=0.0, ge=0.0)
    """That it took."""
    cost: float | None = Field(default=None, ge=0.0)
    """Money for it, where prices are known: `--max-cost` counts what stands in the audit."""
    judge: str | None = None
    unsure: bool = False
    """The judge abstained (`rrm.judge.abstention`): its numbers count for nothing."""
    resumed: bool = False
    """A person looked and let the run go on: counts begin anew behind this row."""


def shown_call(call: ToolCall, seconds: float | None, answered: bool) -> AuditCall:
    """A call as it is kept."""
    return AuditCall(name=bounded(call.name), arguments=bounded(_safe(call)), seconds=seconds, answered=answered)


def bounded(text: str) -> str:
    """The text's beginning."""
    return text if len(text) <= MOST else text[: MOST - 1] + "…"


def _safe(call: ToolCall) -> str:
    """The arguments' beginning without what looks like a secret; a key at its end is seen whole."""
    return clean(call.arguments_text()[: 4 * MOST], Counter())


def append(path: str | Path, row: AuditRow) -> None:
    """Add a row; on disk on return.

    Raises:
        RRMError: the file cannot be written.
    """
    append_line(path, json.dumps(row.model_dump(exclude_none=True), ensure_ascii=True, allow_nan=False))


def read_audit(path: str | Path, run: str | None = None) -> Iterator[AuditRow]:
    """The rows of a file, or of one run in it; a half-written last line is passed over.

    Raises:
        ReadError: with the line, on the first that is no row of an audit.
    """
    what = "a row of a guard's audit"
    rows = read_lines(path, lambda line: AuditRow.model_validate(json.loads(line)), what, begins=BEGINS)
    return (row for row in rows if run is None or row.run == run)
