"""Ask an environment whether its tasks are graded, and by which metrics, before one is played."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from reagent.env.env import EnvFactory, Environment, ToolEnv
from reagent.env.graders import Grader
from reagent.env.task import Task
from rrm.engines.async_runner import run


class Grading:
    """Makes an environment at the first question, and closes it at the end of the `with` block."""

    def __init__(self, env_factory: EnvFactory) -> None:
        self._factory = env_factory
        self._env: Environment | None = None

    def __enter__(self) -> Grading:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        env, self._env = self._env, None
        if env is not None:
            run(env.close())

    def is_graded(self, task: Task) -> bool:
        """The environment's `is_graded`; one without it grades all tasks."""
        says = getattr(self._made(), "is_graded", None) if task.graded else None
        return task.graded and (says is None or bool(says(task)))

    @property
    def metrics(self) -> Mapping[str, Grader]:
        return getattr(self._made(), "metrics", ToolEnv.metrics)

    def check(self, task: Task) -> None:
        """Run the environment's `check_task`. Raises ValueError: no attempt at the task can be graded."""
        says = getattr(self._made(), "check_task", None)
        if says is not None:
            says(task)

    def _made(self) -> Environment:
        self._env = self._env or self._factory()
        return self._env
