"""Best of n: several sampled attempts with tools, of which the judge chooses one."""

from __future__ import annotations

from typing import Any, ClassVar

from benchmarks.methods.base import Headline
from benchmarks.methods.tool_call import ToolCall
from reagent.train.config import AgentConfig


class BestOfN(ToolCall):
    """Its figures are those of the attempts that the judge scores best; beside them the majority's, a random one's and the best's."""

    name: ClassVar[str] = "best_of_n"
    says: ClassVar[str] = "several attempts with tools, one chosen by the judge"
    headline: ClassVar[Headline] = "chosen"
    asks_judge: ClassVar[bool] = True

    def sections(self, config: AgentConfig) -> dict[str, dict[str, Any]]:
        return {"eval": {"samples": self.settings.samples, "temperature": self.settings.temperature}}
