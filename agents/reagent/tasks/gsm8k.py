"""GSM8K (Cobbe et al. 2021, arXiv 2110.14168): word problems of two to eight steps.

Reads the published JSONL and its parquet copies, with the answer behind `####` at the solution's end. Of an agent's answer the number
behind the first `####` counts, as in the official script; without that mark, which agents are not asked for, the last one."""

import re
from collections.abc import Mapping
from typing import ClassVar

from reagent.env.graders import Grader, numeric
from reagent.env.task import Task
from reagent.tasks.base import Benchmark, TaskLimits
from reagent.tasks.source_rows import SourceRow

_FINAL = re.compile(r"####[ \t]*+(\S[^\n]{0,400}+)\s*+\Z")
_MARKED = re.compile(r"#### (-?[\d.,]+)", re.ASCII)
_NUMBER = re.compile(r"-?\$?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?<=\d)", re.ASCII)
_CALCULATION = re.compile(r"<<([^=<>]*)=[^<>]*>>")
_OPERATOR = re.compile(r"(?<=[\d).%])\s*[-+*/]")


def final_number(task: Task, answer: str) -> float:
    """1.0 where the number behind the first `#### `, else the last one, equals the reference, else 0.0.
    Raises ValueError: the reference holds no number."""
    marked = _MARKED.search(answer)
    return numeric(task, answer if marked is None else marked[1].replace(",", ""))


class GSM8K(Benchmark):
    """Meta: `steps`, the calculations of the published solution, and `operations`, their operators."""

    name: ClassVar[str] = "gsm8k"
    title: ClassVar[str] = "GSM8K"
    metric: ClassVar[str] = "number equal, behind #### or else the last"
    source: ClassVar[str] = "{train,test}.jsonl, github.com/openai/grade-school-math"
    licence: ClassVar[str] = "MIT"
    hub: ClassVar[Mapping[str, str]] = {"train": "hf:openai/gsm8k#main:train", "heldout": "hf:openai/gsm8k#main:test"}
    wants: ClassVar[tuple[str, ...]] = ("calculator",)
    limits: ClassVar[TaskLimits] = TaskLimits(turns=10, new_tokens=400, episode_tokens=3072)
    metrics: ClassVar[Mapping[str, Grader]] = {"accuracy": final_number}
    work: ClassVar[str] = "Think step by step, and let the tool do the calculations."
    form: ClassVar[str] = "The answer is a number."
    grader = staticmethod(final_number)

    @classmethod
    def task_of(cls, row: SourceRow) -> Task | None:
        solution = row.text("answer")
        final = _FINAL.search(solution)
        if final is None:
            raise row.error("'answer' has no line `#### NUMBER` at its end")
        if not _NUMBER.fullmatch(final[1]):
            raise row.error(
                f"'answer' ends with '#### {final[1][:40]}', which is no number as GSM8K writes them (18, -3.5, 1,200)"
            )
        calculations = _CALCULATION.findall(solution)
        return cls.make(
            row.text("question"),
            final[1].replace(",", ""),
            steps=len(calculations),
            operations=sum(len(_OPERATOR.findall(each)) for each in calculations),
        )
