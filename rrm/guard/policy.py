"""When a guard speaks: thresholds with hysteresis, patience, a budget. Pure: signals in, actions out.

A signal is a number in [0, 1] that the judge gives of the run so far. Steps whose signal lies below a bound are counted until one
reaches `recovers`; a signal in between changes nothing, so that a run at the edge does not flicker. From `patience` steps on the
guard says `halt` (or `ask`), and goes on saying so until the run recovers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Action = Literal["continue", "ask", "halt"]
Signal = Literal["score", "p_good"]
SEVERITY: dict[Action, int] = {"continue": 0, "ask": 1, "halt": 2}
MARGIN = 0.1
"""A run recovers so far above the higher bound where nobody says otherwise."""


class GuardPolicy(BaseModel):
    """What a guard does about what its judge says. Unknown names are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    signal: Signal = "score"
    """`score`: the judge's score of the run so far. `p_good`: its probability that the latest step was good (mode `steps` alone)."""
    halt_below: float | None = Field(default=0.1, ge=0.0, le=1.0)
    """A step with a lower signal counts towards `halt`; None: the guard never halts for it."""
    ask_below: float | None = Field(default=None, ge=0.0, le=1.0)
    """The same for `ask`: let a person look."""
    recovers_at: float | None = Field(default=None, ge=0.0, le=1.0)
    """From this signal on the counts begin anew; None: 0.1 above the higher bound, at most 1."""
    patience: int = Field(default=2, ge=1)
    """Steps below a bound since the run last recovered, from which the guard speaks."""
    first_step: int = Field(default=1, ge=1)
    """The first step that is judged."""
    every: int = Field(default=1, ge=1)
    """Judge each so-many-th step from there."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Tokens the judge may read of a run. A check is begun as long as fewer were read, so the last one may go beyond."""
    max_seconds: float | None = Field(default=None, gt=0.0)
    """Seconds the judge may take for a run, counted in the same way."""
    max_checks: int | None = Field(default=None, ge=1)
    """Judgements of a run."""
    on_exhausted: Action = "continue"
    """What is said, without asking the judge, once the budget is used up."""
    on_failure: Action = "continue"
    """What is said where the judge fails; the failure is in the audit, and never a number."""

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
        """The signal at which a run recovers."""
        return min(self._bound + MARGIN, 1.0) if self.recovers_at is None else self.recovers_at

    def judges(self, step: int) -> bool:
        """Whether this step, from 1, is judged."""
        return step >= self.first_step and (step - self.first_step) % self.every == 0

    def spent(self, checks: int, tokens: int, seconds: float) -> str | None:
        """What of the budget is used up, in words; None: nothing."""
        if self.max_checks is not None and checks >= self.max_checks:
            return f"{checks} checks of {self.max_checks}"
        if self.max_tokens is not None and tokens >= self.max_tokens:
            return f"{tokens} judge tokens of {self.max_tokens}"
        if self.max_seconds is not None and seconds >= self.max_seconds:
            return f"{seconds:.1f} judge seconds of {self.max_seconds:g}"
        return None


@dataclass(frozen=True)
class GuardSignals:
    """What a guard knows of a run after some steps."""

    halts: int = 0
    """Steps below `halt_below` since the run last recovered."""
    asks: int = 0
    """Steps below `ask_below`, likewise."""

    def after(self, signal: float, policy: GuardPolicy) -> GuardSignals:
        """The state after one more step."""
        low = [bound is not None and signal < bound for bound in (policy.halt_below, policy.ask_below)]
        if not any(low) and signal >= policy.recovers:
            return GuardSignals()
        return GuardSignals(self.halts + low[0], self.asks + low[1])

    def action(self, policy: GuardPolicy) -> Action:
        """What is said."""
        if self.halts >= policy.patience:
            return "halt"
        return "ask" if self.asks >= policy.patience else "continue"
