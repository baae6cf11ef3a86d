"""Reflections: attempts at the search lab, and what an agent makes of them. Kinds:

    again     a second attempt after the attempt's critique: what was good is done again, what was bad is mended
    retry     a second attempt without a critique: it tells nothing new, so the agent acts as at first, hurried or careful
    trace     what happened, in the words of the attempt's label
    critique  what was good and bad about it, likewise

First attempts are careful, hurried or faulty; labels come from replaying them (`reagent.lab.labels`). A pretrained model can do
all this from instructions. The lab's policies know nothing they were not shown: asked for such texts only by the auxiliary loss of
mode `u`, they write them into their turns; shown only attempts that failed, they spoil those that were right.
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
"""How often each is drawn, in ten."""
CAREFUL, HURRIED = 0.4, 0.3
"""Shares of first attempts; the others are faulty. Careful ones are right, some after a slip that they mend."""
IMPERFECT = 0.3
"""Share of careful attempts in which something goes wrong on the way."""


def reflections(n: int, seed: int, *, hops: Sequence[int], hurried: float) -> Iterator[Demonstration]:
    """`n` reflections on worlds of the demonstrations' split. Deterministic. Not to be called from a running event loop.

    Args:
        hops: of the questions, dealt out in turn.
        hurried: share of retries whose agent takes the first result for the answer.
    """
    with asyncio.Runner() as runner:
        for task in SearchEnv.make_tasks(n, seed, hops=hops, split="demonstrations"):
            rng = random.Random(derive_seed("reflection", task.id))
            kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
            yield runner.run(_reflection(task, kind, rng, hurried))


async def _reflection(task: Task, kind: ReflectKind, rng: random.Random, hurried: float) -> Demonstration:
    plan, slips = SearchEnv.plan(task), rng.random() < IMPERFECT
    env = environment_for(SearchEnv, "hermes", slips, plan.length, {})
    prompt = env.reset(task)
    first = await played(env, _first(env, plan, rng, slips))
    said = _label(task, [*prompt, *first.messages])
    if kind == "trace" or kind == "critique":
        asked = {"role": "user", "content": REQUESTS[kind]}
        text = {"role": "assistant", "content": said.trace if kind == "trace" else said.critique}
        messages = plain([*prompt, *first.shown, asked, text])
        return Demonstration(task, kind, messages, [False] * (len(messages) - 1) + [True])
    again = kind == "again"
    prompt = second_attempt(prompt, first.messages, said.critique if again else None)
    env.reset(task)
    length = plan.length if again or rng.random() >= hurried else 1
    second = await played(env, script(env, plan, "tool_call", rng, False, False, length))
    return Demonstration(task, kind, plain([*prompt, *second.shown]), [False] * len(prompt) + second.train_on)


def _first(env: ToolEnv, plan: ScriptedPlan, rng: random.Random, slips: bool) -> list[ScriptedTurn]:
    """The turns of a first attempt."""
    drawn = rng.random()
    if drawn >= CAREFUL + HURRIED:
        return mistaken(env, plan, rng)
    return script(env, plan, "tool_call", rng, slips, False, plan.length if drawn < CAREFUL else 1)


def _label(task: Task, messages: list[dict[str, Any]]) -> Annotation:
    """What a judge should say of the attempt."""
    world = world_of(task.seed)
    run = Trajectory.model_validate({"id": task.id, "task": task.question, "messages": messages})
    return label(run, world, question_of(world, task.meta["hops"]))
