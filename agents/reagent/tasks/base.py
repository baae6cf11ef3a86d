"""Benchmarks: environments that also read published files; each is a subclass of `Benchmark`.

A subclass defines how a row becomes a task (`task_of`), the grader, the instructions (`work` and `form`), the tools (`wants`) and the
`limits`."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from reagent.env.env import ToolEnv
from reagent.env.graders import Grader
from reagent.env.task import Task, as_task
from reagent.env.tool import Tool
from reagent.tasks.retrieval import Retrieval
from reagent.tasks.source_rows import GivenPassage, SourceRow, distinct, read_rows
from reagent.tasks.tooling import PUBLISHERS, WEB_TOOLS, build_tools
from rrm.data.questions import question_hash
from rrm.data.seeds import derive_seed
from rrm.errors import ConfigError, ReadError

SHOWN = 12  # values that an error lists
OWN = "benchmark"
"""Key of a task's meta that names its benchmark, by which rows of `reagent tasks -o` are recognised."""


@dataclass(frozen=True)
class TaskLimits:
    """Default limits; `environment.options.max_turns` and `rollout` override them."""

    turns: int
    new_tokens: int  # least `rollout.max_new_tokens`, of one turn
    episode_tokens: int  # least `rollout.max_episode_tokens`


class Benchmark(ToolEnv):
    """An environment over a benchmark's questions.

    Args:
        tools: names of tools (`reagent.tasks.tooling`), or tools; None: those in `wants`.
        corpus: searched by `search`.
        tool_options: further options of a tool, by its name.
        grader: name of one of `metrics` in place of the benchmark's own grader, or a grader.
        max_turns: None: `limits.turns`.
        system: in place of `work` and `form`.
        retrieve: a tool that is called with the question before the first turn; its result stands in the first message.
        deny: addresses from which `browse`, `search_api` and `mcp` keep the agent (`reagent.tools.deny`); None: the class's `deny`.
        options: those of ToolEnv.

    Raises:
        ConfigError: an unknown tool or grader, or a tool that lacks what it needs.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    metric: ClassVar[str]  # the measure of success, in a few words
    source: ClassVar[str]  # where the data come from
    licence: ClassVar[str]
    hub: ClassVar[Mapping[str, str]] = {}
    """Split (`train`, `heldout`) → data set on the hub, without a `path`. Gated ones need your token."""
    wants: ClassVar[tuple[str, ...]] = ()
    deny: ClassVar[tuple[str, ...]] = PUBLISHERS  # addresses that publish its answers
    own_tools: ClassVar[bool] = False  # each question brings its own tools, and cannot be played without
    work: ClassVar[str] = ""  # instructions on the way to an answer
    form: ClassVar[str] = ""  # instructions on the answer's form
    own_parser: ClassVar[str | None] = None
    """The call format where the option `parser` names none; None: the environment's (`reagent.env.env`)."""
    limits: ClassVar[TaskLimits] = TaskLimits(8, 512, 4096)
    read_options: ClassVar[tuple[str, ...]] = ()
    """Options of `environment.train` and `.eval` for this benchmark's `read`."""
    reads_files: ClassVar[bool] = True
    """`path` is a file for this class to read, not one of tasks (`reagent.tasks.environments`)."""

    def __init__(
        self,
        *,
        tools: Sequence[str | Tool] | None = None,
        corpus: str | None = None,
        tool_options: Mapping[str, Mapping[str, Any]] | None = None,
        grader: str | Grader | None = None,
        max_turns: int | None = None,
        system: str | None = None,
        retrieve: str | Tool | None = None,
        deny: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        if self.own_parser is not None:
            options.setdefault("parser", self.own_parser)
        own_options = {name: dict(values) for name, values in (tool_options or {}).items()}
        if corpus is not None:
            own_options.setdefault("search", {}).setdefault("corpus", corpus)
        selected = self.wants if tools is None else tools
        denied = self.deny if deny is None else deny
        for name in WEB_TOOLS:
            if name in selected or name == retrieve:
                own_options.setdefault(name, {}).setdefault("deny", denied)
        self._retrieval = None if retrieve is None else Retrieval.by(retrieve, own_options, needed_by=self.name)
        if isinstance(retrieve, str) and retrieve not in selected:
            own_options.pop(retrieve, None)
        super().__init__(
            build_tools(selected, own_options, needed_by=self.name),
            grader=self._grader(grader) if isinstance(grader, str) else grader,
            max_turns=self.limits.turns if max_turns is None else max_turns,
            **options,
        )
        self._told = system

    def instructions(self) -> str:
        own = self.system or " ".join(filter(None, (self.work, self.form)))
        return own if self._told is None else self._told

    def reset(self, task: Task) -> list[dict[str, Any]]:
        """See `ToolEnv.reset`; puts retrieved passages before the question. Raises ToolError."""
        messages = super().reset(task)
        if self._retrieval is None:
            return messages
        self._retrieval.look_up(task.question, self.parser.tags)
        return self._retrieval.shown(messages)

    def fit_prompt(
        self, messages: list[dict[str, Any]], tokens: Callable[[list[dict[str, Any]]], int], room: int
    ) -> list[dict[str, Any]]:
        """The first messages, their passages cut to fit `room` tokens."""
        return messages if self._retrieval is None else self._retrieval.fitted(messages, tokens, room)

    def _grader(self, name: str) -> Grader:
        if name not in self.metrics:
            raise ConfigError(f"{self.name} has no grader {name!r}; there are {', '.join(self.metrics)}")
        return self.metrics[name]

    # ---- grading -----------------------------------------------------------------------------------------------------

    def is_graded(self, task: Task) -> bool:
        return task.graded and task.answer is not None

    def check_task(self, task: Task) -> None:
        if self.is_graded(task):
            self._grade(task, task.answer or "")

    # ---- reading -----------------------------------------------------------------------------------------------------

    @classmethod
    def task_of(cls, row: SourceRow) -> Task | None:
        """A row as a task; None: the benchmark's metric leaves it out. Raises ReadError: another form."""
        raise NotImplementedError

    @classmethod
    def passages(cls, row: SourceRow) -> list[GivenPassage]:
        """The texts that a row's question comes with, where the format has them."""
        del row
        return []

    @classmethod
    def default_path(cls, split: str) -> str | None:
        """The source of a split without a `path`; None where there is none."""
        return cls.hub.get(split)

    @classmethod
    def read(cls, path: str | Path) -> list[Task]:
        """The tasks of a published file, or of one that `reagent tasks -o` wrote, in its order.
        Raises ReadError: a file or row of another form, or two tasks of one id."""
        return cls.read_with(path, cls.task_of)

    @classmethod
    def read_with(cls, path: str | Path, task_of: Callable[[SourceRow], Task | None]) -> list[Task]:
        tasks: dict[str, Task] = {}
        for row in read_rows(path):
            written = isinstance(meta := row.data.get("meta"), dict) and meta.get(OWN) == cls.name
            try:
                task = as_task(row.data) if written else task_of(row)
                task = task and as_task(vars(task))  # an id that is a number becomes text
            except (TypeError, ValueError) as error:
                raise row.error(f"not a task: {error}") from error
            if task is None:
                continue
            if task.id in tasks:
                if task.id != cls.id_of(task.question_id):
                    raise row.error(f"a second task with the id {task.id!r}: ids name tasks")
                again = sum(other.question_id == task.question_id for other in tasks.values()) + 1
                task = replace(task, id=f"{task.id}#{again}")  # a set without ids may ask a question twice
            tasks[task.id] = task
        if not tasks:
            raise ReadError(str(path), None, f"no task of {cls.name} in it")
        return list(tasks.values())

    @classmethod
    def read_passages(cls, path: str | Path) -> Iterator[GivenPassage]:
        """The distinct passages of a published file, for a corpus."""
        return distinct(passage for row in read_rows(path) for passage in cls.passages(row))

    @classmethod
    def make(cls, question: str, answer: str | None, *, id: str | None = None, **meta: Any) -> Task:
        """A task of this benchmark, without meta that is None or empty.
        Its `question_id` is the hash of its text, so that a question is recognised in every file; it is the default of `id` too."""
        hashed = question_hash(question)
        own = cls.id_of(hashed) if id is None else id
        filled = {key: value for key, value in meta.items() if value is not None and value != []}
        return Task(own, question, answer, question_id=hashed, meta={OWN: cls.name, **filled})

    @classmethod
    def id_of(cls, question_id: str | None) -> str:
        return f"{cls.name}-{question_id}"

    @classmethod
    def make_tasks(
        cls,
        n: int,
        seed: int,
        *,
        split: str = "train",
        path: str | None = None,
        heldout: float | None = None,
        where: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> list[Task]:
        """`n` tasks of `every_task`, drawn by the seed. Raises ConfigError: as `every_task`, or too few."""
        tasks = cls.every_task(split=split, path=path, heldout=heldout, where=where, **options)
        if len(tasks) < n:
            raise ConfigError(
                f"{path or cls.default_path(split)} has {len(tasks)} of the {n} {'held-out' if split == 'heldout' else 'training'} tasks asked for: "
                f"set {'eval' if split == 'heldout' else 'train'}_tasks lower"
            )
        return random.Random(derive_seed("tasks", seed)).sample(tasks, n)

    @classmethod
    def every_task(
        cls,
        *,
        split: str = "train",
        path: str | None = None,
        heldout: float | None = None,
        where: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> list[Task]:
        """The tasks of a file. Raises ConfigError: nothing to read, or an unknown option.

        Args:
            split: `train` or `heldout`.
            path: a published file, or `hf:owner/name:split`; None: the benchmark's set on the hub.
            heldout: share of the questions that is held out, drawn by hash; training gets the others. None: the file is one split.
            where: keys of a task's meta, each with the value or the list of values of which it must have one.
            options: those in `read_options`.
        """
        if split not in ("train", "heldout"):
            raise ConfigError(f"split must be train or heldout, not {split!r}")
        if unknown := [name for name in options if name not in cls.read_options]:
            takes = ", ".join(("path", "heldout", "where", "seed", "split", *cls.read_options))
            raise ConfigError(f"tasks of {cls.name} do not take {', '.join(unknown)}; they take {takes}")
        where_from = path if path is not None else cls.default_path(split)
        if where_from is None:
            raise ConfigError(
                f"{cls.name} has no {split} set of its own on the hub: give the file with the option path ({cls.source})"
            )
        tasks = chosen(cls.read(where_from, **options), where or {})
        if heldout is not None:
            tasks = [task for task in tasks if is_held_out(task, heldout) == (split == "heldout")]
        return tasks


def is_held_out(task: Task, share: float) -> bool:
    """Tell whether a question's hash falls into the held-out share: the same in every file and run.
    Raises ConfigError: a share outside (0, 1)."""
    if not 0.0 < share < 1.0:
        raise ConfigError(f"heldout must lie between 0 and 1, got {share:g}")
    return derive_seed("heldout", task.question_id or task.id) / 2**63 < share


def chosen(tasks: Sequence[Task], where: Mapping[str, Any]) -> list[Task]:
    """The tasks whose meta has these values. Lists have each element; a number equals its text.
    Raises ConfigError: a key, or a key's value, that no task has."""
    keys = sorted({key for task in tasks for key in task.meta})
    for key in where:
        if key not in keys:
            raise ConfigError(f"where: no task has {key!r} in its meta; there are {', '.join(keys)}")
    values_of = {key: value if isinstance(value, list | tuple) else [value] for key, value in where.items()}
    for key, values in values_of.items():
        there = [task.meta[key] for task in tasks if key in task.meta]
        if not any(_has(task.meta.get(key), values) for task in tasks):
            names = sorted({str(value) for own in there for value in (own if isinstance(own, list) else [own])})
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            raise ConfigError(f"where: no task has {key}={where[key]}; there are {', '.join(names[:SHOWN])}{more}")
    return [task for task in tasks if all(_has(task.meta.get(key), values) for key, values in values_of.items())]


def _has(own: object, values: Sequence[object]) -> bool:
    return any(_same(element, value) for element in (own if isinstance(own, list) else [own]) for value in values)


def _same(value: object, other: object) -> bool:
    if isinstance(value, str) != isinstance(other, str):
        return not isinstance(value, bool | None) and not isinstance(other, bool | None) and str(value) == str(other)
    return value == other
