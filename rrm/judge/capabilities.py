"""A judge's capabilities: modes, answers from slots or in words, and sampling temperature."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from rrm.data.feedback import Mode
from rrm.errors import ConfigError, RRMError
from rrm.prompt.rendering import CUT_VERSION


@dataclass(frozen=True)
class Abilities:
    model: str
    trained: Sequence[Mode]  # empty: never trained to judge
    local: bool  # its weights are here, not on a server
    prompt_version: str
    asks: bool = False  # it answers criteria, in words
    served_slots: bool = False  # on a server, with its own tokenizer here, by which slots are found

    def reads_slots(self, mode: Mode) -> bool:
        """Return whether the mode is answered from slots (`rrm.judge.steps`).

        A judge trained in `steps` reads slots in untrained modes, too. A server without slots answers `score` in words.
        """
        if mode == "steps" or self.asks or (mode == "score" and not self.local and not self.served_slots):
            return mode == "steps"
        return "steps" in self.trained and mode not in self.trained

    def samples(self, mode: Mode) -> bool:
        # not where probabilities are read, at slots or at the score's position
        return not self.reads_slots(mode) and (mode != "score" or not self.local or self.asks)

    def read_as(self, mode: Mode) -> Mode:
        # the mode whose prompts are used
        return "steps" if self.reads_slots(mode) and self.prompt_version != CUT_VERSION else mode

    def check(self, mode: Mode) -> None:
        """Raise RRMError for a mode that needs slots, if the judge has none to read."""
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
SAMPLING_TEMPERATURE = 0.7  # of local replies when several are sampled; a single one is greedy


class Sampling:
    """The temperature of one judge's replies; warns once of each problem."""

    def __init__(self) -> None:
        self._untried: set[Mode] = set()
        self._said_unsampled = False

    def temperature(self, abilities: Abilities, server_temperature: float | None, mode: Mode, samples: int) -> float:
        """Return the temperature of `samples` judgements in this mode.

        Raises RRMError for less than one sample, ConfigError for several at temperature 0, which would all be alike.
        """
        if samples < 1:
            raise RRMError(f"samples must be at least 1, got {samples}")
        self._say_untried(abilities, "steps" if abilities.reads_slots(mode) else mode)
        if samples > 1 and not abilities.samples(mode):
            self._say_unsampled(abilities, mode, samples)
        elif samples > 1 and server_temperature == 0:
            raise ConfigError(
                f"{samples} samples at --temperature 0 would all be alike: raise it, or leave out --samples"
            )
        if server_temperature is not None:
            return server_temperature
        return SAMPLING_TEMPERATURE if samples > 1 else 0.0

    def _say_untried(self, abilities: Abilities, mode: Mode) -> None:
        if abilities.trained and mode not in {*abilities.trained, *self._untried}:
            self._untried.add(mode)
            log.warning(
                "%s was trained in %s and not in %s: what it says there is not calibrated, and of unknown worth",
                abilities.model,
                ", ".join(abilities.trained),
                mode,
            )

    def _say_unsampled(self, abilities: Abilities, mode: Mode, samples: int) -> None:
        if not self._said_unsampled:
            self._said_unsampled = True
            log.warning(
                "%s samples nothing in mode %s: each transcript is read once, not %d times",
                abilities.model,
                mode,
                samples,
            )
