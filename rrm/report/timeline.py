"""A transcript's own times as spans: how long the agent, each tool and the user took.

A message's `timestamp` says when it was made, so the time from the one before it is the time it took; a `duration_s` says
that outright and counts before the gap. Nothing is made up: a message without a time makes no span, and where the clock ran
backwards there is no span either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from rrm.data.trajectory import Message, Trajectory

Kind = Literal["agent", "tool", "user"]
MILLISECONDS = 1e11
"""A number from here on is in milliseconds: in seconds it would be the year 5138."""
NEVER = 1e12
"""Seconds that no time of a run is beyond, since 1970 or in length: what is, is none."""


@dataclass(frozen=True)
class MessageTiming:
    """What one message took."""

    step: int
    """The step that it belongs to, from 1."""
    kind: Kind
    name: str | None
    """Of the tool."""
    seconds: float
    start: float | None
    """Seconds since the first time that the transcript has; None without a timestamp."""


@dataclass(frozen=True)
class Timeline:
    """Spans in the transcript's order."""

    spans: list[MessageTiming]
    seconds: float | None
    """From the first time to the last; the spans' sum where there are no timestamps, None without any time."""

    @property
    def rows(self) -> list[list[Any]]:
        """For the page: `[step, kind, name, seconds, start]` each, to the millisecond."""
        return [
            [s.step, s.kind, s.name, round(s.seconds, 3), None if s.start is None else round(s.start, 3)]
            for s in self.spans
        ]


def moment(timestamp: str | float | None) -> float | None:
    """A message's timestamp in seconds since 1970: ISO 8601 (without a zone: UTC), or a number of seconds or milliseconds.

    None for anything else.
    """
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
        found = datetime.fromisoformat(text.strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def timeline(trajectory: Trajectory) -> Timeline:
    """The spans of the messages from the agent's first one on."""
    spans: list[MessageTiming] = []
    before: float | None = None
    times: list[float] = []
    step = 0
    for message in trajectory.messages:
        step += message.role == "assistant"
        at, took = moment(message.timestamp), _duration(message)
        if took is None and at is not None and before is not None and at >= before:
            took = at - before
        if at is not None:
            times.append(at)
        if step and took is not None:
            start = None if at is None else at - took - times[0]
            spans.append(
                MessageTiming(step, _kind(message), message.name if message.role == "tool" else None, took, start)
            )
        before = before if at is None else at
    if len(times) > 1:
        return Timeline(spans, max(times) - min(times))
    return Timeline(spans, sum(span.seconds for span in spans) if spans else None)


def _duration(message: Message) -> float | None:
    took = message.duration_s
    return took if took is not None and 0 <= took < NEVER else None


def _kind(message: Message) -> Kind:
    return "agent" if message.role == "assistant" else "tool" if message.role == "tool" else "user"
