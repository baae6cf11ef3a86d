"""Options of a chat template (`enable_thinking`, `reasoning_effort`, `date_string`, …): which ones it reads.

jinja2 takes any name without a word, so a misspelt option would change nothing and nobody would know. What a template reads
is in its source: the names it looks up, less those that every chat template is given and those it assigns itself. A name
that it assigns only where the caller did not (`{% if not date_string is defined %}{% set date_string = … %}`) is an option.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from rrm.data.printing import did_you_mean

_GIVEN = frozenset({"messages", "tools", "documents", "add_generation_prompt", "raise_exception", "strftime_now"})
"""What `apply_chat_template` itself passes, the names of special tokens (`bos_token`) aside."""
_WORDS = ("true", "false", "none", "null")


class _Generation(Extension):
    """`{% generation %}`, transformers' mark around what an assistant says: here its body stands for it."""

    tags: ClassVar = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@lru_cache(maxsize=64)
def options_of(source: str) -> frozenset[str]:
    """Names that a chat template's source reads from its caller. Raises jinja2.TemplateSyntaxError: it is no template."""
    environment = jinja2.Environment(extensions=[_Generation, "jinja2.ext.loopcontrols"])
    tree = environment.parse(source)
    assigned = {name.name for name in tree.find_all(nodes.Name) if name.ctx == "store"}
    asked_for = {
        test.node.name
        for test in tree.find_all((nodes.Test, nodes.Filter))
        if test.name in ("defined", "undefined", "default", "d") and isinstance(test.node, nodes.Name)
    }
    read = meta.find_undeclared_variables(tree) - environment.globals.keys() - _GIVEN
    return frozenset(
        name for name in read if not name.endswith("_token") and (name not in assigned or name in asked_for)
    )


def options_problem(source: str, options: Mapping[str, Any]) -> str | None:
    """What is wrong with the options given to a template, or None: a name it never reads, or a word in quotes for a value."""
    known = sorted(options_of(source))
    for name, value in options.items():
        if name not in known:
            reads = f"it reads {', '.join(known)}" if known else "it reads none"
            return f"this chat template never reads the option {name!r}: {reads}{did_you_mean(name, known)}"
        if isinstance(value, str) and value.lower() in _WORDS:
            return f"the chat template's option {name} is the text {value!r}: write {value.lower()} without quotes"
    return None
