"""WebWalkerQA (Wu et al. 2025, arXiv 2501.07572): answers lie some clicks below a first page.

Reads the published JSONL or parquet (question, answer, root_url, info), whatever the case of its keys. A judge compares."""

from collections.abc import Mapping
from typing import ClassVar

from reagent.env.task import Task
from reagent.tasks.base import TaskLimits
from reagent.tasks.judged import JudgedBenchmark
from reagent.tasks.source_rows import SourceRow
from reagent.tasks.tooling import PUBLISHERS


class WebWalkerQA(JudgedBenchmark):
    name: ClassVar[str] = "webwalkerqa"
    title: ClassVar[str] = "WebWalkerQA"
    source: ClassVar[str] = "data/main-*.jsonl of callanwu/WebWalkerQA (silver-*.jsonl to train on)"
    licence: ClassVar[str] = "Apache-2.0"
    hub: ClassVar[Mapping[str, str]] = {
        "train": "hf:callanwu/WebWalkerQA:silver",
        "heldout": "hf:callanwu/WebWalkerQA:main",
    }
    wants: ClassVar[tuple[str, ...]] = ("browse", "search")
    deny: ClassVar[tuple[str, ...]] = (*PUBLISHERS, "alibaba-nlp.github.io")
    limits: ClassVar[TaskLimits] = TaskLimits(turns=20, new_tokens=1024, episode_tokens=32768)
    work: ClassVar[str] = (
        "Answer the question from the website that it names. Begin at its first page and follow the links that lead towards the answer; "
        "search where no link does."
    )
    form: ClassVar[str] = "Answer in one sentence that says all that is asked for."

    def question(self, task: Task) -> str:
        return f"{task.question}\n\nThe website: {task.meta['root_url']}"

    @classmethod
    def task_of(cls, row: SourceRow) -> Task | None:
        row = row.lowered()
        info = row.get("info") or {}
        if not isinstance(info, dict):
            raise row.error("'info' must be an object")
        return cls.make(
            row.text("question"),
            row.text("answer"),
            root_url=row.text("root_url"),
            type=info.get("hop"),
            level=info.get("difficulty_level"),
            domain=info.get("domain"),
            language=info.get("language", info.get("lang")),
            supporting=info.get("source_website"),
        )
