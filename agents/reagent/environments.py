"""Environments by name: in a config only `environment.name` changes.

A name is registered here, or is `module:Class` (or any callable) of your own, with which `options` are passed on.
Tasks come from the class's `make_tasks`, or from a JSONL file with `path=…` (see `reagent.task.read_tasks`).
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from typing import Any

from reagent.env import EnvFactory, Environment
from reagent.task import Task, read_tasks
from rrm.errors import ConfigError

ENVIRONMENTS: dict[str, str] = {
    "search": "reagent.lab.search_env:SearchEnv",
    "calculator": "reagent.lab.calculator_env:CalculatorEnv",
}
"""Registered name → `module:Class`."""


def find_environment(name: str) -> Callable[..., Environment]:
    """The class or function behind a name.

    Raises:
        ConfigError: no such name, module or attribute.
    """
    target = ENVIRONMENTS.get(name, name)
    module, colon, attribute = target.partition(":")
    if not colon:
        near = difflib.get_close_matches(name, ENVIRONMENTS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(
            f"no environment {name!r}; there are {', '.join(ENVIRONMENTS)}, or write module:Class of your own{hint}"
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"environment {name!r} cannot be imported: {error}") from error
    if not callable(found):
        raise ConfigError(f"environment {name!r} is a {type(found).__name__}, not a class or function")
    return found


def make_factory(name: str, **options: Any) -> EnvFactory:
    """A function that makes the environment; one is made at once, so that a wrong option shows before a rollout.

    Raises:
        ConfigError: an unknown name or option.
    """
    build = find_environment(name)
    try:
        build(**options)
    except TypeError as error:
        raise ConfigError(f"environment {name!r} does not take these options: {error}") from error
    return lambda: build(**options)


def make_tasks(name: str, n: int, seed: int, **options: Any) -> list[Task]:
    """`n` tasks of an environment. For the lab, different seeds share no world, and `hops` chooses the hop counts.

    Raises:
        ConfigError: an unknown name or option, an environment without tasks of its own, or a file with too few.
    """
    build = find_environment(name)
    if "path" in options:
        tasks = read_tasks(options.pop("path"))
        if options or len(tasks) < n:
            raise ConfigError(
                f"{len(tasks)} tasks in the file and {n} wanted, options besides `path`: {sorted(options)}"
            )
        return tasks[:n]
    maker = getattr(build, "make_tasks", None)
    if maker is None:
        raise ConfigError(f"environment {name!r} has no make_tasks(n, seed); give a JSONL file of tasks as `path`")
    try:
        return maker(n, seed, **options)
    except TypeError as error:
        raise ConfigError(f"tasks of environment {name!r}: {error}") from error
