"""Makes a benchmark's tools: the calculator, and those of `reagent.tools`, imported only here."""

import importlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from reagent.env.tool import Tool, tool
from rrm.errors import ConfigError

CALCULATOR = "calculator"
BUILT = "reagent.tools"  # its `build(names, options)` makes all other tools
WEB_TOOLS = ("browse", "search_api", "mcp")
PUBLISHERS = (
    "huggingface.co", "hf.co", "hf-mirror.com", "modelscope.cn", "kaggle.com",
    "github.com", "githubusercontent.com", "jsdelivr.net/gh", "githack.com", "statically.io/gh",
    "translate.goog",
)  # fmt: skip
"""Hosts that publish data sets with their answers, and copies; the last one rewrites other hosts.
All of GitHub: forks, gists, logs of other agents and its search show the answers under any owner's name."""


@tool
async def calculator(expression: str) -> str:
    """Calculate.

    Args:
        expression: Numbers, + - * / // % ** and parentheses, e.g. (482 + 371) / 3.
    """
    from reagent.tools.calculator import evaluate, format_number

    return format_number(evaluate(expression))


def build_tools(
    chosen: Sequence[str | Tool], options: Mapping[str, Mapping[str, Any]], *, needed_by: str
) -> list[Tool]:
    """Make the tools in order. Those made by name are shared by all environments with the same options.
    `options`: by the tool's name; `needed_by`: the benchmark, for errors. Raises ConfigError: unused options, or a tool that cannot be made."""
    names = [each for each in chosen if isinstance(each, str)]
    if unused := [name for name in options if name not in names]:
        raise ConfigError(
            f"{needed_by}: options for {', '.join(unused)}, which is none of its tools ({', '.join(names) or 'none'})"
        )
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"{needed_by}: the tool {twice[0]!r} is wanted twice")
    tools: list[Tool] = []
    for each in chosen:
        tools += [each] if isinstance(each, Tool) else _made(each, options.get(each, {}), needed_by)
    return tools


def _made(name: str, options: Mapping[str, Any], needed_by: str) -> Sequence[Tool]:
    if name == CALCULATOR and not options:
        return [calculator]
    try:
        return _built(name, json.dumps(dict(options), sort_keys=True), needed_by)
    except TypeError as error:
        raise ConfigError(f"{needed_by}: the options of {name} must be what JSON can say: {error}") from error


@lru_cache(maxsize=32)
def _built(name: str, options: str, needed_by: str) -> tuple[Tool, ...]:
    try:
        module = importlib.import_module(BUILT)
    except ModuleNotFoundError as error:
        if error.name != BUILT:
            raise
        raise ConfigError(
            f"{needed_by} wants the tool {name!r}, which this installation does not have; "
            f"name others in environment.options.tools, for example [{CALCULATOR}], or []"
        ) from error
    settings = json.loads(options)
    return tuple(module.build([name], {name: settings} if settings else {}))
