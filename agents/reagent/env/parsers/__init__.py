"""Tool-call formats behind one interface (`reagent.env.parsers.base.Parser`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from reagent.env.parsers.base import MalformedCall, ParsedTurn, Parser
from reagent.env.parsers.deepseek import DeepSeekParser, DeepSeekV31Parser
from reagent.env.parsers.glm import Glm4Parser, GlmParser
from reagent.env.parsers.harmony import HarmonyParser
from reagent.env.parsers.hermes import HermesParser
from reagent.env.parsers.llama3 import Llama3Parser
from reagent.env.parsers.react import ReactParser
from reagent.env.parsers.search_tags import SearchTagsParser
from rrm.data.printing import nearest
from rrm.errors import ConfigError

_KNOWN = (
    HermesParser, SearchTagsParser, ReactParser, Llama3Parser, HarmonyParser, GlmParser, Glm4Parser, DeepSeekParser,
    DeepSeekV31Parser,
)  # fmt: skip
PARSERS: dict[str, Callable[[Sequence[dict[str, Any]]], Parser]] = {parser.name: parser for parser in _KNOWN}


def make_parser(name: str, tools: Sequence[dict[str, Any]] = ()) -> Parser:
    """The parser of a format, for the tools with these schemas.

    Raises:
        ConfigError: no such format; the message names the nearest.
    """
    if name not in PARSERS:
        near = nearest(name, PARSERS)
        hint = f"; did you mean {near}?" if near else ""
        raise ConfigError(f"no tool-call format {name!r}; there are {', '.join(PARSERS)}{hint}")
    return PARSERS[name](tools)


__all__ = ["PARSERS", "MalformedCall", "ParsedTurn", "Parser", "make_parser"]
