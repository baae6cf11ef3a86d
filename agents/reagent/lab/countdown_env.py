"""Countdown: an arithmetic expression over given numbers that makes a target, graded by its value."""

import random
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

from reagent.env.env import ToolEnv
from reagent.env.task import Task
from reagent.errors import ToolError
from reagent.lab.plans import spread
from reagent.tasks.tooling import calculator
from reagent.tools.calculator import evaluate
from rrm.data.seeds import derive_seed

_EXPRESSION = re.compile(r"(?:[0-9\s()+-]|\*(?!\*)|/(?!/))+")


class CountdownEnv(ToolEnv):
    """Try expressions with the calculator, then answer with one."""

    system: ClassVar[str] = "Use each number at most once, with + - * / ( ). Answer with the expression alone."
    metrics: ClassVar = {}

    def __init__(self, **options: Any) -> None:
        super().__init__(tools=[calculator], **options)

    def grade(self, task: Task, answer: str) -> float:
        """1.0 for an expression that makes the target from the task's numbers, else 0.0."""
        with suppress(ToolError):  # none at all
            used = Counter(map(int, re.findall("[0-9]+", answer[:200])))
            correct = abs(evaluate(answer) - task.meta["target"]) < 1e-6
            return float(correct and used <= Counter(task.meta["numbers"]) and bool(_EXPRESSION.fullmatch(answer)))
        return 0.0

    @staticmethod
    def make_tasks(n: int, seed: int, *, numbers: int | Sequence[int] = (3, 4), split: str = "train") -> list[Task]:
        """`n` tasks, number counts in turn; the answer is a solution. Other seeds or splits, other tasks."""
        return [_task(f"countdown-{split}-{seed}-{number}", spread(numbers, number)) for number in range(n)]


def _task(name: str, count: int) -> Task:
    """The first drawn expression with a value from 10 to 99, and none of several numbers."""
    rng = random.Random(seed := derive_seed(name))
    while True:
        numbers = [rng.randint(1, 99) for _ in range(count)]
        terms = [str(number) for number in numbers]
        while len(terms) > 1:
            rng.shuffle(terms)
            terms[-2:] = [f"({terms[-2]} {rng.choice('+-*/')} {terms[-1]})"]
        with suppress(ToolError):  # a division by zero
            if (target := evaluate(terms[0])) in range(10, 100) and (count == 1 or target not in numbers):
                question = f"Make {target:.0f} from {', '.join(map(str, numbers))}."
                return Task(name, question, terms[0], seed, name, {"numbers": numbers, "target": int(target)})
