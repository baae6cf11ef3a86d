"""The state of a watched run: counts, spending, last action. The audit is enough to restore it."""

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
    checks: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        self.checks, self.tokens, self.seconds = self.checks + 1, self.tokens + tokens, self.seconds + seconds


class GuardState:
    def __init__(self, policy: GuardPolicy) -> None:
        self.policy = policy
        self.began = now()
        self.spent = Spent()
        self.action: Action = "continue"  # the last, of a signal or without one; stands until the next signal
        self.why: str | None = None
        self._watch = GuardSignals()
        self._latest: tuple[int, str | None] | None = None  # the step counted last: its number and `digest_before`
        self._before = GuardSignals()  # `_watch` before that step: it may be judged again once more of it is known

    def take(self, step: int, signal: float, before: str | None = None) -> None:
        """Count a step; a second signal of the same step and history (`digest_before`) replaces the first."""
        if self._latest != (step, before):
            self._latest, self._before = (step, before), self._watch
        self._watch = self._before.after(signal, self.policy)
        self.action = self.counted
        self.why = _why(self.action, signal, self._watch, self.policy)

    @property
    def counted(self) -> Action:
        """The action by the signals alone: it speaks of the agent."""
        return self._watch.action(self.policy)

    def hold(self, action: Action, why: str | None) -> str | None:
        """Let an action without a signal stand unless the current one is as strict; returns the reason."""
        if SEVERITY[action] > SEVERITY[self.action]:
            self.action, self.why = action, why
        if self.why is None or why is None or why == self.why:
            return self.why or why
        return f"{self.why}; now: {why}"

    def reset(self) -> None:
        self._watch, self._latest, self.action, self.why = GuardSignals(), None, "continue", None

    def recall(self, rows: Iterable[AuditRow]) -> None:
        """Take over the counts and spending of the run's latest earlier session."""
        latest: list[AuditRow] = []
        for row in rows:
            latest = [*latest, row] if latest and latest[-1].began == row.began else [row]
        for row in latest:
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
    """16 hex digits over the messages before a step; histories that are cut give many steps one number."""
    digest = hashlib.sha256()
    for message in trajectory.messages[:message_index]:
        digest.update(_words(message).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()[:16]


def _words(message: Message) -> str:
    calls = [(call.id, call.name, call.arguments) for call in message.tool_calls or []]
    fields = (message.role, message.tool_call_id, message.timestamp, message.reasoning_content, calls)
    try:
        return repr((fields, message.content))
    except RecursionError:  # parts of parts of parts
        return repr((message.role, message.tool_call_id, message.text()))


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
