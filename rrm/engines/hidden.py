"""Hide secrets in quoted texts of servers, in any encoding, complete or cut off at the end."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from functools import cache
from html.entities import codepoint2name

QUOTED = 300  # characters of a server's text that a message quotes
_LOOKED_AT = 20_000  # characters of a text that are searched
_LEAST = 4  # shorter secrets (`1`, `on`, `x`) are not hidden, which would garble messages
_LONG = 8  # shorter secrets are hidden as separate words only
_TORN = 6  # characters of a secret's beginning that are hidden at the text's end; anywhere, if half of the secret
_HALF_OF = 16  # fewest characters of a secret of which half is hidden too
# what may follow a cut secret: half an escape, or dots
_REST = re.compile(r"(?:%(?:25)*[0-9a-f]?|\\+(?:u[0-9a-f]{0,3})?|&[#\w]{0,6}|[\s.…]*)\Z", re.IGNORECASE)


class Hidden:
    """Hides secrets in messages."""

    def __init__(self, values: Iterable[str]) -> None:
        # (spelling, whether it is base64 or hex of a secret), the longest first
        self._forms: list[tuple[str, bool]] = []
        for value in {v for v in values if len(v) >= _LEAST}:
            self._forms.append((value, False))
            if len(value) >= _LONG:
                self._forms += [(value.encode().hex(), True), *((form, True) for form in _in_base64(value))]
        self._forms.sort(key=lambda form: len(form[0]), reverse=True)

    def hide(self, text: str) -> str:
        """Replace secrets by `***`: plain, escaped (URL, JSON, HTML), base64, hex, or cut off at the end."""
        for form, encoded in self._forms:
            text = _without(text, form, encoded)
        return text

    def quote(self, text: str) -> str:
        return self.hide(self.hide(text.strip()[:_LOOKED_AT])[:QUOTED])


def _in_base64(value: str) -> list[str]:
    """Base64 characters that the value alone decides, at each of 3 offsets within a longer text."""
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
    """Pattern of all spellings of a character."""
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
