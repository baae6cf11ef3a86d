"""Which tasks come next: all alike, or harder ones as the judge is satisfied (the paper's future work, 2601.22154 §6)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from reagent.env.task import Task
from reagent.feedback.settings import CurriculumConfig
from rrm.errors import ConfigError


class Curriculum:
    """Tasks of the levels reached so far; the next level is reached when the mean score on the current one is high enough.

    The mean is over the last `window` known scores of first attempts on the current level, and is looked at only once
    there are as many; reaching a level empties the window.
    """

    def __init__(self, settings: CurriculumConfig) -> None:
        self.settings = settings
        self.reached = 0
        """Index of the current level."""
        self.scores: deque[float] = deque(maxlen=settings.window)

    @property
    def level(self) -> int:
        """The current level."""
        return self.settings.levels[self.reached]

    def level_of(self, task: Task) -> int | None:
        """How hard a task is, by its meta."""
        found = task.meta.get(self.settings.key)
        return found if isinstance(found, int) else None

    def choose(self, tasks: Sequence[Task], start: int, count: int) -> list[Task]:
        """`count` tasks from number `start` on, in order and again from the first, of the levels reached.

        Raises:
            ConfigError: no task is of these levels.
        """
        levels = self.settings.levels[: self.reached + 1]
        eligible = [task for task in tasks if self.level_of(task) in levels]
        if not eligible:
            key = self.settings.key
            there = sorted({str(task.meta.get(key)) for task in tasks})
            raise ConfigError(
                f"feedback.curriculum: no training task has meta[{key!r}] in {levels} (there are: {', '.join(there)}): "
                "set feedback.curriculum.key and levels, or environment.train"
            )
        return [eligible[i % len(eligible)] for i in range(start, start + count)]

    def observe(self, scores: Sequence[tuple[int | None, float]]) -> None:
        """Take in (level, score) of judged first attempts, in order; reach the next level where the mean allows it."""
        self.scores.extend(score for level, score in scores if level == self.level)
        full = len(self.scores) == self.settings.window
        last = self.reached + 1 == len(self.settings.levels)
        if full and not last and sum(self.scores) / len(self.scores) >= self.settings.threshold:
            self.reached += 1
            self.scores.clear()

    def begin_stage(self) -> None:
        """Other criteria are asked from here on: scores so far are of another scale, and the level stays."""
        self.scores.clear()

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"reached": self.reached, "scores": list(self.scores)}

    def restore(self, state: dict[str, Any]) -> None:
        """The inverse of `state`."""
        self.reached = int(state["reached"])
        self.scores = deque(state["scores"], maxlen=self.settings.window)
