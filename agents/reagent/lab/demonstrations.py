"""Demonstrations for a lab policy's first training: scripted agents in the real environment.

    tool_call   one call a hop, then the answer; some with a failing tool, a wrong or a malformed call and its repair
    naive_rag   one call with the question as it stands, then the answer
    direct      the answer at once

With a critique the prompt holds a failed first attempt and findings on it, and the demonstration is the repair.
"""

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from reagent.env.env import ToolEnv
from reagent.env.parsers import MalformedCall, Parser
from reagent.env.task import Task
from reagent.feedback.second_attempt_prompt import second_attempt
from reagent.lab.plans import Move, ScriptedPlan, fault
from reagent.lab.settings import Kind
from reagent.tasks.environments import find_environment
from rrm.data.annotation import Finding
from rrm.data.feedback import format_findings
from rrm.data.seeds import derive_seed

Mistake = Literal["wrong", "malformed", "stops_early", "gave_up"]
MISTAKES: tuple[Mistake, ...] = get_args(Mistake)
TOOL_DOWN_RATE = 0.15
_RETRIES = 4


@dataclass(frozen=True)
class Demonstration:
    task: Task
    kind: str
    messages: list[dict[str, Any]]
    """`role` and `content` alone: an assistant's content is the very text of its turn."""
    train_on: list[bool]


@dataclass(frozen=True)
class ScriptedTurn:
    text: str
    good: bool = True
    finding: str = ""


@dataclass(frozen=True)
class PlayedTurns:
    shown: list[dict[str, Any]]
    """Messages as the policy sees them; `messages`: as in a trajectory."""
    train_on: list[bool]
    messages: list[dict[str, Any]]


def demonstrations(
    env_name: str,
    n: int,
    seed: int,
    *,
    kind: Kind = "tool_call",
    hops: int | Sequence[int] | None = None,
    parser: str = "hermes",
    imperfect: float = 0.3,
    thoughts: bool = False,
    with_critique: bool = False,
    train_on_mistakes: bool = False,
    hurried: float = 0.0,
    options: Mapping[str, Any] | None = None,
) -> Iterator[Demonstration]:
    """`n` demonstrations on worlds of their own split. Deterministic.

    Not to be called from a running event loop. Raises ValueError: the environment has no plans.

    Args:
        env_name: a lab environment.
        n, seed, hops: of the tasks; default hop counts are the environment's.
        kind: see the module's docstring.
        parser: tool-call format.
        imperfect: share of `tool_call` rows in which something goes wrong and is repaired.
        thoughts: the agent says what it read before each further call.
        with_critique: put a failed first attempt and its critique into the prompt.
        train_on_mistakes: also train on the wrong and malformed calls.
        hurried: share of `tool_call` rows whose agent answers with its first result; not in second attempts.
        options: of the environment.
    """
    build = find_environment(env_name)
    plans = getattr(build, "plan", None)
    make_tasks = getattr(build, "make_tasks", None)
    if plans is None or make_tasks is None:
        raise ValueError(
            f"environment {env_name!r} has no plans to demonstrate; lab environments do: search, calculator"
        )
    lengths = {} if hops is None else {"hops": [hops] if isinstance(hops, int) else list(hops)}
    with asyncio.Runner() as runner:
        for task in make_tasks(n, seed, split="demonstrations", **lengths):
            rng = random.Random(derive_seed("demonstration", task.id, kind, with_critique))
            repaired = kind == "tool_call" and rng.random() < imperfect
            env, plan = environment_for(build, parser, repaired, plans(task).length, options or {}), plans(task)
            length = 1 if kind == "tool_call" and not with_critique and rng.random() < hurried else plan.length
            turns = script(env, plan, kind, rng, repaired, thoughts, length)
            prompt = env.reset(task)
            if with_critique:
                prompt = runner.run(_criticised(env, plan, task, rng))
                env.reset(task)
            run = runner.run(played(env, turns))
            marks = run.train_on
            if train_on_mistakes:
                marks = [message["role"] == "assistant" for message in run.shown]
            yield Demonstration(task, kind, plain([*prompt, *run.shown]), [False] * len(prompt) + marks)


def plain(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"role": m["role"], "content": m["content"]} for m in messages]


def environment_for(build: Any, parser: str, imperfect: bool, length: int, extra: Mapping[str, Any]) -> ToolEnv:
    """An environment to play a script in, with turns for every repair, and a failing tool if imperfect."""
    options: dict[str, Any] = {"parser": parser, "max_turns": _RETRIES * (length + 3), **extra}
    if imperfect and "error_rate" in build.__init__.__kwdefaults__:
        options["error_rate"] = TOOL_DOWN_RATE
    return build(**options)


def script(
    env: ToolEnv,
    plan: ScriptedPlan,
    policy_kind: Kind,
    rng: random.Random,
    imperfect: bool,
    thoughts: bool,
    length: int,
) -> list[ScriptedTurn]:
    """A careful agent's turns up to hop `length`, where it answers; slips where imperfect."""
    parser = env.parser
    if policy_kind == "direct":
        return [ScriptedTurn(parser.render_turn(answer=plan.answer))]
    if policy_kind == "naive_rag":
        return [
            ScriptedTurn(parser.render_turn(calls=[plan.retrieval()])),
            ScriptedTurn(parser.render_turn(answer=plan.answer)),
        ]
    turns: list[ScriptedTurn] = []
    value, thought = plan.start, ""
    slips = imperfect and (rng.random() < 0.7 or not getattr(env, "error_rate", 0.0))
    slip = rng.randrange(length) if slips else None
    for step in range(length):
        move = plan.move(step, value)
        text = parser.render_turn(reasoning=thought, calls=[move.call])
        if step == slip:
            wrong = plan.wrong(step, value, rng)
            broken = parser.render_turn(reasoning=thought, calls=[wrong.call])
            turns.append(ScriptedTurn(broken if rng.random() < 0.5 else _break(parser, text, rng), good=False))
        turns.append(ScriptedTurn(text))
        value, thought = move.value, move.says if thoughts else ""
    return [*turns, ScriptedTurn(parser.render_turn(reasoning=thought, answer=value))]


def _break(parser: Parser, text: str, rng: random.Random) -> str:
    """A malformed turn: cut short, or with a quote lost."""
    while True:
        broken = text.replace('"', "", 1) if rng.random() < 0.5 else text[: rng.randint(len(text) // 3, len(text) - 1)]
        if any(isinstance(call, MalformedCall) for call in parser.parse(broken).calls):
            return broken


async def played(env: ToolEnv, turns: Sequence[ScriptedTurn]) -> PlayedTurns:
    """Play the turns; one the tool failed on is repeated."""
    run = PlayedTurns([], [], [])
    for turn in turns:
        for _ in range(_RETRIES):
            result = await env.step(turn.text)
            run.shown.extend([{"role": "assistant", "content": turn.text}, *result.observations])
            run.train_on.extend([turn.good, *[False] * len(result.observations)])
            run.messages.extend([result.message, *result.observations])
            if not turn.good or "failed" not in result.info["verdicts"]:
                break
    return run


async def _criticised(env: ToolEnv, plan: ScriptedPlan, task: Task, rng: random.Random) -> list[dict[str, Any]]:
    prompt = env.reset(task)
    turns = mistaken(env, plan, rng)
    attempt: list[dict[str, Any]] = []
    for turn in turns:
        result = await env.step(turn.text)
        attempt += [result.message, *result.observations]
    findings = [
        Finding(step=k, verdict="good" if turn.good else "bad", text=turn.finding) for k, turn in enumerate(turns, 1)
    ]
    return second_attempt(prompt, attempt, format_findings(findings))


def mistaken(env: ToolEnv, plan: ScriptedPlan, rng: random.Random) -> list[ScriptedTurn]:
    return failing(env, plan, rng.choice([m for m in MISTAKES if m != "stops_early" or plan.length > 1]), rng)


def failing(env: ToolEnv, plan: ScriptedPlan, mistake: Mistake, rng: random.Random) -> list[ScriptedTurn]:
    """A first attempt with a wrong answer or none. No finding names a value the agent did not have."""

    def said(key: str, **parts: object) -> str:
        return rng.choice(plan.wordings[key]).format(**parts)

    parser, value = env.parser, plan.start
    hop = plan.length - 1 if mistake == "stops_early" else rng.randrange(plan.length)
    turns: list[ScriptedTurn] = []
    for step in range(hop):
        move = plan.move(step, value)
        turns.append(ScriptedTurn(parser.render_turn(calls=[move.call]), finding=said("search")))
        value = move.value
    needed = plan.move(hop, value)
    if mistake == "wrong":
        return turns + _misled(env, plan, hop, needed, rng)
    if mistake == "stops_early":
        return [*turns, ScriptedTurn(parser.render_turn(answer=value), False, said("stops_early", **needed.parts))]
    if mistake == "malformed":
        broken = _break(parser, parser.render_turn(calls=[needed.call]), rng)
        turns.append(ScriptedTurn(broken, False, said("malformed", **needed.parts)))
    return [*turns, ScriptedTurn(parser.render_turn(answer="unknown"), False, said("gave_up", **needed.parts))]


def _misled(env: ToolEnv, plan: ScriptedPlan, hop: int, needed: Move, rng: random.Random) -> list[ScriptedTurn]:
    wrong = needed
    while wrong.value == needed.value:
        wrong = plan.wrong(hop, needed.parts["a"], rng)
    key, parts = fault(needed, wrong)
    calls, value = [wrong.call], wrong.value
    for step in range(hop + 1, plan.length):
        move = plan.move(step, value)
        calls.append(move.call)
        value = move.value
    texts = [env.parser.render_turn(calls=[call]) for call in calls] + [env.parser.render_turn(answer=value)]
    first = rng.choice(plan.wordings[key]).format(**parts)
    follows = [rng.choice(plan.wordings["follows"]).format(k=hop + 1) for _ in texts[1:]]
    return [ScriptedTurn(text, False, finding) for text, finding in zip(texts, [first, *follows], strict=True)]
