"""HTTP client: follows no redirects and reads no more than `most_bytes` of an answer."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import httpx2

from rrm.data.sizes import TooManyBytes, bounded, check_weight, inflated, most_bytes
from rrm.engines.hidden import Hidden
from rrm.engines.http_errors import Retry, failure
from rrm.engines.replies import retry_after_s
from rrm.engines.server_options import shown_address

logging.getLogger("httpx2").setLevel(logging.WARNING)  # its lines hold whole addresses, and with them keys
PACKED = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}  # encodings that can be unpacked a piece at a time


class NoAnswer(Exception):
    def __init__(self, kind: Literal["unconnected", "silent", "late", "broken"], cause: BaseException) -> None:
        super().__init__(_reason(cause))
        self.kind, self.cause = kind, cause


class UnreadableAnswer(ValueError):
    """An answer that cannot be read, or cannot belong to the request."""

    def __init__(self, why: str, status: int = 200) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True)
class Answer:
    """A status with its body, unpacked."""

    status: int
    headers: httpx2.Headers
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")


@cache
def _certificates() -> ssl.SSLContext:
    return httpx2.create_ssl_context()  # takes a tenth of a second


def client(connections: int = 1, **how: Any) -> httpx2.AsyncClient:
    """Make a client without redirects: keys and prompts are for the named address alone."""
    limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=connections)
    headers = {"Accept-Encoding": "gzip, deflate", "User-Agent": "agent-rrm"}
    return httpx2.AsyncClient(**{"verify": _certificates(), "limits": limits, "headers": headers, **how})


@asynccontextmanager
async def opened(
    http: httpx2.AsyncClient, method: str, url: str, *, silent_s: float, connect_s: float | None = None, **sent: Any
) -> AsyncIterator[httpx2.Response]:
    """Open an answer whose body is still to be read; `silent_s`: longest wait for data.

    Raises:
        NoAnswer: there is none.
        ValueError: the request is impossible; the message may quote a secret.
    """
    wait = httpx2.Timeout(silent_s, connect=silent_s if connect_s is None else connect_s)
    try:
        async with http.stream(method, url, timeout=wait, **sent) as response:
            yield response
    except httpx2.ConnectTimeout as error:
        raise NoAnswer("late" if connect_s is None else "silent", error) from error
    except httpx2.TimeoutException as error:
        raise NoAnswer("late", error) from error
    except httpx2.LocalProtocolError:
        raise ValueError("a header holds what no request carries") from None
    except (httpx2.TransportError, httpx2.InvalidURL) as error:
        cause = _cause(error)
        unconnected = isinstance(error, httpx2.ConnectError | httpx2.InvalidURL) and not isinstance(cause, ssl.SSLError)
        raise NoAnswer("unconnected" if unconnected else "broken", cause) from error


def _cause(error: BaseException) -> BaseException:
    """The system's own error beneath the client's, where there is one."""
    deepest = cause = error
    while (cause := cause.__cause__ or cause.__context__) is not None:
        deepest = cause if isinstance(cause, OSError) and cause.errno else deepest
    return deepest


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError | socket.gaierror):
        return os.strerror(error.errno)  # not asyncio's "Connect call failed"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


async def ask(
    http: httpx2.AsyncClient, method: str, url: str, *, limit_s: float, connect_s: float | None = None, **sent: Any
) -> Answer:
    """Get an answer within `limit_s` in all, also of a server that drips bytes."""
    try:
        async with (
            asyncio.timeout(limit_s),
            opened(http, method, url, silent_s=limit_s, connect_s=connect_s, **sent) as response,
        ):
            try:
                return Answer(response.status_code, response.headers, await read(response))
            except ValueError as error:
                if response.is_error:  # the status says enough
                    return Answer(response.status_code, response.headers, f"({error})".encode())
                raise UnreadableAnswer(str(error), response.status_code) from error
    except TimeoutError as error:
        raise NoAnswer("late", error) from error


async def send(
    http: httpx2.AsyncClient,
    method: str,
    url: str,
    limit_s: float,
    hidden: Hidden,
    late: str,
    connect_s: float | None = None,
    **sent: Any,
) -> Answer:
    """Get an answer of status 200; `late`: advice where none comes within `limit_s`.

    Raises:
        Retry, Rejected, UnreadableAnswer: no answer, an error status, or an unreadable body.
    """
    try:
        answer = await ask(http, method, url, limit_s=limit_s, connect_s=connect_s, **sent)
    except NoAnswer as error:
        reason, hint = {
            "unconnected": (f"cannot connect ({error})", "check that the server runs at this address"),
            "silent": (
                f"cannot connect (nothing answered within {connect_s or limit_s:g} s)",
                "check that the machine is up and the address right",
            ),
            "late": (f"no reply within {limit_s:g} s", late),
            "broken": (f"the connection broke off ({error})", "check that the server runs at this address"),
        }[error.kind]
        raise Retry(reason, hint, unconnected=error.kind in ("unconnected", "silent")) from error
    if 300 <= answer.status < 400:
        there = shown_address(answer.headers.get("location", "another address"))
        raise UnreadableAnswer(f"sends its clients on to {there}, and nothing was sent there", answer.status)
    if answer.status >= 400:
        raise failure(answer.status, hidden.quote(answer.text) or "(no message)", retry_after_s(answer.headers))
    return answer


async def read(response: httpx2.Response, label: str = "the reply", until: float | None = None) -> bytes:
    """Read and unpack a bounded body; ValueError where it is damaged, too large or oddly encoded, TimeoutError after `until`."""
    blocks, size, most = list[bytes](), 0, most_bytes()
    async for block in _blocks(response, until):
        size += len(block)
        if size > most:
            raise TooManyBytes(label)
        blocks.append(block)
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity", *PACKED):
        raise ValueError(f"{label} is packed as {coding[:40]!r}, which was not asked for")
    unpacked = inflated(blocks, PACKED[coding]) if blocks and coding in PACKED else blocks
    body = b"".join(bounded(unpacked, label))
    check_weight(body, label)
    return body


async def lines(response: httpx2.Response, label: str, until: float | None = None) -> AsyncIterator[bytes]:
    """Read the lines of an uncompressed answer as they come. TooManyBytes where a line is too large, TimeoutError after `until`."""
    parts, size, most = list[bytes](), 0, most_bytes()
    async for block in _blocks(response, until):
        for line in block.splitlines(keepends=True):
            size += len(line)
            if size > most:
                raise TooManyBytes(label)
            parts.append(line)
            if line.endswith(b"\n"):
                yield b"".join(parts)
                parts, size = [], 0
    if parts:
        yield b"".join(parts)


async def _blocks(response: httpx2.Response, until: float | None) -> AsyncIterator[bytes]:
    """Yield a body's bytes; TimeoutError after `until` (`time.monotonic`), also of a server that drips bytes."""
    blocks = response.aiter_raw()
    while True:
        async with asyncio.timeout(None if until is None else max(0.0, until - time.monotonic())):
            block = await anext(blocks, None)
        if block is None:
            return
        yield block


def backoff(first_s: float, tries: int, most_s: float) -> float:
    """Random seconds to wait: up to `first_s`, doubled with each try before, at most `most_s`."""
    # not seeded on purpose: clients that wait alike would meet again
    return random.uniform(0.0, min(first_s * 2.0 ** min(tries, 100), most_s))
