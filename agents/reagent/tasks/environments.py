"""Environments by name (`environment.name`): registered here, a benchmark's, or `module:Class`.

Tasks come from the class's `make_tasks(n, seed, split, **options)`, or from a JSONL file with `path=…` (`reagent.env.task.read_tasks`); a
class with `reads_files` reads `path` itself."""

import functools
import importlib
import logging
import random
import traceback
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from reagent.env.env import EnvFactory, Environment
from reagent.env.task import Task, read_tasks
from reagent.tasks.environment_config import EnvironmentConfig
from reagent.tasks.registry import TASKS
from rrm.data.printing import did_you_mean
from rrm.data.seeds import derive_seed
from rrm.errors import ConfigError, RRMError

logger = logging.getLogger(__name__)

ENVIRONMENTS: dict[str, str] = {
    "search": "reagent.lab.search_env:SearchEnv",
    "calculator": "reagent.lab.calculator_env:CalculatorEnv",
    "countdown": "reagent.lab.countdown_env:CountdownEnv",
    **TASKS,
}
"""Registered name → `module:Class`."""


def find_environment(name: str) -> Callable[..., Environment]:
    """The class or function behind a name. Raises ConfigError: no such name, module or attribute."""
    target = ENVIRONMENTS.get(name, name)
    module, colon, attribute = target.partition(":")
    if not colon:
        raise ConfigError(
            f"no environment {name!r}; there are {', '.join(ENVIRONMENTS)}, or write module:Class of your own{did_you_mean(name, ENVIRONMENTS)}"
        )
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"environment {name!r} cannot be imported: {error}") from error
    except Exception as error:  # whatever the user's own module does when it is imported
        raise ConfigError(f"environment {name!r} cannot be imported: {_said(error)}") from error
    if not callable(factory):
        raise ConfigError(f"environment {name!r} is a {type(factory).__name__}, not a class or function")
    return cast(Callable[..., Environment], factory)


def _said(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


def make_factory(name: str, **options: Any) -> EnvFactory:
    """Make a function that makes the environment; it is tried once, to show wrong options now.
    Raises ConfigError: an unknown name or option, or an environment that cannot be made."""
    build = find_environment(name)
    try:
        build(**options)
    except TypeError as error:
        raise ConfigError(f"environment {name!r} does not take these options: {error}") from error
    except RRMError:
        raise
    except Exception as error:  # whatever the user's own constructor does
        raise ConfigError(f"environment {name!r} cannot be made: {_said(error)}") from error
    return functools.partial(build, **options)  # which other processes can be sent


def make_tasks(name: str, n: int, seed: int, *, split: str = "train", **options: Any) -> list[Task]:
    """Make `n` tasks of an environment. In the lab, different seeds or splits share no world.
    Raises ConfigError: an unknown name or option, an environment without tasks of its own, or a file with too few."""
    build = find_environment(name)
    if "path" in options and not getattr(build, "reads_files", False):
        return _tasks_from_file(n, seed, **options)
    maker = getattr(build, "make_tasks", None)
    if maker is None:
        passed = f"; given: {', '.join(options)}" if options else ""
        raise ConfigError(
            f"environment {name!r} has no make_tasks(n, seed, split); give a JSONL file of tasks with the option `path` "
            f"(environment.train and .eval: {{path: FILE}}){passed}"
        )
    try:
        return maker(n, seed, split=split, **options)
    except (TypeError, ValueError) as error:
        passed = ", ".join(options) or "none"
        raise ConfigError(
            f"tasks of environment {name!r} (options of environment.train or .eval: {passed}): {error}"
        ) from error


def _tasks_from_file(n: int, seed: int, path: str | Path, **options: Any) -> list[Task]:
    """`n` of a file's tasks in an order drawn by the seed: files are often sorted."""
    if not isinstance(path, str | Path) or not str(path):
        raise ConfigError(f"`path` in environment.train or .eval names one file of tasks, got {path!r}")
    if options:
        raise ConfigError(f"tasks from {path}: these options mean nothing for a file: {', '.join(options)}")
    tasks = read_tasks(path)
    if not tasks:
        raise ConfigError(f"{path} holds no tasks: it is empty")
    if len(tasks) < n:
        raise ConfigError(f"{path} holds {len(tasks)} tasks and {n} are wanted: set train_tasks or eval_tasks lower")
    return random.Random(derive_seed("tasks", seed)).sample(tasks, n)


def with_labels(tasks: Sequence[Task], share: float, seed: int) -> list[Task]:
    """Keep the grading of a share of the tasks; the others are played ungraded.
    The share is drawn by task (by question where several tasks ask one), so that a group is graded as a whole."""
    if share >= 1.0:
        return list(tasks)
    return [
        task if random.Random(derive_seed("labels", seed, task.question_id or task.id)).random() < share
        else replace(task, graded=False)
        for task in tasks
    ]  # fmt: skip


def make_environment(config: EnvironmentConfig, seed: int) -> tuple[EnvFactory, list[Task], list[Task]]:
    """(environment factory, training tasks by the run's seed, held-out tasks) of a config."""
    factory = make_factory(config.name, **config.made_with)
    trained = make_tasks(config.name, config.train_tasks, **_drawn("train", {"seed": seed, **config.train}))
    held_out = held_out_tasks(config)
    if both := _trained_on(trained, held_out, by_text="path" in config.train and "path" in config.eval):
        logger.warning(
            "%d of %d held-out questions are trained on too (for example %s): figures on them say nothing of new ones; give "
            "environment.train and environment.eval files, seeds or splits of their own",
            len(both), len({t.question_id or t.id for t in held_out}), sorted(both)[0],
        )  # fmt: skip
    return factory, with_labels(trained, config.label_share, seed), held_out


def held_out_tasks(config: EnvironmentConfig) -> list[Task]:
    """The tasks a config evaluates on: the same for every run. The option `eval.seed` draws others."""
    return make_tasks(config.name, config.eval_tasks, **_drawn("eval", {"split": "heldout", "seed": 0, **config.eval}))


def _drawn(section: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options of `environment.train` or `.eval`. Raises ConfigError: one belongs to another key."""
    for key, instead in (("n", f"environment.{section}_tasks"), ("name", "environment.name")):
        if key in options:
            raise ConfigError(f"environment.{section} does not take {key!r}: set {instead}")
    return options


def _trained_on(trained: Sequence[Task], held_out: Sequence[Task], *, by_text: bool) -> set[str]:
    """Held-out questions that are trained on too: one question id, or one id with one text.
    `by_text`, for files, whose default ids are line numbers: also one text, unless seed, answer or meta differ. Texts and answers are
    compared without case, blanks and Unicode forms."""
    question_ids = {t.question_id for t in trained if t.question_id}
    ids = {(t.id, t.question) for t in trained}
    texts: dict[str, list[Task]] = {}
    for task in trained if by_text else ():
        texts.setdefault(_text(task.question), []).append(task)

    def is_one(task: Task) -> bool:
        if task.question_id in question_ids or (task.id, task.question) in ids:
            return True
        return any(
            task.seed == other.seed
            and (task.answer is None or other.answer is None or _text(str(task.answer)) == _text(str(other.answer)))
            and (not task.meta or not other.meta or task.meta == other.meta)
            for other in texts.get(_text(task.question), ())
        )

    return {t.question_id or t.id for t in held_out if is_one(t)}


def _text(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())
