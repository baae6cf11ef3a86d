"""Keeps secrets out of what a server's words are quoted in: in whichever spelling it echoes them, whole or torn off at the end."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from functools import cache
from html.entities import codepoint2name

QUOTED = 300
"""Characters of a server's text that a message quotes."""
_LOOKED_AT = 20_000
"""Of a longer text no more is read."""
_LEAST = 4
"""Secrets of fewer characters (`1`, `on`, `x`) are none, and hiding them would garble messages."""
_LONG = 8
"""One of fewer characters may stand inside other words, and is hidden where it is a word of its own alone."""
_TORN = 6
"""Characters of a secret's beginning that are hidden where the text ends in them; anywhere, where they are half of it."""
_HALF_OF = 16
"""Fewest characters of a secret of which half is hidden too."""
_REST = re.compile(r"(?:%(?:25)*[0-9a-f]?|\\+(?:u[0-9a-f]{0,3})?|&[#\w]{0,6}|[\s.…]*)\Z", re.IGNORECASE)
"""What a text may hold after a torn secret: half an escape, or dots for what is missing."""


class Hidden:
    """Secrets that no message quotes.

    Args:
        values: the secrets.
    """

    def __init__(self, values: Iterable[str]) -> None:
        self._forms: list[tuple[str, bool]] = []
        """(spelling, whether it is base64 of a secret), the longest first."""
        for value in {v for v in values if len(v) >= _LEAST}:
            self._forms.append((value, False))
            if len(value) >= _LONG:
                self._forms += [(value.encode().hex(), True), *((form, True) for form in _in_base64(value))]
        self._forms.sort(key=lambda form: len(form[0]), reverse=True)

    def hide(self, text: str) -> str:
        """The text with `***` for each secret: as it is, percent-encoded, escaped (JSON, HTML), in base64 or hexadecimal digits; and for the
        beginning of one of `_TORN` characters or more in which the text ends."""
        for form, encoded in self._forms:
            text = _without(text, form, encoded)
        return text

    def quote(self, text: str) -> str:
        """The first `QUOTED` characters of the text without its secrets."""
        return self.hide(self.hide(text.strip()[:_LOOKED_AT])[:QUOTED])


def _in_base64(value: str) -> list[str]:
    """The characters of base64 that a value alone decides, at each of three places where it may begin within a longer one."""
    encodings = list[str]()
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + value.encode()).decode().rstrip("=")
        bits = 8 * (before + len(value.encode()))
        encodings.append(coded[-(-8 * before // 6) : bits // 6])
    return encodings


def _without(text: str, form: str, encoded: bool) -> str:
    spelt = [_spelt(c, encoded) for c in form]
    pieces, end = list[str](), 0
    for match in re.finditer(f"(?=({''.join(spelt[:_TORN])}))", text, re.IGNORECASE):
        if match.start() < end:
            continue
        position, count = match.end(1), min(_TORN, len(form))
        while count < len(spelt) and (more := _compiled(spelt[count]).match(text, position)) is not None:
            position, count = more.end(), count + 1
        complete = count == len(spelt)
        if len(form) < _LONG and complete:
            hidden = not (text[: match.start()][-1:].isalnum() or text[position : position + 1].isalnum())
        else:
            torn = len(form) >= _LONG and _REST.match(text, position) is not None
            hidden = complete or torn or (len(form) >= _HALF_OF and count >= len(form) / 2)
        if hidden:
            pieces += [text[end : match.start()], "***"]
            end = position
    return "".join([*pieces, text[end:]])


@cache
def _spelt(character: str, encoded: bool) -> str:
    """A pattern of all spellings of a character."""
    if character in "+-/_" and encoded:  # of base64 in either alphabet
        pair = "+-" if character in "+-" else "/_"
        return f"(?:{_spelt(pair[0], False)}|{_spelt(pair[1], False)})"
    code, raw = ord(character), re.escape(character)
    name = codepoint2name.get(code)
    ways = [
        raw if character.isalnum() else rf"\\{{0,4}}{raw}",
        rf"\\{{1,16}}u{code:04x}",
        rf"&#(?:x0{{0,6}}{code:x}|0{{0,6}}{code});",
    ]
    ways.append("".join(f"%(?:25){{0,4}}{byte:02x}" for byte in character.encode()))
    ways += [f"&{name};"] * (name is not None) + [r"\+"] * (character == " ")
    return f"(?:{'|'.join(ways)})"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)
