"""Rollouts are token-exact: what was sampled is what is trained on, whatever the template, the batch and the cache."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rollout_models import Echo, Stateless, make_model, make_tokenizer, says, tasks
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from reagent.env.env import StepResult, ToolEnv
from reagent.env.task import Task
from reagent.env.tool import tool
from reagent.rollout.active_episode import ActiveEpisode
from reagent.rollout.attempts import Attempt
from reagent.rollout.episode import Episode, Turn, jsonable, read_episodes, write_episodes
from reagent.rollout.rollout import plan, rollout
from reagent.train.config import RolloutConfig
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.base import Completion, SamplingParams, StopReason
from rrm.engines.hf.decoder import Decoder
from rrm.engines.hf.engine import HFEngine
from rrm.errors import EngineError, ReadError, RRMError

TEMPLATE_NAMES = ["lab", "chatml", "thinking", "llama3"]
PARAMS = SamplingParams(max_new_tokens=12, temperature=1.2, seed=5)
PARAMS64 = SamplingParams(max_new_tokens=64)


def same(a: list[Episode], b: list[Episode]) -> None:
    assert [e.group_id for e in a] == [e.group_id for e in b]
    for x, y in zip(a, b, strict=True):
        assert x.prompt_ids == y.prompt_ids
        assert [t.output_ids for t in x.turns] == [t.output_ids for t in y.turns]
        assert [t.observation_ids for t in x.turns] == [t.observation_ids for t in y.turns]
        assert (x.status, x.reward, x.trajectory.messages) == (y.status, y.reward, y.trajectory.messages)
        for s, t in zip(x.turns, y.turns, strict=True):
            assert s.output_logprobs == pytest.approx(t.output_logprobs, abs=1e-4)


# ---- exactness ----


@pytest.mark.parametrize("name", TEMPLATE_NAMES)
def test_the_mask_is_what_was_sampled_and_its_logprobs_are_a_full_forwards(name: str, monkeypatch) -> None:
    tokenizer = make_tokenizer(name)
    model = make_model(tokenizer)
    prompts: dict[str, list[list[int]]] = {}
    returned: dict[str, list[Completion]] = {}
    submit, step = Decoder.submit, Decoder.step

    def recorded_submit(self: Decoder, key: str, ids: Any, max_new_tokens: int | None = None) -> None:
        prompts.setdefault(key, []).append(list(ids))
        submit(self, key, ids, max_new_tokens)

    def recorded_step(self: Decoder) -> list[tuple[str, Completion]]:
        done = step(self)
        for key, completion in done:
            returned.setdefault(key, []).append(completion)
        return done

    monkeypatch.setattr(Decoder, "submit", recorded_submit)
    monkeypatch.setattr(Decoder, "step", recorded_step)
    episodes = rollout(HFEngine(model, tokenizer), tokenizer, Echo, tasks(5), params=PARAMS, group_size=2)
    reasons = {turn.stop_reason for e in episodes for turn in e.turns}
    assert reasons == {"eos", "length"}  # both ways to end a turn occur
    for attempt, e in zip(plan(tasks(5), 2), episodes, strict=True):
        flat, sampled = e.flatten(), np.zeros(0, dtype=bool)
        key = attempt.key
        for prompt, completion in zip(prompts[key], returned[key], strict=True):
            sampled = np.concatenate(
                [sampled, np.zeros(len(prompt) - len(sampled), bool), np.ones(len(completion.ids), bool)]
            )
            assert flat.input_ids[: len(prompt)].tolist() == prompt
            assert flat.input_ids[len(prompt) : len(sampled)].tolist() == completion.ids
        assert (flat.action_mask == sampled).all()
        with torch.no_grad():
            logits = model(torch.tensor(flat.input_ids)[None]).logits[0] / PARAMS.temperature
        expected = logits.log_softmax(-1)[:-1].gather(1, torch.tensor(flat.input_ids[1:])[:, None])[:, 0].numpy()
        assert np.abs(flat.rollout_logprobs[1:] - expected)[sampled[1:]].max() < 1e-5
        assert not flat.rollout_logprobs[~sampled].any()


def test_a_turn_says_which_weights_sampled_it_and_where(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = make_tokenizer("lab")
    engine = says(tokenizer, "first", "Answer: x")
    plain = engine.generate

    def elsewhere(*rows: Any, **options: Any) -> list[Completion]:
        return [replace(completion, version=3, server="http://a:8000") for completion in plain(*rows, **options)]

    monkeypatch.setattr(engine, "generate", elsewhere)
    (episode,) = rollout(engine, tokenizer, Echo, [Task("t", "Who?")], params=PARAMS64, max_turns=2)
    (again,) = [Episode.from_json(episode.to_json())]
    assert [(turn.version, turn.server) for turn in again.turns] == [(3, "http://a:8000")] * 2


class Asker(Echo):
    """The user answers instead of a tool."""

    role = "user"


@pytest.mark.parametrize("name", TEMPLATE_NAMES)
@pytest.mark.parametrize("ended", [True, False], ids=["eos", "no eos"])
@pytest.mark.parametrize("env", [Echo, Asker])
def test_each_turns_prompt_is_the_full_rendering(name: str, ended: bool, env: type[Echo]) -> None:
    """With texts that encode back to the same ids, tokens added turn by turn equal the template over all messages."""
    tokenizer = make_tokenizer(name)
    engine = says(tokenizer, "<think>hm</think>first", "second thoughts", "Answer: x", ended=ended)
    e = rollout(engine, tokenizer, env, [Task("t", "Who?")], params=PARAMS64, max_turns=3)[0]
    messages = [m.model_dump(exclude_none=True) for m in e.trajectory.messages]
    prompts = [row for row, _, _ in engine.calls]
    assert len(prompts) == 3
    for k, prompt in enumerate(prompts):
        text = tokenizer.apply_chat_template(
            messages[: 2 + 2 * k], tools=Echo.tools, add_generation_prompt=True, tokenize=False
        )
        full = tokenizer.encode(str(text), add_special_tokens=False)
        if name == "thinking" and env is Asker and k:
            assert "hm" not in str(text) and "hm" in tokenizer.decode(prompt)  # it rewrites; the tokens stay
        else:
            assert prompt == full
        before = prompts[k - 1] + e.turns[k - 1].output_ids if k else []
        assert prompt[: len(before)] == before
    eos = tokenizer.eos_token_id
    assert [turn.output_ids[-1] == eos for turn in e.turns] == [ended] * 3
    assert [turn.observation_ids[0] == eos for turn in e.turns[:2]] == [not ended] * 2
    flat = e.flatten()
    assert flat.action_mask.sum() == sum(len(t.output_ids) for t in e.turns)


def test_a_new_prompt_that_departs_from_what_is_held_is_an_error() -> None:
    row = ActiveEpisode(Attempt(Task("t", "q"), "t"), prompt_ids=[1, 2, 3], engine_ids=[1, 9])
    with pytest.raises(RRMError, match=r"t/initial/0, turn 0: token 1 of 3 is not what the engine holds"):
        row.tokens()


# ---- one computation each ----


@pytest.mark.parametrize("budget", [32768, 700], ids=["all at once", "few slots"])
def test_every_token_is_run_once(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, budget: int) -> None:
    """Prefilled: the common prefix, each task's own prompt once a group, and what a turn adds. Nothing else."""
    engine = HFEngine(model, tokenizer, max_batch_tokens=budget)
    episodes = rollout(engine, tokenizer, Echo, tasks(4), params=PARAMS, group_size=4)
    prompts = {tuple(e.prompt_ids) for e in episodes}
    shared = next(i for i, column in enumerate(zip(*prompts, strict=False)) if len(set(column)) > 1)
    # a turn's last sampled token was never run: it comes first in the next turn's prefill
    turns = sum(1 + len(turn.observation_ids) for e in episodes for turn in e.turns[:-1])
    once = shared + sum(len(p) - shared for p in prompts) + turns
    again = engine.counters.prefilled - once
    if budget == 32768:
        assert again == 0
    else:  # a waiting attempt at a prompt that was run computes its last token anew, to get the state there
        assert 0 < again <= len(episodes) - len(prompts)
    assert engine.counters.decoded == sum(len(turn.output_ids) - 1 for e in episodes for turn in e.turns)
    assert engine.counters.prefill_forwards < len(episodes) * 3


def test_reusing_the_cache_changes_nothing(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    engine = HFEngine(model, tokenizer)
    cached = rollout(engine, tokenizer, Echo, tasks(5), params=PARAMS, group_size=2)
    fresh = HFEngine(model, tokenizer)
    anew = rollout(Stateless(fresh), tokenizer, Echo, tasks(5), params=PARAMS, group_size=2)  # type: ignore[arg-type]
    same(cached, anew)
    assert engine.counters.prefilled < fresh.counters.prefilled / 2
    assert {len(e.turns) for e in cached} == {1, 2, 3}


def test_an_episode_does_not_depend_on_its_batch(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    all_tasks = tasks(5)
    together = rollout(HFEngine(model, tokenizer), tokenizer, Echo, all_tasks, params=PARAMS, group_size=2)
    again = rollout(HFEngine(model, tokenizer), tokenizer, Echo, all_tasks, params=PARAMS, group_size=2)
    same(together, again)
    few = HFEngine(model, tokenizer, max_batch_tokens=300, prefill_tokens=64)
    same(together, rollout(few, tokenizer, Echo, all_tasks, params=PARAMS, group_size=2))
    alone = [rollout(few, tokenizer, Echo, [task], params=PARAMS, group_size=2) for task in reversed(all_tasks)]
    same(together, [e for pair in reversed(alone) for e in pair])
    assert together[0].turns[0].output_ids != together[1].turns[0].output_ids  # attempts differ
    other = rollout(few, tokenizer, Echo, all_tasks, params=PARAMS, group_size=2, seed=6)
    assert [e.turns[0].output_ids for e in other] != [e.turns[0].output_ids for e in together]


def test_tools_run_while_other_rows_are_decoded(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    """The first tool of all answers only when the model has taken ten more steps, which only other rows can need."""
    engine = HFEngine(model, tokenizer)
    began: list[int] = []
    went_on: list[int] = []

    class Waits(Echo):
        async def step(self, text: str, stop_reason: StopReason = "eos") -> StepResult:
            began.append(engine.counters.decode_forwards)
            if len(began) == 1:
                deadline = time.monotonic() + 60  # only a rollout that waits for its tools gets there
                while engine.counters.decode_forwards < began[0] + 10 and time.monotonic() < deadline:
                    await asyncio.sleep(0)
                went_on.append(engine.counters.decode_forwards - began[0])
            return await super().step(text, stop_reason)

    rollout(engine, tokenizer, Waits, tasks(6, lambda i: 2), params=PARAMS, group_size=2)
    assert len(began) == 24 and went_on[0] >= 10


# ---- limits ----


class Long(Echo):
    """Says a thousand words: `a0 a1 … a999`."""

    def observations(self, text: str) -> list[dict[str, Any]]:
        short = {"role": "tool", "content": "short", "name": "search", "tool_call_id": "c0"}
        return [short, {**short, "content": " ".join(f"a{i}" for i in range(1000))}]


def test_long_observations_lose_their_middle(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    e = rollout(
        HFEngine(model, tokenizer), tokenizer, Long, tasks(1, lambda i: 2), params=PARAMS, max_observation_tokens=40
    )[0]
    assert e.status == "finished" and len(e.turns) == 2
    text = tokenizer.decode(e.turns[0].observation_ids)
    assert "short" in text and "a0 a1" in text and "a999" in text and " … " in text and "a500" not in text
    assert 40 <= len(e.turns[0].observation_ids) <= 40 + 25
    full = len(tokenizer.encode(" ".join(f"a{i}" for i in range(1000)), add_special_tokens=False))
    assert full - 45 < e.turns[0].info["truncated_tokens"] < full
    assert e.trajectory.steps[0].observations[1].text() in text  # the judge reads what the policy read
    # what the episode has room for counts too
    length = len(e.prompt_ids) + len(e.turns[0].output_ids)
    tight = rollout(
        HFEngine(model, tokenizer), tokenizer, Long, tasks(1, lambda i: 2), params=PARAMS, max_episode_tokens=length + 40,
        max_observation_tokens=500,
    )[0]  # fmt: skip
    assert tight.turns[0].output_ids == e.turns[0].output_ids
    flat = tight.flatten()
    assert len(tight.turns) == 2 and len(flat.input_ids) <= length + 40


class Answers(ToolEnv):
    """One tool, which counts its calls."""

    calls = 0

    @tool
    def search(self, query: str) -> str:
        """Search.

        Args:
            query: What for.
        """
        type(self).calls += 1
        return "found " + query


CALL = '<tool_call>{"name": "search", "arguments": {"query": "who"}}</tool_call>'


def test_the_budget_is_checked_before_a_tool_runs(tokenizer: PreTrainedTokenizerFast) -> None:
    """No room for a result: the call is not made. An answer is graded all the same."""
    Answers.calls = 0
    question = [Task("t", "Who?", answer="x")]
    free = rollout(says(tokenizer, CALL, "Answer: x"), tokenizer, Answers, question, params=PARAMS64)[0]
    assert (free.status, free.success, free.reward, Answers.calls) == ("finished", True, 1.0, 1)
    full = len(free.prompt_ids) + len(free.turns[0].output_ids) + 10
    e = rollout(
        says(tokenizer, CALL), tokenizer, Answers, question, params=PARAMS64, max_episode_tokens=full
    )[0]  # fmt: skip
    assert (e.status, e.success, e.outcome_reward, Answers.calls) == ("token_limit", False, -0.1, 1)
    full = len(free.prompt_ids) + len(tokenizer.encode("Answer: x")) + 1
    engine = says(tokenizer, "Answer: x")
    e = rollout(engine, tokenizer, Answers, question, params=PARAMS64, max_episode_tokens=full)[0]
    assert (e.status, e.success, e.outcome_reward) == ("finished", True, 1.0)


def test_limits_give_a_typed_status_and_a_known_outcome(model, tokenizer) -> None:
    """A policy that never stops: its turns end at their length, its episode at a limit. That is no unknown outcome."""
    endless = make_model(tokenizer, eos_bias=-1e9)
    turns = rollout(HFEngine(endless, tokenizer), tokenizer, lambda: Echo(99), [Task("t", "?")], params=PARAMS)[0]
    assert (turns.status, len(turns.turns), turns.outcome_reward, turns.success) == ("turn_limit", 8, 0.0, False)
    assert {t.stop_reason for t in turns.turns} == {"length"} and turns.reward == pytest.approx(0.8)
    assert turns.trajectory.outcome == 0.0
    e = rollout(
        HFEngine(endless, tokenizer), tokenizer, lambda: Echo(99), [Task("t", "?")], params=PARAMS,
        max_episode_tokens=len(turns.prompt_ids) + 60,
    )[0]  # fmt: skip
    assert (e.status, e.outcome_reward, e.error) == ("token_limit", 0.0, None)
    assert 1 < len(e.turns) < 4 and len(e.flatten().input_ids) <= len(turns.prompt_ids) + 60
    none = rollout(HFEngine(model, tokenizer), tokenizer, Echo, tasks(2), params=PARAMS, max_episode_tokens=20)
    assert [(e.status, e.turns, e.reward, e.success) for e in none] == [("token_limit", [], None, None)] * 2
    assert "leave no room in 20" in str(none[0].error)


def test_the_environments_stop_texts_end_a_turn(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    class Stops(Echo):
        stop = ("e", "a")

    endless = make_model(tokenizer, eos_bias=-1e9)
    e = rollout(
        HFEngine(endless, tokenizer), tokenizer, Stops, tasks(1, lambda i: 3),
        params=SamplingParams(max_new_tokens=200, temperature=1.0),
    )[0]  # fmt: skip
    assert [t.stop_reason for t in e.turns] == ["stop"] * 3
    eos = tokenizer.eos_token_id
    assert all(t.observation_ids[0] == eos for t in e.turns[:2])  # the end of turn is there, and not sampled


# ---- prompts, groups, trajectories ----


def test_tools_enter_through_the_template_unless_the_environment_describes_them(tokenizer) -> None:
    e = rollout(says(tokenizer, "Answer: x"), tokenizer, Echo, [Task("t", "?")], params=PARAMS64)[0]
    assert '"name": "search"' in tokenizer.decode(e.prompt_ids) and e.trajectory.tools == Echo.tools
    e = rollout(
        says(tokenizer, "Answer: x"), tokenizer, lambda: Answers(tool_prompt="brief"), [Task("t", "?", "x")],
        params=PARAMS64,
    )[0]  # fmt: skip
    assert '"type": "function"' not in tokenizer.decode(e.prompt_ids)
    assert [t["function"]["name"] for t in e.trajectory.tools or []] == ["search"]


def test_second_attempts_begin_as_the_hook_says(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    first = rollout(HFEngine(model, tokenizer), tokenizer, Echo, tasks(2), params=PARAMS, group_size=2)
    attempts = [Attempt(e.task, e.group_id, e.attempt, "refined") for e in first[1:]]

    def hook(attempt: Attempt, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            *messages[:-1],
            {"role": "user", "content": f"Again <|im_end|>, {attempt.key}: {attempt.task.question}"},
        ]

    second = rollout(HFEngine(model, tokenizer), tokenizer, Echo, attempts, params=PARAMS, prompt_messages=hook)
    assert [(e.group_id, e.attempt, e.stage) for e in second] == [(e.group_id, e.attempt, "refined") for e in first[1:]]
    assert [e.key for e in first] == [a.key for a in plan(tasks(2), 2)]
    assert [e.key for e in second] == [a.key for a in attempts]
    assert "Again < |im_end|>, t0/refined/1: Who" in tokenizer.decode(second[0].prompt_ids)
    assert second[0].turns[0].output_ids != first[1].turns[0].output_ids
    assert len({e.trajectory.id for e in first + second}) == 7
    with pytest.raises(ValueError, match="distinct"):
        rollout(HFEngine(model, tokenizer), tokenizer, Echo, [attempts[0]] * 2, params=PARAMS)


def test_a_task_that_comes_twice_makes_two_groups() -> None:
    task = Task("a", "?")
    assert [x.key for x in plan([task, task], 2)] == [
        "a/initial/0", "a/initial/1", "a#2/initial/0", "a#2/initial/1",
    ]  # fmt: skip


def test_the_trajectory_is_canonical(tokenizer: PreTrainedTokenizerFast) -> None:
    broken = '<tool_call>{"name": "search", "arg'
    task = Task("t", "Who?", answer="x", question_id="q")
    engine = says(tokenizer, CALL, broken, '<tool_call>{"name": "nope", "arguments": {}}</tool_call>', "Answer: y")
    e = rollout(engine, tokenizer, Answers, [task], params=PARAMS64)[0]
    steps = e.trajectory.steps
    assert (e.status, e.success, e.answer, e.trajectory.outcome) == ("finished", False, "y", 0.0)
    assert (e.trajectory.task, e.trajectory.question_id) == ("Who?", "q")
    call = (steps[0].message.tool_calls or [])[0]
    assert (call.name, call.arguments) == ("search", {"query": "who"})
    result = steps[0].observations[0]
    assert result.text() == "found who" and result.tool_call_id == call.id
    assert isinstance(result.timestamp, str) and result.duration_s is not None
    assert (steps[1].message.tool_calls or [])[0].arguments.startswith('{"name": "search"')  # type: ignore[union-attr]
    assert "there is no tool 'nope'" in steps[2].observations[0].text()
    kinds = [[error["kind"] for error in turn.info.get("tool_errors", [])] for turn in e.turns]
    assert kinds == [[], ["malformed_call"], ["unknown_tool"], []]
    assert [turn.reward for turn in e.turns] == [0.0, -0.1, -0.1, 0.0]


# ---- what must be left behind ----


def test_keys_are_released_and_environments_closed_even_when_the_engine_fails(model, tokenizer, monkeypatch) -> None:
    engine, envs = HFEngine(model, tokenizer), []

    def factory() -> Echo:
        envs.append(Echo())
        return envs[-1]

    rollout(engine, tokenizer, factory, tasks(4), params=PARAMS)
    assert not engine._kept and len(envs) == 4 and all(env.closed for env in envs)
    forward, calls = engine.forward, []

    def fails(*args: Any) -> torch.Tensor:
        calls.append(args)
        if len(calls) > 9:
            raise EngineError("out of order")
        return forward(*args)

    monkeypatch.setattr(engine, "forward", fails)
    with pytest.raises(EngineError, match="out of order"):
        rollout(engine, tokenizer, factory, tasks(4, lambda i: 5), params=PARAMS)
    assert not engine._kept and len(envs) == 8 and all(env.closed for env in envs)


def test_the_cache_of_a_finished_episode_is_released_at_once(model, tokenizer) -> None:
    engine, left, over = HFEngine(model, tokenizer), [], set()

    def ended(e: Episode) -> None:
        over.add(e.key)
        left.append(len(over & engine._kept.keys()))

    rollout(engine, tokenizer, Echo, tasks(6), params=PARAMS, group_size=2, on_end=ended)
    assert len(over) == 12 and left == [0] * 12


def test_a_long_episode_pays_on_its_last_turn_graded_or_not(model, tokenizer) -> None:
    from reagent.env.rewards import OverlongPenalty

    overlong, played = OverlongPenalty(max_tokens=12, buffer_tokens=10), []
    for limit in (None, overlong):
        ended: list[Episode] = []
        how: dict[str, Any] = {"params": PARAMS, "overlong": limit, "on_end": ended.append}
        played.append(rollout(HFEngine(model, tokenizer), tokenizer, Echo, tasks(4), **how))
        assert {e.key: e.turn_rewards for e in ended} == {e.key: e.turn_rewards for e in played[-1]}
    for plain, paid in zip(*played, strict=True):
        tokens = sum(len(turn.output_ids) for turn in paid.turns)
        *before, last = [turn.reward for turn in plain.turns]
        assert [turn.reward for turn in paid.turns] == [*before, last - min(max(tokens - 2, 0) / 10, 1)]
        assert paid.outcome_reward == plain.outcome_reward and paid.success == plain.success


def test_template_options_reach_the_prompt() -> None:
    tokenizer = make_tokenizer("thinking")
    tokenizer.chat_template += "{% if add_generation_prompt and enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    config = RolloutConfig(template_options={"enable_thinking": False}, max_turns=1)
    prompts = {}
    for name, limits in (("on", RolloutConfig(max_turns=1).limits), ("off", config.limits)):
        e = rollout(says(tokenizer, "Answer: x"), tokenizer, Echo, [Task("t", "?")], params=PARAMS64, **limits)[0]
        prompts[name] = tokenizer.decode(e.prompt_ids)
    assert prompts["off"] == prompts["on"] + "<think></think>"


def episode(outcome: float | None = 1.0) -> Episode:
    turns = [
        Turn([10, 11], [-0.5, -0.25], [12, 13, 14], 0.5, "eos", {"tool_calls": 1}),
        Turn([15, 2, 2], [-1.0, -2.0, -3.0], [], -0.125, "length", {"answer": "é\ud800", "grade": 1.0}),
    ]
    messages = [Message(role="user", content="?"), Message(role="assistant", content="x\u2028y")]
    return Episode(
        task=Task("t", "?", "a", 7, "q", {"hops": 2}), prompt_ids=[1, 2], turns=turns, outcome_reward=outcome,
        status="finished", error=None, success=True, group_id="t", stage="refined",
        trajectory=Trajectory(id="t/0", messages=messages, outcome=1.0), attempt=3,
    )  # fmt: skip


def test_the_arrays_by_hand() -> None:
    flat = episode().flatten()
    assert flat.input_ids.tolist() == [1, 2, 10, 11, 12, 13, 14, 15, 2, 2]
    assert flat.action_mask.tolist() == [False] * 2 + [True] * 2 + [False] * 3 + [True] * 3  # 2 in the prompt is none
    assert flat.turn_index.tolist() == [-1, -1, 0, 0, 0, 0, 0, 1, 1, 1]
    assert flat.token_rewards.tolist() == [0, 0, 0, 0.5, 0, 0, 0, 0, 0, 0.875]
    assert flat.rollout_logprobs.tolist() == [0, 0, -0.5, -0.25, 0, 0, 0, -1, -2, -3]
    dtypes = [a.dtype for a in vars(flat).values()]
    assert dtypes == [np.int64, np.bool_, np.int64, np.float32, np.float32]


def test_rewards_and_the_unknown_outcome() -> None:
    assert episode().reward == 1.375 and episode(0.0).reward == 0.375
    unknown = episode(None)
    assert unknown.reward is None  # never 0
    assert unknown.flatten().token_rewards.tolist()[-1] == -0.125
    assert episode().answer == "é\ud800"


def test_a_turn_needs_a_logprob_for_each_id() -> None:
    for ids, logprobs in (([], []), ([1], []), ([1], [0.0, 0.0])):
        with pytest.raises(ValueError, match="a turn needs sampled ids"):
            Turn(ids, logprobs, [])


def test_the_round_trip_loses_nothing(tmp_path: Path) -> None:
    episodes = [episode(), episode(None)]
    path = tmp_path / "episodes.jsonl"
    assert write_episodes(path, episodes) == 2
    assert len(path.read_text("ascii").splitlines()) == 2  # U+2028 and lone surrogates are escaped
    assert list(read_episodes(path)) == episodes


@pytest.mark.parametrize("line", ["no json", "[]", "{}", '{"task": {}, "turns": [], "trajectory": {}}'])
def test_a_line_that_is_no_episode_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "e.jsonl"
    path.write_text(episode().to_json() + "\n" + line + "\n")
    with pytest.raises(ReadError, match=r"e\.jsonl:2: not an episode"):
        list(read_episodes(path))


def test_numbers_without_a_word_in_json_are_refused_or_spelled() -> None:
    bad = episode()
    bad.turns[0].reward = float("nan")
    with pytest.raises(ValueError, match="JSON"):
        bad.to_json()
    odd = {1: (np.float32(0.5), {2}), "n": float("inf"), "o": object, "b": np.bool_(True)}
    assert jsonable(odd) == {"1": [0.5, [2]], "n": "inf", "o": "<class 'object'>", "b": True}
