"""Trajectories into other frameworks' formats, with what a judge said of them: the way back of `rrm.readers`."""

from __future__ import annotations

from rrm.writers.atif import to_atif
from rrm.writers.inspect_ai import to_inspect
from rrm.writers.otel import to_otel

__all__ = ["to_atif", "to_inspect", "to_otel"]
