"""Keys and passwords in texts: found by their published forms, counted without being shown, taken out where wanted.

What is found is a key nearly always; what is not found may be one all the same, for most passwords have no form.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from rrm.readers.call_bodies import KEYS, REMOVED

_AT = r"(?<![A-Za-z0-9_-])"  # a run of key characters is looked at once, however many beginnings it holds
PATTERNS = {
    "private key": re.compile(
        r"-----BEGIN (?:[A-Z]{1,20} ){0,4}PRIVATE KEY-----.*?(?:-----END (?:[A-Z]{1,20} ){0,4}PRIVATE KEY-----|\Z)",
        re.DOTALL,
    ),
    "OpenAI or Anthropic key": re.compile(_AT + r"sk-[A-Za-z0-9_-]{20,}"),
    "Hugging Face token": re.compile(_AT + r"hf_[A-Za-z0-9]{30,}"),
    "GitHub token": re.compile(_AT + r"(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{40,})"),
    "AWS access key": re.compile(_AT + r"(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])"),
    "Google API key": re.compile(_AT + r"AIza[0-9A-Za-z_-]{35}"),
    "Slack token": re.compile(_AT + r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    "JSON web token": re.compile(_AT + r"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
    "password in a URL": re.compile(r"(?<=://)[^\s:/@]{1,100}:[^\s/@]{3,200}(?=@)"),
    "authorization header": re.compile(
        r"(?<![A-Za-z])(?:[Bb]earer|BEARER|Basic) (?=[A-Za-z0-9._~+/-]*[0-9])[A-Za-z0-9._~+/-]{20,}=*"
    ),
}
SHOWN = 5
"""Places that are named."""


@dataclass
class Found:
    """What was found: how often, and where first."""

    counts: Counter[str] = field(default_factory=Counter)
    """By kind."""
    places: list[str] = field(default_factory=list)
    """The first `SHOWN` as `row id: path (kind)`; never the text itself."""

    def add(self, kind: str, where: str) -> None:
        """Count one."""
        self.counts[kind] += 1
        if len(self.places) < SHOWN:
            for pattern in PATTERNS.values():  # an id or the name of a field may be one
                where = pattern.sub(REMOVED, where)
            self.places.append(f"{where} ({kind})")


def clean(value: Any, found: Found, where: str, *, redact: bool) -> Any:
    """A copy of a JSON value in which lone surrogates are replaced (no file format of data sets holds them) and, where `redact` says
    so, what looks like a key; whatever was found is counted.

    Args:
        where: the row and the path of the value, for `Found.places`.
    """
    if isinstance(value, str):
        return _text(value, found, where, redact)
    if isinstance(value, list):
        return [clean(one, found, f"{where}[{k}]", redact=redact) for k, one in enumerate(value)]
    if not isinstance(value, dict):
        return value
    made: dict[str, Any] = {}
    for key, one in value.items():
        name, at = _text(key, found, where, redact), f"{where}.{key[:40]}"
        if isinstance(one, str) and one not in ("", REMOVED) and key.lower() in KEYS:
            found.add(f"field {key.lower()}", at)
            made[name] = REMOVED if redact else clean(one, Found(), at, redact=False)
        else:
            made[name] = clean(one, found, at, redact=redact)
    return made


def _text(text: str, found: Found, where: str, redact: bool) -> str:
    text = text.encode("utf-8", "replace").decode()
    for kind, pattern in PATTERNS.items():
        for _ in pattern.finditer(text):
            found.add(kind, where)
        if redact:
            text = pattern.sub(REMOVED, text)
    return text
