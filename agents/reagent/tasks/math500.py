"""MATH-500 (Lightman et al. 2023, arXiv 2305.20050): 500 test problems of MATH (Hendrycks et al.).

Reads the published JSONL (problem, solution, answer, subject, level, unique_id) and its copies."""

from collections.abc import Mapping
from typing import ClassVar

from reagent.env.graders import Grader, exact_match
from reagent.env.task import Task
from reagent.tasks.base import Benchmark, TaskLimits
from reagent.tasks.boxed import boxed_equal
from reagent.tasks.source_rows import SourceRow

WORK = "Solve the problem step by step. Compute with the tools where that is surer than by hand."
FORM = r"End with the final answer, simplified, in \boxed{} and nothing after it."


class Boxed(Benchmark):
    metric: ClassVar[str] = r"math-verify on the last \boxed"
    wants: ClassVar[tuple[str, ...]] = ("python",)
    metrics: ClassVar[Mapping[str, Grader]] = {"exact_match": exact_match}
    slow_grader: ClassVar[bool] = True
    work: ClassVar[str] = WORK
    form: ClassVar[str] = FORM
    grader = staticmethod(boxed_equal)


class Math500(Boxed):
    name: ClassVar[str] = "math500"
    title: ClassVar[str] = "MATH-500"
    source: ClassVar[str] = "test.jsonl of HuggingFaceH4/MATH-500"
    licence: ClassVar[str] = "MIT"
    hub: ClassVar[Mapping[str, str]] = {"heldout": "hf:HuggingFaceH4/MATH-500:test"}
    limits: ClassVar[TaskLimits] = TaskLimits(turns=8, new_tokens=2048, episode_tokens=8192)

    @classmethod
    def task_of(cls, row: SourceRow) -> Task | None:
        return cls.make(
            row.text("problem"), row.text("answer"), id=row.get("unique_id"), subject=row.get("subject"), level=row.get("level")
        )  # fmt: skip
