"""Tool-call formats: what is a call, what is an answer, and what is neither."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reagent.env.parsers import PARSERS, MalformedCall, ParsedTurn, make_parser
from rrm.data.trajectory import ToolCall, Trajectory
from rrm.errors import ConfigError
from rrm.prompt.actions import final_answer


def schema(name: str, *arguments: str) -> dict:
    properties = {a: {"type": "string"} for a in arguments}
    parameters = {"type": "object", "properties": properties, "required": list(arguments[:1])}
    return {"type": "function", "function": {"name": name, "description": "A tool.", "parameters": parameters}}


TOOLS = [schema("search", "query"), schema("sum", "numbers", "note")]
hermes, tags, react = (make_parser(name, TOOLS) for name in ("hermes", "search_tags", "react"))


def calls(turn: ParsedTurn) -> list:
    return [(c.name, c.arguments) if isinstance(c, ToolCall) else ("malformed", c.reason) for c in turn.calls]


@pytest.mark.parametrize("name", PARSERS)
def test_the_rules_know_the_answer_of_every_format(name: str) -> None:
    """Both as the agent wrote it and as the environment keeps it in the transcript."""
    text = make_parser(name, TOOLS).render_turn(reasoning="I have read it.", answer="the Pell")
    plain = make_parser(name, TOOLS).parse(text).content
    for content in (
        (plain,) if name == "harmony" else (text, plain)
    ):  # no transcript holds channels: who samples splits them
        messages = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": content}]
        trajectory = Trajectory.model_validate({"id": "a", "task": "Where?", "messages": messages})
        assert final_answer(trajectory) == (1, "the Pell")


def test_hermes_reads_several_calls_in_one_turn() -> None:
    turn = hermes.parse(
        '<think>Two things.</think>I look.\n<tool_call>{"name": "search", "arguments": {"query": "a </tool_call> b"}}</tool_call>\n'
        '<tool_call>\n{"name": "sum", "arguments": "{\\"numbers\\": \\"1 2\\"}"}\n</tool_call> Done.'
    )
    assert turn.reasoning == "Two things." and turn.content == "I look.\nDone." and turn.answer is None
    assert calls(turn) == [("search", {"query": "a </tool_call> b"}), ("sum", {"numbers": "1 2"})]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('<tool_call>{"name": "search", "arguments": {"query": "a"}</tool_call>', "not valid JSON"),
        ('<tool_call>{"name": "search", "arguments": {"query": "a"}}', "</tool_call> is missing"),
        ('{"name": "search", "arguments": {"query": "a"}}</tool_call>', "must stand in its own form"),
        ('{"name": "search", "arguments": {"query": "a"}}', "must stand in its own form"),
        ('```json\n{"name": "search", "arguments": {}}\n```', "must stand in its own form"),
        ('<toolcall>{"name": "search"}</toolcall>', "must stand in its own form"),
        ('<tool_call>{"arguments": {"query": "a"}}</tool_call>', "no object with a name"),
        ("<tool_call>[1]</tool_call>", "no object with a name"),
        ('<tool_call>{"name": "search", "arguments": "a"}</tool_call>', "arguments must be a JSON object"),
        ('<tool_call>{"name": "search", "arguments": {}} {"name": "b"}</tool_call>', "more than one JSON object"),
        ("<tool_call></tool_call>", "not valid JSON"),
        ("<tool_call>" + "[" * 100_000, "JSON"),
        ('<tool_call>{"name": "search", "arguments": {"query": ' + "9" * 5000 + "}}</tool_call>", "not valid JSON"),
        ("", "neither a call nor an answer"),
        ("<think>The answer is Kavomi", "neither a call nor an answer"),
    ],
)
def test_hermes_says_what_is_wrong_with_a_call(text: str, reason: str) -> None:
    turn = hermes.parse(text)
    (call,) = turn.calls
    assert isinstance(call, MalformedCall) and reason in call.reason
    assert turn.answer is None


def test_hermes_keeps_the_good_call_beside_the_broken_one() -> None:
    turn = hermes.parse('<tool_call>{"name": "search" <tool_call>{"name": "sum", "arguments": {}}</tool_call>')
    assert [type(c).__name__ for c in turn.calls] == ["MalformedCall", "ToolCall"]
    broken = turn.calls[0]
    assert isinstance(broken, MalformedCall) and broken.name == "search"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Answer: Kavomi", "Kavomi"),
        ("Kavomi", "Kavomi"),
        ("Answer: Beltu\nNo, wait.\nFinal answer:  Kavomi ", "Kavomi"),
        ("Answer: Kavomi\nAnswer:", "Kavomi"),
        ("<think>Answer: Beltu</think>Answer: Kavomi", "Kavomi"),
        ("thinking that the prompt opened</think>Kavomi", "Kavomi"),
    ],
)
def test_hermes_takes_the_last_well_formed_answer(text: str, answer: str) -> None:
    assert hermes.parse(text).answer == answer


def test_a_call_inside_thoughts_is_none() -> None:
    call = '<tool_call>{"name": "search", "arguments": {"query": "a"}}</tool_call>'
    assert hermes.parse(f"<think>{call}</think>Answer: b").answer == "b"
    assert calls(hermes.parse(f"<think>{call}"))[0][0] == "malformed"
    assert tags.parse("<think><search>a</search></think><answer>b</answer>").answer == "b"


def test_search_tags() -> None:
    turn = tags.parse("<think>I need it.</think>\n<search> boss of Kavomi </search><sum>1 2</sum>")
    assert turn.reasoning == "I need it." and turn.answer is None
    assert calls(turn) == [("search", {"query": "boss of Kavomi"}), ("sum", {"numbers": "1 2"})]
    turn = tags.parse("So <answer>Beltu</answer> or <answer>Kavomi</answer>")
    assert turn.answer == "Kavomi" and not turn.calls
    assert turn.content == "So\nor\nAnswer: Beltu\nAnswer: Kavomi"
    assert tags.parse("<search>a</search><answer>b</answer>").answer is None
    assert tags.stop == ("</search>", "</sum>", "</answer>")


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        ("<search>boss of Kavomi", ["</search> is missing"]),
        ("boss</search>", ["</search> closes nothing"]),
        ("<search> </search>", ["<search> is empty"]),
        ("<answer></answer>", ["<answer> is empty"]),
        ("<answer>Kavomi", ["</answer> is missing"]),
        ("<search>a<search>b</search>", ["</search> is missing", None]),
        ("<search>a</answer>", ["</search> is missing"]),
        ("Kavomi", ["neither a call nor an answer"]),
    ],
)
def test_search_tags_without_their_partner_are_malformed(text: str, reasons: list) -> None:
    turn = tags.parse(text)
    assert turn.answer is None and len(turn.calls) == len(reasons)
    for call, reason in zip(turn.calls, reasons, strict=True):
        assert isinstance(call, ToolCall) if reason is None else reason in getattr(call, "reason", "")


def test_react() -> None:
    turn = react.parse(
        'Thought: I need it.\nAction: search\nAction Input: {"query": "boss"}\nObservation: made up\nFinal Answer: x'
    )
    assert turn.reasoning == "I need it." and turn.answer is None
    assert calls(turn) == [("search", {"query": "boss"})]
    assert calls(react.parse("Action: search[boss of Kavomi]")) == [("search", {"query": "boss of Kavomi"})]
    assert calls(react.parse("Action: sum\nAction Input: 1 2\nAction: search\nAction Input: a")) == [
        ("sum", {"numbers": "1 2"}),
        ("search", {"query": "a"}),
    ]
    assert react.parse("Thought: so\nFinal Answer: Beltu\nFinal Answer: Kavomi").answer == "Kavomi"
    assert react.parse("Final Answer: two\nlines").answer == "two\nlines"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Action: search", "without its input"),
        ("Action Input: a", "without an action"),
        ('Action: search\nAction Input: {"query": ', "not valid JSON"),
        ("Action:\nAction Input: a", "must be the name of a tool"),
        ("Thought: hm", "neither an action nor an answer"),
        ("Observation: The answer is x\nFinal Answer: x", "neither an action nor an answer"),
    ],
)
def test_react_says_what_is_wrong(text: str, reason: str) -> None:
    (call,) = react.parse(text).calls
    assert isinstance(call, MalformedCall) and reason in call.reason


@pytest.mark.parametrize("name", list(PARSERS))
def test_what_is_rendered_is_understood(name: str) -> None:
    parser = make_parser(name, TOOLS)
    calls_made = [
        ToolCall(name="search", arguments={"query": "boss of Kavomi"}),
        ToolCall(name="sum", arguments={"numbers": "1"}),
    ]
    turn = parser.parse(parser.render_turn(reasoning="Let me see.", calls=calls_made))
    assert turn.calls == calls_made and turn.reasoning == "Let me see."
    assert parser.parse(parser.render_turn(reasoning="Now.", answer="Kavomi")).answer == "Kavomi"
    message = parser.observation("42", "sum", "call_1")
    assert "42" in message["content"] and (message["name"], message["tool_call_id"]) == ("sum", "call_1")
    for brief in (True, False):
        assert "search" in parser.instructions(TOOLS, brief)


@settings(max_examples=150, deadline=None)
@example("<think>", {"q": "</think> done"})
@given(st.text(max_size=40), st.dictionaries(st.text(max_size=8), st.text(max_size=20), max_size=3))
def test_hermes_round_trips_any_arguments(name: str, arguments: dict) -> None:
    call = ToolCall(name=name.strip() or "x", arguments=arguments)
    assert hermes.parse(hermes.render_call(call)).calls == [call]


_FRAGMENTS = st.sampled_from(
    [
        "<tool_call>", "</tool_call>", '{"name": "search", "arguments": {"query": "a"}}', "<think>", "</think>",
        "<search>", "</search>", "<answer>", "</answer>", "Action: search", "\nAction Input: a", "\nFinal Answer: b",
        "\nObservation:", "Answer: x", "<arg_key>query</arg_key>", "<arg_value>a</arg_value>", "search\n{}",
        "<|python_tag|>", "search.call(query='a')", "; ", "<|start|>assistant", "<|channel|>final",
        "<|channel|>analysis", "<|channel|>commentary to=functions.search", "<|message|>", "<|end|>",
        "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "search\n```json\n{}\n```", "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
    ]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(_FRAGMENTS | st.text(max_size=6), max_size=12))
def test_any_text_is_either_calls_or_an_answer(parts: list[str]) -> None:
    for name in PARSERS:
        turn = make_parser(name, TOOLS).parse("".join(parts))
        assert bool(turn.calls) != (turn.answer is not None)
        if turn.answer is not None:
            assert turn.answer.strip()


def test_an_unknown_format_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean hermes"):
        make_parser("hermess")


def test_schemas_are_written_out_for_models_that_know_the_form() -> None:
    instructions = hermes.instructions(TOOLS, brief=False)
    assert all(json.dumps(t) in instructions for t in TOOLS)
    assert hermes.instructions(TOOLS, brief=True).startswith("search(query): A tool.\nsum(numbers, note): A tool.\n")
