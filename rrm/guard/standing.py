"""Where a watched run stands: what was counted, what was spent, what was said last. Its audit is enough to know it again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from rrm.guard.audit import UNASKED, AuditRow
from rrm.guard.policy import Action, GuardPolicy, Watch


@dataclass
class Spent:
    """What the judge used of a run's budget."""

    checks: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        """Count a check."""
        self.checks, self.tokens, self.seconds = self.checks + 1, self.tokens + tokens, self.seconds + seconds


class Standing:
    """One run's."""

    def __init__(self, policy: GuardPolicy) -> None:
        self.policy = policy
        self.began = now()
        self.spent = Spent()
        self.action: Action = "continue"
        """What was said last of a signal."""
        self.why: str | None = None
        self._watch = Watch()
        self._before: dict[int, Watch] = {}
        """The watch as it was when a step was first judged: a step may be judged again once more of it is known."""

    def take(self, step: int, signal: float) -> None:
        """Count a step's signal, in the place of an earlier one of the same step."""
        self._watch = self._before.setdefault(step, self._watch).after(signal, self.policy)
        self.action = self._watch.action(self.policy)
        self.why = _why(self.action, signal, self._watch, self.policy)

    def reset(self) -> None:
        """A person lets the run go on."""
        self._watch, self._before, self.action, self.why = Watch(), {}, "continue", None

    def recall(self, rows: Iterable[AuditRow]) -> None:
        """Take over what an earlier session of this run counted and spent; of several sessions, the latest one's."""
        kept: list[AuditRow] = []
        for row in rows:
            kept = [*kept, row] if kept and kept[-1].began == row.began else [row]
        for row in kept:
            self.began = row.began
            if row.status not in UNASKED:
                self.spent.add(row.tokens, row.seconds)
            signal = row.score if self.policy.signal == "score" else row.p_good
            if row.resumed:
                self.reset()
            elif signal is not None:
                self.take(row.step, signal)


def _why(action: Action, signal: float, watch: Watch, policy: GuardPolicy) -> str | None:
    if action == "continue":
        return None
    bound, count = (policy.halt_below, watch.halts) if action == "halt" else (policy.ask_below, watch.asks)
    return (
        f"{policy.signal} {signal:.2f}; {count} step{'s' if count > 1 else ''} below {bound:g} since the run last stood at "
        f"{policy.recovers:g} or more"
    )


def now() -> str:
    """ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
