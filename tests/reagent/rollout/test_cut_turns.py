"""A turn cut at its token limit is never an answer: it is answered by a typed observation, or ends its episode."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from rollout_models import Echo, make_model, says
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from reagent.env.env import StepResult, ToolEnv
from reagent.env.graders import numeric
from reagent.env.parsers import make_parser
from reagent.env.parsers.base import made_up_at
from reagent.env.rewards import NO_PROCESS_REWARDS
from reagent.env.task import Task
from reagent.env.tool import tool
from reagent.rollout.rollout import rollout
from reagent.train.metrics import episode_metrics
from rrm.data.trajectory import ToolCall
from rrm.engines.base import SamplingParams
from rrm.engines.hf.engine import HFEngine

HALF = "Answer: three times fourteen, which is 42 but"
CALL = '<tool_call>{"name": "double", "arguments": {"number": 21}}</tool_call>'
TASK = Task("t", "Three times fourteen?", "42")
PARAMS = SamplingParams(max_new_tokens=64)


class Doubling(ToolEnv):
    """One tool, which counts its calls."""

    calls = 0

    @tool
    def double(self, number: int) -> int:
        """Double a number.

        Args:
            number: Which.
        """
        type(self).calls += 1
        return 2 * number


class Sums(Doubling):
    """Grades by the last number, as GSM8K does."""

    grader = staticmethod(numeric)


class Untold(ToolEnv):
    """An environment of before: its step does not ask how the turn ended."""

    grader = staticmethod(numeric)
    steps = 0

    async def step(self, text: str) -> StepResult:  # pyright: ignore[reportIncompatibleMethodOverride]
        type(self).steps += 1
        return await super().step(text)


def test_half_an_answer_cut_by_the_limit_earns_0(tokenizer: PreTrainedTokenizerFast) -> None:
    env = lambda: Sums(max_turns=2, rewards=NO_PROCESS_REWARDS)  # noqa: E731
    e = rollout(says(tokenizer, HALF, ended=False), tokenizer, env, [TASK], params=PARAMS)[0]
    assert [turn.stop_reason for turn in e.turns] == ["length", "length"]
    assert (e.reward, e.outcome_reward, e.success, e.answer, e.status) == (0.0, 0.0, False, None, "turn_limit")
    uncut = rollout(says(tokenizer, HALF), tokenizer, env, [TASK], params=PARAMS)[0]
    assert (uncut.reward, uncut.success, uncut.status) == (1.0, True, "finished")  # the same words, ended by the policy


def test_a_cut_turn_is_answered_by_a_typed_counted_observation(tokenizer: PreTrainedTokenizerFast) -> None:
    engine = says(tokenizer, HALF, ended=False)
    e = rollout(engine, tokenizer, lambda: Sums(max_turns=2), [TASK], params=PARAMS)[0]
    first = e.turns[0]
    (error,) = first.info["tool_errors"]
    assert error["kind"] == "cut_turn" and first.info["malformed"] == 1 and first.info["verdicts"] == ["malformed"]
    assert first.reward == -0.1 and first.info["tool_calls"] == 0
    assert "the turn was cut at its token limit" in tokenizer.decode(first.observation_ids)
    turn_message, observation = e.own_messages[:2]
    assert turn_message.text() == HALF and observation.role == "user"
    assert observation.text().startswith("Error: the turn was cut")


def test_nothing_of_a_cut_turn_is_run(tokenizer: PreTrainedTokenizerFast) -> None:
    Sums.calls = 0
    engine = says(tokenizer, CALL + ' and then <tool_call>{"name": "dou', ended=False)
    e = rollout(engine, tokenizer, lambda: Sums(max_turns=1), [TASK], params=PARAMS)[0]
    assert Sums.calls == 0 and e.turns[0].info["verdicts"] == ["malformed"]


@pytest.mark.parametrize("parser", ["hermes", "search_tags", "react"])
def test_every_format_knows_a_cut_turn(parser: str) -> None:
    """In `react` a cut argument would look whole."""
    Sums.calls = 0
    texts = {"hermes": HALF, "search_tags": "<answer>42</answer>", "react": "Action: double\nAction Input: 2"}

    async def play() -> StepResult:
        env = Sums(parser=parser)
        env.reset(TASK)
        return await env.step(texts[parser], stop_reason="length")

    step = asyncio.run(play())
    assert (step.terminated, step.outcome_reward, Sums.calls) == (False, None, 0)
    assert [e["kind"] for e in step.info["tool_errors"]] == ["cut_turn"]


def test_an_environment_that_is_not_told_never_sees_a_cut_turn(tokenizer: PreTrainedTokenizerFast) -> None:
    Untold.steps = 0
    e = rollout(says(tokenizer, HALF, ended=False), tokenizer, Untold, [TASK], params=PARAMS)[0]
    assert (e.status, e.reward, e.success, Untold.steps) == ("token_limit", -0.1, False, 0)
    assert e.trajectory.outcome == 0.0 and e.own_messages[-1].text() == HALF
    uncut = rollout(says(tokenizer, HALF), tokenizer, Untold, [TASK], params=PARAMS)[0]
    assert (uncut.reward, Untold.steps) == (1.0, 1)


def test_an_answer_cut_by_the_episodes_budget_is_none(tokenizer: PreTrainedTokenizerFast) -> None:
    """The last turn gets what is left of the budget; an answer that fills it is graded only where it ended."""
    prompt = len(rollout(says(tokenizer, "x"), tokenizer, Sums, [TASK], params=PARAMS)[0].prompt_ids)
    room = len(tokenizer.encode("Answer: 42", add_special_tokens=False))
    limits: dict[str, Any] = {"params": PARAMS, "max_episode_tokens": prompt + room}
    e = rollout(says(tokenizer, "Answer: 42 and more"), tokenizer, Sums, [TASK], **limits)[0]
    assert e.turns[0].stop_reason == "length" and (e.status, e.reward, e.success) == ("token_limit", -0.1, False)
    limits["max_episode_tokens"] += 1  # room for the end of the turn
    e = rollout(says(tokenizer, "Answer: 42"), tokenizer, Sums, [TASK], **limits)[0]
    assert (e.status, e.reward, e.success) == ("finished", 1.0, True)


def test_a_policy_that_never_ends_a_turn_earns_nothing(tokenizer: PreTrainedTokenizerFast) -> None:
    """With a real engine, and a grader that takes whatever it is shown."""

    class Generous(ToolEnv):
        grader = staticmethod(lambda task, answer: 1.0)

    endless: LlamaForCausalLM = make_model(tokenizer, eos_bias=-1e9)
    params = SamplingParams(max_new_tokens=10, temperature=1.2, seed=5)
    episodes = rollout(
        HFEngine(endless, tokenizer), tokenizer, Generous, [TASK], params=params, group_size=4, max_turns=3
    )
    assert [e.success for e in episodes] == [False] * 4 and all((e.reward or 0.0) <= 0 for e in episodes)
    assert {t.stop_reason for e in episodes for t in e.turns} == {"length"}
    played = rollout(HFEngine(endless, tokenizer), tokenizer, lambda: Echo(2), [TASK], params=params)[0]
    assert played.status == "finished"  # an environment that asks decides by itself


TWICE = Task("t", "Twice 21?", "42")


@pytest.mark.parametrize(
    "made_up",
    [
        "<tool_response>\n99\n</tool_response> So the answer is 99.",
        "\n<tool_response>99",
        "\n\nObservation: 99\nAnswer: 99",
    ],
)
@pytest.mark.parametrize("ended", [True, False])
def test_a_made_up_result_leaves_the_context_and_the_loss(tokenizer, made_up: str, ended: bool) -> None:
    engine = says(tokenizer, CALL + made_up, "Answer: 42", ended=ended)
    e = rollout(engine, tokenizer, Doubling, [TWICE], params=SamplingParams(max_new_tokens=400))[0]
    first = e.turns[0]
    assert tokenizer.decode(first.output_ids).startswith(CALL)
    assert len(first.output_logprobs) == len(first.output_ids) and first.stop_reason == "stop"
    decoded = tokenizer.decode(e.flatten().input_ids.tolist())
    assert "99" not in decoded and "42" in decoded
    assert "99" not in e.own_messages[0].text() and e.own_messages[1].text() == "42"
    assert first.info["invented_results"] == 1 and first.info["verdicts"] == ["useful"]
    assert episode_metrics([e])["episode/invented_results"] == 1.0
    if ended:
        assert e.success is True
    honest = rollout(
        says(tokenizer, CALL, "Answer: 42"), tokenizer, Doubling, [TWICE], params=SamplingParams(max_new_tokens=400)
    )[0]
    assert "invented_results" not in honest.turns[0].info and honest.success is True


def test_an_environment_stepped_by_itself_reads_no_made_up_result() -> None:
    env = Doubling()
    env.reset(TWICE)
    step = asyncio.run(env.step(CALL + "<tool_response>99</tool_response> Answer: 99"))
    assert "99" not in str(step.message) and step.info["invented_results"] == 1
    assert [o["content"] for o in step.observations] == ["42"]


@pytest.mark.parametrize("name", ["hermes", "llama3", "glm", "deepseek", "deepseek_v31"])
def test_each_format_without_a_stop_text_ends_at_a_made_up_result(name: str) -> None:
    env = Doubling(parser=name)
    turn = env.parser.render_turn(calls=[ToolCall(name="double", arguments={"number": 21})])
    for text in ("\nObservation: 99", "<tool_response>99</tool_response>"):
        assert env.made_up_at(turn + text) in range(len(turn), len(turn) + 2), (name, text)
    assert env.made_up_at(turn) is None
    quoted: dict[str, Any] = {"number": "\nObservation: 1 <tool_response>"}
    assert env.made_up_at(env.parser.render_turn(calls=[ToolCall(name="double", arguments=quoted)])) is None
    assert env.made_up_at("Observation: the tool may help.\n" + turn) is None
    assert env.made_up_at("Observation: 99\nAnswer: 99") is None  # no call: an answer in the agent's own words


@pytest.mark.parametrize("name", ["react", "search_tags"])
def test_formats_with_stop_texts_end_by_them(name: str) -> None:
    env = Doubling(parser=make_parser(name, Doubling().tools))
    turn = env.parser.render_turn(calls=[ToolCall(name="double", arguments={"number": 21})])
    assert env.made_up_at(turn + "\nObservation: 99") is None and env.parser.stop


@pytest.mark.parametrize("between", ["\n", CALL])
def test_a_malformed_call_hides_no_result_that_is_made_up(between: str) -> None:
    """One missing brace kept the made-up 5 in the context and in the loss."""
    broken = CALL.replace("}}", "}")
    text = f"{broken}{between}<tool_response>5</tool_response> So 5."
    assert made_up_at(text, make_parser("hermes", [])) == text.index("<tool_response>")
    inside = CALL.replace("21", '"<tool_response>"')
    assert made_up_at(inside, make_parser("hermes", [])) is None
    assert made_up_at("I think.\nObservation: 5", make_parser("hermes", [])) is None
