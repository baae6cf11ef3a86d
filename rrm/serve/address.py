"""Requests to a server of `rrm serve`: retries, refusals and streams."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal, NoReturn
from urllib.parse import urlsplit

import httpx2

from rrm.data.printing import describe, printable
from rrm.data.sizes import check_weight
from rrm.engines.http import NoAnswer, client, lines, opened, read
from rrm.engines.replies import retry_after_s
from rrm.engines.server_options import is_address, shown_address
from rrm.errors import ConfigError, RRMError, ServerGone
from rrm.serve.calls import PATIENCE_S, Backoff, Busy, Calls

KEY = "RRM_API_KEY"  # environment variable of the key that clients send
TIMEOUT_S = 600.0  # between two rows of a request
LEAST_S = 1.0  # for a connection, and for what is answered at once, where the patience is shorter
LOOK_S = 5.0  # for an answer to whether anybody is there
SCHEMES = ("http://", "https://")
BUSY, FULL = (408, 429, 502, 503, 504), (408, 429)  # statuses that are retried; those of a server that works


class RequestFailed(RRMError):
    """One request failed, and another may be answered: too large, no JSON, or the server's fault."""

    def __init__(self, kind: Literal["large", "unsendable", "fault"], why: str) -> None:
        super().__init__(why)
        self.kind = kind


def key_of(text: str | None, where: str = KEY) -> str | None:
    """Strip a key; None for none. ConfigError, without the key, where no header can carry it."""
    key = (text or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"the key in {where} holds line breaks or letters beyond ASCII, which no header carries")
    return key or None


class ServerAddress:
    """A server's address; ConfigError for none, or for a key that no header can carry.

    Args:
        url: `http://host:port`, or with a path.
        timeout_s: seconds between two rows; a connection and a prompt answer have `patience_s` where that is less.
        patience_s: seconds for which requests made together are retried while none is answered.
        key: None: the environment's `RRM_API_KEY`.
        until: time (`time.monotonic`) by which all requests end.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
        key: str | None = None,
        until: float | None = None,
    ) -> None:
        if not is_address(url):
            raise ConfigError(f"{shown_address(url)} is no address of rrm serve: write http://HOST:PORT")
        parts = urlsplit(url)
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ConfigError(
                f"an address of rrm serve is http://HOST:PORT alone: put the key into {KEY}; for a chat model write openai:BASE_URL#model"
            )
        self.url, self.timeout_s, self.patience_s, self.until = url.rstrip("/"), timeout_s, patience_s, until
        self.short_s = min(timeout_s, max(patience_s, LEAST_S))  # for a connection, and for what is answered at once
        self._key = key_of(os.environ.get(KEY) if key is None else key)

    def calls(self, absent_s: float | None = None) -> Calls:
        return Calls(self.patience_s, self.url, self.is_there, self.until, absent_s)

    async def is_there(self) -> bool:
        """Check that a server answers and takes requests."""
        try:
            async with self._reply("/healthz", None, min(self.timeout_s, LOOK_S)):
                return True
        except Busy as busy:
            return not busy.silent
        except RRMError:
            return True

    @asynccontextmanager
    async def _reply(
        self, path: str, body: Mapping[str, Any] | None, timeout_s: float
    ) -> AsyncIterator[httpx2.Response]:
        """Yield an answer of status 200; raises Busy for a retry, else RequestFailed or RRMError."""
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        headers |= {"Authorization": f"Bearer {self._key}"} if self._key else {}
        try:  # NaN, too, as in files
            data = None if body is None else json.dumps(body, default=lambda row: row.model_dump(mode="json")).encode()
        except (ValueError, RecursionError) as error:  # nested too deeply, or no number of JSON
            raise RequestFailed("unsendable", f"it cannot be sent: {error}") from error
        if self.until is not None:
            timeout_s = min(timeout_s, self.until - time.monotonic())
            if timeout_s <= 0:
                raise Busy(f"no time was left to ask {self.url}", timed_out=True)
        connect_s = min(timeout_s, self.short_s)
        how = {"silent_s": timeout_s, "connect_s": connect_s, "headers": headers, "content": data}
        try:
            async with client() as http, opened(http, "POST" if data else "GET", f"{self.url}{path}", **how) as reply:
                if reply.status_code != 200:
                    await self._refused(reply)
                yield reply
        except TimeoutError as error:
            raise Busy(f"{self.url} did not answer in full in time", timed_out=True) from error
        except NoAnswer as error:
            why = {
                "unconnected": f"nobody answers at {self.url} ({error})",
                "silent": f"no connection to {self.url} came about in {connect_s:.4g} s",
                "late": f"nothing came from {self.url} for {timeout_s:.4g} s",
                "broken": f"the connection to {self.url} broke off ({error})",
            }[error.kind]
            absent = error.kind in ("unconnected", "silent")
            raise Busy(why, timed_out=error.kind in ("silent", "late"), absent=absent) from error

    async def lines(
        self, path: str, body: Mapping[str, Any] | None = None, calls: Calls | None = None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield a stream's objects, one a line; raises as `_reply`, Busy for an answer cut off too."""
        begun, calls = False, calls or self.calls()
        async with self._reply(path, body, self.timeout_s) as reply:
            with calls.accepted():
                try:
                    async for line in lines(reply, "a line of the answer", self.until):
                        check_weight(line, "a line of the answer")
                        cut = begun or (line[:1] == b"{" and line[-1:] != b"\n")
                        begun = True
                        try:
                            row = json.loads(line)
                            if not isinstance(row, dict):
                                raise ValueError("a line is no object")
                        except (ValueError, RecursionError) as error:
                            if cut:
                                raise Busy(f"{self.url}: the answer was cut off") from error
                            raise
                        yield row
                except (ValueError, RecursionError) as error:  # asked again it would come again
                    raise self.another(error) from error

    def another(self, error: Exception) -> RRMError:
        """Return the error that something else than `rrm serve` answers."""
        detail = describe(error) if isinstance(error, ValueError | RecursionError) else printable(str(error))
        return RRMError(
            f"{self.url} does not answer as rrm serve does: {detail}; a chat server is openai:BASE_URL#model"
        )

    async def _refused(self, reply: httpx2.Response) -> NoReturn:
        status = reply.status_code
        try:
            answer = json.loads(await read(reply, until=self.until))["error"]
            why = f"{answer['message']}{' (at ' + answer['at'] + ')' if 'at' in answer else ''}"
        except (ValueError, KeyError, TypeError, RecursionError, httpx2.TransportError):
            why = reply.reason_phrase
        if status in BUSY:
            raise Busy(f"{self.url}: {why}", retry_after_s(reply.headers), silent=status not in FULL)
        if status == 413:
            raise RequestFailed("large", f"{self.url}: {why}")
        if status in (401, 403):
            raise ConfigError(f"{self._no_entry()} ({status}: {why})")
        if status in (404, 405):
            raise ConfigError(
                f"{self.url} is no server of rrm serve ({status}): a chat server is openai:BASE_URL#model"
            )
        if reply.is_redirect:
            there = shown_address(reply.headers.get("Location", "another address"))
            raise ConfigError(f"{self.url} sends its clients on to {there}: if that is right, name that")
        if status >= 500:
            raise RequestFailed("fault", f"{self.url}: {status}: {why}")
        raise RRMError(f"{self.url}: {status}: {why}")

    def _no_entry(self) -> str:
        if self._key is None:
            problem = f"{self.url} asks for a key, and the environment has no {KEY}: set it"
        else:
            problem = f"{self.url} refuses the key in {KEY}: set that"
        return f"{problem} to the one that rrm serve was started with; a chat server is openai:BASE_URL#model"

    async def ask(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        calls: Calls | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Return a request's answer, retried while the server is busy.

        Raises:
            ServerGone: silent or busy for `patience_s`.
            RequestFailed, RRMError: refused.
        """
        calls = calls or self.calls()
        pauses = Backoff(calls)
        while calls.over is None:
            try:
                async with self._reply(path, body, timeout_s or self.timeout_s) as reply:
                    with calls.accepted():
                        content = await read(reply, "the answer", self.until)
                pauses.answered()
                return json.loads(content)
            except (ValueError, RecursionError) as error:
                raise self.another(error) from error
            except Busy as busy:
                if not await pauses.wait(busy):
                    raise self.ended(calls, busy.why) from busy
        raise self.ended(calls, calls.over)

    def ended(self, calls: Calls, why: str) -> ServerGone:
        hint = "" if calls.over is None else ": start rrm serve there, or name another address"
        return ServerGone(f"{calls.over or why}{hint}")
