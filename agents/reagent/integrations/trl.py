"""Environments for TRL: `environment_factory` of a GRPOTrainer. Nothing here imports TRL.

    environments = ToolEnvironments(make_factory("search", tool_prompt="template"), tasks)
    GRPOTrainer(..., environment_factory=environments, train_dataset=Dataset.from_list(environments.rows()))

The reward is process rewards and outcome; `judged_environment(environments, judge, weight=0.3)` adds the judge's score
(`rrm.integrations.trl`). TRL shows an environment only calls, so the tool `answer` ends the episode."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from reagent.env.env import EnvFactory, StepResult
from reagent.env.task import Task
from reagent.errors import GradeUnknown
from rrm.data.trajectory import ToolCall
from rrm.engines.async_runner import run
from rrm.errors import ConfigError

ANSWER = "answer"
_TYPES = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}
_OVER = "the episode is over: nothing can be called any more"


class ToolEnvironments:
    """Makes TRL environments, and the data set's rows.

    Args:
        make: makes a `ToolEnv` with `tool_prompt="template"`: TRL's chat template describes the tools.
        tasks: asked by `rows`. Raises ConfigError: no tasks, tools that the environment describes itself, or one called `answer`.
    """

    def __init__(self, make: EnvFactory, tasks: Sequence[Task]) -> None:
        if not tasks:
            raise ConfigError("TRL needs at least one task")
        self.make, self.tasks = make, {task.id: task for task in tasks}
        self._first: Any = make()
        if getattr(self._first, "template_tools", None) is None:
            raise ConfigError(
                'TRL\'s chat template describes the tools: make the environment with tool_prompt="template"'
            )
        if ANSWER in (names := [schema["function"]["name"] for schema in self._first.tools]):
            raise ConfigError(f"the tools {', '.join(names)} hold one called {ANSWER!r}, which ends an episode here")
        members = {schema["function"]["name"]: _method(schema["function"]) for schema in self._first.tools}
        self._kind = type(type(self._first).__name__, (_TrlEnvironment,), members)

    def __getstate__(self) -> dict[str, Any]:
        return {"make": self.make, "tasks": list(self.tasks.values())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)

    def __call__(self) -> Any:
        return self._kind(self.make(), self.tasks)

    def rows(self) -> list[dict[str, Any]]:
        """A row a task: the messages an episode begins with (`prompt`), and `task_id`."""
        return [{"prompt": self._first.reset(task), "task_id": id} for id, task in self.tasks.items()]


class _TrlEnvironment:
    """An environment in which each call is a turn. Public methods are tools."""

    def __init__(self, env: Any, tasks: dict[str, Task]) -> None:
        self._env, self._tasks = env, tasks
        self._task: Task | None = None
        self._earned, self._over, self._known = 0.0, True, True

    def reset(self, task_id: str, **_: Any) -> None:
        """Begin the episode of a row."""
        self._task = self._tasks[task_id]
        self._env.reset(self._task)
        self._earned, self._over, self._known = 0.0, False, True

    def answer(self, answer: str) -> str:
        """Give the final answer. Nothing can be called after it.

        Args:
            answer: The answer alone, without an explanation.
        """
        self._step(self._env.parser.render_turn(answer=answer))
        return "The answer was taken."

    def get_reward(self) -> float | None:
        """Process rewards and outcome; an episode without an answer has the environment's reward for that; None: the answer's grade
        could not be had."""
        if not self._known or self._task is None:
            return None
        if self._over or not self._env.is_graded(self._task):
            return self._earned
        return self._earned + self._env.unanswered_reward

    def _call(self, name: str, arguments: dict[str, Any]) -> str:
        result = self._step(self._env.parser.render_turn(calls=[ToolCall(name=name, arguments=arguments)]))
        return "\n".join(str(message["content"]) for message in result.observations)

    def _step(self, text: str) -> StepResult:
        if self._over:
            raise ValueError(_OVER)
        try:
            result: StepResult = run(self._env.step(text))
        except GradeUnknown:
            self._over, self._known = True, False
            raise
        self._earned += result.reward + (result.outcome_reward or 0.0)
        self._over = result.terminated or result.truncated
        return result


def _method(schema: dict[str, Any]) -> Callable[..., str]:
    """A method whose signature and docstring give this schema back (as far as plain types do)."""
    name, described = schema["name"], schema.get("parameters") or {}
    arguments, needed = described.get("properties") or {}, described.get("required") or []

    def method(self: _TrlEnvironment, **values: Any) -> str:
        return self._call(name, values)

    def parameter(key: str) -> inspect.Parameter:
        default = inspect.Parameter.empty if key in needed else arguments[key].get("default")
        return inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=types[key])

    types = {key: _TYPES.get(str(about.get("type")), str) for key, about in arguments.items()}
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ordered = sorted(arguments, key=lambda key: key not in needed)
    method.__signature__ = inspect.Signature([own, *map(parameter, ordered)], return_annotation=str)  # pyright: ignore[reportFunctionMemberAccess]
    method.__annotations__ = {**types, "return": str}
    method.__name__ = method.__qualname__ = name
    method.__doc__ = _docstring(schema.get("description", name), arguments)
    return method


def _docstring(description: str, arguments: dict[str, Any]) -> str:
    if not arguments:
        return description
    lines = [f"    {key}: {_line(about)}" for key, about in arguments.items()]
    return "\n".join([description, "", "Args:", *lines])


def _line(about: dict[str, Any]) -> str:
    text = " ".join(str(about.get("description", about.get("title", "an argument"))).split())
    choices = about.get("enum")
    return f"{text} (choices: {choices!r})".replace("'", '"') if choices else text
