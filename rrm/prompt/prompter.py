"""Prompter: a tokenizer, a token budget and the judge's prompt format, in one place for training and judging.

The prompt a local judge reads ends with its reply's opening tag (`<score>`, `<critique>` or `<think>`), so the sampled
tokens begin at a fixed token boundary in training and in use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rrm.feedback import Mode
from rrm.prompt.rendering import OPENINGS, judge_messages
from rrm.prompt.template import Disarm, as_taken, render, set_template
from rrm.trajectory import Trajectory

GRID = tuple(round(i / 10, 1) for i in range(11))
"""The values a score may take in text: 0.0, 0.1 … 1.0."""


@dataclass(frozen=True)
class Prompt:
    """Token ids of a prompt and how many transcript tokens the budget cut."""

    ids: list[int]
    truncated_tokens: int


class Prompter:
    """Makes a judge's prompts, in the form of its base (`rrm.prompt.template`), and keeps transcripts plain text.

    Args:
        tokenizer: the base's or a saved judge's. It gets the chat template its judge is trained and used with.
        transcript_tokens: budget of a rendered transcript.

    Raises:
        RRMError: the tokenizer names no token that could end a reply.
    """

    def __init__(self, tokenizer: Any, transcript_tokens: int) -> None:
        self.tokenizer = tokenizer
        self.transcript_tokens = transcript_tokens
        self.eos_token_id: int = set_template(tokenizer)
        """Ends a reply: the base's own end of a turn."""
        self._disarm = Disarm(tokenizer)

    def encode(self, text: str) -> list[int]:
        """Token ids of our own text, without special tokens added."""
        return self.tokenizer.encode(text, add_special_tokens=False)

    def messages(self, trajectory: Trajectory, mode: Mode) -> tuple[list[dict[str, str]], int]:
        """Rubric (system) and transcript (user), and how many transcript tokens the budget cut.

        No special token of this tokenizer comes out of the transcript when it is encoded.
        """
        messages, cut = judge_messages(trajectory, mode, self.tokenizer, self.transcript_tokens)
        messages[-1]["content"] = self._disarm(messages[-1]["content"])
        return messages, cut

    def as_taken(self, messages: list[dict[str, str]]) -> list[dict[str, str]]:
        """The messages in the roles that this base's template has (`rrm.prompt.template.as_taken`)."""
        return as_taken(self.tokenizer, messages)

    def text(self, trajectory: Trajectory, mode: Mode) -> tuple[str, int]:
        """Rubric, transcript and the opening of the reply as text, and how many transcript tokens the budget cut."""
        messages, cut = self.messages(trajectory, mode)
        return render(self.tokenizer, messages) + OPENINGS[mode], cut

    def prompt(self, trajectory: Trajectory, mode: Mode) -> Prompt:
        """Rubric, transcript and the opening of the reply, as token ids."""
        text, cut = self.text(trajectory, mode)
        return Prompt(self.encode(text), cut)

    def grid(self) -> list[list[int]]:
        """Token ids of each grid value as it stands between the score tags."""
        return [self.encode(f"{value:.1f}") for value in GRID]
