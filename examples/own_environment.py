"""Train an agent in an environment of your own: a class with tools, a grader and tasks, and a config that names it.

    python examples/own_environment.py max_updates=20 output_dir=runs/products

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
    from reagent.train.config import load_agent_config
    from reagent.train.run import train
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'agent-rrm[agents]'")


class Products(ToolEnv):
    system = "Work out the product. A tool multiplies for you."
    grader = staticmethod(numeric)

    @tool
    def multiply(self, a: int, b: int) -> int:
        """Multiply two numbers.

        Args:
            a: The first number.
            b: The second number.
        """
        return a * b

    @staticmethod
    def make_tasks(n: int, seed: int, split: str = "train") -> list[Task]:
        rng = random.Random(f"{split} {seed}")
        pairs = [(rng.randint(3, 9), rng.randint(11, 99)) for _ in range(n)]
        return [Task(f"{split}-{seed}-{i}", f"What is {a} * {b}?", str(a * b)) for i, (a, b) in enumerate(pairs)]


def main(overrides: Sequence[str]) -> dict[str, Any]:
    config = load_agent_config(
        "lab", [f"environment.name={Path(__file__).stem}:Products", "algorithm=grpo", *overrides]
    )
    return train(config)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
