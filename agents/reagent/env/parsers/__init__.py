"""Tool-call formats behind one interface (`reagent.env.parsers.base.Parser`)."""

import re
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
from rrm.data.printing import did_you_mean
from rrm.errors import ConfigError

_KNOWN = (
    HermesParser, SearchTagsParser, ReactParser, Llama3Parser, HarmonyParser, GlmParser, Glm4Parser, DeepSeekParser,
    DeepSeekV31Parser,
)  # fmt: skip
PARSERS: dict[str, Callable[[Sequence[dict[str, Any]]], Parser]] = {parser.name: parser for parser in _KNOWN}


def make_parser(name: str, tools: Sequence[dict[str, Any]] = ()) -> Parser:
    """The parser of a format, for the tools with these schemas. Raises ConfigError: no such format."""
    if name not in PARSERS:
        raise ConfigError(f"no tool-call format {name!r}; there are {', '.join(PARSERS)}{did_you_mean(name, PARSERS)}")
    return PARSERS[name](tools)


FAMILIES = (
    ("<arg_key>", "glm"),
    ("<|channel|>", "harmony"),
    ("<|python_tag|>", "llama3"),
    ("<function=", None),  # Qwen3-Coder's own form, which no parser here reads
    ("<tool_call>", "hermes"),
)
"""(text in a family's chat template, format of its calls), tried in this order."""


def family_of(chat_template: str) -> str | None:
    """The call format of a chat template; None where it lists no tools, or the format is unknown."""
    if not re.search(r"\btools\b", chat_template):
        return None
    return next((name for mark, name in FAMILIES if mark in chat_template), None)


__all__ = ["PARSERS", "MalformedCall", "ParsedTurn", "Parser", "family_of", "make_parser"]
