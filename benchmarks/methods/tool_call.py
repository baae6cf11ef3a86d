"""Tool calls: the benchmark's tools, in the policy's own format (`environment.options.parser`)."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.methods.base import Method


class ToolCall(Method):
    """As the benchmark is meant to be played."""

    name: ClassVar[str] = "tool_call"
    says: ClassVar[str] = "the benchmark's tools, called in the policy's format"


class TrainedPolicy(ToolCall):
    """`policy@DIR`: the same with other weights, those that a training left in `policy/`."""

    name: ClassVar[str] = "policy"
    says: ClassVar[str] = "tool_call with a trained policy"
