"""Addresses that an agent is kept from, such as those that publish a benchmark's answers.

`browse` fetches none of them, also behind redirects; `search_api` leaves out results that lead there; a call of an MCP server's tool that
names one is not made. All count what they kept back (`ToolResult.denied`)."""

import posixpath
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from rrm.errors import ConfigError

_ENTRY = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)+(?:/[^\s?#%]+)?")
_URL_CHARS = 4096  # only so many characters are looked at; `browse` takes no longer address
_OTHER_SIGNS = str.maketrans({"\\": "/", "\u3002": "."})
"""Characters that programs take for a slash and a dot."""
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u1806\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\ufe00-\ufe0f\ufeff\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
"""Characters that programs drop from an address: Unicode's default ignorables, and those of IDNA."""


class DenyList:
    """Denied addresses, also within other addresses: archives and translators are asked for pages so.

    Args:
        entries: `example.org`, with all hosts below it, or `example.org/path`: what begins so. Raises ConfigError: another form.
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
        return self._match(url[:_URL_CHARS])

    def entry_within(self, value: Any) -> str | None:
        """The entry named by a value of JSON, in one of its texts or in the name of a field."""
        waiting = [value]
        while waiting:
            item = waiting.pop()
            if isinstance(item, Mapping):
                waiting += [*item, *item.values()]
            elif isinstance(item, list | tuple):
                waiting += item
            elif isinstance(item, str) and (entry := self._match(item)):
                return entry
        return None

    def _match(self, text: str) -> str | None:
        if not self.entries:
            return None
        plain = text
        for _ in range(3):  # an address within an address within another one
            plain = unquote(plain)
        plain = _plain(plain)
        spellings = (plain, _UNSEEN.sub("", plain))
        forms = dict.fromkeys(
            [*spellings, *map(posixpath.normpath, spellings)]
        )  # the latter for `/x/../path` and `//path`
        matches = (
            e for e, pattern in zip(self.entries, self._patterns, strict=True) if any(map(pattern.search, forms))
        )
        return next(matches, None)


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).translate(_OTHER_SIGNS).casefold()


def _pattern(entry: str) -> str:
    host, slash, path = _plain(entry).partition("/")
    path = posixpath.normpath(f"/{path}").lstrip("/")  # as addresses are looked at
    letter = "[a-z0-9_-]"  # of a host; in a sentence without spaces, letters of another script stand beside it
    begin = rf"(?<!{letter}){re.escape(host)}"
    return rf"{begin}\.?(?::\d+)?/+{re.escape(path)}" if slash else rf"{begin}(?!{letter}|\.{letter})"
