"""What a turn makes up behind its own call is neither read, nor in the next prompt, nor learned."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from rollout_models import says

from reagent.env.env import ToolEnv
from reagent.env.parsers import make_parser
from reagent.env.parsers.base import made_up_at
from reagent.env.task import Task
from reagent.env.tool import tool
from reagent.rollout.rollout import rollout
from reagent.train.metrics import episode_metrics
from rrm.data.trajectory import ToolCall
from rrm.engines.base import SamplingParams

CALL = '<tool_call>{"name": "double", "arguments": {"number": 21}}</tool_call>'
TASK = Task("t", "Twice 21?", "42")


class Doubling(ToolEnv):
    """One tool."""

    @tool
    def double(self, number: int) -> int:
        """Double a number.

        Args:
            number: Which.
        """
        return 2 * number


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
    e = rollout(engine, tokenizer, Doubling, [TASK], params=SamplingParams(max_new_tokens=400))[0]
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
        says(tokenizer, CALL, "Answer: 42"), tokenizer, Doubling, [TASK], params=SamplingParams(max_new_tokens=400)
    )[0]
    assert "invented_results" not in honest.turns[0].info and honest.success is True


def test_an_environment_stepped_by_itself_reads_no_made_up_result() -> None:
    env = Doubling()
    env.reset(TASK)
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
