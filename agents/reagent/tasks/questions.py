"""Questions of your own: any JSON, JSONL, parquet or CSV file, or data set on the hub, whose columns you name."""

import logging
from collections import defaultdict
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar

from reagent.env.graders import Grader, exact_match, numeric
from reagent.env.task import Task
from reagent.tasks.base import Benchmark, TaskLimits
from reagent.tasks.source_rows import SourceRow
from rrm.errors import ConfigError
from rrm.readers.outcomes import MISSING, get

log = logging.getLogger(__name__)


def numeric_or_exact(task: Task, answer: str) -> float:
    """`numeric` where each reference is a number (exact match would read 42.0 as 420), else `exact_match`."""
    return (numeric if all(map(_is_number, task.references)) else exact_match)(task, answer)


def _is_number(text: str) -> bool:
    try:
        return isfinite(float(text.replace(",", "")))
    except ValueError:
        return False


class Questions(Benchmark):
    """Meta: `aliases`, the answers after the first where a column holds several. Class attributes: see `Benchmark`."""

    name: ClassVar[str] = "questions"
    title: ClassVar[str] = "Questions of your own"
    metric: ClassVar[str] = "numbers equal, else exact match"
    source: ClassVar[str] = "a file or hf:owner/name:split; its columns by question= and answer="
    licence: ClassVar[str] = "yours"
    limits: ClassVar[TaskLimits] = TaskLimits(turns=8, new_tokens=512, episode_tokens=4096)
    work: ClassVar[str] = "Think step by step."
    form: ClassVar[str] = "The answer is a number, a name or a few words."
    grader = staticmethod(numeric_or_exact)
    read_options: ClassVar[tuple[str, ...]] = ("question", "answer")

    @classmethod
    def read(cls, path: str | Path, question: str = "question", answer: str | None = "answer") -> list[Task]:
        """See `Benchmark.read`. `question`, `answer`: columns (`info.gold` for a nested one); without an answer column nothing is graded."""
        if not question or answer == "":
            raise ConfigError("question= and answer= name columns; answer=null says that there are no answers")
        tasks = cls.read_with(path, lambda row: cls._from_columns(row, question, answer))
        answers = defaultdict[str, set[tuple[str, ...]]](set)
        for task in tasks:
            if task.answer is not None:
                answers[task.question].add(tuple(task.references))
        differing = [text for text, different in answers.items() if len(different) > 1]
        if differing:
            log.warning(
                "%s: %d questions have different answers in several rows, e.g. %.80r: each row is graded by its own; where all are "
                "right, write one row with the list of them",
                path,
                len(differing),
                differing[0],
            )
        return tasks

    @classmethod
    def _from_columns(cls, row: SourceRow, question: str, answer: str | None) -> Task:
        text = SourceRow({question: column(row, question)}, row.path, row.line).text(question)
        if answer is None:
            return cls.make(text, None)
        value = column(row, answer)
        references = [_as_text(row, answer, each) for each in (value if isinstance(value, list) else [value])]
        if not references or not references[0].strip():
            raise row.error(f"{answer!r} is empty; answer=null plays questions without an answer")
        return cls.make(text, references[0], aliases=references[1:])

    def _grader(self, name: str) -> Grader:
        graders: Mapping[str, Grader] = {**self.metrics, "numeric": numeric}
        if name not in graders:
            raise ConfigError(f"{self.name} has no grader {name!r}; there are {', '.join(graders)}")
        return graders[name]


def column(row: SourceRow, name: str) -> Any:
    """A row's value under a column or a dotted path. Raises ReadError: none there."""
    value = get(row.data, name)
    if value is None or value is MISSING:
        there = ", ".join(sorted(map(str, row.data))) or "none"
        raise row.error(f"no {name!r}; the row's columns are {there}: name them by question= and answer=")
    if "NaN" in (value if isinstance(value, list) else [value]):  # so the reader writes JSON's NaN
        raise row.error(f"{name!r} holds NaN, which stands for a missing value: fill it in, or leave the row out")
    return value


def _as_text(row: SourceRow, name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
        return str(value)
    raise row.error(
        f"{name!r} holds {str(value)[:40]!r}, a {type(value).__name__}: an answer is a text, a finite number or a list of them"
    )
