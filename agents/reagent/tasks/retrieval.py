"""What is looked up for a question before its first turn: the passages of naive retrieval-augmented generation.

Passages stand in the first user message, before the question. They are cut before the prompt is rendered, never after, so that its tokens are
exactly those of the messages that the transcript shows.
"""

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

FOUND, ASKED = "What a search for the question found:", "Question:"
BETWEEN = "\n\n"
"""Between two passages, as `search` writes them."""

Messages = list[dict[str, Any]]


class Retrieval:
    """Asks a tool for the question's passages. Raises ConfigError: a tool without an argument. `tool`: its first argument takes the
    question."""

    def __init__(self, tool: Tool) -> None:
        argument = first_argument([tool.schema])[tool.name]
        if argument is None:
            raise ConfigError(f"environment.options.retrieve: {tool.name} takes no argument, so no question either")
        self.tool, self.argument = tool, argument
        self._passages = ""

    @classmethod
    def by(cls, tool: str | Tool, options: Mapping[str, Mapping[str, Any]], *, needed_by: str) -> Retrieval:
        """With a tool, or the one of this name; `options` are of tools by name. Raises ConfigError: no such tool, or one that lacks what it
        needs."""
        own = {tool: options[tool]} if isinstance(tool, str) and tool in options else {}
        (made,) = build_tools([tool], own, needed_by=needed_by)
        return cls(made)

    def look_up(self, question: str, tags: tuple[str, ...] = ()) -> None:
        """Ask; may block. Raises ToolError: the tool failed. `tags`: of the agent's call format, disarmed in what was found."""
        result = run(self.tool.call({self.argument: question}))
        if result.error is not None:
            raise result.error
        self._passages = neutralise_control(result.content, tags)

    def shown(self, messages: Messages, chars: int | None = None) -> Messages:
        """The messages with the passages in the last one, before what it says. `chars`: of all passages; short ones leave their share to
        long ones, which lose their middle. None: all of them."""
        parts = self._passages.split(BETWEEN)
        if chars is not None:
            shares = water_fill([len(part) for part in parts], chars)
            cut = [shorten(part, share, " … ")[0] for part, share in zip(parts, shares, strict=True)]
            parts = [part for part in cut if part]
        *before, asked = messages
        text = BETWEEN.join([FOUND, *parts, f"{ASKED} {asked['content']}"])
        return [*before, asked | {"content": text}]

    def fitted(self, messages: Messages, tokens: Callable[[Messages], int], room: int) -> Messages:
        """Messages that `shown` made, their passages cut to the most characters with which they take at most `room` tokens; without any
        passage where that is still too long. `tokens`: of messages as the policy reads them."""
        if tokens(messages) <= room:
            return messages
        lead = BETWEEN.join([FOUND, self._passages, f"{ASKED} "])
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
