"""Tools by name, for configs.

build(["search", "python"], {"search": {"corpus": "wiki-index", "k": 5}})
"""

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from reagent.env.tool import Tool
from rrm.data.printing import did_you_mean
from rrm.errors import ConfigError

TOOLS: dict[str, str] = {
    "search": "reagent.tools.search:search_tools",
    "search_api": "reagent.tools.search_api:search_api_tools",
    "browse": "reagent.tools.browse:browse_tools",
    "python": "reagent.tools.python:python_tools",
    "read_file": "reagent.tools.read_file:read_file_tools",
    "mcp": "reagent.tools.mcp_tools:mcp_tools",
}
"""Name → the function that makes its tools (`mcp` makes many) from the options of its signature."""
NEEDS = {
    ("search", "corpus"): (
        ", a folder that `reagent corpus` makes of texts, such as a benchmark's own (`reagent tasks NAME --passages FILE`): for a benchmark "
        "environment.options.corpus"
    ),
    ("read_file", "root"): ", the folder with the files: for a benchmark environment.options.files",
}
"""Explains options without which a tool cannot be made."""


def build(names: Sequence[str], options: Mapping[str, Mapping[str, Any]] | None = None) -> list[Tool]:
    """Make the tools of these names, in order, and check what they need (an index, a sandbox) now.

    Args:
        options: name → its options; required ones have no default.

    Raises:
        ConfigError: an unknown name or option, a missing option, or two tools of one name.
        RRMError: something that a tool needs is absent, e.g. an extra, or a sandbox.
    """
    options = options or {}
    for name in options:
        if name not in names:
            raise ConfigError(
                f"tools: options for {name!r}, which is not among the tools: {', '.join(names) or 'none'}"
            )
    tools: list[Tool] = []
    for name in names:
        tools += _factory(name)(**_checked(name, options.get(name, {})))
    called = [tool.name for tool in tools]
    if twice := [name for name in called if called.count(name) > 1]:
        raise ConfigError(f"tools: two are called {twice[0]!r}; leave one out, or give an MCP server a prefix")
    return tools


def _factory(name: str) -> Callable[..., list[Tool]]:
    if name not in TOOLS:
        raise ConfigError(f"tools: there is no {name!r}; there are {', '.join(TOOLS)}{did_you_mean(name, TOOLS)}")
    module, _, attribute = TOOLS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def _checked(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(_factory(name)).parameters
    for option in values:
        if option not in parameters:
            raise ConfigError(
                f"tools.{name}: there is no option {option!r}; there are {', '.join(parameters)}{did_you_mean(option, parameters)}"
            )
    missing = [key for key, p in parameters.items() if p.default is p.empty and key not in values]
    if missing:
        raise ConfigError(f"tools.{name}: the option {missing[0]!r} is missing{NEEDS.get((name, missing[0]), '')}")
    hints = get_type_hints(_factory(name))
    for option, value in values.items():
        if (adapter := _type_check(hints[option])) is not None:
            try:
                adapter.validate_python(value, strict=True)
            except ValidationError as error:
                problem = error.errors()[0]["msg"].lower()
                raise ConfigError(f"tools.{name}: {option}={value!r}: {problem}") from error
    return dict(values)


def _type_check(hint: Any) -> TypeAdapter[Any] | None:
    """Checks an option that is one number or text; tools check lists and choices themselves."""
    parts = get_args(hint) if get_origin(hint) is UnionType else [hint]
    return TypeAdapter(hint) if all(option in (int, float, str, bool, NoneType) for option in parts) else None
