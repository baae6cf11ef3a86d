"""Keys of services: read from the environment, checked before use, and never repeated in a message.

A library that cannot send a header raises an error that shows it, key included, to the agent: such a key is refused when it is read."""

import os
import re
from collections.abc import Iterable

from rrm.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[\x20-\x7e]*")
_SCRUBBED_CHARS = 6  # shorter ones are words of any text


def key_from(variable: str, where: str) -> str:
    key = os.environ.get(variable, "")
    if not key:
        raise ConfigError(f"{where}: the environment variable {variable} is not set")
    if key != key.strip():
        raise ConfigError(
            f"{where}: the environment variable {variable} begins or ends with a space or a line break; set it without"
        )
    return header_value(key, f"{where}: the environment variable {variable}")


def header_value(text: str, where: str) -> str:
    """The text. Raises ConfigError, without the text: it is no printable ASCII."""
    if not _VALUE.fullmatch(text):
        position = next(i for i, letter in enumerate(text) if not " " <= letter <= "~")
        raise ConfigError(
            f"{where}: character {position + 1} of {len(text)} is a control character or no ASCII, which no header can carry"
        )
    return text


def header_name(text: str, where: str) -> str:
    """The text. Raises ConfigError: it cannot name a header."""
    if not _NAME.fullmatch(text):
        raise ConfigError(f"{where}: {text!r} cannot name a header")
    return text


def scrubbed(text: str, keys: Iterable[str]) -> str:
    for key in sorted(keys, key=len, reverse=True):  # a key within a key goes with it
        if len(key) >= _SCRUBBED_CHARS:
            text = text.replace(key, "[key]")
    return text
