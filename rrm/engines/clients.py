"""HTTP clients of chat servers: they go where they were sent and nowhere else, and read no more than `most_bytes` of an answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rrm.data.sizes import TooManyBytes, bounded, check_weight, inflated, most_bytes
from rrm.engines.server_options import shown_address

if TYPE_CHECKING:
    from openai import DefaultAsyncHttpxClient, DefaultHttpxClient

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
