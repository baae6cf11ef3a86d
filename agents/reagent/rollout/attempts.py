"""Attempts: the episodes to be played, side by side."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from reagent.env.task import Task
from reagent.rollout.episode import Stage, attempt_key


@dataclass(frozen=True)
class Attempt:
    task: Task
    group_id: str
    number: int = 0  # within its group and stage
    stage: Stage = "initial"

    @property
    def key(self) -> str:
        return attempt_key(self.group_id, self.stage, self.number)


PromptHook = Callable[[Attempt, list[dict[str, Any]]], list[dict[str, Any]]]
"""(attempt, the environment's messages) → the messages the episode begins with."""


def plan(tasks: Sequence[Task], group_size: int = 1, stage: Stage = "initial") -> list[Attempt]:
    """`group_size` attempts a task, side by side. A repeated task makes a group of its own (`id#2`)."""
    attempts: list[Attempt] = []
    counts: dict[str, int] = {}
    for task in tasks:
        counts[task.id] = counts.get(task.id, 0) + 1
        group = task.id if counts[task.id] == 1 else f"{task.id}#{counts[task.id]}"
        attempts += [Attempt(task, group, number, stage) for number in range(group_size)]
    return attempts
