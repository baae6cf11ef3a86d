"""What an environment says of its tasks before one is played: whether anybody can grade them, and by what."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from reagent.env.env import EnvFactory, Environment, ToolEnv
from reagent.env.graders import Grader
from reagent.env.task import Task
from rrm.engines.async_runner import run


class Grading:
    """Asks an environment, which is made when the first question needs it, and closed at the end of the `with` block."""

    def __init__(self, env_factory: EnvFactory) -> None:
        self._factory = env_factory
        self._env: Environment | None = None

    def __enter__(self) -> Grading:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        env, self._env = self._env, None
        if env is not None:
            run(env.close())

    def is_graded(self, task: Task) -> bool:
        """Whether the task is graded, as the environment's `is_graded` says; one without it is taken to grade all."""
        says = getattr(self._made(), "is_graded", None) if task.graded else None
        return task.graded and (says is None or bool(says(task)))

    @property
    def metrics(self) -> Mapping[str, Grader]:
        """What an evaluation reports beside success; of an environment that does not say, exact match and F1."""
        return getattr(self._made(), "metrics", ToolEnv.metrics)

    def check(self, task: Task) -> None:
        """Grade the task's own answer, where the environment compares with it (`check_task`). Raises ValueError: that cannot be done, so no
        attempt at the task can be graded."""
        says = getattr(self._made(), "check_task", None)
        if says is not None:
            says(task)

    def _made(self) -> Environment:
        self._env = self._env or self._factory()
        return self._env
