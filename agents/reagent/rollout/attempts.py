"""Attempts: which episodes are to be played, side by side."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from reagent.env.task import Task
from reagent.rollout.episode import Stage, attempt_key


@dataclass(frozen=True)
class Attempt:
    """One episode to be played."""

    task: Task
    group_id: str
    number: int = 0
    """Within its group and stage."""
    stage: Stage = "initial"

    @property
    def key(self) -> str:
        """Names the episode: its cache and its random numbers."""
        return attempt_key(self.group_id, self.stage, self.number)


PromptHook = Callable[[Attempt, list[dict[str, Any]]], list[dict[str, Any]]]
"""(attempt, the environment's messages) → the messages the episode begins with, e.g. with a first attempt's critique."""


def plan(tasks: Sequence[Task], group_size: int = 1, stage: Stage = "initial") -> list[Attempt]:
    """`group_size` attempts a task, side by side. A task that comes again makes a group of its own (`id#2`)."""
    attempts: list[Attempt] = []
    seen: dict[str, int] = {}
    for task in tasks:
        seen[task.id] = seen.get(task.id, 0) + 1
        group = task.id if seen[task.id] == 1 else f"{task.id}#{seen[task.id]}"
        attempts += [Attempt(task, group, number, stage) for number in range(group_size)]
    return attempts
