"""Tool-call formats: what is a call, what is an answer, and what is neither."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reagent.env.env import ToolEnv
from reagent.env.parsers import PARSERS, MalformedCall, ParsedTurn, family_of, make_parser
from reagent.env.parsers.near_calls import example_call, near_call, tool_meant
from reagent.env.task import Task
from reagent.env.tool import tool
from rrm.data.trajectory import ToolCall, Trajectory
from rrm.errors import ConfigError
from rrm.prompt.actions import final_answer


def schema(name: str, **kinds: object) -> dict:
    properties = {key: type_ if isinstance(type_, dict) else {"type": type_} for key, type_ in kinds.items()}
    parameters = {"type": "object", "properties": properties, "required": list(kinds)[:1]}
    return {"type": "function", "function": {"name": name, "description": "A tool.", "parameters": parameters}}


TOOLS = [schema("search", query="string"), schema("sum", numbers="string", note="string")]
hermes, tags, react = (make_parser(name, TOOLS) for name in ("hermes", "search_tags", "react"))


def calls(turn: ParsedTurn) -> list:
    return [(c.name, c.arguments) if isinstance(c, ToolCall) else ("malformed", c.reason) for c in turn.calls]


@pytest.mark.parametrize("name", PARSERS)
def test_the_rules_know_the_answer_of_every_format(name: str) -> None:
    """Both as the agent wrote it and as the environment keeps it in the transcript."""
    text = make_parser(name, TOOLS).render_turn(reasoning="I have read it.", answer="the Pell")
    plain = make_parser(name, TOOLS).parse(text).content
    # no transcript holds channels: who samples splits them
    for content in (plain,) if name == "harmony" else (text, plain):
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
        ("<search>boss of Kavomi", ["</search> is missing"]), ("boss</search>", ["</search> closes nothing"]),
        ("<search> </search>", ["<search> is empty"]), ("<answer></answer>", ["<answer> is empty"]),
        ("<answer>Kavomi", ["</answer> is missing"]), ("<search>a<search>b</search>", ["</search> is missing", None]),
        ("<search>a</answer>", ["</search> is missing"]), ("Kavomi", ["neither a call nor an answer"]),
    ],
)  # fmt: skip
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
    both = [ToolCall(name="search", arguments={"query": "boss"}), ToolCall(name="sum", arguments={"numbers": "1"})]
    turn = parser.parse(parser.render_turn(reasoning="Let me see.", calls=both))
    assert turn.calls == both and turn.reasoning == "Let me see."
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


FAMILY_TOOLS = [
    schema("search", query="string", top="integer", place={"anyOf": [{"type": "string"}, {"type": "null"}]}),
    schema("add", numbers="array"),
]
llama3, harmony, glm, glm4, deepseek = (
    make_parser(n, FAMILY_TOOLS) for n in ("llama3", "harmony", "glm", "glm4", "deepseek")
)
SEARCHED = ("search", {"query": "boss of Kavomi"})


# (format, what the model says, reasoning, content, calls)
WRITTEN = {
    "llama": ("llama3", '{"name": "search", "parameters": {"query": "boss of Kavomi"}}', None, "", [SEARCHED]),
    "llama, tagged": (
        "llama3",
        '<|python_tag|>{"type": "function", "name": "search", "parameters": {"query": "boss of Kavomi"}}',
        None, "", [SEARCHED],
    ),
    "llama, two": (
        "llama3",
        'Both.\n{"name": "search", "parameters": {"query": "boss of Kavomi"}}; {"name": "add", "parameters": {"numbers": [1]}}',
        None, "Both.", [SEARCHED, ("add", {"numbers": [1]})],
    ),
    "llama, tagged two": (
        "llama3",
        '<|python_tag|>{"name": "add", "parameters": {}}\n<|python_tag|>{"name": "add", "arguments": {"numbers": []}}',
        None, "", [("add", {}), ("add", {"numbers": []})],
    ),
    "llama, built in": ("llama3", "<|python_tag|>search.call(query=\"boss of Kavomi\")", None, "", [SEARCHED]),
    "harmony": (
        "harmony",
        "<|channel|>analysis<|message|>Look it up.<|end|><|start|>assistant<|channel|>commentary to=functions.search "
        '<|constrain|>json<|message|>{"query": "boss of Kavomi"}',
        "Look it up.", "", [SEARCHED],
    ),
    "harmony, recipient first": (
        "harmony",
        "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant to=functions.search<|channel|>commentary json"
        '<|message|>{"query": "boss of Kavomi"}<|call|>',
        None, "I look.", [SEARCHED],
    ),
    "harmony, no namespace": ("harmony", ' to=search<|channel|>analysis code<|message|>{"query": "boss of Kavomi"}', None, "", [SEARCHED]),
    "glm": (
        "glm",
        "\n<think>Hm.</think>\nI look.\n<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>boss of Kavomi</arg_value>\n"
        "<arg_key>top</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
        "Hm.", "I look.", [("search", {"query": "boss of Kavomi", "top": 3})],
    ),
    "glm, text stays text": (
        "glm",
        "<tool_call>search<arg_key>query</arg_key><arg_value>42</arg_value><arg_key>place</arg_key>"
        "<arg_value>[1] </tool_call></arg_value></tool_call><tool_call>add<arg_key>numbers</arg_key><arg_value>[1, 2]</arg_value>"
        "</tool_call>",
        None, "", [("search", {"query": "42", "place": "[1] </tool_call>"}), ("add", {"numbers": [1, 2]})],
    ),
    "glm, nothing to say": ("glm", "<tool_call>search\n</tool_call>", None, "", [("search", {})]),
    "glm, unknown tool": (
        "glm", "<tool_call>find\n<arg_key>q</arg_key>\n<arg_value>a b</arg_value>\n</tool_call>", None, "",
        [("find", {"q": "a b"})],
    ),
    "glm 4": ("glm4", 'search\n{"query": "boss of Kavomi"}', None, "", [SEARCHED]),
    "glm 4, two": ("glm4", '\nI look.<|assistant|>search\n{"query": "boss of Kavomi"}<|assistant|>add\n{}', None, "I look.", [SEARCHED, ("add", {})]),
    "deepseek v3": (
        "deepseek",
        "I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n"
        '{"query": "boss of Kavomi"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{}\n```'
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        None, "I look.", [SEARCHED, ("add", {})],
    ),
    "deepseek r1": (
        "deepseek",
        "<think>\nHm.\n</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n"
        '{"query": "boss of Kavomi"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        "Hm.", "", [SEARCHED],
    ),
    "deepseek v3.1": (
        "deepseek",
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>{"query": "boss of Kavomi"}<｜tool▁call▁end｜>'
        '<｜tool▁call▁begin｜>add<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        None, "", [SEARCHED, ("add", {})],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRITTEN)
def test_calls_as_the_models_write_them(case: str) -> None:
    name, text, reasoning, content, calls_expected = WRITTEN[case]
    turn = make_parser(name, FAMILY_TOOLS).parse(text)
    assert (turn.reasoning, turn.content, calls(turn), turn.answer) == (reasoning, content, calls_expected, None)


def test_answers_as_the_models_write_them() -> None:
    texts = {
        "llama3": "The boss is Beltu.\nAnswer: Kavomi",
        "harmony": "<|channel|>analysis<|message|>Answer: Beltu<|end|><|start|>assistant<|channel|>final<|message|>Kavomi",
        "glm": "\n<think>Answer: Beltu</think>\nKavomi",
        "glm4": "\nKavomi",
        "deepseek": "<think>\nAnswer: Beltu\n</think>\n\nKavomi",
        "deepseek_v31": "Kavomi",
    }
    for name, text in texts.items():
        assert (make_parser(name, FAMILY_TOOLS).parse(text).answer, name) == ("Kavomi", name)


_V3 = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>"
BROKEN = [
    ("llama3", '{"name": "search", "parameters": {"query": "a"}', "not valid JSON", "search"),
    ("llama3", '{"name": "search", "parameters": "a"}', "arguments must be a JSON object", "search"),
    ("llama3", '{"parameters": {"query": "a"}}', "no object with a name", None),
    ("llama3", "<|python_tag|>print(1)", "no JSON call follows", None),
    ("llama3", "<|python_tag|>search.call(query=open(1))", "no JSON call follows", "search"),
    ("llama3", "<|python_tag|>", "no JSON call follows", None),
    ("llama3", '<tool_call>{"name": "search"}</tool_call>', "must stand in its own form", "search"),
    ("llama3", "", "neither a call nor an answer", None),
    ("harmony", '<|channel|>commentary to=functions.search json<|message|>{"query": ', "not valid JSON", "search"),
    ("harmony", "<|channel|>commentary to=functions.search<|message|>[1]", "must be a JSON object", "search"),
    ("harmony", "<|channel|>commentary to=functions.search<|message|>", "not valid JSON", "search"),
    ("harmony", "<|channel|>commentary to=functions.add<|message|>{} {}", "more than one JSON object", "add"),
    ("harmony", "Kavomi", "a message without channel", None),
    ("harmony", "<|channel|>commentary to=functions.search", "a message without channel", None),
    ("harmony", "<|channel|>analysis<|message|>The answer is Kavomi", "neither a call nor an answer", None),
    ("harmony", "<|channel|>commentary<|message|>I shall look.", "neither a call nor an answer", None),
    ("glm", "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>a</arg_value>", "</tool_call> is missing", "search"),
    ("glm", "<tool_call>search\n<arg_key>query</arg_key>\n</tool_call>", "a key without its value", "search"),
    ("glm", '<tool_call>{"name": "search", "arguments": {}}</tool_call>', "no tool's name", None),
    ("glm", "<tool_call></tool_call>", "no tool's name", None),
    (
        "glm",
        "<tool_call>add<arg_key>a</arg_key><arg_value>1</arg_value><arg_key>a</arg_key><arg_value>2</arg_value></tool_call>",
        "given twice",
        "add",
    ),
    ("glm", "<arg_key>a</arg_key></tool_call>", "must stand in its own form", None),
    ("glm4", 'search\n{"query": ', "not valid JSON", "search"),
    ("glm4", 'search\n{"query": "a"} please', "more than one JSON object", "search"),
    ("deepseek", _V3 + "search\n```json\n{\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", "not valid JSON", "search"),
    ("deepseek", _V3 + "search\n```json\n[]\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", "JSON object", "search"),
    ("deepseek", _V3 + "search\n```json\n{}\n```", "<｜tool▁call▁end｜> is missing", "search"),
    ("deepseek", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search", "<｜tool▁sep｜> is missing", None),
    ("deepseek", "<｜tool▁calls▁begin｜>", "no call follows", None),
    ("deepseek", "<｜tool▁call▁begin｜><｜tool▁sep｜>{}<｜tool▁call▁end｜>", "no tool's name", None),
    ("deepseek", "<think>The answer is Kavomi", "neither a call nor an answer", None),
    ("deepseek", "<｜DSML｜function_calls>", "must stand in its own form", None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "reason", "tool"), BROKEN)
def test_what_is_wrong_with_a_call_is_said(name: str, text: str, reason: str, tool: str | None) -> None:
    turn = make_parser(name, FAMILY_TOOLS).parse(text)
    (call,) = turn.calls
    assert isinstance(call, MalformedCall) and reason in call.reason and call.name == tool
    assert turn.answer is None


def test_a_broken_call_does_not_take_the_good_one_beside_it() -> None:
    for parser, text in (
        (glm, "<tool_call>search <arg_key>q<tool_call>add</tool_call>"),
        (
            deepseek,
            "<｜tool▁call▁begin｜>search<｜tool▁sep｜>{<｜tool▁call▁begin｜>add<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
        ),
        (harmony, "<|channel|>commentary to=functions.a<|message|>{<|call|><|start|>assistant to=add<|message|>{}"),
    ):
        assert [type(c).__name__ for c in parser.parse(text).calls] == ["MalformedCall", "ToolCall"], parser.name


def test_a_call_inside_a_familys_thoughts_is_none() -> None:
    for name in ("llama3", "glm", "deepseek", "deepseek_v31"):
        parser = make_parser(name, FAMILY_TOOLS)
        call = parser.render_call(ToolCall(name="search", arguments={"query": "a"}))
        assert parser.parse(f"<think>{call}</think>b").answer == "b", name
        (unfinished,) = parser.parse(f"<think>{call}").calls
        assert isinstance(unfinished, MalformedCall), name
    assert harmony.parse("<|channel|>analysis<|message|>to=functions.search {}<|end|>").answer is None


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["llama3", "harmony", "glm4", "deepseek", "deepseek_v31"]), st.data())
def test_json_formats_round_trip_any_arguments(name: str, data: st.DataObject) -> None:
    parser = make_parser(name, FAMILY_TOOLS)
    texts = st.text(max_size=20).filter(lambda text: not any(token in text for token in ("<|", "<｜")))
    arguments = data.draw(st.dictionaries(texts, texts | st.integers() | st.just("<think>"), max_size=3))
    call = ToolCall(name="search", arguments=arguments)
    assert parser.parse(parser.render_turn(calls=[call])).calls == [call]


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=20).filter(lambda text: not any(t in text for t in ("</arg_value>", "think>"))), st.integers())
def test_glm_round_trips_what_its_form_can_say(query: str, top: int) -> None:
    call = ToolCall(name="search", arguments={"query": query, "top": top})
    assert glm.parse(glm.render_turn(calls=[call])).calls == [call]
    with pytest.raises(ValueError, match="cannot say this call's arguments"):
        glm.render_call(ToolCall(name="search", arguments={"query": query + "</arg_value>"}))


@tool
def calculator(expression: str, digits: int = 2) -> str:
    """Calculate.

    Args:
        expression: Numbers and operators.
        digits: Behind the point.
    """
    return f"{expression} to {digits}"


@tool
def rename(name: str, arguments: str) -> str:
    """Rename.

    Args:
        name: The new one.
        arguments: Options.
    """
    return name + arguments


NEAR_TOOLS = [calculator.schema, rename.schema]


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "calculator", "arguments": {"expression": "2*3"}}',
        '```json\n{"name": "calculator", "arguments": {"expression": "2*3"}}\n```',
        '<tool_call>{"name": "calculator", "arguments": {"name": "calculator", "arguments": {"expression": "2*3"}}}</tool_call>',
        "{'name': 'calculator', 'arguments': {'expression': '2*3'}}",
        '{"name": "calculator", "parameters": {"expression": "2*3"}}',
        '{"name": "calculator", "arguments": "{\\"expression\\": \\"2*3\\"}"}',
        '{"type": "function", "function": {"name": "calculator", "arguments": {"expression": "2*3"}}}',
        '{"calculator": {"expression": "2*3"}}',
        '{"name": "calculator", "arguments": {"expression": "2*3"}',
        'calculator("2*3")',
        'calculator("2*3");',
        "```python\ncalculator(expression='2*3')\n```",
    ],
)
def test_what_can_only_be_one_call_is_read_as_it(text: str) -> None:
    assert near_call(text, NEAR_TOOLS) == ToolCall(name="calculator", arguments={"expression": "2*3"})


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "search", "arguments": {"query": "a"}}',  # no such tool
        '{"name": "calculator", "arguments": {"expression": "1"}} and {"name": "calculator", "arguments": {"expression": "2"}}',
        '{"name": "calculator", "arguments": {"expression": "1"}, "parameters": {"expression": "2"}}',
        '{"name": "calculator", "arguments": [1]}', '{"name": "calculator"}', "I call calculator('2*3')",
        "calculator(expression=__import__('os').getcwd())", "calculator(*values)", "calculator('1', 2, 3)",
        "calculator('1', expression='2')", "calculator(expression='1', expression='2')",
        "{'name': 'calculator', 'arguments': {'expression': {1, 2}}}",  # JSON has no sets
        "{'name': 'calculator', 'arguments': {'expression': b'1'}}",
        "{'name': 'calculator', 'arguments': {'expression': 0x" + "f" * 5_000 + "}}",
        '{"name": "calculator", "arguments": {"expression": NaN}}', "calculator('1'); calculator('2')", "the number 6",
        "6", "", "{" * 10_000, "calculator(" * 5_000, "calculator(" + "9" * 19_000 + ")",
    ],
)  # fmt: skip
def test_what_could_be_two_things_or_none_is_left_to_the_parser(text: str) -> None:
    assert near_call(text, NEAR_TOOLS) is None


@pytest.mark.parametrize(
    "written", ["say('```sh\\nls\\n``` <tool_call>')", "```\nsay('```sh\\nls\\n``` <tool_call>')\n```"]
)
def test_a_fence_inside_of_an_argument_stays(written: str) -> None:
    tools = [{"type": "function", "function": {"name": "say", "parameters": {"properties": {"text": {}}}}}]
    assert near_call(written, tools) == ToolCall(name="say", arguments={"text": "```sh\nls\n``` <tool_call>"})


def test_a_tool_that_takes_a_name_and_arguments_keeps_them() -> None:
    text = '{"name": "rename", "arguments": {"name": "rename", "arguments": "-f"}}'
    assert near_call(text, NEAR_TOOLS) == ToolCall(name="rename", arguments={"name": "rename", "arguments": "-f"})


def test_an_example_has_what_is_required() -> None:
    assert example_call(calculator.schema).arguments == {"expression": "text"}
    assert example_call(rename.schema).arguments == {"name": "text", "arguments": "text"}
    anything = {"type": "object", "properties": {"x": True, "n": {"type": ["integer", "null"]}}, "required": ["x", "n"]}
    foreign = {"function": {"name": "put", "parameters": anything}}  # of a server: any value, and one of two types
    assert example_call(foreign).arguments == {"x": "text", "n": 1}
    anything["properties"]["n"]["type"].reverse()
    assert example_call(foreign).arguments == {"x": "text", "n": 1}


def test_an_example_takes_over_the_values_that_were_written() -> None:
    for written in (
        '<tool_call>{"name": "2 lamps", "arguments": {"name": "x", "arguments": {"expression": "2*3"}}}</tool_call>',
        'calculate {"expression": "2*3"}',
    ):
        assert example_call(calculator.schema, written).arguments == {"expression": "2*3"}, written
    for written in (
        '{"expression": {"type": "string"}}',
        '{"expression": 2}',
        "2*3",
        '{"expression": "' + "9" * 300 + '"}',
    ):
        assert example_call(calculator.schema, written).arguments == {"expression": "text"}, written


def played(*turns: str, **options: object) -> list[str]:
    env = ToolEnv([calculator], **options)  # type: ignore[arg-type]
    env.reset(Task("t", "2*3?", "6"))
    steps = [asyncio.run(env.step(turn)) for turn in turns]
    return [str(o["content"]) for s in steps for o in s.observations] + [str(steps[-1].info.get("answer"))]


def test_a_near_call_is_run_and_an_answer_stays_one() -> None:
    assert played('calculator("2*3")', "Answer: 6") == ["2*3 to 2", "6"]
    assert played('```json\n{"name": "calculator", "arguments": {"expression": "2"}}\n```', "6") == ["2 to 2", "6"]


def test_a_near_call_is_no_answer_where_only_one_is_taken() -> None:
    env = ToolEnv([calculator])
    assert env.is_final("Answer: 6") and not env.is_final('calculator("2*3")')


def test_arguments_that_json_cannot_say_are_malformed_and_end_nothing() -> None:
    observation, _ = played("<tool_call>{'name': 'calculator', 'arguments': {'expression': {1, 2}}}</tool_call>")
    assert observation.startswith("Error: not valid JSON")


def test_what_is_wrong_is_said_with_a_correct_call_of_that_tool() -> None:
    observation, _ = played('<tool_call>{"name": "calculator", "arguments": [1]}</tool_call>')
    assert observation.endswith(
        'For example: <tool_call>{"name": "calculator", "arguments": {"expression": "text"}}</tool_call>'
    )


def test_a_wrong_name_and_wrong_arguments_are_said_with_a_correct_call() -> None:
    example = 'For example: <tool_call>{"name": "calculator", "arguments": {"expression": "2*3"}}</tool_call>'
    for text, reason in (
        (
            '{"name": "six", "arguments": {"expression": "2*3"}}',
            "there is no tool 'six'; there are: calculator. a call must",
        ),
        ('<tool_call>{"name": "six", "arguments": {"expression": "2*3"}}</tool_call>', "there is no tool 'six'"),
        (
            '<tool_call>{"name": "calculator", "arguments": {"q": {"expression": "2*3"}}}</tool_call>',
            "bad arguments for",
        ),
    ):
        observation, _ = played(text)
        assert observation.startswith(f"Error: {reason}") and observation.endswith(example), observation


def test_a_name_that_holds_one_tools_name_is_that_tool() -> None:
    for name in ("calculator(expression)", "The `calculator` tool.", 'calculator("2")'):
        assert (
            played(f'Action: {name}\nAction Input: {{"expression": "2"}}', parser="react")[0] == "Observation: 2 to 2"
        )
    assert tool_meant("add or mul", ["add", "mul"]) == "add or mul"
    assert tool_meant("calculators", ["calculator"]) == "calculators"
    assert tool_meant("web.search", ["search", "web.search"]) == "web.search"


def test_a_call_in_place_of_the_answer_is_a_call() -> None:
    assert played('I look.\nAnswer: {"name": "calculator", "arguments": {"expression": "2"}}', "6") == ["2 to 2", "6"]


@pytest.mark.parametrize("parser", PARSERS)
def test_an_example_is_a_call_of_its_format_and_none_is_shown_of_control_tokens(parser: str) -> None:
    observation, _ = played('{"name": "calculator", "arguments": [1]}', parser=parser)
    reason, _, example = observation.partition(". For example: ")
    assert reason.startswith("Error: ")
    assert example == "" if parser in ("harmony", "deepseek", "deepseek_v31") else "calculator" in example
    if example:
        [call] = make_parser(parser, NEAR_TOOLS).parse(example).calls
        assert call == ToolCall(name="calculator", arguments={"expression": "text"})


QWEN = "{%- if tools %}<tools>{{ tools | tojson }}</tools> <tool_call>{{ call }}</tool_call>{%- endif %}"


@pytest.mark.parametrize(
    ("template", "family"),
    [
        (QWEN, "hermes"), ("{{ tools }}<|python_tag|>", "llama3"), ("{{ tools }}<|channel|>", "harmony"),
        ("{{ tools }}<arg_key><tool_call>", "glm"), ("{{ tools }}<tool_call><function=", None),
        ("{{ messages }}", None), ("{{ messages }}<tool_call>", None),
    ],
)  # fmt: skip
def test_a_chat_template_shows_its_family(template: str, family: str | None) -> None:
    assert family_of(template) == family


def test_auto_leaves_the_tools_to_a_template_that_lists_them_and_tells_others_in_words() -> None:
    task = Task("t", "2*3?", "6")
    by_template, in_words, named = ToolEnv([calculator]), ToolEnv([calculator]), ToolEnv([calculator], parser="react")
    for env, template in ((by_template, QWEN), (in_words, "{{ messages }}"), (named, QWEN)):
        env.adopt_template(template)
    assert by_template.template_tools == NEAR_TOOLS[:1] and in_words.template_tools is None is named.template_tools
    assert "Answer: <answer>" in by_template.reset(task)[0]["content"]
    assert "calculator" not in by_template.reset(task)[0]["content"]
    assert in_words.reset(task) == ToolEnv([calculator], tool_prompt="schema").reset(task)
    assert named.reset(task) == ToolEnv([calculator], parser="react", tool_prompt="schema").reset(task)
