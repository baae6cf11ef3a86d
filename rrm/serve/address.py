"""One server's address: requests to it, what their refusals mean, and when to ask again."""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import threading
import time
import urllib.error
import urllib.request
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NoReturn
from urllib.parse import urlsplit

from rrm.engines.replies import retry_after_s
from rrm.engines.server_options import shown_address
from rrm.errors import ConfigError, RRMError

KEY = "RRM_API_KEY"
"""Environment variable: what the server asks for, and clients send."""
TIMEOUT_S = 600.0
"""Between two rows of a request."""
PATIENCE_S = 60.0
"""For which a server that is busy or gone is asked again, from its first failure on."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 10.0
SCHEMES = ("http://", "https://")
BUSY = (408, 429, 502, 503, 504)


class TooLarge(RRMError):
    """A request that is larger than the server takes."""


class Fault(RRMError):
    """A request at which the server failed: another one may be answered."""


class Busy(Exception):
    """Ask again, after so many seconds where the server says when."""

    def __init__(self, why: str, after_s: float = 0.0) -> None:
        super().__init__(why)
        self.why, self.after_s = why, after_s


def key_of(said: str | None, where: str = KEY) -> str | None:
    """A key without the space around it; None for none.

    Raises:
        ConfigError: no header can carry it. The message does not hold it.
    """
    key = (said or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"the key in {where} holds line breaks or letters beyond ASCII, which no header carries")
    return key or None


class Calls:
    """Requests that another thread can end: `stop` closes their connections, and ends the pauses between them."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self._lock = threading.Lock()
        self._open: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def stop(self) -> None:
        """End what is under way; what is asked afterwards ends at once."""
        self.stopped.set()
        with self._lock:
            for sock in list(self._open):
                _shut(sock)

    def opened(self, sock: socket.socket) -> None:
        """A connection was made."""
        with self._lock:
            self._open.add(sock)
            if self.stopped.is_set():
                _shut(sock)


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # the connection under TLS, too


class _Known(http.client.HTTPConnection):
    """A connection that `Calls` knows."""

    def __init__(self, *args: Any, calls: Calls, **how: Any) -> None:
        super().__init__(*args, **how)
        self._calls = calls

    def connect(self) -> None:
        super().connect()
        self._calls.opened(self.sock)


class _KnownHttps(_Known, http.client.HTTPSConnection):
    """Likewise, under TLS."""


class _Noted(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Opens such connections."""

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self._calls = calls

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_Known, calls=self._calls), req)  # type: ignore[arg-type]

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_KnownHttps, calls=self._calls), req)  # type: ignore[arg-type]


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows nothing: the key and the transcripts are for the address that was named."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return


class Address:
    """One server.

    Args:
        url: `http://host:port`, with a path where it lies behind one.
        key: what it asks for; None: `RRM_API_KEY`, where that is set.

    Raises:
        ConfigError: no address, or a key that no header can carry.
    """

    def __init__(
        self, url: str, *, timeout_s: float = TIMEOUT_S, patience_s: float = PATIENCE_S, key: str | None = None
    ) -> None:
        parts = urlsplit(url)
        if f"{parts.scheme}://" not in SCHEMES or not parts.hostname:
            raise ConfigError(f"{shown_address(url)} is no address of rrm serve: write http://HOST:PORT")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ConfigError(
                f"an address of rrm serve is http://HOST:PORT alone: put the key into {KEY}; for a chat model write openai:BASE_URL#model"
            )
        self.url, self.timeout_s, self.patience_s = url.rstrip("/"), timeout_s, patience_s
        self._key = key_of(os.environ.get(KEY) if key is None else key)

    @contextmanager
    def _reply(self, path: str, body: Mapping[str, Any] | None, calls: Calls) -> Iterator[http.client.HTTPResponse]:
        """An answer of status 200, to be read.

        Raises:
            Busy: it should be asked again.
            TooLarge, Fault, RRMError: it should not.
        """
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self._key}"} if self._key else {})
        data = None if body is None else json.dumps(body).encode()  # NaN, too, as in files
        request = urllib.request.Request(f"{self.url}{path}", data, headers)
        try:
            opener = urllib.request.build_opener(_Noted(calls), _Stay)
            with opener.open(request, timeout=self.timeout_s) as reply:
                yield reply
        except urllib.error.HTTPError as error:
            self._refused(error)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise Busy(f"{self.url}: {type(reason).__name__}: {reason}") from error

    def lines(
        self, path: str, body: Mapping[str, Any] | None = None, calls: Calls | None = None
    ) -> Iterator[dict[str, Any]]:
        """A stream's objects, one a line, as they come.

        Raises:
            Busy: it should be asked again: the server does not answer, or its answer was cut off.
            TooLarge, Fault, RRMError: it should not.
        """
        begun = False
        with self._reply(path, body, calls or Calls()) as reply:
            for line in reply:
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

    def another(self, error: object) -> RRMError:
        """That something else answers here."""
        return RRMError(
            f"{self.url} does not answer as rrm serve does: {error}; a chat server is openai:BASE_URL#model"
        )

    def _refused(self, error: urllib.error.HTTPError) -> NoReturn:
        with error:
            try:
                said = json.loads(error.read(65536))["error"]
                why = f"{said['message']}{' (at ' + said['at'] + ')' if 'at' in said else ''}"
            except (ValueError, KeyError, TypeError, OSError, http.client.HTTPException):
                why = error.reason
        if error.code in BUSY:
            raise Busy(f"{self.url}: {why}", retry_after_s(error.headers)) from error
        if error.code == 413:
            raise TooLarge(f"{self.url}: {why}") from error
        if error.code in (401, 403):
            raise ConfigError(f"{self.url}: {why}; clients send the environment's {KEY}") from error
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

    def ask(self, path: str, body: Mapping[str, Any] | None = None, calls: Calls | None = None) -> Any:
        """A request's whole answer, asked again while the server is busy.

        Raises:
            Gone: it does not answer for `patience_s`.
            TooLarge, Fault, RRMError: it refuses.
        """
        calls = calls or Calls()
        pauses = Pauses(self.patience_s, calls)
        while True:
            try:
                with self._reply(path, body, calls) as reply:
                    whole = reply.read()
                return json.loads(whole)
            except (ValueError, RecursionError) as error:
                raise self.another(error) from error
            except Busy as busy:
                if not pauses.wait(busy.after_s):
                    raise Gone(f"{busy.why}; asked for {self.patience_s:g} s") from busy


class Gone(RRMError):
    """A server that was asked again for as long as may be, and did not answer."""


class Pauses:
    """Between tries: doubled each time, with jitter, from the first failure on until a time is over."""

    def __init__(self, patience_s: float, calls: Calls) -> None:
        self.patience_s, self.calls = patience_s, calls
        self.end: float | None = None
        self.pause = FIRST_PAUSE_S

    def answered(self) -> None:
        """The server does answer: the next failure is a first one."""
        self.end, self.pause = None, FIRST_PAUSE_S

    def wait(self, least_s: float) -> bool:
        """Wait; False where the time is over, or the calls are to end."""
        now = time.monotonic()
        self.end = now + self.patience_s if self.end is None else self.end
        pause = max(self.pause * random.uniform(0.75, 1.25), least_s)
        if now + pause > self.end or self.calls.stopped.wait(pause):
            return False
        self.pause = min(2 * self.pause, LONGEST_PAUSE_S)
        return True
