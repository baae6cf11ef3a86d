"""Keys of services: read from the environment, looked at before they are used, and never repeated in a message.

A header that cannot be sent makes its library raise an error that shows the header whole, and an agent would read it. So a key
that no header can carry is refused when it is read.
"""

import os
import re
from collections.abc import Iterable

from rrm.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[\x20-\x7e]*")
_SCRUBBED_CHARS = 6
"""Shorter ones are words of any text."""


def key_from(variable: str, where: str) -> str:
    """The key that an environment variable holds. Raises ConfigError: it is not set or empty, or a header cannot carry it; the message
    holds nothing of the key."""
    key = os.environ.get(variable, "")
    if not key:
        raise ConfigError(f"{where}: the environment variable {variable} is not set")
    if key != key.strip():
        raise ConfigError(
            f"{where}: the environment variable {variable} begins or ends with a space or a line break; set it without"
        )
    return header_value(key, f"{where}: the environment variable {variable}")


def header_value(text: str, where: str) -> str:
    """The text, where a header can carry it. Raises ConfigError: it has other characters than printable ASCII; the message holds nothing of
    the text."""
    if not _VALUE.fullmatch(text):
        place = next(i for i, letter in enumerate(text) if not " " <= letter <= "~")
        raise ConfigError(
            f"{where}: character {place + 1} of {len(text)} is a control character or no ASCII, which no header can carry"
        )
    return text


def header_name(text: str, where: str) -> str:
    """The text, where it can name a header. Raises ConfigError: it cannot."""
    if not _NAME.fullmatch(text):
        raise ConfigError(f"{where}: {text!r} cannot name a header")
    return text


def scrubbed(text: str, keys: Iterable[str]) -> str:
    """A message without the keys."""
    for key in sorted(keys, key=len, reverse=True):  # a key within a key goes with it
        if len(key) >= _SCRUBBED_CHARS:
            text = text.replace(key, "[key]")
    return text
