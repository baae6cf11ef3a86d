"""`search` over a search engine's API: any endpoint that answers a GET or POST with JSON.

{"url": "https://api.example.com/search?q={query}&count={k}", "key_env": "SEARCH_KEY", "key_header": "X-API-KEY",
 "results": "web.results", "title": "title", "link": "url", "text": "description"}
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from reagent.env.tool import Tool, TruncatedText, shorten, tool
from reagent.errors import ToolError
from reagent.tools.deny import DenyList
from reagent.tools.keys import header_name, header_value, key_from
from rrm.engines.async_runner import run
from rrm.engines.http import Answer, NoAnswer, UnreadableAnswer, ask, backoff, client
from rrm.errors import ConfigError

_AGAIN = (408, 425, 429, 500, 502, 503, 504)


@dataclass(frozen=True)
class Service:
    """A search service: its request, and the paths of results. `repr` shows nothing that may hold a key."""

    url: str = field(repr=False)  # holds `{query}`, and `{k}` where the service takes a count
    body: Mapping[str, Any] | None = field(repr=False)  # a JSON body to POST, its texts filled in like the URL
    headers: Mapping[str, str] = field(repr=False)
    results: str  # dotted path to the list; numbers index lists, empty is the answer itself
    title: str
    link: str
    text: str
    timeout_s: float  # of one try
    tries: int
    pause_s: float  # at most, before the second try; it doubles

    def ask(self, query: str, k: int) -> list[Mapping[str, Any]]:
        """The results for a query, as many as come; `k` are asked for, where the service takes a count.
        Raises ToolError: the service is down, refuses, or answers in another form than the options say."""
        answer = self._answer(query, k)
        items = _at(answer, self.results)
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise ToolError(
                f"the search service's answer has no list of results at {self.results!r}", "search_unreadable"
            )
        return items

    async def _asked(self, query: str, k: int) -> Answer:
        url = self.url.replace("{query}", quote(query, safe="")).replace("{k}", str(k))
        how = {
            "headers": {"Accept": "application/json", **self.headers},
            "json": None if self.body is None else _filled(self.body, query, k),
        }
        async with client() as http:
            return await ask(http, "GET" if self.body is None else "POST", url, limit_s=self.timeout_s, **how)

    def _answer(self, query: str, k: int) -> Any:
        problem = ""
        for attempt in range(self.tries):
            if attempt:
                time.sleep(backoff(self.pause_s, attempt - 1, 8.0))
            try:
                answer = run(self._asked(query, k))
            except NoAnswer as error:
                problem = f"no answer within {self.timeout_s:g} s" if error.kind == "late" else "no connection"
                continue
            except UnreadableAnswer as error:
                raise ToolError(f"the search service's answer is not read: {error}", "search_unreadable") from error
            except Exception as error:  # noqa: BLE001 - its words may hold a header, and with it the key
                raise ToolError(
                    f"the search service could not be asked ({type(error).__name__})", "search_down"
                ) from None
            if answer.status < 300:
                return _parsed(answer.body)
            if answer.status not in _AGAIN:
                raise ToolError(f"the search service refused the request (HTTP {answer.status})", "search_refused")
            problem = f"HTTP {answer.status}"
        # neither the URL nor the service's own words: a key may stand in them
        raise ToolError(f"the search service is down ({problem}, {self.tries} tries); try again later", "search_down")


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ToolError("the search service's answer is no JSON", "search_unreadable") from error


def _at(value: Any, path: str) -> Any:
    for name in filter(None, path.split(".")):
        if isinstance(value, list) and name.isdigit():
            value = value[int(name)] if int(name) < len(value) else None
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return value


def _filled(value: Any, query: str, k: int) -> Any:
    if isinstance(value, Mapping):
        return {key: _filled(item, query, k) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(item, query, k) for item in value]
    if value == "{k}":
        return k
    return value.replace("{query}", query) if isinstance(value, str) else value


def search_api_tools(
    url: str,
    results: str,
    title: str = "title",
    link: str = "link",
    text: str = "snippet",
    body: Mapping[str, Any] | None = None,
    key_env: str | None = None,
    key_header: str = "Authorization",
    key_prefix: str = "",
    k: int = 5,
    max_chars: int = 4000,
    timeout_s: float = 10.0,
    tries: int = 3,
    pause_s: float = 0.5,
    max_concurrency: int = 8,
    deny: Sequence[str] = (),
) -> list[Tool]:
    """Make the tool `search`, over an API.

    Args:
        url: the endpoint; `{query}` and `{k}` are filled in.
        results: dotted path of the list of results in the answer.
        title: dotted path in a result; `link` and `text` likewise.
        body: a JSON body to POST; `{query}` and `{k}` are filled in.
        key_env: environment variable of the key. It is sent as `key_header: key_prefix + key`.
        k: results a query.
        max_chars: of all results of a query.
        timeout_s: of a try.
        tries: after a time-out, 429 or 5xx.
        pause_s: longest before the second try; it doubles.
        max_concurrency: queries at once.
        deny: `host` or `host/path`; results that lead there are left out and counted (`reagent.tools.deny`).

    Raises:
        ConfigError: a key that is not set or that no header can carry, a URL without `{query}`, or a bad `deny` entry.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise ConfigError("tools.search_api: url must begin with http:// or https://")
    if "{query}" not in url and "{query}" not in json.dumps(body):
        raise ConfigError("tools.search_api: neither url nor body has a place for {query}")
    if tries < 1 or k < 1:
        raise ConfigError(f"tools.search_api: tries and k must be at least 1, got {tries}, {k}")
    headers = {}
    if key_env:
        name = header_name(key_header, "tools.search_api: key_header")
        headers[name] = header_value(key_prefix, "tools.search_api: key_prefix") + key_from(
            key_env, "tools.search_api: key_env"
        )
    denied = DenyList(deny, "tools.search_api: deny")
    service = Service(url, body, headers, results, title, link, text, timeout_s, tries, pause_s)

    @tool(timeout_s=(timeout_s + 8) * tries, max_concurrency=max_concurrency, max_result_chars=max_chars + 100)
    def search(query: str) -> str:
        """Search the web.

        Args:
            query: What to look for.
        """
        entries, left_out = [], 0
        for item in service.ask(query, k):
            if len(entries) == k:
                break
            if denied.entry_for(_said(item, link)):
                left_out += 1
                continue
            entries.append(f"[{len(entries) + 1}] {_said(item, title)}\n{_said(item, link)}\n{_said(item, text)}")
        note = [f"[{left_out} results of hosts that are not shown in this task were left out]"] if left_out else []
        return TruncatedText("\n\n".join([shorten("\n\n".join(entries), max_chars)[0], *note]).strip(), left_out)

    return [search]


def _said(item: Mapping[str, Any], path: str) -> str:
    value = _at(item, path)
    return " ".join(str(value).split()) if value is not None else ""
