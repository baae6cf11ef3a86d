"""Naive retrieval-augmented generation: passages for a question, in the first user message before it.

Passages are cut before the prompt is rendered, so that its tokens are exactly those of the transcript's messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from reagent.env.parsers.base import first_argument
from reagent.env.tool import Tool, shorten
from reagent.tasks.tooling import build_tools
from rrm.engines.async_runner import run
from rrm.errors import ConfigError
from rrm.prompt.neutralise import neutralise_control
from rrm.prompt.rendering import water_fill

PASSAGES_PREFIX, QUESTION_PREFIX = "What a search for the question found:", "Question:"
SEPARATOR = "\n\n"  # between two passages, as `search` writes them

Messages = list[dict[str, Any]]


class Retrieval:
    """Asks a tool, whose first argument takes the question. Raises ConfigError: it has no argument."""

    def __init__(self, tool: Tool) -> None:
        argument = first_argument([tool.schema])[tool.name]
        if argument is None:
            raise ConfigError(f"environment.options.retrieve: {tool.name} takes no argument, so no question either")
        self.tool, self.argument = tool, argument
        self._passages = ""

    @classmethod
    def by(cls, tool: str | Tool, options: Mapping[str, Mapping[str, Any]], *, needed_by: str) -> Retrieval:
        """Build it with a tool, or the one of this name and options. Raises ConfigError: it cannot be made."""
        own = {tool: options[tool]} if isinstance(tool, str) and tool in options else {}
        (built,) = build_tools([tool], own, needed_by=needed_by)
        return cls(built)

    def look_up(self, question: str, tags: tuple[str, ...] = ()) -> None:
        """Ask; may block. Raises ToolError. `tags`: of the call format, disarmed in the result."""
        result = run(self.tool.call({self.argument: question}))
        if result.error is not None:
            raise result.error
        self._passages = neutralise_control(result.content, tags)

    def shown(self, messages: Messages, chars: int | None = None) -> Messages:
        """The messages with the passages in the last one, before its content.
        `chars`: of all passages; short ones leave their share to long ones, which lose their middle. None: all of them."""
        parts = self._passages.split(SEPARATOR)
        if chars is not None:
            shares = water_fill([len(passage) for passage in parts], chars)
            cut = [shorten(passage, share, " … ")[0] for passage, share in zip(parts, shares, strict=True)]
            parts = [passage for passage in cut if passage]
        *before, question = messages
        text = SEPARATOR.join([PASSAGES_PREFIX, *parts, f"{QUESTION_PREFIX} {question['content']}"])
        return [*before, question | {"content": text}]

    def fitted(self, messages: Messages, tokens: Callable[[Messages], int], room: int) -> Messages:
        """Messages of `shown`, their passages cut to fit `room` tokens, or left out.
        `tokens`: number of tokens of messages as the policy reads them."""
        if tokens(messages) <= room:
            return messages
        lead = SEPARATOR.join([PASSAGES_PREFIX, self._passages, f"{QUESTION_PREFIX} "])
        *before, last = messages
        plain = [*before, last | {"content": last["content"].removeprefix(lead)}]
        low, high, best = 0, len(self._passages), self.shown(plain, 0)
        while high - low > 1:
            middle = (low + high) // 2
            tried = self.shown(plain, middle)
            if tokens(tried) <= room:
                low, best = middle, tried
            else:
                high = middle
        return best
