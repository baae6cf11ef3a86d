"""Reflections on attempts at the search lab.

    again     a second attempt after the attempt's critique: what was good is done again, what was bad is mended
    retry     a second attempt without a critique, hurried or careful as at first
    trace     what happened, in the words of the attempt's label
    critique  what was good and bad about it, likewise

First attempts are careful, hurried or faulty, labelled by replay (`reagent.lab.labels`). Untaught, the lab's policies write
texts of mode `u`'s auxiliary loss into their turns.
"""

import asyncio
import random
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from reagent.env.env import ToolEnv
from reagent.env.task import Task
from reagent.feedback.second_attempt_prompt import second_attempt
from reagent.feedback.texts import REQUESTS
from reagent.lab.demonstrations import Demonstration, ScriptedTurn, environment_for, mistaken, plain, played, script
from reagent.lab.labels import label
from reagent.lab.plans import ScriptedPlan
from reagent.lab.search_env import SearchEnv, question_of, world_of
from rrm.data.annotation import Annotation
from rrm.data.seeds import derive_seed
from rrm.data.trajectory import Trajectory

ReflectKind = Literal["again", "retry", "trace", "critique"]
KINDS: dict[ReflectKind, int] = {"again": 5, "retry": 1, "trace": 2, "critique": 2}
CAREFUL, HURRIED = 0.4, 0.3
"""Shares of first attempts; the others are faulty."""
IMPERFECT = 0.3
"""Share of careful attempts with a slip that is mended."""


def reflections(n: int, seed: int, *, hops: Sequence[int], hurried: float) -> Iterator[Demonstration]:
    """`n` reflections on worlds of the demonstrations' split. Deterministic; needs no running event loop.

    `hops`: of the questions, dealt out in turn. `hurried`: share of retries whose agent answers with its first result."""
    with asyncio.Runner() as runner:
        for task in SearchEnv.make_tasks(n, seed, hops=hops, split="demonstrations"):
            rng = random.Random(derive_seed("reflection", task.id))
            reflect_kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
            yield runner.run(_reflection(task, reflect_kind, rng, hurried))


async def _reflection(task: Task, reflect_kind: ReflectKind, rng: random.Random, hurried: float) -> Demonstration:
    plan, slips = SearchEnv.plan(task), rng.random() < IMPERFECT
    env = environment_for(SearchEnv, "hermes", slips, plan.length, {})
    prompt = env.reset(task)
    first = await played(env, _first(env, plan, rng, slips))
    annotation = _label(task, [*prompt, *first.messages])
    if reflect_kind == "trace" or reflect_kind == "critique":
        request = {"role": "user", "content": REQUESTS[reflect_kind]}
        text = {"role": "assistant", "content": annotation.trace if reflect_kind == "trace" else annotation.critique}
        messages = plain([*prompt, *first.shown, request, text])
        return Demonstration(task, reflect_kind, messages, [False] * (len(messages) - 1) + [True])
    again = reflect_kind == "again"
    prompt = second_attempt(prompt, first.messages, annotation.critique if again else None)
    env.reset(task)
    length = plan.length if again or rng.random() >= hurried else 1
    second = await played(env, script(env, plan, "tool_call", rng, False, False, length))
    return Demonstration(task, reflect_kind, plain([*prompt, *second.shown]), [False] * len(prompt) + second.train_on)


def _first(env: ToolEnv, plan: ScriptedPlan, rng: random.Random, slips: bool) -> list[ScriptedTurn]:
    drawn = rng.random()
    if drawn >= CAREFUL + HURRIED:
        return mistaken(env, plan, rng)
    return script(env, plan, "tool_call", rng, slips, False, plan.length if drawn < CAREFUL else 1)


def _label(task: Task, messages: list[dict[str, Any]]) -> Annotation:
    world = world_of(task.seed)
    run = Trajectory.model_validate({"id": task.id, "task": task.question, "messages": messages})
    return label(run, world, question_of(world, task.meta["hops"]))
