"""Rollouts: a policy plays many episodes at once, and every sampled token is kept (DESIGN §3, §5).

    episodes = rollout(engine, tokenizer, SearchEnv, tasks, params=SamplingParams(temperature=1.0), group_size=8)

The engine's session takes a decoding step; turns that end with it go to their environments, which run in an event loop of their own; their
answers join the session as the next turn of the same row. So tools overlap with generation, a finished row leaves at once, and a turn
prefills only its observation. An episode's samples depend on (seed, its key, its length) alone, never on the batch."""

from __future__ import annotations

import json
import logging
import math
import traceback
from bisect import bisect_left
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from reagent.env.env import EnvFactory, Environment, StepResult, takes_stop_reason
from reagent.env.guarded import HALTED, GuardDecision, GuardedEnv
from reagent.env.rewards import OverlongPenalty
from reagent.env.task import Task
from reagent.errors import GradeFailed
from reagent.rollout.active_episode import ActiveEpisode
from reagent.rollout.attempts import Attempt, PromptHook, plan
from reagent.rollout.envloop import EnvLoop
from reagent.rollout.episode import Episode, Stage, Turn, jsonable
from reagent.rollout.observations import MIN_OBSERVATION, fit
from reagent.rollout.templates import TurnTemplate
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.base import Completion, SamplingParams, Session, StopReason, TokenEngine
from rrm.engines.sessions import open_session

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EpisodeLimits:
    """Limits that end an episode or cut it."""

    max_turns: int = 8
    max_episode_tokens: int = 2048  # prompt, outputs and observations together; checked before a tool runs
    max_observation_tokens: int = 512  # of one turn's observations; longer ones lose their middle
    env_timeout_s: float = 300.0  # for a reset or a step; tools and guards have time-outs of their own
    overlong: OverlongPenalty | None = None


def rollout(
    engine: TokenEngine,
    tokenizer: PreTrainedTokenizerBase,
    env_factory: EnvFactory,
    tasks: Sequence[Task] | Sequence[Attempt],
    *,
    params: SamplingParams,
    group_size: int = 1,
    max_turns: int = 8,
    max_episode_tokens: int = 2048,
    max_observation_tokens: int = 512,
    env_timeout_s: float = 300.0,
    overlong: OverlongPenalty | None = None,
    seed: int | None = None,
    stage: Stage = "initial",
    prompt_messages: PromptHook | None = None,
    on_end: Callable[[Episode], None] | None = None,
    template_options: dict[str, Any] | None = None,
) -> list[Episode]:
    """Play `group_size` episodes of each task, and return them in order.

    Args:
        engine: the policy. With sessions (`hf`) turns are decoded continuously, else batch by batch.
        env_factory: makes a fresh environment for each episode.
        tasks: tasks, or the attempts themselves (for second attempts at some of them).
        params: sampling of one turn; the environments' own stop texts are added.
        max_turns, max_episode_tokens, max_observation_tokens, env_timeout_s, overlong: see `EpisodeLimits`.
        seed: instead of `params.seed`.
        prompt_messages: see `PromptHook`.
        on_end: called with an episode when its last turn is done, while others are still played.
        template_options: further arguments of the chat template.

    Returns:
        Episodes. What an environment raises ends its own episode (`env_error`), nobody else's.

    Raises:
        RRMError: the tokenizer's chat template cannot be extended turn by turn.
        EngineError: the engine failed; all environments are closed and all keys released then, too.
    """
    own_attempts = [t for t in tasks if isinstance(t, Attempt)]
    attempts = own_attempts or plan([t for t in tasks if isinstance(t, Task)], group_size, stage)
    if len({a.key for a in attempts}) != len(attempts):
        raise ValueError("attempts need distinct (group_id, stage, number)")
    limits = EpisodeLimits(max_turns, max_episode_tokens, max_observation_tokens, env_timeout_s, overlong)
    params = replace(params, seed=params.seed if seed is None else seed)
    player = _Player(engine, tokenizer, env_factory, params, limits, template_options or {})
    return player.play(attempts, prompt_messages or (lambda _, messages: messages), on_end)


@dataclass(frozen=True)
class _Opening:
    """An environment's first messages and settings."""

    messages: Any
    tools: list[dict[str, Any]]
    template_tools: list[dict[str, Any]] | None  # for the chat template; None where the messages describe them
    stop: tuple[str, ...]  # texts that end a turn
    graded: bool


class _Stopped:
    """A step that was not taken: no room for an observation, or a cut turn."""


@dataclass
class _Player:
    engine: TokenEngine
    tokenizer: PreTrainedTokenizerBase
    env_factory: EnvFactory
    params: SamplingParams
    limits: EpisodeLimits
    options: dict[str, Any]
    _templates: dict[str, TurnTemplate] = field(default_factory=dict)

    @property
    def budget(self) -> int:
        most = self.limits.max_episode_tokens
        return min(most, getattr(self.engine, "max_positions", None) or most)

    def play(
        self, attempts: Sequence[Attempt], prompt_messages: PromptHook, on_end: Callable[[Episode], None] | None
    ) -> list[Episode]:
        rows = {attempt.key: ActiveEpisode(attempt) for attempt in attempts}
        with EnvLoop(self.limits.env_timeout_s) as loop:
            try:
                self._begin(rows, loop, prompt_messages)
                with open_session(self.engine, self._with_stop_texts(rows)) as session:
                    for row in rows.values():
                        self._go_on(row, session)
                    while loop.pending or not session.idle:
                        for key, completion in session.step():
                            self._sampled(rows[key], completion, loop)
                        for key, job in loop.ready(wait=session.idle):
                            self._answered(rows[key], job, session, loop)
                            if rows[key].status is not None:
                                self.engine.release([key])  # it has no next turn: the room is for those that have
                                if isinstance(env := rows[key].env, GuardedEnv):
                                    env.leave()
                                if on_end is not None:
                                    on_end(self._episode(rows[key]))
            finally:
                self.engine.release(list(rows))
                for row in rows.values():
                    if row.env is not None:
                        loop.close_later(_close(row.env))
        return [self._episode(row) for row in rows.values()]

    # ---- before the first turn ----

    def _begin(self, rows: dict[str, ActiveEpisode], loop: EnvLoop, prompt_messages: PromptHook) -> None:
        """Reset all environments. All prompts are there before the first is run: equal ones are then run once."""

        def reset(row: ActiveEpisode) -> _Opening:
            env = row.env = self.env_factory()
            if (adopt := getattr(env, "adopt_template", None)) is not None:
                adopt(self.tokenizer.chat_template)
            messages, tools = env.reset(row.attempt.task), [*env.tools]
            stop, is_graded = tuple(getattr(env, "stop", ())), getattr(env, "is_graded", None)
            graded = row.attempt.task.graded and (is_graded is None or bool(is_graded(row.attempt.task)))
            return _Opening(messages, tools, getattr(env, "template_tools", tools), stop, graded)

        for key, row in rows.items():
            loop.start_blocking(key, lambda row=row: reset(row))
        while loop.pending:
            for key, job in loop.ready(wait=True):
                opening = self._result(rows[key], job, "reset")
                if isinstance(opening, _Opening):
                    problem = _messages_problem(opening.messages)
                    if problem:
                        rows[key].fail("env_error", f"reset: {problem}")
                    else:
                        self._prompt(rows[key], opening, prompt_messages)

    def _prompt(self, row: ActiveEpisode, opening: _Opening, prompt_messages: PromptHook) -> None:
        name = json.dumps(opening.template_tools, sort_keys=True, default=str)
        if name not in self._templates:
            eos = getattr(self.engine, "eos_ids", {self.engine.eos_token_id})
            self._templates[name] = TurnTemplate(
                self.tokenizer, opening.template_tools, eos_ids=eos, options=self.options
            )
        template, messages = self._templates[name], opening.messages
        fit_prompt = getattr(row.env, "fit_prompt", None)
        if fit_prompt is not None:  # a whole turn must have room behind it
            room = self.budget - self.params.max_new_tokens
            messages = fit_prompt(messages, lambda tried: len(template.prompt(tried)), room)
        messages = prompt_messages(row.attempt, messages)
        row.template, row.messages, row.tools, row.stop = (template, list(messages), opening.tools, opening.stop)
        row.prompt_messages, row.graded = len(messages), opening.graded
        row.prompt_ids = row.template.prompt(messages)
        if len(row.prompt_ids) >= self.budget:
            row.fail("token_limit", f"the prompt's {len(row.prompt_ids)} tokens leave no room in {self.budget}")

    def _with_stop_texts(self, rows: dict[str, ActiveEpisode]) -> SamplingParams:
        own = [text for row in rows.values() for text in row.stop]
        return replace(self.params, stop=tuple(dict.fromkeys([*self.params.stop, *own])))

    # ---- turn by turn ----

    def _go_on(self, row: ActiveEpisode, session: Session) -> None:
        if row.status is not None:
            return
        ids = row.tokens()
        session.submit(row.attempt.key, ids, min(self.params.max_new_tokens, self.budget - len(ids)))
        row.engine_ids = ids

    def _sampled(self, row: ActiveEpisode, completion: Completion, loop: EnvLoop) -> None:
        assert row.env is not None and row.template is not None
        opened = row.template.opened(
            row.engine_ids
        )  # the parser is to read the turn's thoughts as thoughts, closed or not
        turn = Turn(list(completion.ids), list(completion.logprobs), [], 0.0, completion.stop_reason)
        turn.version, turn.server = completion.version, completion.server
        text = opened + self._text(turn.output_ids[:-1] if turn.stop_reason == "eos" else turn.output_ids)
        made_up_at = getattr(row.env, "made_up_at", None)
        end = None if made_up_at is None else made_up_at(text)
        if end is not None:  # what follows is neither read nor learned
            text = text[:end].rstrip()
            self._shorten(turn, len(text) - len(opened))
        row.engine_ids = row.engine_ids + turn.output_ids
        row.turns.append(turn)
        row.messages.append({"role": "assistant", "content": text})
        own = len(row.template.suffix([], turn.output_ids))
        has_room = len(row.engine_ids) + own + MIN_OBSERVATION < self.budget
        env = row.env.env if isinstance(row.env, GuardedEnv) else row.env  # its guard is asked apart
        loop.start(row.attempt.key, _step(env, text, turn.stop_reason, has_room))

    def _text(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _shorten(self, turn: Turn, length: int) -> None:
        """Keep the tokens of a turn's first characters; the last of them may carry more."""
        ids = turn.output_ids
        n_kept = max(bisect_left(range(len(ids)), length, key=lambda n: len(self._text(ids[:n]))), 1)
        turn.output_ids, turn.output_logprobs = ids[:n_kept], turn.output_logprobs[:n_kept]
        turn.stop_reason, turn.info = "stop", {"invented_results": 1}

    def _answered(self, row: ActiveEpisode, job: Future[Any], session: Session, loop: EnvLoop) -> None:
        """Take in the environment's answer, ask the guard if there is one, and go on if the episode does."""
        if row.at_guard:
            row.at_guard = False
            self._judged(row, job)
        else:
            self._stepped(row, job)
            if row.status is None and isinstance(row.env, GuardedEnv):
                row.at_guard = True
                loop.start_blocking(row.attempt.key, row.env.judge, row.env.timeout_s)
                return
        self._go_on(row, session)

    def _stepped(self, row: ActiveEpisode, job: Future[Any]) -> None:
        error = None if job.cancelled() else job.exception()
        if isinstance(error, GradeFailed):
            row.turns[-1].info |= {"grader_error": str(error)[:500]}
            row.end("finished", float(getattr(row.env, "failure_reward", 0.0)))
            return
        result = self._result(row, job, "step")
        if row.status is not None:
            return
        if isinstance(result, _Stopped):
            row.end_at_limit("token_limit")
            return
        problem = _step_problem(result)
        if problem:
            row.fail("env_error", f"step: {problem}")
            return
        turn = row.turns[-1]
        turn.reward, turn.info = float(result.reward), turn.info | jsonable(result.info)
        row.messages[-1] = dict(result.message)
        if result.terminated or result.truncated or len(row.turns) >= self.limits.max_turns:
            row.messages += [dict(m) for m in result.observations]
            success = result.info.get("success")
            if result.terminated:
                row.end("finished", result.outcome_reward, None if success is None else bool(success))
            elif result.info.get("ended_by") != HALTED:  # a guard's that the environment itself asks
                row.end_at_limit("turn_limit", result.outcome_reward, bool(success))
                if result.observations:
                    row.end_ids, *_ = self._fitted(row, result.observations)
            elif success is None:  # not for what the agent did
                row.fail("halted", str(result.info.get("guard", {}).get("reason")))
            else:
                row.end_at_limit("halted", result.outcome_reward, bool(success))
            return
        self._observe(row, turn, result.observations)

    def _judged(self, row: ActiveEpisode, job: Future[Any]) -> None:
        assert isinstance(row.env, GuardedEnv)
        late = not job.cancelled() and isinstance(job.exception(), TimeoutError)
        decision = row.env.late() if late else self._result(row, job, "guard")
        if not isinstance(decision, GuardDecision):
            return
        turn = row.turns[-1]
        turn.info["guard"] = jsonable(decision.info)
        if not decision.halts:
            return
        turn.info |= decision.over
        turn.observation_ids = []
        if decision.of_agent:
            row.end_at_limit("halted", row.env.halted_reward)
        else:
            row.fail("halted", decision.why)

    def _observe(self, row: ActiveEpisode, turn: Turn, observations: list[dict[str, Any]]) -> None:
        ids, fitted, cut = self._fitted(row, observations)
        if isinstance(row.env, GuardedEnv):
            row.env.observe([row.messages[-1], *fitted])  # what the agent reads, the judge reads
        row.messages += fitted
        turn.info["truncated_tokens"] = cut
        if not ids:
            row.end_at_limit("token_limit")
        else:
            turn.observation_ids = ids

    def _fitted(
        self, row: ActiveEpisode, observations: list[dict[str, Any]]
    ) -> tuple[list[int], list[dict[str, Any]], int]:
        """The template's suffix behind a turn, no ids where there is no room for it; see `fit`."""
        assert row.template is not None
        room = self.budget - len(row.engine_ids) - 1  # one token at least must be left to say
        output_ids = row.turns[-1].output_ids
        ids, fitted, cut = fit(row.template, observations, output_ids, self.limits.max_observation_tokens, room)
        return [] if len(ids) > room else ids, fitted, cut

    def _result(self, row: ActiveEpisode, job: Future[Any], stage: str) -> Any:
        error = RuntimeError("cancelled") if job.cancelled() else job.exception()
        if error is None:
            return job.result()
        logger.warning("%s: the environment failed in %s", row.attempt.key, stage, exc_info=error)
        # format_exception_only survives exceptions whose own __str__ raises
        row.fail("env_error", f"{stage}: {traceback.format_exception_only(error)[-1].strip()}")
        return None

    # ---- after the last turn ----

    def _episode(self, row: ActiveEpisode) -> Episode:
        attempt, task = row.attempt, row.attempt.task
        assert row.status is not None
        row.tokens()
        turns, overlong = row.turns, self.limits.overlong
        if overlong is not None and turns:
            penalty = overlong.reward(sum(len(turn.output_ids) for turn in turns))
            last = turns[-1]
            turns = [*turns[:-1], replace(last, reward=last.reward + penalty, info={**last.info, "overlong": penalty})]
        trajectory = Trajectory(
            id=f"{attempt.key}/{self.params.seed}",
            task=task.question,
            question_id=task.question_id or task.id,
            messages=[Message.model_validate(jsonable(m)) for m in row.messages],
            tools=jsonable(row.tools) or None,
            outcome=None if row.success is None else float(row.success),
            meta={"status": row.status, "stage": attempt.stage, "group_id": attempt.group_id},
        )
        return Episode(
            task=task,
            prompt_ids=row.prompt_ids,
            turns=turns,
            outcome_reward=None if row.outcome is None else float(row.outcome),
            status=row.status,
            error=row.error,
            success=row.success,
            group_id=attempt.group_id,
            stage=attempt.stage,
            trajectory=trajectory,
            attempt=attempt.number,
            prompt_messages=row.prompt_messages,
            ungraded=row.ungraded,
            end_ids=row.end_ids,
        )


async def _step(env: Environment, text: str, stop_reason: StopReason, has_room: bool) -> StepResult | _Stopped:
    """The environment's step. Without room for an observation only an answer is taken.
    A turn cut at its token limit is never an answer: only a `step` that takes `stop_reason` sees it."""
    cut = stop_reason == "length"
    if not has_room:
        is_final = getattr(env, "is_final", None)
        if cut or is_final is None or not is_final(text):
            return _Stopped()
    if takes_stop_reason(env):
        return await env.step(text, stop_reason=stop_reason)
    return _Stopped() if cut else await env.step(text)


async def _close(env: Environment) -> None:
    await env.close()


def _messages_problem(messages: Any) -> str | None:
    if not isinstance(messages, list):
        return f"messages must be a list, got {type(messages).__name__}"
    try:
        for message in messages:
            Message.model_validate(message)
    except ValidationError as error:
        return f"not a chat message: {error.errors()[0]['msg']} ({message!r:.200})"
    return None


def _step_problem(result: Any) -> str | None:
    """The problem of a step's result, or None. A reward that is no number would poison the whole batch."""
    if not isinstance(result, StepResult):
        return f"it must return a StepResult, got {type(result).__name__}"
    outcome = 0.0 if result.outcome_reward is None else result.outcome_reward
    for name, value in (("reward", result.reward), ("outcome_reward", outcome)):
        if not isinstance(value, Real) or not math.isfinite(value):
            return f"{name} must be a finite number, got {value!r:.100}"
    if not isinstance(result.info, dict):
        return f"info must be a dict, got {type(result.info).__name__}"
    return _messages_problem([result.message]) or _messages_problem(result.observations)
