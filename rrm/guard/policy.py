"""A guard's thresholds with hysteresis, patience and budget. Pure: signals in, actions out.

Steps with a signal below a bound are counted until one reaches `recovers`; a signal in between changes nothing. From `patience`
steps on the action is `halt` (or `ask`) until the run recovers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Action = Literal["continue", "ask", "halt"]
Signal = Literal["score", "p_good"]
SEVERITY: dict[Action, int] = {"continue": 0, "ask": 1, "halt": 2}
MARGIN = 0.1  # default distance of `recovers_at` above the higher bound


class GuardPolicy(BaseModel):
    """A guard's policy (docs/guard.md). Unknown names are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    signal: Signal = "score"  # `score`: of the run so far; `p_good`: of the latest step (mode `steps`)
    halt_below: float | None = Field(default=0.1, ge=0.0, le=1.0)  # a step below counts towards `halt`; None: none does
    ask_below: float | None = Field(default=None, ge=0.0, le=1.0)  # the same for `ask`
    recovers_at: float | None = Field(default=None, ge=0.0, le=1.0)  # counts begin anew; None: 0.1 above the bounds
    patience: int = Field(default=2, ge=1)  # counted steps from which the guard speaks
    first_step: int = Field(default=1, ge=1)  # the first step that is judged
    every: int = Field(default=1, ge=1)  # judge each so-many-th step from there
    max_tokens: int | None = Field(default=None, ge=1)  # read by the judge in a run; the last check may exceed it
    max_seconds: float | None = Field(default=None, gt=0.0)  # used by the judge in a run, likewise
    max_checks: int | None = Field(default=None, ge=1)  # judgements of a run
    on_exhausted: Action = "continue"  # once the budget is used up
    on_failure: Action = "continue"  # where the judge fails; the failure is in the audit

    @model_validator(mode="after")
    def _bounds_in_order(self) -> GuardPolicy:
        if self.halt_below is not None and self.ask_below is not None and self.ask_below < self.halt_below:
            raise ValueError(
                f"ask_below ({self.ask_below}) lies below halt_below ({self.halt_below}): the guard would halt before it asks"
            )
        if self.recovers_at is not None and self.recovers_at < self._bound:
            raise ValueError(
                f"recovers_at ({self.recovers_at}) lies below a bound ({self._bound}): a run would recover while it fails"
            )
        return self

    @property
    def _bound(self) -> float:
        return max((b for b in (self.halt_below, self.ask_below) if b is not None), default=0.0)

    @property
    def recovers(self) -> float:
        return min(self._bound + MARGIN, 1.0) if self.recovers_at is None else self.recovers_at

    def judges(self, step: int) -> bool:
        return step >= self.first_step and (step - self.first_step) % self.every == 0

    def spent(self, checks: int, tokens: int, seconds: float) -> str | None:
        """Name the part of the budget that is used up; None: nothing."""
        if self.max_checks is not None and checks >= self.max_checks:
            return f"{checks} checks of {self.max_checks}"
        if self.max_tokens is not None and tokens >= self.max_tokens:
            return f"{tokens} judge tokens of {self.max_tokens}"
        if self.max_seconds is not None and seconds >= self.max_seconds:
            return f"{seconds:.1f} judge seconds of {self.max_seconds:g}"
        return None


@dataclass(frozen=True)
class GuardSignals:
    """Counts of low signals since the run last recovered."""

    halts: int = 0  # steps below `halt_below`
    asks: int = 0  # steps below `ask_below`

    def after(self, signal: float, policy: GuardPolicy) -> GuardSignals:
        low = [bound is not None and signal < bound for bound in (policy.halt_below, policy.ask_below)]
        if not any(low) and signal >= policy.recovers:
            return GuardSignals()
        return GuardSignals(self.halts + low[0], self.asks + low[1])

    def action(self, policy: GuardPolicy) -> Action:
        if self.halts >= policy.patience:
            return "halt"
        return "ask" if self.asks >= policy.patience else "continue"
