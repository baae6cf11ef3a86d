"""The audit trail: one JSON line a step, from several processes too; a half-written end is skipped.

Texts of the agent's messages are kept up to `MOST` characters, without what looks like a key or a password (`rrm.data.secrets`).
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

MOST = 500  # characters of a text from the run that are kept
# statuses beside those of a Feedback: the policy leaves the step out; the budget is used up
NOT_JUDGED, EXHAUSTED = "not_judged", "exhausted"
BEGINS = '{"version"'  # of a row's line
UNASKED = (NOT_JUDGED, EXHAUSTED)


class AuditCall(BaseModel):
    name: str
    arguments: str = ""  # as JSON, or as the agent wrote them; cut at `MOST` characters
    # the result's own `duration_s`, or the time between the guard's seeing call and result
    seconds: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)
    answered: bool = False  # its result was there when the step was judged


class AuditRow(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    version: int = 1
    run: str  # the run's id
    began: str  # of the guard's session (ISO 8601, UTC): the same run may be watched twice
    step: int = Field(ge=0)  # from 1; a later row of the same step replaces an earlier one (its result came)
    # digest of the messages before it: with another one the same number is another step, of a history that was cut
    before: str | None = None
    at: str  # time of the judgement
    calls: list[AuditCall] = Field(default_factory=list)
    verdict: Action
    status: str  # of the judgement (`rrm.data.feedback.Status`), or `not_judged`, `exhausted`
    score: float | None = None
    p_good: float | None = None
    reason: str | None = None  # of a verdict other than `continue`, or of no score or signal
    tokens: int = Field(default=0, ge=0)  # read by the judge
    seconds: float = Field(default=0.0, ge=0.0)  # used by the judge
    cost: float | None = Field(default=None, ge=0.0)  # money, where prices are known; `--max-cost` counts it
    judge: str | None = None
    unsure: bool = False  # the judge abstained (`rrm.judge.abstention`): its numbers do not count
    resumed: bool = False  # a person let the run go on: counts begin anew behind this row


def shown_call(call: ToolCall, seconds: float | None, answered: bool) -> AuditCall:
    return AuditCall(name=bounded(call.name), arguments=bounded(_safe(call)), seconds=seconds, answered=answered)


def bounded(text: str) -> str:
    return text if len(text) <= MOST else text[: MOST - 1] + "…"


def _safe(call: ToolCall) -> str:
    # longer than what is kept: a key at its end is seen whole
    return clean(call.arguments_text()[: 4 * MOST], Counter())


def append(path: str | Path, row: AuditRow) -> None:
    """Add a row; on disk on return. A file that cannot be written raises RRMError."""
    append_line(path, json.dumps(row.model_dump(exclude_none=True), ensure_ascii=True, allow_nan=False))


def read_audit(path: str | Path, run: str | None = None) -> Iterator[AuditRow]:
    """Rows of a file, or of one run in it; a line that is no row raises ReadError, a half-written end not."""
    rows = read_lines(
        path, lambda line: AuditRow.model_validate(json.loads(line)), "a row of a guard's audit", begins=BEGINS
    )
    return (row for row in rows if run is None or row.run == run)
