"""The tool-call formats of model families: texts as those models write them, and what is said of broken ones."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reagent.env.parsers import MalformedCall, ParsedTurn, make_parser
from rrm.data.trajectory import ToolCall


def schema(name: str, **kinds: object) -> dict:
    properties = {key: type_ if isinstance(type_, dict) else {"type": type_} for key, type_ in kinds.items()}
    parameters = {"type": "object", "properties": properties, "required": list(kinds)[:1]}
    return {"type": "function", "function": {"name": name, "description": "A tool.", "parameters": parameters}}


TOOLS = [
    schema("search", query="string", top="integer", place={"anyOf": [{"type": "string"}, {"type": "null"}]}),
    schema("add", numbers="array"),
]
llama3, harmony, glm, glm4, deepseek = (make_parser(n, TOOLS) for n in ("llama3", "harmony", "glm", "glm4", "deepseek"))
SEARCHED = ("search", {"query": "boss of Kavomi"})


def calls(turn: ParsedTurn) -> list:
    return [(c.name, c.arguments) if isinstance(c, ToolCall) else ("malformed", c.reason) for c in turn.calls]


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
    "llama, built in": (
        "llama3", "<|python_tag|>search.call(query=\"boss of Kavomi\")", None, "", [SEARCHED],
    ),
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
    "harmony, no namespace": (
        "harmony", ' to=search<|channel|>analysis code<|message|>{"query": "boss of Kavomi"}', None, "", [SEARCHED],
    ),
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
    "glm 4, two": (
        "glm4", '\nI look.<|assistant|>search\n{"query": "boss of Kavomi"}<|assistant|>add\n{}', None, "I look.",
        [SEARCHED, ("add", {})],
    ),
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
    turn = make_parser(name, TOOLS).parse(text)
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
        assert (make_parser(name, TOOLS).parse(text).answer, name) == ("Kavomi", name)


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
    (
        "glm",
        "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>a</arg_value>",
        "</tool_call> is missing",
        "search",
    ),
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
]


@pytest.mark.parametrize(("name", "text", "reason", "tool"), BROKEN)
def test_what_is_wrong_with_a_call_is_said(name: str, text: str, reason: str, tool: str | None) -> None:
    turn = make_parser(name, TOOLS).parse(text)
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


def test_a_call_inside_thoughts_is_none() -> None:
    for name in ("llama3", "glm", "deepseek", "deepseek_v31"):
        parser = make_parser(name, TOOLS)
        call = parser.render_call(ToolCall(name="search", arguments={"query": "a"}))
        assert parser.parse(f"<think>{call}</think>b").answer == "b", name
        (unfinished,) = parser.parse(f"<think>{call}").calls
        assert isinstance(unfinished, MalformedCall), name
    assert harmony.parse("<|channel|>analysis<|message|>to=functions.search {}<|end|>").answer is None


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["llama3", "harmony", "glm4", "deepseek", "deepseek_v31"]), st.data())
def test_json_formats_round_trip_any_arguments(name: str, data: st.DataObject) -> None:
    parser = make_parser(name, TOOLS)
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
