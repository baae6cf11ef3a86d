"""Trajectories into other frameworks' formats, with what a judge said of them: the way back of `rrm.readers`."""

from __future__ import annotations

from rrm.writers.atif import to_atif

__all__ = ["to_atif"]
