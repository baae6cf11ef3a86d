"""Where a watched run stands: what was counted, what was spent, what was said last. Its audit is enough to know it again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from rrm.data.trajectory import Message, Trajectory
from rrm.guard.audit import UNASKED, AuditRow
from rrm.guard.policy import SEVERITY, Action, GuardPolicy, GuardSignals


@dataclass
class Spent:
    """What the judge used of a run's budget."""

    checks: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        """Count a check."""
        self.checks, self.tokens, self.seconds = self.checks + 1, self.tokens + tokens, self.seconds + seconds


class GuardState:
    """One run's."""

    def __init__(self, policy: GuardPolicy) -> None:
        self.policy = policy
        self.began = now()
        self.spent = Spent()
        self.action: Action = "continue"
        """What was said last, of a signal or without one: it stands until the next signal."""
        self.why: str | None = None
        self._watch = GuardSignals()
        self._latest: tuple[int, str | None] | None = None
        """The step that was counted last: its number and what stood before it."""
        self._before = GuardSignals()
        """The watch as it was before that step: it may be judged again once more of it is known."""

    def take(self, step: int, signal: float, before: str | None = None) -> None:
        """Count a step's signal; where the same step was counted last, in that one's place.

        Args:
            before: `digest_before` of the step: a framework that cuts or sums up its history gives the same number to many steps.
        """
        if self._latest != (step, before):
            self._latest, self._before = (step, before), self._watch
        self._watch = self._before.after(signal, self.policy)
        self.action = self.counted
        self.why = _why(self.action, signal, self._watch, self.policy)

    @property
    def counted(self) -> Action:
        """What the signals alone say, whatever was said where there was none: this speaks of the agent."""
        return self._watch.action(self.policy)

    def hold(self, action: Action, why: str | None) -> str | None:
        """Let stand what is said without a signal, unless what stands already is as strict.

        Returns:
            The reason for what stands now; where that is an older one, with why there is no new signal.
        """
        if SEVERITY[action] > SEVERITY[self.action]:
            self.action, self.why = action, why
        if self.why is None or why is None or why == self.why:
            return self.why or why
        return f"{self.why}; now: {why}"

    def reset(self) -> None:
        """A person lets the run go on."""
        self._watch, self._latest, self.action, self.why = GuardSignals(), None, "continue", None

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
                continue
            if signal is not None and not row.unsure:
                self.take(row.step, signal, row.before)
            self.hold(row.verdict, row.reason)


def _why(action: Action, signal: float, watch: GuardSignals, policy: GuardPolicy) -> str | None:
    if action == "continue":
        return None
    bound, count = (policy.halt_below, watch.halts) if action == "halt" else (policy.ask_below, watch.asks)
    return (
        f"{policy.signal} {signal:.2f}; {count} step{'s' if count > 1 else ''} below {bound:g} since the run last stood at "
        f"{policy.recovers:g} or more"
    )


def digest_before(trajectory: Trajectory, message_index: int) -> str:
    """16 hex digits over the messages before a step: with its number they say which step of a run it is."""
    digest = hashlib.sha256()
    for message in trajectory.messages[:message_index]:
        digest.update(_words(message).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()[:16]


def _words(message: Message) -> str:
    calls = [(call.id, call.name, call.arguments) for call in message.tool_calls or []]
    said = (message.role, message.tool_call_id, message.timestamp, message.reasoning_content, calls)
    try:
        return repr((said, message.content))
    except RecursionError:  # parts of parts of parts
        return repr((message.role, message.tool_call_id, message.text()))


def now() -> str:
    """ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
