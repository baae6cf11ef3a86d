"""The calculator lab: arithmetic of several steps, one operation a call, graded by a numeric match.

With `max_operations=null` it serves word problems such as GSM8K's."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from reagent.env.env import ToolEnv
from reagent.env.graders import numeric
from reagent.env.task import Task
from reagent.env.tool import tool
from reagent.lab.plans import Move, spread
from reagent.tools.calculator import evaluate, format_number
from rrm.data.seeds import derive_seed
from rrm.data.trajectory import ToolCall

LARGEST = 199
"""Largest number of a lab problem: each is one token of the lab policy."""
_WORDS = {"+": "add", "-": "subtract", "*": "multiply by"}
_FINDINGS = {
    "search": ("calculates exactly what is needed",),
    "wrong_entity": ("calculates with {c}, not {a}; calculate {a} {rel} instead",),
    "wrong_relation": ("calculates {a} {other}; the problem needs {a} {rel}",),
    "malformed": ("a malformed call; calculate {a} {rel}",),
    "gave_up": ("gives up too early; calculate {a} {rel}",),
    "stops_early": ("stops one step early; calculate {a} {rel}",),
    "follows": ("builds on the mistake of step {k}; go back to it",),
}
_OPERATORS: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


class CalculatorEnv(ToolEnv):
    """Calculate, then answer.

    Args:
        max_operations: operations in one call; null for any number.
        options: those of ToolEnv.
    """

    system: ClassVar[str] = ""
    forgiving: ClassVar[bool] = False  # the shipped policies and judge know the lab's own words
    grader = staticmethod(numeric)

    def __init__(self, *, max_operations: int | None = 1, tool_prompt: Any = "brief", **options: Any) -> None:
        super().__init__(tool_prompt=tool_prompt, **options)
        self.max_operations = max_operations

    @tool
    async def calculator(self, expression: str) -> str:
        """Calculate.

        Args:
            expression: Numbers and operators, e.g. 482 + 371.
        """
        return format_number(evaluate(expression, self.max_operations))

    @staticmethod
    def make_tasks(n: int, seed: int, *, hops: int | Sequence[int] = (2, 3, 4, 5), split: str = "train") -> list[Task]:
        """`n` problems, step counts in turn; other seeds or splits, other problems."""
        tasks = []
        for number in range(n):
            count = spread(hops, number)
            task_seed = derive_seed("calculator", split, seed, number)
            plan = CalculatorPlan(task_seed, count)
            name = f"calculator-{split}-{seed}-{number}"
            tasks.append(Task(name, plan.question, plan.answer, task_seed, name, {"hops": count}))
        return tasks

    @staticmethod
    def plan(task: Task) -> CalculatorPlan:
        return CalculatorPlan(task.seed, task.meta["hops"])


class CalculatorPlan:
    """One operation a step. Numbers and results are from 2 to `LARGEST`."""

    wordings = _FINDINGS

    def __init__(self, seed: int, steps: int) -> None:
        if steps < 1:
            raise ValueError(f"a problem needs at least one step, got {steps}")
        rng = random.Random(seed)
        first = value = rng.randint(12, 99)
        self.operations: list[tuple[str, int]] = []
        for _ in range(steps):
            ranges = {"+": (11, LARGEST - value), "-": (11, value - 2), "*": (2, LARGEST // value)}
            sign = rng.choice([s for s, (low, high) in ranges.items() if low <= high])
            number = rng.randint(*ranges[sign])
            self.operations.append((sign, number))
            value = _OPERATORS[sign](value, number)
        self.start, self.length, self.answer = str(first), steps, str(value)
        operations_text = ", ".join(f"{_WORDS[sign]} {number}" for sign, number in self.operations)
        self.question = f"Start with {first}, {operations_text}."

    def move(self, step: int, value: str) -> Move:
        return _apply(value, *self.operations[step])

    def wrong(self, step: int, value: str, rng: random.Random) -> Move:
        sign, number = self.operations[step]
        if rng.random() < 0.5:
            return _apply(value, rng.choice([s for s in _OPERATORS if s != sign]), number)
        return _apply(value, sign, number + rng.choice((-10, -1, 1, 10)))

    def retrieval(self) -> ToolCall:
        return self.move(0, self.start).call


def _apply(value: str, sign: str, number: int) -> Move:
    result = str(_OPERATORS[sign](int(value), number))
    expression = f"{value} {sign} {number}"
    call = ToolCall(name="calculator", arguments={"expression": expression})
    return Move(call, result, f"{expression} is {result}.", {"a": value, "rel": f"{sign} {number}"})
