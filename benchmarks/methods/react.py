"""ReAct (Yao et al. 2023, arXiv 2210.03629): the benchmark's tools, called in lines of Thought, Action and Action Input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from benchmarks.methods.base import Method, Options
from reagent.tasks.base import Benchmark


class React(Method):
    """Tools for a policy that was trained on no format of calls."""

    name: ClassVar[str] = "react"
    says: ClassVar[str] = "the benchmark's tools, called in ReAct's lines"

    def options(self, benchmark: type[Benchmark], options: Mapping[str, Any]) -> Options:
        # a chat template would describe the tools in the format of its own calls
        return {name: value for name, value in options.items() if name != "tool_prompt"} | {"parser": "react"}
