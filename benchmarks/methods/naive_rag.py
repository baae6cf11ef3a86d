"""Naive retrieval-augmented generation: the question's best passages in the prompt, one turn, no tools.

The benchmark's search tool is asked for the question as it stands, once, by the environment (`reagent.tasks.retrieval`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from benchmarks.methods.base import NotApplicable, OneTurn, Options
from reagent.tasks.base import Benchmark

SEARCHES = {"search": "k", "search_api": "k"}
"""Tools that find passages, and the option of each that says how many."""


class NaiveRag(OneTurn):
    """One search that nobody thought about, and an answer."""

    name: ClassVar[str] = "naive_rag"
    says: ClassVar[str] = "the question's passages in the prompt, one turn"
    lead: ClassVar[str] = (
        "Answer from the passages that come with the question: no tool is at hand, and there is this one turn. Passages may have nothing "
        "to do with the question."
    )

    def options(self, benchmark: type[Benchmark], options: Mapping[str, Any]) -> Options:
        given = options.get("tools")
        named = [each for each in (benchmark.wants if given is None else given) if each in SEARCHES]
        if not named:
            raise NotApplicable(
                f"{benchmark.name}: none of its tools searches passages, so there is nothing to put in the prompt"
            )
        tool = named[0]
        own = {SEARCHES[tool]: self.settings.passages, **options.get("tool_options", {}).get(tool, {})}
        found = {**super().options(benchmark, options), "retrieve": tool, "tool_options": {tool: own}}
        return found | ({"corpus": options["corpus"]} if tool == "search" and "corpus" in options else {})
