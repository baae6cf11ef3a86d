"""Reagent-C (arXiv 2601.22154, §4): a first attempt with tools, the judge's critique of it, and a second attempt. No weight changes."""

from __future__ import annotations

from typing import Any, ClassVar

from benchmarks.methods.base import Headline
from benchmarks.methods.tool_call import ToolCall
from reagent.train.config import AgentConfig


class ReagentC(ToolCall):
    """Its figures are those of second attempts; the first ones' stand beside them."""

    name: ClassVar[str] = "reagent_c"
    says: ClassVar[str] = "tool_call, the judge's critique, tool_call again"
    headline: ClassVar[Headline] = "refined"
    asks_judge: ClassVar[bool] = True

    def sections(self, config: AgentConfig) -> dict[str, dict[str, Any]]:
        return {"feedback": {"mode": "c", "refinement": "critique"}}
