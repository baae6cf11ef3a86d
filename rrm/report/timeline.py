"""A transcript's times as spans: how long the agent, each tool and the user took.

A message took its `duration_s`, else the time since the previous `timestamp`; without either, or where the clock ran backwards,
it makes no span.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from rrm.data.trajectory import Message, Trajectory

Kind = Literal["agent", "tool", "user"]
MILLISECONDS = 1e11
"""A timestamp from here on is in milliseconds: in seconds it would be the year 5138."""
NEVER = 1e12
"""Seconds, since 1970 or of a duration, from which a time is invalid."""


@dataclass(frozen=True)
class MessageTiming:
    step: int
    """Step number, from 1."""
    kind: Kind
    name: str | None
    seconds: float
    start: float | None
    """Seconds since the transcript's first time; None without a timestamp."""


@dataclass(frozen=True)
class Timeline:
    spans: list[MessageTiming]
    seconds: float | None
    """First timestamp to last; without timestamps the spans' sum, None without any time."""

    @property
    def rows(self) -> list[list[Any]]:
        """`[step, kind, name, seconds, start]` each, to the millisecond."""
        return [
            [s.step, s.kind, s.name, round(s.seconds, 3), None if s.start is None else round(s.start, 3)]
            for s in self.spans
        ]


def moment(timestamp: str | float | None) -> float | None:
    """Parse a timestamp (ISO 8601, seconds or milliseconds) to seconds since 1970; None for others."""
    if isinstance(timestamp, str):
        try:
            number = float(timestamp)
        except ValueError:
            return _iso(timestamp)
    elif timestamp is None or isinstance(timestamp, bool):
        return None
    else:
        number = float(timestamp)
    if not math.isfinite(number):
        return None
    number = number / 1000 if abs(number) >= MILLISECONDS else number
    return number if abs(number) < NEVER else None


def _iso(text: str) -> float | None:
    try:
        time = datetime.fromisoformat(text.strip())
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def timeline(trajectory: Trajectory) -> Timeline:
    """Return the spans of the messages from the agent's first one on."""
    spans: list[MessageTiming] = []
    before: float | None = None
    times: list[float] = []
    step = 0
    for message in trajectory.messages:
        step += message.role == "assistant"
        now, took = moment(message.timestamp), _duration(message)
        if took is None and now is not None and before is not None and now >= before:
            took = now - before
        if now is not None:
            times.append(now)
        if step and took is not None:
            start = None if now is None else now - took - times[0]
            spans.append(
                MessageTiming(step, _kind(message), message.name if message.role == "tool" else None, took, start)
            )
        before = before if now is None else now
    if len(times) > 1:
        return Timeline(spans, max(times) - min(times))
    return Timeline(spans, sum(span.seconds for span in spans) if spans else None)


def _duration(message: Message) -> float | None:
    took = message.duration_s
    return took if took is not None and 0 <= took < NEVER else None


def _kind(message: Message) -> Kind:
    return "agent" if message.role == "assistant" else "tool" if message.role == "tool" else "user"
