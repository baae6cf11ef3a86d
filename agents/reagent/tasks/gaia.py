"""GAIA (Mialon et al. 2023, arXiv 2311.12983): questions to a general assistant, some with a file.

Reads `metadata.jsonl` or its parquet copy, with the files beside it. Answers are compared as by the leaderboard's scorer: a number by
value, a list element by element, anything else letter by letter. The test set is published without answers (`?`)."""

import re
import string
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from reagent.env.graders import Grader, exact_match, f1
from reagent.env.task import Task
from reagent.tasks.base import Benchmark, TaskLimits
from reagent.tasks.source_rows import SourceRow
from rrm.errors import ConfigError

FOLDER_OPTIONS = {"read_file": "root", "python": "files"}
"""Tool → its option for the folder that it reads."""
_TASKS = {".jsonl", ".parquet", ".arrow"}
"""Suffixes of files with questions and answers, and none of a question's own files."""
_NOT_IN_NUMBERS = str.maketrans("", "", "$%,")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_SPACE = re.compile(r"\s")
_SEPARATOR = re.compile(r"[,;]")


def gaia_match(task: Task, answer: str) -> float:
    """1.0 where the answer is right by GAIA's rules, else 0.0.
    A reference that is a number is compared by value, without `$`, `%` and commas of the answer. One with a comma or a semicolon is a list:
    as many elements in the same order, each a number or a text. Texts are compared without blanks and case, outside lists without
    punctuation too, unless the reference is nothing else."""
    return float(any(_matches(reference, answer) for reference in task.references))


def _matches(reference: str, answer: str) -> bool:
    if _number(reference) is not None:
        return _same_value(reference, answer)
    if not _SEPARATOR.search(reference):
        plain = _letters(reference).translate(_PUNCTUATION)
        return _letters(answer).translate(_PUNCTUATION) == plain if plain else _letters(answer) == _letters(reference)
    expected, elements = _SEPARATOR.split(reference), _SEPARATOR.split(answer)
    return len(expected) == len(elements) and all(
        _same_value(own, other) if _number(own) is not None else _letters(own) == _letters(other)
        for own, other in zip(expected, elements, strict=True)
    )


def _same_value(reference: str, answer: str) -> bool:
    value = _number(answer.translate(_NOT_IN_NUMBERS))
    return value is not None and value == _number(reference)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _letters(text: str) -> str:
    return _SPACE.sub("", text).lower()


class Gaia(Benchmark):
    """GAIA's questions. `files`: folder for `read_file` and `python` with the questions' files alone.
    Raises ConfigError: there is no such folder, or the answers lie in it."""

    name: ClassVar[str] = "gaia"
    title: ClassVar[str] = "GAIA"
    metric: ClassVar[str] = "GAIA's scorer"
    source: ClassVar[str] = "2023/{validation,test}/metadata.jsonl of gaia-benchmark/GAIA (gated)"
    licence: ClassVar[str] = "gated; not to be published again"
    hub: ClassVar[Mapping[str, str]] = {"heldout": "hf:gaia-benchmark/GAIA#2023_all:validation"}
    wants: ClassVar[tuple[str, ...]] = ("search", "browse", "python", "read_file")
    limits: ClassVar[TaskLimits] = TaskLimits(turns=30, new_tokens=2048, episode_tokens=65536)
    metrics: ClassVar[Mapping[str, Grader]] = {"gaia": gaia_match, "exact_match": exact_match, "f1": f1}
    work: ClassVar[str] = (
        "Find the answer with the tools: search the web, open pages, read the question's files, compute. Check what you found before "
        "you answer."
    )
    form: ClassVar[str] = (
        "The answer is a number, or as few words as can be, or a list of these with commas between them. Write a number in "
        "digits, without thousands separators, and without a unit or sign of currency unless the question asks for it; a text without "
        "articles and abbreviations."
    )
    grader = staticmethod(gaia_match)

    def __init__(
        self, *, files: str | None = None, tool_options: Mapping[str, Mapping[str, Any]] | None = None, **options: Any
    ) -> None:
        tool_settings = {name: dict(values) for name, values in (tool_options or {}).items()}
        if files is not None:
            if not Path(files).is_dir():
                raise ConfigError(f"{self.name}: files: there is no folder {files}")
            named = self.wants if options.get("tools") is None else options["tools"]
            for tool, option in FOLDER_OPTIONS.items():
                if tool in named:
                    tool_settings.setdefault(tool, {}).setdefault(option, files)
        for tool, option in FOLDER_OPTIONS.items():
            if isinstance(folder := tool_settings.get(tool, {}).get(option), str):
                _refuse_answers(self.name, Path(folder))
        self._files = tool_settings.get("read_file", {}).get("root")
        super().__init__(tool_options=tool_settings, **options)

    def question(self, task: Task) -> str:
        files = task.meta.get("files", [])
        return task.question + (f"\n\nFiles that belong to the question: {', '.join(files)}" if files else "")

    def check_task(self, task: Task) -> None:
        """See `Benchmark.check_task`. Also raises ValueError: a file of the question is missing."""
        super().check_task(task)
        if self._files is None:
            return
        there = Path(self._files).resolve()
        paths = {file: there / file for file in task.meta.get("files", [])}
        if lost := [f for f, path in paths.items() if not (path.is_file() and path.resolve().is_relative_to(there))]:
            raise ValueError(f"task {task.id!r}: its file {lost[0]!r} is not in {self._files}")

    @classmethod
    def task_of(cls, row: SourceRow) -> Task | None:
        """A question; `files` in its meta are names within the folder of files."""
        file = row.get("file_name")
        if isinstance(file, str) and not _is_name(file):
            raise row.error(f"'file_name' is to be the name of a file beside the others, not {file[:80]!r}")
        answer = row.get("Final answer")
        task_id = row.text("task_id")
        task = cls.make(
            row.text("Question"),
            None if answer in (None, "?", "") else row.text("Final answer"),
            id=task_id,
            level=_level(row),
            files=[file] if isinstance(file, str) and file.strip() else None,
        )
        return replace(task, question_id=task_id)


class GaiaText(Gaia):
    name: ClassVar[str] = "gaia_text"
    title: ClassVar[str] = "GAIA, text alone"
    wants: ClassVar[tuple[str, ...]] = ("search", "browse", "python")

    @classmethod
    def task_of(cls, row: SourceRow) -> Task | None:
        task = super().task_of(row)
        return None if task is None or "files" in task.meta else task


def _is_name(file: str) -> bool:
    return file.strip() not in (".", "..") and not any(mark in file for mark in "/\\\0")


def _refuse_answers(name: str, folder: Path) -> None:
    for file in folder.rglob("*"):
        if file.name.lower().startswith("metadata.") or _TASKS & {suffix.lower() for suffix in file.suffixes}:
            raise ConfigError(
                f"{name}: the agent would read {file}, which may hold the answers: copy the questions' files alone into a folder of "
                "their own and name that in environment.options.files"
            )


def _level(row: SourceRow) -> int:
    level = row.get("Level")
    if str(level) not in ("1", "2", "3"):
        raise row.error(f"'Level' must be 1, 2 or 3, not {level!r}")
    return int(str(level))
