"""Calls that miss their format by a little are read where only one reading is possible, and answered with an example elsewhere."""

from __future__ import annotations

import asyncio

import pytest

from reagent.env.env import ToolEnv
from reagent.env.parsers import PARSERS, family_of, make_parser
from reagent.env.parsers.near_calls import example_call, near_call
from reagent.env.task import Task
from reagent.env.tool import tool
from rrm.data.trajectory import ToolCall


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


TOOLS = [calculator.schema, rename.schema]


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
        "```python\ncalculator(expression='2*3')\n```",
    ],
)
def test_what_can_only_be_one_call_is_read_as_it(text: str) -> None:
    assert near_call(text, TOOLS) == ToolCall(name="calculator", arguments={"expression": "2*3"})


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "search", "arguments": {"query": "a"}}',  # no such tool
        '{"name": "calculator", "arguments": {"expression": "1"}} and {"name": "calculator", "arguments": {"expression": "2"}}',
        '{"name": "calculator", "arguments": {"expression": "1"}, "parameters": {"expression": "2"}}',
        '{"name": "calculator", "arguments": [1]}',
        '{"name": "calculator"}',
        "I call calculator('2*3')",
        "calculator(expression=__import__('os').getcwd())",
        "calculator(*values)",
        "calculator('1', 2, 3)",
        "calculator('1', expression='2')",
        "calculator(expression='1', expression='2')",
        "{'name': 'calculator', 'arguments': {'expression': {1, 2}}}",  # JSON has no sets
        "{'name': 'calculator', 'arguments': {'expression': b'1'}}",
        "{'name': 'calculator', 'arguments': {'expression': 0x" + "f" * 5_000 + "}}",
        '{"name": "calculator", "arguments": {"expression": NaN}}',
        "calculator('1'); calculator('2')",
        "the number 6",
        "6",
        "",
        "{" * 10_000,
        "calculator(" * 5_000,
        "calculator(" + "9" * 19_000 + ")",
    ],
)
def test_what_could_be_two_things_or_none_is_left_to_the_parser(text: str) -> None:
    assert near_call(text, TOOLS) is None


@pytest.mark.parametrize(
    "written", ["say('```sh\\nls\\n``` <tool_call>')", "```\nsay('```sh\\nls\\n``` <tool_call>')\n```"]
)
def test_a_fence_inside_of_an_argument_stays(written: str) -> None:
    tools = [{"type": "function", "function": {"name": "say", "parameters": {"properties": {"text": {}}}}}]
    assert near_call(written, tools) == ToolCall(name="say", arguments={"text": "```sh\nls\n``` <tool_call>"})


def test_a_tool_that_takes_a_name_and_arguments_keeps_them() -> None:
    text = '{"name": "rename", "arguments": {"name": "rename", "arguments": "-f"}}'
    assert near_call(text, TOOLS) == ToolCall(name="rename", arguments={"name": "rename", "arguments": "-f"})


def test_an_example_has_what_is_required() -> None:
    assert example_call(calculator.schema).arguments == {"expression": "text"}
    assert example_call(rename.schema).arguments == {"name": "text", "arguments": "text"}
    anything = {"type": "object", "properties": {"x": True, "n": {"type": ["integer", "null"]}}, "required": ["x", "n"]}
    foreign = {
        "function": {"name": "put", "parameters": anything}
    }  # a server's schema: any value, and one of two types
    assert example_call(foreign).arguments == {"x": "text", "n": 1}


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


@pytest.mark.parametrize("parser", PARSERS)
def test_an_example_is_a_call_of_its_format_and_none_is_shown_of_control_tokens(parser: str) -> None:
    observation, _ = played('{"name": "calculator", "arguments": [1]}', parser=parser)
    reason, _, example = observation.partition(". For example: ")
    assert reason.startswith("Error: ")
    assert example == "" if parser in ("harmony", "deepseek", "deepseek_v31") else "calculator" in example
    if example:
        [call] = make_parser(parser, TOOLS).parse(example).calls
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
    assert by_template.template_tools == TOOLS[:1] and in_words.template_tools is None is named.template_tools
    assert "Answer: <answer>" in by_template.reset(task)[0]["content"]
    assert "calculator" not in by_template.reset(task)[0]["content"]
    assert in_words.reset(task) == ToolEnv([calculator], tool_prompt="schema").reset(task)
    assert named.reset(task) == ToolEnv([calculator], parser="react", tool_prompt="schema").reset(task)
