"""One server's address: requests to it, what their refusals mean, and when to ask again."""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn
from urllib.parse import urlsplit

from rrm.data.printing import describe, printable
from rrm.data.sizes import BLOCK, TooManyBytes, bounded, check_weight, most_bytes
from rrm.engines.replies import retry_after_s
from rrm.engines.server_options import is_address, shown_address
from rrm.errors import ConfigError, RRMError, ServerGone
from rrm.serve.calls import PATIENCE_S, Backoff, Busy, Calls

KEY = "RRM_API_KEY"
"""Environment variable: what the server asks for, and clients send."""
TIMEOUT_S = 600.0
"""Between two rows of a request."""
LEAST_S = 1.0
"""For a connection, and for what is answered at once, where the patience is shorter."""
LOOK_S = 5.0
"""For an answer to whether anybody is there."""
SCHEMES = ("http://", "https://")
BUSY, FULL = (408, 429, 502, 503, 504), (408, 429)
"""Statuses after which a request is made again; those of a server that works, and has much to do."""


class TooLarge(RRMError):
    """A request that is larger than the server takes."""


class Fault(RRMError):
    """A request at which the server failed: another one may be answered."""


def key_of(said: str | None, where: str = KEY) -> str | None:
    """A key without the space around it; None for none.

    Raises:
        ConfigError: no header can carry it. The message does not hold it.
    """
    key = (said or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"the key in {where} holds line breaks or letters beyond ASCII, which no header carries")
    return key or None


class _NoConnection(TimeoutError):
    """No connection came about in time."""


class _TrackedConnection(http.client.HTTPConnection):
    """A connection that `Calls` knows, and that has to come about sooner than its answers."""

    def __init__(self, *args: Any, calls: Calls, connect_s: float, **how: Any) -> None:
        super().__init__(*args, **how)
        self._calls, self._connect_s = calls, connect_s

    def connect(self) -> None:
        answers_s, self.timeout = self.timeout, self._connect_s
        try:
            super().connect()
        except TimeoutError as error:
            raise _NoConnection from error
        finally:
            self.timeout = answers_s
        self.sock.settimeout(answers_s)
        self._calls.opened(self.sock)


class _KnownHttps(_TrackedConnection, http.client.HTTPSConnection):
    """Likewise, under TLS."""


class _Noted(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Opens such connections."""

    def __init__(self, calls: Calls, connect_s: float) -> None:
        super().__init__()
        self._how: dict[str, Any] = {"calls": calls, "connect_s": connect_s}

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_TrackedConnection, **self._how), req)  # type: ignore[arg-type]

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_KnownHttps, **self._how), req)  # type: ignore[arg-type]


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows nothing: the key and the transcripts are for the address that was named."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return


class ServerAddress:
    """One server.

    Args:
        url: `http://host:port`, with a path where it lies behind one.
        timeout_s: between two rows of a request. A connection, and what is answered at once, has as long as the patience where that is less.
        patience_s: how long requests that are made together are made again while none is answered.
        key: what it asks for; None: `RRM_API_KEY`, where that is set.
        until: when nobody waits for an answer any more (`time.monotonic`): all requests end by then.

    Raises:
        ConfigError: no address, or a key that no header can carry.
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
        self.short_s = min(timeout_s, max(patience_s, LEAST_S))
        """For a connection, and for what is answered at once."""
        self._key = key_of(os.environ.get(KEY) if key is None else key)

    def calls(self) -> Calls:
        """For requests that are made together."""
        return Calls(self.patience_s, self.url, self.is_there, self.until)

    def is_there(self) -> bool:
        """Whether a server answers, and takes requests."""
        try:
            with self._reply("/healthz", None, Calls(), min(self.timeout_s, LOOK_S)):
                return True
        except Busy as busy:
            return not busy.silent
        except RRMError:
            return True

    @contextmanager
    def _reply(
        self, path: str, body: Mapping[str, Any] | None, calls: Calls, timeout_s: float
    ) -> Iterator[http.client.HTTPResponse]:
        """An answer of status 200, to be read.

        Raises:
            Busy: it should be asked again.
            TooLarge, Fault, RRMError: it should not.
        """
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self._key}"} if self._key else {})
        data = None if body is None else json.dumps(body).encode()  # NaN, too, as in files
        request = urllib.request.Request(f"{self.url}{path}", data, headers)
        if self.until is not None:
            timeout_s = min(timeout_s, self.until - time.monotonic())
            if timeout_s <= 0:
                raise Busy(f"no time was left to ask {self.url}", timed_out=True)
        connect_s = min(timeout_s, self.short_s)
        try:
            opener = urllib.request.build_opener(_Noted(calls, connect_s), _Stay)
            with opener.open(request, timeout=timeout_s) as reply:
                yield reply
        except urllib.error.HTTPError as error:
            self._refused(error)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            why = self._unanswered(reason, timeout_s, connect_s)
            raise Busy(why, timed_out=isinstance(reason, TimeoutError)) from error

    def _unanswered(self, reason: Any, timeout_s: float, connect_s: float) -> str:
        if isinstance(reason, ConnectionRefusedError | socket.gaierror):
            return f"nobody answers at {self.url} ({reason.strerror or reason})"
        if isinstance(reason, _NoConnection):
            return f"no connection to {self.url} came about in {connect_s:.4g} s"
        if isinstance(reason, TimeoutError):
            return f"nothing came from {self.url} for {timeout_s:.4g} s"
        return f"the connection to {self.url} broke off ({type(reason).__name__}: {reason})"

    def lines(
        self, path: str, body: Mapping[str, Any] | None = None, calls: Calls | None = None
    ) -> Iterator[dict[str, Any]]:
        """A stream's objects, one a line, as they come.

        Raises:
            Busy: it should be asked again: the server does not answer, or its answer was cut off.
            TooLarge, Fault, RRMError: it should not.
        """
        begun, calls = False, calls or self.calls()
        with self._reply(path, body, calls, self.timeout_s) as reply, calls.accepted():
            most = most_bytes()
            while line := reply.readline(most + 1):
                try:
                    if len(line) > most:
                        raise TooManyBytes("a line of the answer")
                    check_weight(line, "a line of the answer")
                except ValueError as error:  # asked again it would come again
                    raise self.another(error) from error
                try:
                    said = json.loads(line)
                    if not isinstance(said, dict):
                        raise ValueError("a line is no object")
                except (ValueError, RecursionError) as error:
                    if begun or (line[:1] == b"{" and line[-1:] != b"\n"):
                        raise Busy(f"{self.url}: the answer was cut off") from error
                    raise self.another(error) from error
                begun = True
                yield said

    def another(self, error: Exception) -> RRMError:
        """That something else answers here."""
        said = describe(error) if isinstance(error, ValueError | RecursionError) else printable(str(error))
        return RRMError(f"{self.url} does not answer as rrm serve does: {said}; a chat server is openai:BASE_URL#model")

    def _refused(self, error: urllib.error.HTTPError) -> NoReturn:
        with error:
            try:
                said = json.loads(error.read(65536))["error"]
                why = f"{said['message']}{' (at ' + said['at'] + ')' if 'at' in said else ''}"
            except (ValueError, KeyError, TypeError, OSError, http.client.HTTPException):
                why = error.reason
        if error.code in BUSY:
            raise Busy(f"{self.url}: {why}", retry_after_s(error.headers), silent=error.code not in FULL) from error
        if error.code == 413:
            raise TooLarge(f"{self.url}: {why}") from error
        if error.code in (401, 403):
            raise ConfigError(f"{self._no_entry()} ({error.code}: {why})") from error
        if error.code in (404, 405):
            raise ConfigError(
                f"{self.url} is no server of rrm serve ({error.code}): a chat server is openai:BASE_URL#model"
            ) from error
        if 300 <= error.code < 400:
            there = shown_address(error.headers.get("Location", "another address"))
            raise ConfigError(f"{self.url} sends its clients on to {there}: if that is right, name that") from error
        if error.code >= 500:
            raise Fault(f"{self.url}: {error.code}: {why}") from error
        raise RRMError(f"{self.url}: {error.code}: {why}") from error

    def _no_entry(self) -> str:
        """What a refusal of the key means, and what to do."""
        if self._key is None:
            said = f"{self.url} asks for a key, and the environment has no {KEY}: set it"
        else:
            said = f"{self.url} refuses the key in {KEY}: set that"
        return f"{said} to the one that rrm serve was started with; a chat server is openai:BASE_URL#model"

    def ask(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        calls: Calls | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """A request's whole answer, asked again while the server is busy.

        Args:
            timeout_s: for the answer; that of a row by default.

        Raises:
            ServerGone: it does not answer for `patience_s`, or has too much to do for as long.
            TooLarge, Fault, RRMError: it refuses.
        """
        calls = calls or self.calls()
        pauses = Backoff(calls)
        while calls.over is None:
            try:
                with self._reply(path, body, calls, timeout_s or self.timeout_s) as reply, calls.accepted():
                    whole = b"".join(bounded(iter(lambda: reply.read(BLOCK), b""), "the answer"))
                    check_weight(whole, "the answer")
                pauses.answered()
                return json.loads(whole)
            except (ValueError, RecursionError) as error:
                raise self.another(error) from error
            except Busy as busy:
                if not pauses.wait(busy):
                    raise self.ended(calls, busy.why) from busy
        raise self.ended(calls, calls.over)

    def ended(self, calls: Calls, why: str) -> ServerGone:
        """That nothing more is asked."""
        hint = "" if calls.over is None else ": start rrm serve there, or name another address"
        return ServerGone(f"{calls.over or why}{hint}")
