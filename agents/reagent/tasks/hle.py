"""Humanity's Last Exam (Phan et al. 2025, arXiv 2501.14249): 2,500 questions of experts.

Reads the published parquet or JSONL (id, question, answer, answer_type, category, image), without the questions with an image. A judge
compares; calibration error, which the exam reports too, is not measured."""

from collections.abc import Mapping
from typing import ClassVar

from reagent.env.task import Task
from reagent.tasks.base import TaskLimits
from reagent.tasks.judged import JudgedBenchmark
from reagent.tasks.source_rows import SourceRow
from reagent.tasks.tooling import PUBLISHERS


class Hle(JudgedBenchmark):
    name: ClassVar[str] = "hle"
    title: ClassVar[str] = "Humanity's Last Exam, text alone"
    source: ClassVar[str] = "test-*.parquet of cais/hle (gated)"
    licence: ClassVar[str] = "MIT; gated, not to be published again"
    hub: ClassVar[Mapping[str, str]] = {"heldout": "hf:cais/hle:test"}
    wants: ClassVar[tuple[str, ...]] = ("search", "browse", "python")
    deny: ClassVar[tuple[str, ...]] = (*PUBLISHERS, "lastexam.ai", "agi.safe.ai")
    limits: ClassVar[TaskLimits] = TaskLimits(turns=20, new_tokens=4096, episode_tokens=65536)
    work: ClassVar[str] = "Answer the exam question. Look up what you are not sure of and compute what can be computed."
    form: ClassVar[str] = (
        "Answer with the result alone: of a multiple choice, its letter; otherwise a value, a formula or a few words."
    )

    @classmethod
    def task_of(cls, row: SourceRow) -> Task | None:
        if row.get("image") not in (None, ""):
            return None
        return cls.make(
            row.text("question"),
            row.text("answer"),
            id=row.text("id"),
            type=row.get("answer_type"),
            category=row.get("category"),
            subject=row.get("raw_subject"),
        )
