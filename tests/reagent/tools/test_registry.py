"""Tools by name."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from reagent.env.env import ToolEnv
from reagent.env.tool import Tool
from reagent.tools import TOOLS, build
from reagent.tools.registry import _factory, _type_check
from rrm.errors import ConfigError


def test_every_name_has_its_function() -> None:
    for name in TOOLS:
        assert callable(_factory(name)), name


def test_tools_come_in_order_and_fit_an_environment(tmp_path: Path) -> None:
    tools = build(["read_file", "browse"], {"read_file": {"root": str(tmp_path)}})
    assert [tool.name for tool in tools] == ["read_file", "browse"] and all(isinstance(tool, Tool) for tool in tools)
    described = ToolEnv(tools).tools
    assert described[1]["function"]["parameters"]["required"] == ["url"]
    assert build([]) == []


def test_wrong_names_and_options_are_refused(tmp_path: Path) -> None:
    root = {"read_file": {"root": str(tmp_path)}}
    for names, options, message in (
        (["serch"], {}, r"there is no 'serch'.*did you mean search\?"),
        (["read_file"], root | {"browse": {}}, "options for 'browse', which is not among the tools: read_file"),
        (["read_file"], {"read_file": {"rooot": "."}}, r"no option 'rooot'.*did you mean root\?"),
        (["search"], {}, r"'corpus' is missing, a folder that `reagent corpus` .*environment\.options\.corpus"),
        (["read_file"], {}, r"'root' is missing, the folder .*environment\.options\.files"),
        (["browse", "browse"], {}, "two are called 'browse'"),
    ):
        with pytest.raises(ConfigError, match=message):
            build(names, options)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("search", {"corpus": "x", "k": "3"}, "tools.search: k='3': input should be a valid integer"),
        ("search", {"corpus": 7}, "tools.search: corpus=7: input should be a valid string"),
        ("python", {"files": 3}, "tools.python: files=3: input should be a valid string"),
        ("browse", {"timeout_s": True}, "tools.browse: timeout_s=True: input should be a valid number"),
    ],
)
def test_options_of_another_type_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build([name], {name: options})


@pytest.mark.parametrize("name", TOOLS)
def test_each_options_own_default_is_of_its_type(name: str) -> None:
    for option, parameter in inspect.signature(_factory(name)).parameters.items():
        adapter = _type_check(get_type_hints(_factory(name))[option])
        if adapter is not None and parameter.default is not parameter.empty:
            adapter.validate_python(parameter.default, strict=True)
