"""Finds the options that a chat template reads (`enable_thinking`, `reasoning_effort`, …).

jinja2 ignores unknown names, so a misspelt option would change nothing. A template's options are the names it looks up, less those that
every chat template is given and those it assigns itself; a name that it assigns only where the caller did not is an option."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from rrm.data.printing import did_you_mean

_GIVEN = frozenset({"messages", "tools", "documents", "add_generation_prompt", "raise_exception", "strftime_now"})
"""Passed by `apply_chat_template`, beside the names of special tokens (`bos_token`)."""
_WORDS = ("true", "false", "none", "null")


class _Generation(Extension):
    """`{% generation %}`, transformers' mark around an assistant's words; here it is replaced by its body."""

    tags: ClassVar = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@lru_cache(maxsize=64)
def options_of(source: str) -> frozenset[str]:
    """Names that a chat template's source reads from its caller. Raises jinja2.TemplateSyntaxError."""
    environment = jinja2.Environment(extensions=[_Generation, "jinja2.ext.loopcontrols"])
    tree = environment.parse(source)
    assigned = {name.name for name in tree.find_all(nodes.Name) if name.ctx == "store"}
    asked_for = {
        test.node.name
        for test in tree.find_all((nodes.Test, nodes.Filter))
        if test.name in ("defined", "undefined", "default", "d") and isinstance(test.node, nodes.Name)
    }
    names = meta.find_undeclared_variables(tree) - environment.globals.keys() - _GIVEN
    return frozenset(
        name for name in names if not name.endswith("_token") and (name not in assigned or name in asked_for)
    )


def options_problem(source: str, options: Mapping[str, Any]) -> str | None:
    """The problem of a template's options, or None: a name it never reads, or a quoted `true`."""
    names = sorted(options_of(source))
    for name, value in options.items():
        if name not in names:
            reads = f"it reads {', '.join(names)}" if names else "it reads none"
            return f"this chat template never reads the option {name!r}: {reads}{did_you_mean(name, names)}"
        if isinstance(value, str) and value.lower() in _WORDS:
            return f"the chat template's option {name} is the text {value!r}: write {value.lower()} without quotes"
    return None
