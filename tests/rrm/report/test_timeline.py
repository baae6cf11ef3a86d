"""Spans from a transcript's own times."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report_pages import pair, written

from rrm.data.trajectory import Message, Trajectory
from rrm.report.timeline import moment, timeline


def run(*messages: dict[str, Any]) -> Trajectory:
    return Trajectory(id="x", messages=[Message(content="…", **m) for m in messages])


def test_the_gap_before_a_message_is_what_it_took() -> None:
    found = timeline(
        run(
            {"role": "user", "timestamp": "2026-01-01T00:00:00Z"},
            {"role": "assistant", "timestamp": "2026-01-01T00:00:02.5Z"},
            {"role": "tool", "name": "search", "timestamp": "2026-01-01T01:00:12.5+01:00"},
            {"role": "assistant", "timestamp": "2026-01-01T00:00:13"},
            {"role": "user", "timestamp": "2026-01-01T00:01:13"},
        )
    )
    assert found.rows == [
        [1, "agent", None, 2.5, 0.0],
        [1, "tool", "search", 10.0, 2.5],
        [2, "agent", None, 0.5, 12.5],
        [2, "user", None, 60.0, 13.0],
    ]
    assert found.seconds == 73.0


def test_a_duration_counts_before_the_gap_and_stands_alone_without_times() -> None:
    timed = timeline(
        run({"role": "assistant", "timestamp": 100.0}, {"role": "tool", "timestamp": 110.0, "duration_s": 4})
    )
    assert timed.rows == [[1, "tool", None, 4.0, 6.0]] and timed.seconds == 10.0
    bare = timeline(run({"role": "assistant", "duration_s": 1.5}, {"role": "tool", "name": "f", "duration_s": 2}))
    assert bare.rows == [[1, "agent", None, 1.5, None], [1, "tool", "f", 2.0, None]] and bare.seconds == 3.5


def test_nothing_is_made_up() -> None:
    assert timeline(run({"role": "assistant"}, {"role": "tool"})).seconds is None
    backwards = timeline(run({"role": "assistant", "timestamp": 50.0}, {"role": "tool", "timestamp": 40.0}))
    assert backwards.rows == []
    odd = timeline(run({"role": "assistant", "duration_s": -1.0}, {"role": "tool", "duration_s": math.inf}))
    assert odd.rows == [] and odd.seconds is None


@pytest.mark.parametrize(
    ("stamp", "seconds"),
    [
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01 00:01:00", 60.0),
        ("90", 90.0),
        (1.75e12, 1.75e9),
        ("yesterday", None),
        (1e308, None),
        ("nan", None),
        ("", None),
        (None, None),
    ],
)
def test_a_moment_is_iso_seconds_or_milliseconds(stamp: Any, seconds: float | None) -> None:
    assert moment(stamp) == seconds


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), st.none() | st.text(max_size=12) | st.floats()))
)
def test_any_times_give_finite_spans(times: list[tuple[str, Any]]) -> None:
    found = timeline(run(*({"role": role, "timestamp": at} for role, at in times)))
    assert all(math.isfinite(row[3]) and row[3] >= 0 for row in found.rows)
    assert found.seconds is None or math.isfinite(found.seconds)


def test_a_length_that_no_run_has_makes_no_span(tmp_path: Path) -> None:
    """Two of 1e308 s would add up to no number, and a page with that in it is no JSON."""
    trajectory, row = pair(0)
    took = [Message(role="tool", name="x", content="y", duration_s=s) for s in (1e308, 1e308, 2.5, -1.0)]
    timed = trajectory.model_copy(update={"messages": [*trajectory.messages, *took]})
    page = written(tmp_path, [(timed, row)])
    assert page.index["seconds"] == [2.5] and page.details[0]["spans"] == [[2, "tool", "x", 2.5, None]]
