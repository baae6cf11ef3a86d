"""The search lab with a verifier that is wrong now and then: grades of training tasks flipped, held-out ones as they are."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from reagent.env.task import Task
from reagent.lab.search_env import SearchEnv
from rrm.data.seeds import derive_seed
from rrm.errors import ConfigError


class NoisySearch(SearchEnv):
    """`search`, of whose training tasks a share of answers gets the opposite grade.

    What is flipped is decided by task and answer: a wrong verifier says the same of the same answer. An episode that ends
    without an answer is a failure, as ever.

    Args:
        flipped: the share.
    """

    def __init__(self, *, flipped: float = 0.3, **options) -> None:
        super().__init__(**options)
        if not 0 <= flipped <= 1:
            raise ConfigError(f"environment.options.flipped is a share in [0, 1], got {flipped}")
        self.flipped = flipped

    def grade(self, task: Task, answer: str) -> float:
        right = super().grade(task, answer)
        if not task.meta.get("noisy"):
            return right
        drawn = random.Random(derive_seed("flipped", task.id, answer.strip())).random()
        return 1.0 - right if drawn < self.flipped else right

    @staticmethod
    def make_tasks(n: int, seed: int, *, hops: int | Sequence[int] = (1, 2, 3, 4), split: str = "train") -> list[Task]:
        """Those of `SearchEnv`; training tasks are marked."""
        tasks = SearchEnv.make_tasks(n, seed, hops=hops, split=split)
        return [replace(task, meta={**task.meta, "noisy": split == "train"}) for task in tasks]
