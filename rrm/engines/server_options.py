"""Options of requests to a server, beside the messages."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from rrm.engines.cost import Prices
from rrm.errors import ConfigError

# what a request's body holds by options of their own, or must hold for a reply to be read
OWN = frozenset(
    (
        "messages",
        "model",
        "stream",
        "n",
        "seed",
        "temperature",
        "reasoning_effort",
        "max_tokens",
        "max_completion_tokens",
    )
)
# what an address may ask behind its `?` that is no secret, and without which no request is answered (Azure's)
PLAIN = frozenset(("api-version",))
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
_CLIENTS = {name.lower(): name for name in ("Accept", "Authorization", "Content-Type", "User-Agent")}
_SCHEMES = {"Basic", "Bearer", "Token"}


@dataclass(frozen=True)
class ServerOptions:
    """Options of a server; None leaves a value to the judge or the server. Raises ConfigError."""

    temperature: float | None = None
    """Default: 0, or the judge's own where it samples several replies."""
    reasoning_effort: str | None = None
    """`low`, `medium`, `high`, …, as the server names them."""
    extra_body: Mapping[str, Any] | None = None
    """More of the request's body."""
    thinking_tokens: int | None = None
    """Room for thinking beside that of the reply."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """More headers. Values are sent, and written nowhere."""
    prices: Prices | None = None
    max_cost: float | None = None
    """Most money to spend."""

    def __post_init__(self) -> None:
        if self.temperature is not None and not 0.0 <= self.temperature <= 10.0:
            raise ConfigError(f"--temperature {self.temperature}: write a number from 0 to 10")
        if self.thinking_tokens is not None and self.thinking_tokens < 0:
            raise ConfigError(f"--thinking-tokens {self.thinking_tokens}: write a number from 0")
        if taken := sorted(OWN & set(self.extra_body or {})):
            raise ConfigError(
                f"--extra-body may not hold {', '.join(taken)}: that has an option of its own, or is fixed"
            )
        for name, value in self.headers.items():
            check_header(name, value)

    @property
    def given(self) -> list[str]:
        return [f.name for f in fields(self) if getattr(self, f.name) not in (None, {})]

    @property
    def deciding(self) -> dict[str, Any]:
        """Options set that change the answers: compared when a run is resumed."""
        values = {
            "temperature": self.temperature,
            "reasoning_effort": self.reasoning_effort,
            "extra_body": None if self.extra_body is None else dict(self.extra_body),
            "thinking_tokens": self.thinking_tokens or None,
        }
        return {name: value for name, value in values.items() if value is not None}

    def headers_to(self, url: str) -> dict[str, str]:
        """Headers for an address: basic authorization of its password, and own headers, which win."""
        credentials = urlsplit(url).netloc.rpartition("@")[0]
        sent: dict[str, str] = {}
        if credentials:
            user, _, password = credentials.partition(":")
            token = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
            sent["Authorization"] = f"Basic {token}"
        return sent | {_CLIENTS.get(name.lower(), name): value for name, value in self.headers.items()}

    def secrets(self, urls: Sequence[str] = ()) -> set[str]:
        """Values of headers, and passwords and parameters in addresses."""
        secrets = {unquote(urlsplit(url).netloc.rpartition("@")[0].partition(":")[2]) for url in urls}
        secrets |= {value for url in urls for name, value in query_of(url).items() if name.lower() not in PLAIN}
        secrets |= {value for url in ("", *urls) for value in self.headers_to(url).values()}
        # "Bearer sk-…": a server quotes the token alone
        return {secret for value in secrets for secret in (value, *value.split())} - _SCHEMES


def check_header(name: str, value: str) -> None:
    """Check a header; ConfigError for an invalid name or value, which is not quoted."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"--header: {name!r} is no header's name; write NAME=VALUE, the value as $VARIABLE where it is secret"
        )
    if not value or not value.isascii() or not value.isprintable():
        raise ConfigError(f"--header {name}: its value is empty or holds characters that cannot be sent in a header")


def read_headers(pairs: Sequence[str], environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Parse `NAME=VALUE` with `$VARIABLE`s of the environment; ConfigError where that fails."""
    headers: dict[str, str] = {}
    variables = os.environ if environment is None else environment
    for pair in pairs:
        name, separator, value = pair.partition("=")
        name = name.strip()
        if not separator:  # not quoted: it may be a secret with its name forgotten
            raise ConfigError("--header: write NAME=VALUE, the value as $VARIABLE where it is secret")
        if name.lower() in {other.lower() for other in headers}:
            raise ConfigError(f"--header {name} is given twice")
        headers[name] = filled(value, f"--header {name}", variables).strip()
        check_header(name, headers[name])
    return headers


def filled(value: str, where: str, environment: Mapping[str, str] | None = None, *, in_url: bool = False) -> str:
    """Replace `$VARIABLE` and `${VARIABLE}` by the environment's values; ConfigError where unset.

    Args:
        where: the option, for errors.
        in_url: escape characters that end a part of an address.
    """
    variables = os.environ if environment is None else environment

    def said(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in variables:
            raise ConfigError(f"{where}: the environment has no {name}")
        return quote(variables[name].strip(), safe="") if in_url else variables[name].strip()

    return _VARIABLE.sub(said, value)


def read_extra_body(text: str) -> dict[str, Any]:
    """Parse a JSON object, or that of a file: `@FILE`; ConfigError where there is none."""
    content, where = text, "--extra-body"
    try:
        if text.startswith("@"):
            where = f"--extra-body: {text[1:]}"
            content = Path(text[1:]).expanduser().read_text(encoding="utf-8")
        body = json.loads(content, parse_constant=_no_number)
    except OSError as error:
        raise ConfigError(f"{where}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not JSON ({error}); write e.g. '{{\"top_k\": 20}}', or @FILE") from error
    if not isinstance(body, dict):
        raise ConfigError(f"{where} is not a JSON object; write e.g. '{{\"top_k\": 20}}'")
    return body


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def addresses_of(spec: str) -> tuple[list[str], str]:
    """(base URLs, model) of `openai:URL[,URL…]#model`; ConfigError where not of that form."""
    urls, sep, model = spec.removeprefix("openai:").rpartition("#")
    addresses = [url.strip() for url in urls.split(",") if url.strip()]
    if not spec.startswith("openai:") or not sep or not model or not addresses:
        raise ConfigError(
            f"model {public(spec)!r}: write openai:BASE_URL#model, e.g. openai:http://localhost:8000/v1#name; several servers of one "
            "model with commas between their addresses"
        )
    return addresses, model


def meant(name: str) -> str | None:
    """Suggest judge names for an address without its scheme (`127.0.0.1:8000`); None where it is none."""
    where, _, model = name.partition("#")
    if re.fullmatch(r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}(?:/\S*)?", where) is None:
        return None
    root = where.rstrip("/").removesuffix("/v1")
    return f"http://{root} for a judge of rrm serve, openai:http://{root}/v1#{model or 'MODEL'} for a chat model"


def is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port, or of brackets
        return False


def public(spec: str) -> str:
    """An address, or a server judge's name, without its users, passwords and queries."""
    where, sep, model = spec.rpartition("#") if "#" in spec else (spec, "", "")
    where = re.sub(r"(?<=://)[^/@#,\s]*@(?:[^/?#,\s]*@)?", "", where)
    return re.sub(r"\?[^,\s]*", "", where) + sep + model


def saved(url: str) -> tuple[str, list[str]]:
    """(address to store, what it lacks: user and parameters). Only `PLAIN` queries are kept."""
    parts = urlsplit(url)
    parameters = parse_qsl(parts.query, keep_blank_values=True)
    plain = [(name, value) for name, value in parameters if name.lower() in PLAIN]
    lacking = ["its user"] * ("@" in parts.netloc) + [
        f"{name}=…" for name, _ in parameters if name.lower() not in PLAIN
    ]
    where = (parts.scheme, parts.netloc.rpartition("@")[2], parts.path, urlencode(plain), "")
    return urlunsplit(where), lacking


def query_of(url: str) -> dict[str, str]:
    """Query parameters of an address (Azure's `api-version`), sent with each request."""
    return dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))


def shown_address(url: str) -> str:
    """An address for messages: without password and query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return public(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
