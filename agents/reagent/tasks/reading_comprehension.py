"""Reading comprehension: a multi-hop question with its supporting passages among distractors in the prompt.

Reads files in HotpotQA's form that have contexts (HotpotQA's distractor setting, 2WikiMultihopQA). The grade is F1, as of HotpotQA's script;
an F1 of 0.5 counts as a success."""

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from reagent.env.graders import f1_closed
from reagent.env.task import Task
from reagent.tasks.base import TaskLimits
from reagent.tasks.hotpotqa import HotpotQA
from reagent.tasks.retrieval import QUESTION_PREFIX, SEPARATOR
from reagent.tasks.source_rows import SourceRow
from rrm.data.seeds import derive_seed
from rrm.errors import ConfigError

PASSAGE_CHARS = 600
"""Most characters of a passage; the rest is left out."""


class ReadingComprehension(HotpotQA):
    """Meta: `passages`, the texts in the prompt. Class attributes: see `Benchmark`."""

    name: ClassVar[str] = "reading"
    title: ClassVar[str] = "HotpotQA or 2Wiki, passages given"
    metric: ClassVar[str] = "F1 of at least 0.5"
    source: ClassVar[str] = "a file of hotpotqa or 2wiki with contexts"
    hub: ClassVar[Mapping[str, str]] = HotpotQA.hub
    wants: ClassVar[tuple[str, ...]] = ()
    limits: ClassVar[TaskLimits] = TaskLimits(turns=1, new_tokens=24, episode_tokens=1536)
    work: ClassVar[str] = "Answer the question from the passages."
    read_options: ClassVar[tuple[str, ...]] = ("distractors",)
    grader = staticmethod(f1_closed)
    success_at: ClassVar[float] = 0.5

    @classmethod
    def read(cls, path: str | Path, distractors: int = 2) -> list[Task]:
        """See `Benchmark.read`. `distractors`: passages beside the supporting ones, in an order drawn by the question."""
        if distractors < 0:
            raise ConfigError(f"distractors={distractors}: give 0 or more")
        return cls.read_with(path, lambda row: cls._with_passages(row, distractors))

    @classmethod
    def _with_passages(cls, row: SourceRow, distractors: int) -> Task | None:
        task, given = cls.task_of(row), cls.passages(row)
        if not task or not given:
            raise row.error("no passages under 'context': reading needs them")
        titles = set(task.meta.get("supporting", ()))
        if not titles or (missing := titles - {p.title for p in given}):
            lost = f" of {sorted(missing)[0]!r}" if titles else ""
            raise row.error(f"'context' holds no supporting passage{lost}: reading needs those of 'supporting_facts'")
        gold = [p for p in given if p.title in titles]
        shown = [*gold, *[p for p in given if p not in gold][:distractors]]
        random.Random(derive_seed("passages", task.question_id)).shuffle(shown)
        return replace(task, meta={**task.meta, "passages": [f"{p.title}: {p.text}"[:PASSAGE_CHARS] for p in shown]})

    def question(self, task: Task) -> str:
        return SEPARATOR.join([*task.meta["passages"], f"{QUESTION_PREFIX} {task.question}"])
