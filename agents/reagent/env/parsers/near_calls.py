"""Reads calls that miss their format by a little, where only one reading is possible.

Small models write a call as bare JSON, in a code fence, in single quotes, inside another call's arguments, or as Python would. Such a
text is a call where it names an existing tool and holds nothing else."""

import ast
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rrm.data.trajectory import ToolCall

LONGEST = 20_000  # characters; a longer text is left to the format's parser
NESTED, SHORT = 4, 200  # objects inside of each other, and characters of a value that an example takes over
ARGUMENTS = ("arguments", "parameters", "args", "input")  # keys under which models write a call's arguments
_MARK = r"(?:</?\|?(?:tool_call|toolcall|tool_calls|function_call)\|?>|```\w{0,20})"
_WRAPPING = re.compile(rf"\A(?:\s*{_MARK}){{1,3}}|(?:{_MARK}\s*+){{1,3}}\Z", re.IGNORECASE)
"""Only at a text's ends: inside of an argument a fence is the argument's."""
_SAMPLES: dict[str, Any] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}


def near_call(text: str, tools: Sequence[Mapping[str, Any]]) -> ToolCall | None:
    """The one call that a text is, or None. `tools`: schemas; only a call of one of them is read."""
    body = _WRAPPING.sub("", text).strip().removesuffix(";") if len(text) <= LONGEST else ""
    parameters = {t["function"]["name"]: list(t["function"].get("parameters", {}).get("properties", {})) for t in tools}
    value = _value(body) if body.startswith("{") else None
    return _from_object(value, parameters) if isinstance(value, dict) else _from_python(body, parameters)


def tool_meant(name: str, tools: Collection[str]) -> str:
    """The one tool whose name stands as a word in `name` (`count(word)`, "the `count` tool"); else `name` itself."""
    meant = [tool for tool in tools if re.search(rf"(?<![\w.-]){re.escape(tool)}(?![\w.-])", name[:SHORT])]
    return meant[0] if name not in tools and len(meant) == 1 else name


def _value(body: str) -> Any:
    """The JSON or Python value that a text is, with up to two closing braces added; None where it is none."""
    for closing in ("", "}", "}}"):
        for parse in (json.loads, ast.literal_eval):
            try:
                return parse(body + closing)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
    return None


def _from_object(value: dict[str, Any], parameters: Mapping[str, list[str]]) -> ToolCall | None:
    if set(value) == {"function"} or value.get("type") == "function":
        value = value["function"] if isinstance(value.get("function"), dict) else value
    only, payload = next(iter(value.items())) if len(value) == 1 else ("", None)
    if only in parameters and isinstance(payload, dict):  # {"search": {"query": "…"}}
        return _call(only, payload)
    name, payloads = str(value.get("name")), [value[key] for key in ARGUMENTS if key in value]
    if name not in parameters or len(payloads) != 1:
        return None
    arguments = _value(payloads[0].strip()) if isinstance(payloads[0], str) else payloads[0]
    own = set(parameters[name])
    if isinstance(arguments, dict) and arguments.get("name") == name and not own & {"name", *ARGUMENTS}:
        inner = [arguments[key] for key in ARGUMENTS if key in arguments]  # a call inside of a call's arguments
        arguments = inner[0] if len(inner) == 1 else None
    return _call(name, arguments) if isinstance(arguments, dict) else None


def _call(name: str, arguments: dict[str, Any]) -> ToolCall | None:
    """A call, or None where JSON cannot say its arguments (Python's sets, bytes, longest numbers)."""
    try:
        return ToolCall(name=name, arguments=json.loads(json.dumps(arguments, allow_nan=False)))
    except (TypeError, ValueError, RecursionError):
        return None


def _from_python(body: str, parameters: Mapping[str, list[str]]) -> ToolCall | None:
    try:
        node = ast.parse(body, mode="eval").body if body.endswith(")") else None
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in parameters:
            return None
        names = parameters[node.func.id]
        if len(node.args) > len(names) or any(keyword.arg is None for keyword in node.keywords):
            return None
        pairs = [
            *zip(names, node.args, strict=False),
            *((str(keyword.arg), keyword.value) for keyword in node.keywords),
        ]
        arguments = {name: ast.literal_eval(value) for name, value in pairs}
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None
    return _call(node.func.id, arguments) if len(arguments) == len(pairs) else None  # else one is given twice


def example_call(tool: Mapping[str, Any], written: str = "") -> ToolCall:
    """A correct call of a tool. An argument has the value that `written` (a failed call) gives for it, else a sample."""
    function = tool["function"]
    schema = function.get("parameters", {})
    properties: Mapping[str, Any] = schema.get("properties", {})
    names = schema.get("required") or [*properties][:1]
    body = _WRAPPING.sub("", written).strip() if len(written) <= LONGEST else ""
    tree = _value(body[max(body.find("{"), 0) :])
    samples = {name: _sample(properties.get(name, {})) for name in names}
    return ToolCall(name=function["name"], arguments={n: _given(tree, n, v, NESTED) for n, v in samples.items()})


def _given(value: Any, name: str, sample: Any, depth: int) -> Any:
    """The value of an argument in nested objects, if it is of the sample's type and short; else the sample."""
    if not isinstance(value, dict) or depth == 0:
        return sample
    if type(value.get(name)) is type(sample) and len(str(value[name])) <= SHORT:
        return value[name]
    inner = (_given(part, name, sample, depth - 1) for part in value.values())
    return next((given for given in inner if given is not sample), sample)


def _sample(schema: Mapping[str, Any] | bool) -> Any:
    if isinstance(schema, bool):  # JSON Schema: any value
        return "text"
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type", "string")
    kinds = kind if isinstance(kind, list) else [kind]
    return _SAMPLES.get(next((str(each) for each in kinds if each != "null"), "string"), "text")
