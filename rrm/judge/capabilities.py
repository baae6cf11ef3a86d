"""What a judge can be asked for, and how it answers: from slots, or in words; sampled, at which temperature, or read."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from rrm.data.feedback import Mode
from rrm.errors import ConfigError, RRMError
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


log = logging.getLogger(__name__)
SAMPLING_TEMPERATURE = 0.7
"""Temperature of a local judge's replies where more than one is sampled; a single reply is greedy."""


class Sampling:
    """The temperature of one judge's replies; it remembers what it warned of."""

    def __init__(self) -> None:
        self._untried: set[Mode] = set()
        self._said_unsampled = False

    def temperature(self, abilities: Abilities, asked: float | None, mode: Mode, samples: int) -> float:
        """The temperature for so many judgements in this mode.

        Args:
            asked: what the server's options say; None: nothing.

        Raises:
            RRMError: less than one.
            ConfigError: several, at a temperature at which all are alike.
        """
        if samples < 1:
            raise RRMError(f"samples must be at least 1, got {samples}")
        self._say_untried(abilities, "steps" if abilities.reads_slots(mode) else mode)
        if samples > 1 and not abilities.samples(mode):
            self._say_unsampled(abilities, mode, samples)
        elif samples > 1 and asked == 0:
            raise ConfigError(
                f"{samples} samples at --temperature 0 would all be alike: raise it, or leave out --samples"
            )
        if asked is not None:
            return asked
        return SAMPLING_TEMPERATURE if samples > 1 else 0.0

    def _say_untried(self, abilities: Abilities, mode: Mode) -> None:
        """Warn once of a mode that the judge was not trained in."""
        if abilities.trained and mode not in {*abilities.trained, *self._untried}:
            self._untried.add(mode)
            log.warning(
                "%s was trained in %s and not in %s: what it says there is not calibrated, and of unknown worth",
                abilities.model,
                ", ".join(abilities.trained),
                mode,
            )

    def _say_unsampled(self, abilities: Abilities, mode: Mode, samples: int) -> None:
        """Warn once that more samples would all be the same."""
        if not self._said_unsampled:
            self._said_unsampled = True
            log.warning(
                "%s samples nothing in mode %s: each transcript is read once, not %d times",
                abilities.model,
                mode,
                samples,
            )
