"""Fetch a page within one deadline, with judged redirects and a limit of bytes.

No proxy of the environment is used: a judged address says nothing about where a proxy connects. Cookies and credentials are not sent."""

import http.client
import io
import socket
import ssl
import time
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urljoin

from reagent.errors import ToolError
from reagent.tools.addresses import ConnectionTarget, target
from reagent.tools.deny import DenyList
from rrm import __version__

_REDIRECTS = (301, 302, 303, 307, 308)
_CHUNK = 1 << 16
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
    deadline = time.monotonic() + timeout_s
    for _ in range(max_redirects + 1):
        destination = target(url, allow, ports, deny)
        try:
            answer = _get(destination, deadline, max_bytes)
        except TimeoutError as error:
            raise ToolError(
                f"{destination.host} did not answer in full within {timeout_s:g} s", "fetch_timeout"
            ) from error
        except ssl.SSLError as error:
            raise ToolError(
                f"no secure connection to {destination.host}: {error.reason or error}", "fetch_failed"
            ) from error
        except (OSError, http.client.HTTPException, zlib.error) as error:
            raise ToolError(
                f"{destination.host} could not be read: {type(error).__name__}: {error}", "fetch_failed"
            ) from error
        if isinstance(answer, Page):
            return answer
        try:
            url = urljoin(url, answer)
        except ValueError as error:
            raise ToolError(
                f"{destination.host} redirects to what is no URL: {answer[:100]}", "address_refused"
            ) from error
    raise ToolError(f"more than {max_redirects} redirects; the last one led to {url[:200]}", "too_many_redirects")


def _get(destination: ConnectionTarget, deadline: float, max_bytes: int) -> Page | str:
    wire = _connect(destination, deadline)
    with wire:
        connection = http.client.HTTPConnection(destination.host, destination.port)
        connection.sock = _Wire(wire, deadline)  # pyright: ignore[reportAttributeAccessIssue] - as much of a socket as http.client asks for
        headers = {
            "Host": destination.authority,
            "User-Agent": AGENT,
            "Accept": "text/html, text/*;q=0.9, application/json;q=0.9, */*;q=0.1",
            "Accept-Encoding": "identity",
            "Connection": "close",
        }
        connection.request("GET", destination.path, headers=headers)
        response = connection.getresponse()
        if response.status in _REDIRECTS and (where := response.getheader("Location")):
            return where.encode("latin-1").decode("utf-8", "replace").strip()
        if response.status != 200:
            raise ToolError(f"{destination.host} answered {response.status} {response.reason[:80]}", "fetch_failed")
        body, cut = _body(response, max_bytes)
        content_type = response.headers.get_content_type() if response.getheader("Content-Type") else ""
        return Page(destination.url.geturl(), content_type, response.headers.get_content_charset(), body, cut)


def _connect(destination: ConnectionTarget, deadline: float) -> socket.socket:
    problem: OSError | None = None
    for address in destination.addresses:
        try:
            # an address, so nothing is resolved again
            plain = socket.create_connection((address, destination.port), timeout=_left(deadline))
        except OSError as error:
            problem = error
            continue
        if destination.url.scheme == "http":
            return plain
        try:
            return ssl.create_default_context().wrap_socket(plain, server_hostname=destination.host)
        except BaseException:
            plain.close()
            raise
    raise problem or OSError("no address")


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _body(response: http.client.HTTPResponse, max_bytes: int) -> tuple[bytes, bool]:
    """(at most `max_bytes` of the body, whether there is more); unpacked as it comes, against bombs.
    At most twice as many are received: blocks that unpack to nothing could go on for ever. Raises ToolError: too large, or broken off."""
    coding = (response.getheader("Content-Encoding") or "identity").strip().lower()
    if coding not in ("identity", "gzip", "x-gzip", "deflate"):
        raise ToolError(f"the page is encoded as {coding[:40]!r}, which was not asked for", "fetch_failed")
    packed, length = coding != "identity", response.length
    body, received, unpack = bytearray(), 0, None
    while len(body) <= max_bytes and (data := response.read1(_CHUNK)):
        received += len(data)
        if received > 2 * max_bytes + _CHUNK:
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
    if len(body) <= max_bytes:
        if length is not None and received < length:
            raise ToolError(f"the answer broke off after {received} of {length} bytes", "fetch_failed")
        if unpack is not None and not unpack.eof:
            raise ToolError(f"the packed page broke off after {received} bytes", "fetch_failed")
    return bytes(body[:max_bytes]), len(body) > max_bytes


def _window(coding: str, data: bytes) -> int:
    """zlib's wbits for a body that begins so: some servers send a bare stream as `deflate`."""
    if "gzip" in coding:
        return zlib.MAX_WBITS | 32
    bare = len(data) > 1 and (data[0] & 15 != zlib.DEFLATED or (data[0] << 8 | data[1]) % 31 != 0)
    return -zlib.MAX_WBITS if bare else zlib.MAX_WBITS


class _DeadlineReader(io.RawIOBase):
    def __init__(self, wire: socket.socket, deadline: float) -> None:
        self.wire, self.deadline = wire, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        self.wire.settimeout(_left(self.deadline))
        return self.wire.recv_into(buffer)


class _Wire:
    def __init__(self, wire: socket.socket, deadline: float) -> None:
        self.wire, self.deadline = wire, deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_DeadlineReader(self.wire, self.deadline))

    def sendall(self, data: bytes) -> None:
        self.wire.settimeout(_left(self.deadline))
        self.wire.sendall(data)

    def close(self) -> None:
        """Does nothing: http.client closes before it reads, relying on sockets to stay open for their files."""
