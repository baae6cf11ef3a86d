"""Trajectories into other frameworks' formats, with what a judge said of them: the way back of `rrm.readers`."""

from __future__ import annotations

from rrm.readers.atif_export import to_atif
from rrm.readers.inspect_ai_export import to_inspect
from rrm.readers.otel_export import to_otel

__all__ = ["to_atif", "to_inspect", "to_otel"]
