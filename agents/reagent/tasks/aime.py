"""AIME 2024 and 2025: 30 problems a year whose answers are whole numbers from 0 to 999.

Reads the copies on the hub (problem or question, answer, id) as JSONL, parquet or CSV."""

import re
from collections.abc import Mapping
from typing import ClassVar

from reagent.env.task import Task
from reagent.tasks.base import TaskLimits
from reagent.tasks.math500 import Boxed
from reagent.tasks.source_rows import SourceRow

# degrees stand behind one of 2025 in a copy on the hub (`336^\circ`)
_ANSWER = re.compile(r"\$?(\d{1,3})\s*(?:°|\^\s*(?:\\circ|\{\s*\\circ\s*\}))?\$?")


class Aime24(Boxed):
    name: ClassVar[str] = "aime24"
    title: ClassVar[str] = "AIME 2024"
    source: ClassVar[str] = "HuggingFaceH4/aime_2024"
    licence: ClassVar[str] = "problems © MAA"
    hub: ClassVar[Mapping[str, str]] = {"heldout": "hf:HuggingFaceH4/aime_2024:train"}
    limits: ClassVar[TaskLimits] = TaskLimits(turns=12, new_tokens=8192, episode_tokens=32768)

    @classmethod
    def task_of(cls, row: SourceRow) -> Task | None:
        row = row.lowered()
        answer = row.text("answer").strip()
        number = _ANSWER.fullmatch(answer)
        if number is None:
            raise row.error(f"an answer of AIME is a whole number from 0 to 999, not {answer!r}")
        return cls.make(
            row.text("problem", "question"),
            str(int(number[1])),
            id=f"{cls.name}-{row.text('id')}" if row.get("id") is not None else None,
        )


class Aime25(Aime24):
    name: ClassVar[str] = "aime25"
    title: ClassVar[str] = "AIME 2025"
    source: ClassVar[str] = "math-ai/aime25"
    hub: ClassVar[Mapping[str, str]] = {"heldout": "hf:math-ai/aime25:test"}
