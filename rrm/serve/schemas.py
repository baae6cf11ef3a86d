"""Requests and answers over HTTP."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rrm.data.annotation import OutOfDomain
from rrm.data.feedback import Feedback, Mode
from rrm.data.trajectory import Trajectory

MOST_SAMPLES = 64
MOST_HEAT = 26


class BaseRequest(BaseModel):
    """Fields of all requests."""

    model_config = ConfigDict(extra="forbid")

    format: str = "auto"  # as `rrm score --format`
    seed: int = 0

    @model_validator(mode="before")
    @classmethod
    def _one_strange_key(cls, body: Any) -> Any:
        # an error for each of a large body's unknown keys would take seconds and gigabytes: report the first alone
        if not isinstance(body, dict) or len(body) <= len(cls.model_fields):
            return body
        strange = next(key for key in body if key not in cls.model_fields)
        return {key: body[key] for key in (*cls.model_fields, strange) if key in body}


class ScoreRequest(BaseRequest):
    """Transcripts to judge, each one run in any format that `rrm score` reads."""

    transcripts: list[Any] = Field(min_length=1)
    mode: Mode | None = None  # None: the judge's own
    samples: int = Field(default=1, ge=1, le=MOST_SAMPLES)
    out_of_domain: OutOfDomain | None = None  # as `rrm score --out-of-domain`; None: as the judge is served
    # one JSON line a row as each is judged, in any order: `{"index": …, "row": …}`, at last `{"done": …}`
    stream: bool = False


class RankRequest(BaseRequest):
    """Groups of attempts at one question each, to compare."""

    groups: list[list[Any]] = Field(min_length=1, fail_fast=True)
    heat: int = Field(default=6, ge=2, le=MOST_HEAT)
    both_orders: bool = False


class MeasureRequest(BaseRequest):
    """Transcripts whose readings are counted, not made."""

    transcripts: list[Any] = Field(min_length=1)
    mode: Mode | None = None
    samples: int = Field(default=1, ge=1, le=MOST_SAMPLES)


class About(BaseModel):
    """The judge that is served."""

    describe: dict[str, Any]  # decides its scores (`AgentRRM.describe`)
    settings: dict[str, Any]  # `JudgeSettings`, without what only its machine needs
    dtype: str | None = None
    knows_domain: bool = False  # whether it recognises transcripts outside its domain
    ranks: bool = False
    version: str


class ScoreResponse(BaseModel):
    """A row a transcript, in the order of the request."""

    rows: list[Feedback]


class RankingRow(BaseModel):
    """A group's comparison (`rrm.judge.rank.Ranking`)."""

    feedback: list[Feedback]
    decided: int = 0
    earlier: float = 0.0
    tied: int = 0
    both: int = 0
    agreed: int = 0
    turned: int = 0
    usage: dict[str, Any] | None = None


class RankResponse(BaseModel):
    """A row a group."""

    rankings: list[RankingRow]


class MeasureResponse(BaseModel):
    """A row a transcript (`rrm.data.feedback.Reads`)."""

    reads: list[dict[str, Any]]


class Health(BaseModel):
    """State of the service."""

    # `starting`: the workers ended and are started again; `failing`: none starts
    status: Literal["ok", "starting", "failing"]
    workers: int  # ready, with a judge
    waiting: int  # transcripts accepted and not yet handed to a worker
    judging: int


def check_row(row: Feedback, trajectory: Trajectory) -> None:
    """Raise `ValueError` for a row of another transcript, or that names steps which it lacks."""
    if row.id != trajectory.id:
        raise ValueError(f"a row of {row.id!r} in the place of {trajectory.id!r}")
    named = {finding.step for finding in row.findings}
    named.update(step for answer in (row.criteria or {}).values() for step in answer.steps)
    if named and (beyond := sorted(named - set(range(1, len(trajectory.steps) + 1)))):
        raise ValueError(f"it speaks of step {beyond[0]} of {trajectory.id!r}, which has {len(trajectory.steps)}")
