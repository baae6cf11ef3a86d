"""Secrets in texts: keys and passwords of published forms are counted and removed."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from typing import Any

REMOVED = "[removed]"
# end in a letter but are not part of the key behind them: escapes of JSON, Python, URLs and mail, terminal colours
_BEFORE = (
    r"\\[abfnrtv0]", r"\\x[0-9A-Fa-f]{2}", r"\\u[0-9A-Fa-f]{4}", "%[0-9A-Fa-f]{2}", "%25[0-9A-Fa-f]{2}", "=3D",
    *(rf"\[[0-9;]{{{n}}}m" for n in range(12)),
)  # fmt: skip


def _key(start: str, rest: str, word: str = "A-Za-z0-9_-") -> str:
    # `start`, of fixed width, comes first for speed: only its occurrences are tried, and a run of key characters once
    before = "|".join(f"(?<={prefix}{start})" for prefix in _BEFORE)
    return f"{start}(?:(?<![{word}]{start})|{before}){rest}"


# a quoted value; the quotes are escaped in JSON inside JSON
_QUOTED = r"(?P<quote>[\"'])(?P<secret>(?:(?!(?P=quote))[^\\\r\n]|\\{1,8}(?![\\\"'])){4,10000}+)(?=\\{0,8}(?P=quote))"
_COLON = r"\\{0,8}[\"']\s{0,4}:\s{0,4}\\{0,8}"
# ends of names of secret fields
_NAMES = (
    r"(?:api|secret|secret[_-]?access)[_-]?key|client[_-]?secret|(?:access|refresh|auth|session|security)[_-]?token"
)
# a `token` or `secret` that is one: both also name words, pages and kinds
_RANDOM = r"(?=[A-Za-z+/_=.~-]{0,200}[0-9])(?=[0-9+/_=.~-]{0,200}[A-Za-z])[A-Za-z0-9+/_=.~-]{20,1000}"
# unquoted, with a digit: a name without is a program's variable
_VALUE = r"(?=[A-Za-z!@#$%^&*+/=._~?-]{0,200}[0-9])[A-Za-z0-9!@#$%^&*+/=._~?-]{8,1000}"
_SCHEMES = "[Bb]earer|BEARER|[Bb]asic|BASIC|[Tt]oken|[Aa]pi-?[Kk]ey"
PATTERNS = {
    "private key": re.compile(
        r"-----BEGIN (?:[A-Z]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----.*?"
        r"(?:-----END (?:[A-Z]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----|\Z)",
        re.DOTALL,
    ),
    "OpenAI or Anthropic key": re.compile(_key("sk-", r"[A-Za-z0-9_-]{20,}")),
    "Hugging Face token": re.compile(_key("hf_", r"[A-Za-z0-9]{30,}")),
    "GitHub token": re.compile(
        _key("gh[pousr]_", r"[A-Za-z0-9]{36,}") + "|" + _key("github_pat_", r"[A-Za-z0-9_]{40,}")
    ),
    "GitLab token": re.compile(_key("glpat-", r"[A-Za-z0-9_-]{20,}")),
    "npm token": re.compile(_key("npm_", r"[A-Za-z0-9]{36,}")),
    "Groq key": re.compile(_key("gsk_", r"[A-Za-z0-9]{40,}")),
    "Stripe key": re.compile(_key("[rs]k_(?:live|test)_", r"[A-Za-z0-9]{16,}")),
    "AWS access key": re.compile(_key("A(?:KI|SI)A", r"[0-9A-Z]{16}(?![0-9A-Za-z])")),
    "Google API key": re.compile(_key("AIza", r"[0-9A-Za-z_-]{35}")),
    "Slack token": re.compile(_key("xox[abeoprs]-", r"[A-Za-z0-9-]{10,}")),
    "JSON web token": re.compile(_key("eyJ", r"[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}")),
    "password in a URL": re.compile(r"(?<=://)[^\s:/@]{0,100}:[^\s/@]{3,200}(?=@)"),
    "authorization header": re.compile(
        r"(?P<name>(?i:authorization))\\{0,8}[\"']?\s{0,4}[:=]\s{0,4}\\{0,8}[\"']?"
        rf"(?P<secret>(?:{_SCHEMES}) {{1,4}}[A-Za-z0-9._~+/-]{{16,1000}}=*)"
        r"|(?i:api-key)\s{0,4}:\s{0,4}(?P<header>(?=[A-Za-z._~+/-]*[0-9])[A-Za-z0-9._~+/-]{16,1000}=*)"
        + "".join(
            "|" + _key(start, r" (?=[A-Za-z._~+/-]{0,1000}[0-9])[A-Za-z0-9._~+/-]{20,}=*", word="A-Za-z")
            for start in ("[Bb]earer", "BEARER", "Basic")
        )
    ),
    "key or password in JSON": re.compile(
        rf"(?P<name>{_NAMES}|(?<=[\"'])(?:passw(?:or)?d|authorization|token|secret)){_COLON}{_QUOTED}", re.IGNORECASE
    ),
    "key or password in a setting": re.compile(
        rf"(?-i:{_NAMES.upper()}|PASSW(?:OR)?D)=[\"']?(?P<secret>{_VALUE})(?=[\s\"'`;&|)\\]|$)"
        rf"|(?-i:TOKEN|SECRET)=[\"']?(?P<random>{_RANDOM})"
        rf"|(?:{_NAMES})[ \t]{{0,4}}=[ \t]{{0,4}}[\"']?(?P<long>(?=[A-Za-z+/=-]{{0,200}}[0-9])[A-Za-z0-9+/=-]{{16,1000}}+)(?![\w.(\[])"
        rf"|(?:^|\\n)[ \t]{{0,40}}(?:(?:export|set|-)[ \t])?[A-Za-z0-9_.-]{{0,60}}?(?:{_NAMES}|passw(?:or)?d)(?:=|:[ \t]{{1,4}})"
        rf"[\"']?(?P<line>{_VALUE})[\"']?[ \t]{{0,40}}(?:#|$|\\[nr])",
        re.IGNORECASE | re.MULTILINE,
    ),
    "cookie in JSON": re.compile(
        rf"(?<=[\"'])(?P<name>(?:set-)?cookie){_COLON}(?P<quote>[\"'])(?P<secret>[^\"'\\\s=]{{1,100}}=[^\"'\\]{{1,10000}})",
        re.IGNORECASE,
    ),
    "cookie header": re.compile(
        r"\b(?P<name>(?:set-)?cookie):[ \t]{0,4}(?P<secret>[^\s\"'\\=;,<]{1,100}=[^\s\"'\\=;,][^\"'\\\r\n]{7,10000})",
        re.IGNORECASE,
    ),
}
_IN = ("secret", "header", "random", "long", "line")  # groups that hold the key; group `name` holds its name
_WORDS = ("key", "secret", "token", "passwd", "password")
_ENDS = [f"{word}{mark}" for word in (*_WORDS, "authorization") for mark in "\"'\\"]
# for slow patterns: lower-case strings of which every match contains one
_NEEDED = {
    "password in a URL": ["://"],
    "authorization header": ["authorization", "api-key", "bearer", "basic "],
    "key or password in JSON": _ENDS,
    "key or password in a setting": [f"{word}{mark}" for word in _WORDS for mark in "=: \t"],
    "cookie in JSON": ["cookie"],
    "cookie header": ["cookie:"],
}
_FIELD = re.compile(rf"[a-z0-9_-]*(?:{_NAMES})|(?:proxy-|x-)?authorization|(?:set-)?cookie|passw(?:or)?d|token|secret")
# placeholders of a secret: `$NAME`, `<key>`, `your_key`, `sk-...`, `********`, `[removed]`, a type
_NONE = re.compile(
    r"\$(?:\w+|[({].*)|<.*|\{.*|\[.*|%\w+%?|%\(\w+\)s|[*.\u2022#_-]+|x{3,}|.*(?:\*{3}|\.{3}|\u2026|x{6}).*|(?:your|my)[_-].*|.*[_-]here|"
    r"(?:os|process|env|secrets)\.\S+|n/?a|none|null|nil|undefined|true|false|str|string|text|required|optional|hidden|masked|redacted|"
    r"removed|omitted|example|placeholder|changeme|bearer|basic|token|secret|passw(?:or)?d|api[_-]?key",
    re.IGNORECASE | re.DOTALL,
)
# words of messages about a password (`must be at least 8 characters`); a passphrase has none
_SAID = re.compile(
    r"\b(?:is|are|was|be|been|must|should|may|can|cannot|not|no|at|least|too|than|characters?|required|invalid|incorrect|wrong|missing|"
    r"match(?:es)?|please|enter|choose|reset|forgot|forgotten|your|the|an?|of|for|to|with|this|field|password)\b",
    re.IGNORECASE,
)
_SCHEME = re.compile(rf"(?:{_SCHEMES})\s+")


def clean(value: Any, counts: Counter[str]) -> Any:
    """Replace secrets of a JSON value by `REMOVED`, counted by kind, and lone surrogates by `?`."""
    if isinstance(value, str):
        return _text(value, counts)
    if isinstance(value, list):
        return [clean(item, counts) for item in value]
    if not isinstance(value, dict):
        return value
    cleaned: dict[str, Any] = {}
    named = value.get("name", value.get("key"))  # a header or a cookie may be `{name, value}`
    for key, item in value.items():
        name, field = _text(key, counts), named if key == "value" and isinstance(named, str) else key
        if _is_secret(field, item):
            counts[f"field {field.lower()[:40]}"] += 1
            cleaned[name] = REMOVED if isinstance(item, str) else [REMOVED for _ in item]
        else:
            cleaned[name] = clean(item, counts)
    return cleaned


def _is_secret(name: str, value: Any) -> bool:
    texts = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) for text in texts):
        return False
    field = name.lower()
    if _FIELD.fullmatch(field) is None or (isinstance(value, list) and field.startswith("passw")):
        return False  # several texts beside `password` say what is wrong with one
    return any(_shows(field, text) for text in texts)


def _shows(name: str, value: str) -> bool:
    """Tell whether a value of this lower-case name is a secret, not a placeholder or a message about one."""
    if name.endswith("cookie"):
        return any(cookie.strip() and not _NONE.fullmatch(cookie.strip()) for cookie in re.findall("=([^;]*)", value))
    text = value.strip()
    if name.endswith("authorization"):
        text = _SCHEME.sub("", text, count=1)
        if re.search(r"\s", text):
            return re.search(r"\w=\S{8}", text) is not None  # a scheme of several parts
    if not text or _NONE.fullmatch(text):
        return False
    if re.search(r"\s", text):
        return name.startswith("passw") and _SAID.search(text) is None
    return name not in ("token", "secret") or re.fullmatch(_RANDOM, text) is not None


def _without(match: re.Match[str]) -> str:
    inside = [name for name in _IN if name in match.re.groupindex and match[name] is not None]
    if inside:
        name = match.groupdict().get("name") or ""
        if not _shows(name.lower(), match[inside[0]]):
            return match[0]
    start, end = match.span(*inside[:1])
    return match.string[match.start() : start] + REMOVED + match.string[end : match.end()]


def _counted(match: re.Match[str], label: str, counts: Counter[str]) -> str:
    left = _without(match)
    if left != match[0]:
        counts[label] += 1
    return left


def _text(text: str, counts: Counter[str]) -> str:
    text = text.encode("utf-8", "replace").decode()
    low = text.lower()
    for label, pattern in PATTERNS.items():  # what one has found is not found by the next
        if label in _NEEDED and not any(piece in low for piece in _NEEDED[label]):
            continue
        text = pattern.sub(partial(_counted, label=label, counts=counts), text)
    return text
