"""HTTP clients of chat servers: they go where they were sent and nowhere else, and read no more than `most_bytes` of an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from rrm.data.sizes import TooManyBytes, bounded, check_weight, inflated, most_bytes
from rrm.engines.hidden import Hidden
from rrm.engines.http_errors import Retry, failure
from rrm.engines.replies import retry_after_s
from rrm.engines.server_options import shown_address

if TYPE_CHECKING:
    from openai import DefaultAsyncHttpxClient, DefaultHttpxClient

T = TypeVar("T")
PACKED = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}
ASKED = {"Accept-Encoding": "gzip, deflate"}
"""What can be unpacked a piece at a time."""


def chat_client(connections: int) -> DefaultAsyncHttpxClient:
    """A client of so many connections that follows no redirect: keys and prompts are for the address that was named."""
    from openai import DEFAULT_CONNECTION_LIMITS, DefaultAsyncHttpxClient

    limits = type(DEFAULT_CONNECTION_LIMITS)(max_connections=connections, max_keepalive_connections=connections)
    return DefaultAsyncHttpxClient(
        limits=limits, follow_redirects=False, headers=ASKED, event_hooks={"response": [_read_soon]}
    )


def list_client() -> DefaultHttpxClient:
    """Likewise, for requests one at a time."""
    from openai import DefaultHttpxClient

    return DefaultHttpxClient(follow_redirects=False, headers=ASKED, event_hooks={"response": [_read]})


class UnreadableAnswer(ValueError):
    """An answer that is not read.

    Args:
        status: of HTTP.
    """

    def __init__(self, why: str, status: int) -> None:
        super().__init__(why)
        self.status = status


async def send(request: Awaitable[T], limit_s: float, hidden: Hidden, late: str, connect_s: float | None = None) -> T:
    """Return the reply to a request of an OpenAI client.

    Args:
        late: what to do where none comes within `limit_s`.
        connect_s: longest wait for a connection, where it has a limit of its own.

    Raises:
        Retry, Rejected, UnreadableAnswer: there is none, or an error, or one that is not read.
    """
    import openai

    slow = Retry(f"no reply within {limit_s:g} s", late)
    try:
        async with asyncio.timeout(limit_s):  # the client's own is per read; a server that drips bytes must end as well
            return await request
    except TimeoutError as error:
        raise slow from error
    except openai.APIConnectionError as error:  # time-outs among them
        cause = error.__cause__ or error
        if isinstance(cause, UnreadableAnswer):  # so the package's second version has it
            raise cause from error
        kind = type(cause).__name__  # of whichever HTTP library the client has
        silent = kind == "ConnectTimeout" and connect_s is not None
        if isinstance(error, openai.APITimeoutError) and not silent:
            raise slow from error
        unconnected = silent or kind == "ConnectError"
        reason = f"{'cannot connect' if unconnected else 'the connection broke off'} ({cause})"
        if silent:
            reason = f"cannot connect (nothing answered within {connect_s:g} s)"
        hint = (
            "check that the machine is up and the address right"
            if silent
            else "check that the server runs at this address"
        )
        raise Retry(reason, hint, unconnected=unconnected) from error
    except openai.APIStatusError as error:
        text = hidden.quote(error.response.text) or "(no message)"
        raise failure(error.status_code, text, retry_after_s(error.response.headers)) from error


async def _read_soon(response: Any) -> None:
    """Read an answer's body, bounded both as it comes and as it unpacks."""
    blocks, size, most = list[bytes](), 0, most_bytes()
    async for block in response.aiter_raw(chunk_size=1 << 16):
        size += len(block)
        if size > most:
            raise UnreadableAnswer(str(TooManyBytes("the reply")), response.status_code)
        blocks.append(block)
    _keep(response, blocks)


def _read(response: Any) -> None:
    _keep(response, response.iter_raw(chunk_size=1 << 16))


def _keep(response: Any, blocks: Iterable[bytes]) -> None:
    """Give a response its body, unpacked.

    Raises:
        Unreadable: it is a redirect; or its body is damaged, too large (as bytes, unpacked, or as JSON's values), or packed in another way.
    """
    if 300 <= response.status_code < 400:
        there = shown_address(response.headers.get("location", "another address"))
        raise UnreadableAnswer(f"sends its clients on to {there}, and nothing was sent there", response.status_code)
    try:
        coding = response.headers.get("content-encoding", "identity").strip().lower()
        if coding not in ("", "identity", *PACKED):
            raise ValueError(f"the reply is packed as {coding[:40]!r}, which was not asked for")
        blocks = list(bounded(blocks, "the reply"))
        unpacked = inflated(blocks, PACKED[coding]) if blocks and coding in PACKED else blocks
        body = b"".join(bounded(unpacked, "the reply"))
        check_weight(body, "the reply")
    except ValueError as error:
        raise UnreadableAnswer(str(error), response.status_code) from error
    response._content = body  # where httpx keeps a body that was read
