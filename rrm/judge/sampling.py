"""At which temperature a judge's replies are sampled; and what is warned of before they are, once."""

from __future__ import annotations

import logging

from rrm.data.feedback import Mode
from rrm.errors import ConfigError, RRMError
from rrm.judge.capabilities import Abilities

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
