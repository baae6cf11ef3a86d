"""What a benchmark is here: an environment that also reads the benchmark's published files.

Each is a subclass of `Benchmark` in a file of its own. It says how a row becomes a task (`task_of`), by what an answer is graded,
what the agent is told (`work` and `form`), which tools it is given (`wants`) and how long an episode may be (`limits`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from reagent.env.env import ToolEnv
from reagent.env.graders import Grader
from reagent.env.task import Task, as_task
from reagent.env.tool import Tool
from reagent.tasks.reading import GivenPassage, SourceRow, distinct, read_rows
from reagent.tasks.retrieval import Retrieval
from reagent.tasks.tooling import PUBLISHERS, WEB_TOOLS, build_tools
from rrm.data.questions import question_hash
from rrm.data.seeds import derive_seed
from rrm.errors import ConfigError, ReadError

SHOWN = 12
"""Values that an error lists."""
OWN = "benchmark"
"""Key of a task's meta that names its benchmark: how rows that `reagent tasks -o` wrote are known again."""


@dataclass(frozen=True)
class TaskLimits:
    """What an episode is given by default; `environment.options.max_turns` and `rollout` say otherwise."""

    turns: int
    new_tokens: int
    """Of one turn: what `rollout.max_new_tokens` should be at least."""
    episode_tokens: int
    """Of an episode: what `rollout.max_episode_tokens` should be at least."""


class Benchmark(ToolEnv):
    """An environment over a benchmark's questions.

    Args:
        tools: names of tools (`reagent.tasks.tooling`), or tools; None: those in `wants`.
        corpus: what `search` looks in.
        tool_options: further options of a tool, by its name.
        grader: name of one of `metrics` in place of the benchmark's own grader, or a grader.
        max_turns: None: `limits.turns`.
        system: in place of `work` and `form`.
        retrieve: a tool that is called with the question before the first turn, and whose result stands in the first message: the
            agent is given what it found, not the tool.
        deny: addresses from which `browse`, `search_api` and `mcp` keep the agent (`reagent.tools.deny`); None: those in the class's `deny`.
        options: those of ToolEnv.

    Raises:
        ConfigError: an unknown tool or grader, or a tool that lacks what it needs.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    metric: ClassVar[str]
    """What success is, in a few words."""
    source: ClassVar[str]
    """Where the data come from."""
    licence: ClassVar[str]
    hub: ClassVar[Mapping[str, str]] = {}
    """Data sets on the hub by split (`train`, `heldout`), read where no `path` is given. Gated ones want your token."""
    wants: ClassVar[tuple[str, ...]] = ()
    deny: ClassVar[tuple[str, ...]] = PUBLISHERS
    """Where its answers are published."""
    own_tools: ClassVar[bool] = False
    """Each question brings tools of its own, and cannot be played without."""
    work: ClassVar[str] = ""
    """What the agent is told of how to work with the tools."""
    form: ClassVar[str] = ""
    """What it is told of the answer's form, whatever the way to it."""
    own_parser: ClassVar[str | None] = None
    """The format of calls and answers where the option `parser` names none; None: the environment's (`reagent.env.env`)."""
    limits: ClassVar[TaskLimits] = TaskLimits(8, 512, 4096)
    read_options: ClassVar[tuple[str, ...]] = ()
    """Options of `environment.train` and `.eval` that this benchmark's `read` takes besides."""
    reads_files: ClassVar[bool] = True
    """`path` is a file for this class to read, not one of tasks alone (`reagent.tasks.environments`)."""

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
        given = {name: dict(values) for name, values in (tool_options or {}).items()}
        if corpus is not None:
            given.setdefault("search", {}).setdefault("corpus", corpus)
        wanted = self.wants if tools is None else tools
        kept_from = self.deny if deny is None else deny
        for name in WEB_TOOLS:
            if name in wanted or name == retrieve:
                given.setdefault(name, {}).setdefault("deny", kept_from)
        self._retrieval = None if retrieve is None else Retrieval.by(retrieve, given, needed_by=self.name)
        if isinstance(retrieve, str) and retrieve not in wanted:
            given.pop(retrieve, None)
        super().__init__(
            build_tools(wanted, given, needed_by=self.name),
            grader=self._grader(grader) if isinstance(grader, str) else grader,
            max_turns=self.limits.turns if max_turns is None else max_turns,
            **options,
        )
        self._told = system

    def instructions(self) -> str:
        """The option `system`; else the class's own, or `work` and `form`."""
        own = self.system or " ".join(filter(None, (self.work, self.form)))
        return own if self._told is None else self._told

    def reset(self, task: Task) -> list[dict[str, Any]]:
        """As of any environment, with what was retrieved before the question.

        Raises:
            ToolError: retrieving failed.
        """
        messages = super().reset(task)
        if self._retrieval is None:
            return messages
        self._retrieval.look_up(task.question, self.parser.tags)
        return self._retrieval.shown(messages)

    def fit_prompt(
        self, messages: list[dict[str, Any]], tokens: Callable[[list[dict[str, Any]]], int], room: int
    ) -> list[dict[str, Any]]:
        """The first messages with as much of what was retrieved as leaves them within `room` tokens."""
        return messages if self._retrieval is None else self._retrieval.fitted(messages, tokens, room)

    def _grader(self, name: str) -> Grader:
        if name not in self.metrics:
            raise ConfigError(f"{self.name} has no grader {name!r}; there are {', '.join(self.metrics)}")
        return self.metrics[name]

    # ---- grading -----------------------------------------------------------------------------------------------------

    def is_graded(self, task: Task) -> bool:
        """A task with an answer; test sets are published without."""
        return task.graded and task.answer is not None

    def check_task(self, task: Task) -> None:
        """Grade the task's own answer.

        Raises:
            ValueError: the answer is none that the grader can compare with.
        """
        if self.is_graded(task):
            self._grade(task, task.answer or "")

    # ---- reading -----------------------------------------------------------------------------------------------------

    @classmethod
    def task_of(cls, row: SourceRow) -> Task | None:
        """A row of the published format as a task; None for one that the benchmark's own metric leaves out.

        Raises:
            ReadError: a row of another form.
        """
        raise NotImplementedError

    @classmethod
    def passages(cls, row: SourceRow) -> list[GivenPassage]:
        """The texts that a row's question comes with, where the format has them."""
        del row
        return []

    @classmethod
    def default_path(cls, split: str) -> str | None:
        """What is read for a split where no `path` is given; None where there is nothing."""
        return cls.hub.get(split)

    @classmethod
    def read(cls, path: str | Path) -> list[Task]:
        """The tasks of a published file (or of one that `reagent tasks -o` wrote), in its order.

        Raises:
            ReadError: a file or row of another form, or two tasks of one id.
        """
        return cls.read_with(path, cls.task_of)

    @classmethod
    def read_with(cls, path: str | Path, task_of: Callable[[SourceRow], Task | None]) -> list[Task]:
        """As `read`, with a function in the place of its own."""
        found: dict[str, Task] = {}
        for row in read_rows(path):
            written = isinstance(meta := row.data.get("meta"), dict) and meta.get(OWN) == cls.name
            try:
                task = as_task(row.data) if written else task_of(row)
                task = task and as_task(vars(task))  # an id that is a number becomes text
            except (TypeError, ValueError) as error:
                raise row.error(f"not a task: {error}") from error
            if task is None:
                continue
            if task.id in found:
                if task.id != cls.id_of(task.question_id):
                    raise row.error(f"a second task with the id {task.id!r}: ids name tasks")
                again = sum(other.question_id == task.question_id for other in found.values()) + 1
                task = replace(task, id=f"{task.id}#{again}")  # a set without ids may ask a question twice
            found[task.id] = task
        if not found:
            raise ReadError(str(path), None, f"no task of {cls.name} in it")
        return list(found.values())

    @classmethod
    def read_passages(cls, path: str | Path) -> Iterator[GivenPassage]:
        """The distinct passages of a published file, from which a corpus is made."""
        return distinct(passage for row in read_rows(path) for passage in cls.passages(row))

    @classmethod
    def make(cls, question: str, answer: str | None, *, id: str | None = None, **meta: Any) -> Task:
        """A task of this benchmark. Its `question_id` is the hash of its text, so that a question is known in every file;
        without an id of its own that is its id too. Meta that is None or empty is left out."""
        hashed = question_hash(question)
        own = cls.id_of(hashed) if id is None else id
        kept = {key: value for key, value in meta.items() if value is not None and value != []}
        return Task(own, question, answer, question_id=hashed, meta={OWN: cls.name, **kept})

    @classmethod
    def id_of(cls, question_id: str | None) -> str:
        """The id of a task that the published file gives none."""
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
        """`n` tasks of a file in an order drawn by the seed; which, as `every_task` says.

        Raises:
            ConfigError: as `every_task`, or fewer tasks than wanted.
        """
        tasks = cls.every_task(split=split, path=path, heldout=heldout, where=where, **options)
        if len(tasks) < n:
            raise ConfigError(
                f"{path or cls.default_path(split)} holds {len(tasks)} such tasks and {n} are wanted: set train_tasks or "
                "eval_tasks lower"
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
        """The tasks of a file.

        Args:
            split: `train` or `heldout`.
            path: a published file, or `hf:owner/name:split`; None: the benchmark's set on the hub.
            heldout: share of the questions that is held out, drawn by the hash of each: training gets the others. None: all
                of the file, which then should be one split.
            where: keys of a task's meta, each with the value or the list of values of which it must have one.
            options: those in `read_options`.

        Raises:
            ConfigError: nothing to read, or an option that means nothing here.
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
    """Whether a task's question falls into the held-out share, by its hash: the same in every file and run.

    Raises:
        ConfigError: a share outside (0, 1).
    """
    if not 0.0 < share < 1.0:
        raise ConfigError(f"heldout must lie between 0 and 1, got {share:g}")
    return derive_seed("heldout", task.question_id or task.id) / 2**63 < share


def chosen(tasks: Sequence[Task], where: Mapping[str, Any]) -> list[Task]:
    """The tasks whose meta has these values. A list in the meta has each of its elements; a number and its text are one value.

    Raises:
        ConfigError: a key, or a key's value, that no task has.
    """
    keys = sorted({key for task in tasks for key in task.meta})
    for key in where:
        if key not in keys:
            raise ConfigError(f"where: no task has {key!r} in its meta; there are {', '.join(keys)}")
    wanted = {key: value if isinstance(value, list | tuple) else [value] for key, value in where.items()}
    for key, values in wanted.items():
        there = [task.meta[key] for task in tasks if key in task.meta]
        if not any(_has(task.meta.get(key), values) for task in tasks):
            known = sorted({str(one) for own in there for one in (own if isinstance(own, list) else [own])})
            more = f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
            raise ConfigError(f"where: no task has {key}={where[key]}; there are {', '.join(known[:SHOWN])}{more}")
    return [task for task in tasks if all(_has(task.meta.get(key), values) for key, values in wanted.items())]


def _has(own: object, wanted: Sequence[object]) -> bool:
    """Whether a value, or one of a list's, is wanted."""
    return any(_same(one, other) for one in (own if isinstance(own, list) else [own]) for other in wanted)


def _same(one: object, other: object) -> bool:
    if isinstance(one, str) != isinstance(other, str):
        return not isinstance(one, bool | None) and not isinstance(other, bool | None) and str(one) == str(other)
    return one == other
