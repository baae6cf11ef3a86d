"""Fetch a page within one deadline, with judged redirects and a limit of bytes.

No proxy of the environment is used: a judged address says nothing about where a proxy connects. Cookies and credentials are not sent."""

import asyncio
import ssl
import zlib
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from email.message import Message
from urllib.parse import urljoin

import httpx2

from reagent.errors import ToolError
from reagent.tools.addresses import ConnectionTarget, target
from reagent.tools.deny import DenyList
from rrm import __version__
from rrm.engines.async_runner import run
from rrm.engines.http import NoAnswer, client, opened

_REDIRECTS = (301, 302, 303, 307, 308)
_SLACK = 1 << 16
_GZIP = b"\x1f\x8b"
AGENT = f"agent-rrm/{__version__} (page fetcher of a language model agent)"


@dataclass(frozen=True)
class Page:
    url: str  # after redirects
    content_type: str  # media type in lower case, without parameters; empty where the server said none
    charset: str | None
    body: bytes  # at most `max_bytes`, decompressed
    cut: bool  # there was more


def fetch(
    url: str,
    *,
    allow: Collection[str] = (),
    ports: Collection[int] = (80, 443),
    timeout_s: float = 20.0,
    max_bytes: int = 2_000_000,
    max_redirects: int = 5,
    deny: DenyList | None = None,
) -> Page:
    """GET a URL. Blocks up to `timeout_s`, and for as long as the name server takes.
    Raises ToolError: as `addresses.target`, for the URL and each redirect; or the fetch failed."""

    async def follow(url: str) -> Page:
        deadline = asyncio.get_running_loop().time() + timeout_s
        for _ in range(max_redirects + 1):
            destination = target(url, allow, ports, deny)
            try:
                # a client of its own: it would send cookies on, to other hosts of the address too
                async with asyncio.timeout_at(deadline), client(trust_env=False) as http:
                    answer = await _get(http, destination, timeout_s, max_bytes)
            except TimeoutError as error:
                problem = f"{destination.host} did not answer in full within {timeout_s:g} s"
                raise ToolError(problem, "fetch_timeout") from error
            if isinstance(answer, Page):
                return answer
            try:
                url = urljoin(url, answer)
            except ValueError as error:
                problem = f"{destination.host} redirects to what is no URL: {answer[:100]}"
                raise ToolError(problem, "address_refused") from error
        raise ToolError(f"more than {max_redirects} redirects; the last one led to {url[:200]}", "too_many_redirects")

    return run(follow(url))


async def _get(http: httpx2.AsyncClient, destination: ConnectionTarget, timeout_s: float, max_bytes: int) -> Page | str:
    """The page, or where the server says it is."""
    headers = {
        "Host": destination.authority,
        "User-Agent": AGENT,
        "Accept": "text/html, text/*;q=0.9, application/json;q=0.9, */*;q=0.1",
        "Accept-Encoding": "identity",
        "Connection": "close",
    }
    # an address, so nothing is resolved again; the certificate is the name's
    how = {"headers": headers, "extensions": {"sni_hostname": destination.host, "target": destination.path.encode()}}
    for n, address in enumerate(destination.addresses, 1):
        literal = f"[{address}]" if ":" in address else address
        url = f"{destination.url.scheme}://{literal}:{destination.port}/"
        try:
            async with opened(http, "GET", url, silent_s=timeout_s, **how) as response:
                status = response.status_code
                if status in _REDIRECTS and (where := response.headers.get("Location")):
                    return where.strip()
                if status != 200:
                    problem = f"{destination.host} answered {status} {response.reason_phrase[:80]}"
                    raise ToolError(problem, "fetch_failed")
                body, cut = await _body(response, max_bytes)
                head = Message()
                head["Content-Type"] = response.headers.get("Content-Type", "")
                content_type = head.get_content_type() if head["Content-Type"] else ""
                return Page(destination.url.geturl(), content_type, head.get_content_charset(), body, cut)
        except NoAnswer as error:
            if error.kind == "unconnected" and n < len(destination.addresses):
                continue
            problem = f"{destination.host} could not be read: {type(error.cause).__name__}: {error}"
            if isinstance(error.cause, ssl.SSLError):
                problem = f"no secure connection to {destination.host}: {error}"
            raise ToolError(problem, "fetch_failed") from error
        except zlib.error as error:
            raise ToolError(f"{destination.host} could not be read: {error}", "fetch_failed") from error
    raise ToolError(f"{destination.host} has no address", "host_not_found")


async def _body(response: httpx2.Response, max_bytes: int) -> tuple[bytes, bool]:
    """(at most `max_bytes` of the body, whether there is more); unpacked as it comes, against bombs.
    At most twice as many are received: blocks that unpack to nothing could go on for ever. Raises ToolError: too large, or broken off."""
    coding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if coding not in ("identity", "gzip", "x-gzip", "deflate"):
        raise ToolError(f"the page is encoded as {coding[:40]!r}, which was not asked for", "fetch_failed")
    packed, body, received, unpack = coding != "identity", bytearray(), 0, None
    async for data in _blocks(response):
        received += len(data)
        if received > 2 * max_bytes + _SLACK:
            raise ToolError(
                f"the page takes more than {received} bytes packed, and {max_bytes} are read at most", "fetch_failed"
            )
        if not packed:
            body += data
        while packed and data and len(body) <= max_bytes:
            if unpack is None:
                unpack = zlib.decompressobj(_window(coding, data))
            elif unpack.eof:  # another member of a gzip file, or bytes that mean nothing
                if "gzip" not in coding or not _GZIP.startswith(data[:2]):
                    break
                unpack = zlib.decompressobj(_window(coding, data))
            body += unpack.decompress(data, max_bytes + 1 - len(body))
            data = unpack.unconsumed_tail or unpack.unused_data
        if len(body) > max_bytes:
            break
    if len(body) <= max_bytes and unpack is not None and not unpack.eof:
        raise ToolError(f"the packed page broke off after {received} bytes", "fetch_failed")
    return bytes(body[:max_bytes]), len(body) > max_bytes


async def _blocks(response: httpx2.Response) -> AsyncIterator[bytes]:
    try:
        async for data in response.aiter_raw():
            yield data
    except httpx2.RemoteProtocolError as error:
        length = response.headers.get("Content-Length", "more")
        raise ToolError(
            f"the answer broke off after {response.num_bytes_downloaded} of {length} bytes", "fetch_failed"
        ) from error


def _window(coding: str, data: bytes) -> int:
    """zlib's wbits for a body that begins so: some servers send a bare stream as `deflate`."""
    if "gzip" in coding:
        return zlib.MAX_WBITS | 32
    bare = len(data) > 1 and (data[0] & 15 != zlib.DEFLATED or (data[0] << 8 | data[1]) % 31 != 0)
    return -zlib.MAX_WBITS if bare else zlib.MAX_WBITS
