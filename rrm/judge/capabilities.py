"""What a judge can be asked for, and how it answers: from slots, or in words; sampled, or read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rrm.data.feedback import Mode
from rrm.errors import RRMError
from rrm.prompt.rendering import CUT_VERSION


@dataclass(frozen=True)
class Abilities:
    """Follow from what a judge was trained in, from where it runs and from its prompts."""

    model: str
    """Its name, for messages."""
    trained: Sequence[Mode]
    """The modes it was trained in; none of a model that was never trained to judge."""
    local: bool
    """Whether its weights are here, rather than on a server."""
    prompt_version: str
    asks: bool = False
    """Whether it answers the questions of criteria, which it does in words."""
    served_slots: bool = False
    """Whether the slots of a judge on a server can be asked for: its own tokenizer is here."""

    def reads_slots(self, mode: Mode) -> bool:
        """Whether the mode is answered from slots: `steps`, and any other where the judge was trained in `steps` and not in
        that (`rrm.judge.steps`). A server whose slots cannot be asked for can be asked for a score in words."""
        if mode == "steps" or self.asks or (mode == "score" and not self.local and not self.served_slots):
            return mode == "steps"
        return "steps" in self.trained and mode not in self.trained

    def samples(self, mode: Mode) -> bool:
        """Whether replies are sampled in the mode: not where probabilities are read, at slots or at the score's place."""
        return not self.reads_slots(mode) and (mode != "score" or not self.local or self.asks)

    def read_as(self, mode: Mode) -> Mode:
        """The mode whose prompts are read where this one is asked for."""
        return "steps" if self.reads_slots(mode) and self.prompt_version != CUT_VERSION else mode

    def check(self, mode: Mode) -> None:
        """Refuse what the judge cannot be asked for.

        Raises:
            RRMError: the mode is answered from slots, and it is a judge on a server, or one whose prompts have none.
        """
        if not self.reads_slots(mode):
            return
        if self.asks:
            raise RRMError("criteria are answered in words: choose mode score, critique or full, not steps")
        if not self.local and not self.served_slots and self.prompt_version != CUT_VERSION:
            raise RRMError(
                f"mode steps reads probabilities at places that the judge's tokenizer finds, and {self.model} runs on a server: name "
                "its directory with --settings, load its weights here, or use mode score"
            )
        if self.prompt_version == CUT_VERSION:
            raise RRMError(
                f"{self.model} was made for prompt version {CUT_VERSION}, which has no slots for verdicts: use mode score, or "
                "train it again"
            )
