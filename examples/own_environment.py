"""Train an agent in an environment of your own: a class with tools, a grader and tasks, and a config that names it.

    python examples/own_environment.py max_updates=20 output_dir=runs/guess

The lab's policy has never seen such a task, so expect little of it: name a language model with policy.base=DIR or a hub id.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

try:
    from reagent.env import Task, ToolEnv, tool
    from reagent.env.graders import numeric
    from reagent.errors import ToolError
    from reagent.train.config import load_agent_config
    from reagent.train.run import train
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'agent-rrm[agents]'")


class Guess(ToolEnv):
    """Find a number by asking whether it is larger than others."""

    system = "Find the secret number between 1 and 100. Ask with the tool, then answer with the number."
    grader = staticmethod(numeric)

    def begin(self, task: Task) -> None:
        self.secret = int(task.answer or 0)

    @tool(timeout_s=2)
    def larger_than(self, number: int) -> bool:
        """Say whether the secret number is larger than a number.

        Args:
            number: The number to compare with.
        """
        if not 1 <= number <= 100:
            raise ToolError("ask for a number between 1 and 100")
        return self.secret > number

    @staticmethod
    def make_tasks(n: int, seed: int, split: str = "train") -> list[Task]:
        rng = random.Random(f"{split} {seed}")  # the same tasks for the same seed, others for each split
        return [Task(f"guess-{split}-{seed}-{i}", "Which number is it?", str(rng.randint(1, 100))) for i in range(n)]


def main(overrides: Sequence[str]) -> dict[str, Any]:
    config = load_agent_config("lab", [f"environment.name={Path(__file__).stem}:Guess", "algorithm=grpo", *overrides])
    return train(config)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
