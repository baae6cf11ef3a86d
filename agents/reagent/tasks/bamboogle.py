"""Bamboogle (Press et al. 2022, arXiv 2210.03350): 125 two-hop questions.

Reads the published CSV (columns Question and Answer) and its copies. It has no training set and no passages."""

from collections.abc import Mapping
from typing import ClassVar

from reagent.env.task import Task
from reagent.tasks import wikitext
from reagent.tasks.base import TaskLimits
from reagent.tasks.source_rows import SourceRow
from reagent.tasks.tooling import PUBLISHERS


class Bamboogle(wikitext.MultiHop):
    name: ClassVar[str] = "bamboogle"
    title: ClassVar[str] = "Bamboogle"
    source: ClassVar[str] = "the sheet linked from github.com/ofirpress/self-ask, as CSV"
    licence: ClassVar[str] = "MIT"
    hub: ClassVar[Mapping[str, str]] = {"heldout": "hf:chiayewken/bamboogle:test"}
    deny: ClassVar[tuple[str, ...]] = (*PUBLISHERS, "ofir.io")
    limits: ClassVar[TaskLimits] = TaskLimits(turns=6, new_tokens=256, episode_tokens=4096)

    @classmethod
    def task_of(cls, row: SourceRow) -> Task | None:
        row = row.lowered()
        return cls.make(row.text("question"), row.text("answer"), hops=2)
