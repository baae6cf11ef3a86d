"""Limits before a request is read: connections, keys, hosts, sizes and times."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from rrm.serve.metrics import Metrics

AGAIN_S = 2  # seconds for Retry-After

OPEN = ("/healthz",)  # without a key: for monitors

GONE = 499  # status, for metrics only, of a request whose client hung up
FLIGHT = 8  # default limit of all bodies in the server, times the largest body
DRAINED = 8  # bytes of a refused body that are read and dropped, times the largest body


@dataclass(frozen=True)
class BodyLimits:
    """Limits of one request."""

    body_bytes: int
    body_s: float  # seconds from the first byte to the last
    transcripts: int
    key: str | None = None
    flight_bytes: int | None = None  # of all unanswered requests; None: `FLIGHT` times `body_bytes`

    names: frozenset[str] = frozenset()  # valid hosts without a key, beside `localhost` and addresses

    @property
    def most_in_flight(self) -> int:
        # never less than a body
        return FLIGHT * self.body_bytes if self.flight_bytes is None else max(self.flight_bytes, self.body_bytes)


class Ascii(JSONResponse):
    """JSON in ASCII: an id may hold half a surrogate pair, which no other encoding takes."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


class RequestLimits:
    """ASGI middleware: refuses, counts, times.

    Args:
        paths: of endpoints; others are counted together.
    """

    def __init__(self, app: ASGIApp, limits: BodyLimits, metrics: Metrics, paths: frozenset[str]) -> None:
        self.app, self.limits, self.metrics, self.paths = app, limits, metrics, paths
        self.flight = 0  # bytes of unanswered bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path, begun, status = scope["path"] if scope["path"] in self.paths else "other", time.monotonic(), 500
        ended, received = False, [0]

        async def heard(message: Message) -> None:
            nonlocal status, ended
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                ended = not message.get("more_body", False)
            await send(message)

        try:
            refusal = self._refusal(scope)
            if refusal is not None:
                await self._drain(receive, time.monotonic())
                await refusal(scope, receive, heard)
            else:
                await self.app(scope, self._bounded(receive, received), heard)
            if not ended:  # a stream whose client has hung up
                status = GONE
        except ClientDisconnect:
            status = GONE
        except Exception:
            status = 500
            raise
        finally:
            self.flight -= received[0]
            self.metrics.request(path, status, time.monotonic() - begun)

    async def _drain(self, receive: Receive, begun: float) -> None:
        # a client that is cut off while it sends does not read why
        size = 0
        while size < DRAINED * self.limits.body_bytes:
            left = begun + self.limits.body_s - time.monotonic()
            try:
                message = await asyncio.wait_for(receive(), max(left, 0.0))
            except TimeoutError:
                return
            size += len(message.get("body", b""))
            if not message.get("more_body", False):
                return

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers: Mapping[bytes, bytes] = dict(scope["headers"])
        if self.limits.key is not None and scope["path"] not in OPEN:
            key = headers.get(b"authorization", b"").removeprefix(b"Bearer ")
            if not hmac.compare_digest(key, self.limits.key.encode()):
                return answer(401, "this server wants a key: Authorization: Bearer …", {"WWW-Authenticate": "Bearer"})
        if self.limits.key is None and (why := self._foreign(headers)) is not None:
            return answer(403, why)
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > self.limits.body_bytes:
            return answer(413, self._too_large(), {"Connection": "close"})
        if length.isdigit() and self.flight + int(length) > self.limits.most_in_flight:
            return answer(429, self._full(), {"Retry-After": str(AGAIN_S)})
        return None

    def _foreign(self, headers: Mapping[bytes, bytes]) -> str | None:
        """Return why a request may come from a foreign web page, by its name of this host or its origin."""
        host, origin = (headers.get(name, b"").decode("latin-1").lower() for name in (b"host", b"origin"))
        hint = "ask it by its address, or start it with a key"
        if host and not self._own(host):
            return f"without a key this server answers to no foreign name, such as {host[:100]}: {hint}"
        if origin and origin not in (f"http://{host}", f"https://{host}"):
            return f"without a key this server answers no page of {origin[:100]}: {hint}"
        return None

    def _own(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name == "localhost" or name in self.limits.names:
                return True
            ip_address(name)
        except ValueError:
            return False
        return True

    def _full(self) -> str:
        return f"{self.flight:,} bytes of requests are not answered yet: ask again later, or for fewer"

    def _too_large(self) -> str:
        return f"a body may have {self.limits.body_bytes:,} bytes: send fewer transcripts at once, or start the server with --max-body"

    def _bounded(self, receive: Receive, received: list[int]) -> Receive:
        # `received` counts the bytes that came
        begun: float | None = None
        size, complete = 0, False

        async def bounded() -> Message:
            nonlocal begun, size, complete
            if complete:  # what comes now is that the client has gone
                return await receive()
            begun = time.monotonic() if begun is None else begun
            left = begun + self.limits.body_s - time.monotonic()
            try:
                message = await asyncio.wait_for(receive(), max(left, 0.0))
            except TimeoutError:
                raise HTTPException(408, f"the body did not come within {self.limits.body_s:g} s") from None
            if message["type"] == "http.disconnect":
                raise HTTPException(GONE, "the client has gone")
            came = len(message.get("body", b""))
            size += came
            if self.flight + came > self.limits.most_in_flight:
                if message.get("more_body", False):
                    await self._drain(receive, begun)
                raise HTTPException(429, self._full())
            self.flight += came
            received[0] += came
            if size > self.limits.body_bytes:
                if message.get("more_body", False):
                    await self._drain(receive, begun)
                raise HTTPException(413, self._too_large())
            complete = not message.get("more_body", False)
            return message

        return bounded


def answer(status: int, message: str, headers: Mapping[str, str] | None = None, **more: Any) -> JSONResponse:
    return Ascii({"error": {"message": message, **more}}, status, dict(headers or {}))


HEAD_S = 10.0
MOST = 1024
KEPT = 64  # file descriptors for the rest of the process
_LATE = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


def most_connections() -> int:
    """Return the process's limit of file descriptors, less `KEPT`, at most `MOST`."""
    with suppress(ImportError):  # no limits of this kind on Windows
        import resource

        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return MOST if soft == resource.RLIM_INFINITY else max(1, min(MOST, soft - KEPT))
    return MOST


def protocol(most: int, head_s: float = HEAD_S) -> type[asyncio.Protocol]:
    """Make uvicorn's protocol, bounded.

    Args:
        most: connections; one more replaces the longest idle one, or is refused where none is idle.
        head_s: seconds for a request's head, from the connection's start or the head's first byte.
    """
    connections: set[Any] = set()
    idle: dict[Any, None] = {}  # those without a request, the longest first

    protocol: Any = AutoHTTPProtocol  # one of two, by what is installed

    class Bounded(protocol):
        timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(connections) >= most:
                if not idle:
                    self.end(_FULL)
                    return
                oldest = next(iter(idle))
                oldest.forget()
                oldest.transport.abort()
            connections.add(self)
            self.wait()

        def wait(self) -> None:
            idle[self] = None
            self.timer = self.timer or asyncio.get_running_loop().call_later(head_s, self.end, _LATE)

        def data_received(self, data: bytes) -> None:
            if self in idle:
                self.wait()
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self.rest()
                idle.pop(self, None)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self in connections and self.cycle.response_complete:
                idle[self] = None  # uvicorn ends what stays so too long

        def connection_lost(self, exc: Exception | None) -> None:
            self.forget()
            super().connection_lost(exc)

        def end(self, response: bytes) -> None:
            self.forget()
            self.transport.write(response)
            self.transport.close()

        def rest(self) -> None:
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None

        def forget(self) -> None:
            self.rest()
            connections.discard(self)
            idle.pop(self, None)

    return Bounded
