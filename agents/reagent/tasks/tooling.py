"""The tools a benchmark asks for by name: the calculator, and those of `reagent.tools`, which is imported only here."""

import importlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from reagent.env.tool import Tool, tool
from rrm.errors import ConfigError

CALCULATOR = "calculator"
BUILT = "reagent.tools"
"""Its `build(names, options)` makes all other tools: `search`, `browse`, `python`, `read_file`, `mcp`."""
WEB_TOOLS = ("browse", "search_api", "mcp")
"""Those that reach the web, or may, and take a list of addresses from which they keep the agent."""
PUBLISHERS = (
    "huggingface.co", "hf.co", "hf-mirror.com", "modelscope.cn", "kaggle.com",
    "github.com", "githubusercontent.com", "jsdelivr.net/gh", "githack.com", "statically.io/gh",
    "translate.goog",
)  # fmt: skip
"""Where data sets are published with their answers, and copies of them; the last one writes other hosts in a form of its own.

GitHub as a whole: forks, gists, logs of other agents, its search and its numbered repositories show the answers under any owner's name."""


@tool
async def calculator(expression: str) -> str:
    """Calculate.

    Args:
        expression: Numbers, + - * / // % ** and parentheses, e.g. (482 + 371) / 3.
    """
    from reagent.tools.calculator import evaluate, format_number

    return format_number(evaluate(expression))


def build_tools(
    wanted: Sequence[str | Tool], options: Mapping[str, Mapping[str, Any]], *, needed_by: str
) -> list[Tool]:
    """The tools in order. Those made by name are made once a process for the same names and options, and shared by all environments: an
    index is opened once. Raises ConfigError: options for a tool that is not wanted, or tools that cannot be made.

    Args:
        options: by the tool's name.
        needed_by: the benchmark, for errors.
    """
    names = [each for each in wanted if isinstance(each, str)]
    if unused := [name for name in options if name not in names]:
        raise ConfigError(
            f"{needed_by}: options for {', '.join(unused)}, which is none of its tools ({', '.join(names) or 'none'})"
        )
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"{needed_by}: the tool {twice[0]!r} is wanted twice")
    found: list[Tool] = []
    for each in wanted:
        found += [each] if isinstance(each, Tool) else _made(each, options.get(each, {}), needed_by)
    return found


def _made(name: str, options: Mapping[str, Any], needed_by: str) -> Sequence[Tool]:
    if name == CALCULATOR and not options:
        return [calculator]
    try:
        return _built(name, json.dumps(dict(options), sort_keys=True), needed_by)
    except TypeError as error:
        raise ConfigError(f"{needed_by}: the options of {name} must be what JSON can say: {error}") from error


@lru_cache(maxsize=32)
def _built(name: str, options: str, needed_by: str) -> tuple[Tool, ...]:
    """One tool, or those of one server."""
    try:
        module = importlib.import_module(BUILT)
    except ModuleNotFoundError as error:
        if error.name != BUILT:
            raise
        raise ConfigError(
            f"{needed_by} wants the tool {name!r}, which this installation does not have; "
            f"name others in environment.options.tools, for example [{CALCULATOR}], or []"
        ) from error
    given = json.loads(options)
    return tuple(module.build([name], {name: given} if given else {}))
