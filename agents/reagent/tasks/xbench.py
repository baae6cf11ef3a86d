"""xbench-DeepSearch (Chen et al. 2025, arXiv 2506.13651): questions, mostly Chinese, for deep search.

Reads the published CSV, in which question and answer are encrypted against accidental training: base64 of their bytes, each xor the row's
`canary`, repeated. A judge compares. Keep decoded questions off the web."""

import base64
import binascii
from collections.abc import Mapping
from itertools import cycle
from typing import ClassVar

from reagent.env.task import Task
from reagent.tasks.base import TaskLimits
from reagent.tasks.judged import JudgedBenchmark
from reagent.tasks.source_rows import SourceRow
from reagent.tasks.tooling import PUBLISHERS


class XBench(JudgedBenchmark):
    name: ClassVar[str] = "xbench"
    title: ClassVar[str] = "xbench-DeepSearch"
    source: ClassVar[str] = "data/DeepSearch*.csv, github.com/xbench-ai/xbench-evals"
    licence: ClassVar[str] = "MIT; not to be published in plain text"
    hub: ClassVar[Mapping[str, str]] = {"heldout": "hf:xbench/DeepSearch:train"}
    wants: ClassVar[tuple[str, ...]] = ("search", "browse", "python")
    deny: ClassVar[tuple[str, ...]] = (*PUBLISHERS, "xbench.org")
    limits: ClassVar[TaskLimits] = TaskLimits(turns=30, new_tokens=2048, episode_tokens=65536)
    work: ClassVar[str] = (
        "Find the answer with the tools: search in the language of the question and in others, open pages, check what you found against "
        "a second source."
    )
    form: ClassVar[str] = "Answer in the question's language, with the result alone."

    @classmethod
    def task_of(cls, row: SourceRow) -> Task | None:
        return cls.make(_plain(row, "prompt"), _plain(row, "answer"), id=f"xbench-{row.text('id')}")


def _plain(row: SourceRow, name: str) -> str:
    """A field, decoded with the row's canary. Raises ReadError: no canary, or the result is no text."""
    key = row.text("canary").encode()
    try:
        hidden = base64.b64decode(row.text(name), validate=True)
        return bytes(byte ^ mask for byte, mask in zip(hidden, cycle(key), strict=False)).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise row.error(f"{name!r} does not decode with this row's canary: {error}") from error
