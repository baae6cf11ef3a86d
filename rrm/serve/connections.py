"""Connections of the server: how many there may be, and how long the head of a request may take to come."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEAD_S = 10.0
MOST = 1024
KEPT = 64
"""File descriptors that connections leave to the rest of the process."""
_LATE = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


def most_connections() -> int:
    """As many as the process has file descriptors for, and no more than `MOST`."""
    with suppress(ImportError):  # no limits of this kind on Windows
        import resource

        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return MOST if soft == resource.RLIM_INFINITY else max(1, min(MOST, soft - KEPT))
    return MOST


def protocol(most: int, head_s: float = HEAD_S) -> type[asyncio.Protocol]:
    """uvicorn's protocol, bounded.

    Args:
        most: connections at once: for one more the one that has asked nothing for longest makes room; where all are being answered,
            the new one is refused.
        head_s: seconds in which the head of a request must have come, from the connection's beginning or the head's first byte.
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

        def end(self, said: bytes) -> None:
            self.forget()
            self.transport.write(said)
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
