"""Addresses that an agent is kept from: most of all those where a benchmark's questions stand with their answers.

An agent that finds them has measured nothing. So `browse` fetches none of them, also behind redirects, and `search_api` leaves out
results that lead there; a call of an MCP server's tool that names one is not made. All count what they kept back (`ToolResult.denied`).
"""

import posixpath
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from rrm.errors import ConfigError

_ENTRY = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)+(?:/[^\s?#%]+)?")
_URL_CHARS = 4096
"""Of an address that is looked at; none is longer that `browse` takes."""
_OTHER_SIGNS = str.maketrans({"\\": "/", "\u3002": "."})
"""What programs take for a slash and a dot."""
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u1806\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\ufe00-\ufe0f\ufeff\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
"""Characters that programs drop from an address: what Unicode calls ignorable by default, and what either form of IDNA ignores."""


class DenyList:
    """Which addresses are denied.

    An address is denied too where a denied one stands within it: archives, readers and translators are asked for pages in this way. Raises
    ConfigError: an entry of another form.

    Args:
        entries: `example.org`, with all hosts below it, or `example.org/path`: what begins so on these hosts.
        where: the option they come from, for errors.
    """

    def __init__(self, entries: Iterable[str] = (), where: str = "deny") -> None:
        if isinstance(entries, str):
            raise ConfigError(f"{where} is a list, not the text {entries!r}; write [{entries}]")
        self.entries = tuple(entries)
        for entry in self.entries:
            if not isinstance(entry, str) or not _ENTRY.fullmatch(entry):
                raise ConfigError(
                    f"{where} holds {entry!r}; write a host in lower case, e.g. example.org, or example.org/path, without http://"
                )
        self._patterns = [re.compile(_pattern(entry)) for entry in self.entries]

    def entry_for(self, url: str) -> str | None:
        """The entry by which an address is denied; None where it is not."""
        return self._found(url[:_URL_CHARS])

    def entry_within(self, value: Any) -> str | None:
        """The entry that a value of JSON names, by a denied address in one of its texts or in the name of a field."""
        waiting = [value]
        while waiting:
            one = waiting.pop()
            if isinstance(one, Mapping):
                waiting += [*one, *one.values()]
            elif isinstance(one, list | tuple):
                waiting += one
            elif isinstance(one, str) and (entry := self._found(one)):
                return entry
        return None

    def _found(self, text: str) -> str | None:
        if not self.entries:
            return None
        plain = text
        for _ in range(3):  # an address within an address within another one
            plain = unquote(plain)
        plain = _plain(plain)
        read = (plain, _UNSEEN.sub("", plain))
        forms = dict.fromkeys([*read, *map(posixpath.normpath, read)])  # the latter for `/x/../path` and `//path`
        found = (e for e, pattern in zip(self.entries, self._patterns, strict=True) if any(map(pattern.search, forms)))
        return next(found, None)


def _plain(text: str) -> str:
    """In one spelling, whatever the case."""
    return unicodedata.normalize("NFKC", text).translate(_OTHER_SIGNS).casefold()


def _pattern(entry: str) -> str:
    host, slash, path = _plain(entry).partition("/")
    path = posixpath.normpath(f"/{path}").lstrip("/")  # as addresses are looked at
    letter = "[a-z0-9_-]"  # of a host; in a sentence without spaces, letters of another script stand beside it
    begin = rf"(?<!{letter}){re.escape(host)}"
    return rf"{begin}\.?(?::\d+)?/+{re.escape(path)}" if slash else rf"{begin}(?!{letter}|\.{letter})"
