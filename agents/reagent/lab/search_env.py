"""The search lab: a question of several hops over a task's own generated world, and a search tool.

Success is exact match."""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from reagent.env.env import ToolEnv
from reagent.env.task import Task
from reagent.env.tool import ToolResult, tool
from reagent.errors import ToolError
from reagent.lab.plans import Move, spread
from reagent.lab.wordings import FINDING
from reagent.lab.world import NOTHING_FOUND, RELATIONS, World, WorldQuestion, as_drawn, make_question, make_world
from rrm.data.seeds import derive_seed
from rrm.data.trajectory import ToolCall


@functools.lru_cache(maxsize=512)
def world_of(seed: int) -> World:
    return make_world(seed)


def question_of(world: World, hops: int) -> WorldQuestion:
    return make_question(world, hops, random.Random(derive_seed("question", world.seed)))


class SearchEnv(ToolEnv):
    """Search, then answer.

    Args:
        error_rate: rate of tool failures, decided by task, query and its count: the same in every run.
        distractors: whether facts that look like the right one come with it.
        options: those of ToolEnv.
    """

    system: ClassVar[str] = ""
    forgiving: ClassVar[bool] = False  # the shipped policies and judge know the lab's own words

    def __init__(
        self, *, error_rate: float = 0.0, distractors: bool = True, tool_prompt: Any = "brief", **options: Any
    ) -> None:
        super().__init__(tool_prompt=tool_prompt, **options)
        self.error_rate, self.distractors = error_rate, distractors
        self.asked: dict[str, int] = {}

    def begin(self, task: Task) -> None:
        self.world, self.asked = world_of(task.seed), {}

    @tool
    async def search(self, query: str) -> str:
        """Search the facts.

        Args:
            query: What to look for.
        """
        self.asked[query] = self.asked.get(query, 0) + 1
        draw = random.Random(derive_seed(self.world.seed, "down", as_drawn(query), self.asked[query])).random()
        if draw < self.error_rate:
            raise ToolError("search is down, try again")
        return self.world.search(query, distractors=self.distractors)

    def is_useful(self, call: ToolCall, result: ToolResult) -> bool:
        return result.content != NOTHING_FOUND

    @staticmethod
    def make_tasks(n: int, seed: int, *, hops: int | Sequence[int] = (1, 2, 3, 4), split: str = "train") -> list[Task]:
        """`n` tasks, hop counts in turn. Different seeds, or splits, share no world."""
        tasks = []
        for number in range(n):
            count = spread(hops, number)
            world = world_of(derive_seed("search", split, seed, number))
            question = question_of(world, count)
            name = f"search-{split}-{seed}-{number}"
            text = f"What is the {question.phrase}?"
            tasks.append(Task(name, text, question.answer, world.seed, name, {"hops": count}))
        return tasks

    @staticmethod
    def plan(task: Task) -> SearchPlan:
        world = world_of(task.seed)
        return SearchPlan(world, question_of(world, task.meta["hops"]))


class SearchPlan:
    wordings: Mapping[str, Sequence[str]] = FINDING

    def __init__(self, world: World, question: WorldQuestion) -> None:
        self.world, self.question = world, question
        self.start, self.length, self.answer = question.start, len(question.path), question.answer

    def move(self, step: int, value: str) -> Move:
        return self._move(self.question.path[step], value)

    def wrong(self, step: int, value: str, rng: random.Random) -> Move:
        relation = self.question.path[step]
        others = [r for r, kinds in RELATIONS.items() if kinds == RELATIONS[relation] and r != relation]
        if rng.random() < 0.5:
            return self._move(rng.choice(others), value)
        entity_type = RELATIONS[relation][0]
        return self._move(relation, rng.choice([e for e in self.world.entities[entity_type] if e != value]))

    def retrieval(self) -> ToolCall:
        return ToolCall(name="search", arguments={"query": self.question.phrase})

    def _move(self, relation: str, subject: str) -> Move:
        value = self.world.value(subject, relation)
        if value is None:
            raise ValueError(f"this world has no {relation} of {subject}")
        query = f"{relation} of {subject}"
        call = ToolCall(name="search", arguments={"query": query})
        return Move(call, value, f"The {query} is {value}.", {"a": subject, "rel": relation})
