"""Judges addresses before a page is fetched: public ones on web ports, or those an operator allows.

A name is resolved once, all its addresses are judged, and the connection is made to a judged one: a second answer of the name server
never counts (DNS rebinding). An address inside another one (IPv4-mapped, 6to4, Teredo, NAT64) is judged as well."""

import ipaddress
import re
import socket
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, urlsplit

from reagent.errors import ToolError
from reagent.tools.deny import DenyList

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

PORTS = {"http": 80, "https": 443}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_NAT64_LOCAL = ipaddress.ip_network("64:ff9b:1::/48")
_SPECIAL_V4 = [
    ipaddress.ip_network(text)
    for text in ("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24", "198.18.0.0/15", "240.0.0.0/4")
]
"""Not public, though older Pythons call some of them global."""
_CLOUD = frozenset({ipaddress.ip_address("168.63.129.16")})
"""Public by number, but Azure's own host to its machines, which hands out their settings and keys.
Those of other clouds (169.254.169.254, 100.100.100.200, fd00:ec2::254, …) are link-local, shared, reserved or private."""
_NUMBERS = re.compile(r"(?:0[xX][0-9a-fA-F]*|\d+)(?:\.(?:0[xX][0-9a-fA-F]*|\d+)){0,3}\.?")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")


@dataclass(frozen=True)
class ConnectionTarget:
    url: SplitResult
    host: str  # as the server knows itself: for the Host header and the certificate
    port: int
    addresses: tuple[str, ...]  # judged; one of them is connected to

    @property
    def path(self) -> str:
        return (self.url.path or "/") + (f"?{self.url.query}" if self.url.query else "")

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.url.scheme] else f"{host}:{self.port}"


def why_not(address: Address) -> str | None:
    """The name of an address's class (`loopback`, `private`, …); None for one of the public internet."""
    inner = _inside(address)
    if inner is not None and (name := why_not(inner)):
        return name
    if isinstance(address, ipaddress.IPv6Address) and address.is_site_local:
        return "private"
    for name in ("unspecified", "loopback", "link_local", "multicast", "private", "reserved"):
        # NAT64's own prefix counts as reserved or private in some versions; what it leads to has been judged
        if getattr(address, f"is_{name}") and not (address.version == 6 and address in _NAT64):
            return name.replace("_", "-")
    if address.version == 4 and any(address in network for network in _SPECIAL_V4):
        return "reserved"
    if address in _CLOUD:
        return "cloud-internal"
    if address.version == 6 and address in _NAT64_LOCAL:
        return "private"
    return None


def _inside(address: Address) -> ipaddress.IPv4Address | None:
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped or address.sixtofour:
        return address.ipv4_mapped or address.sixtofour
    if address.teredo:
        return address.teredo[1]
    low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    # the last: IPv4-compatible addresses, long out of use, which some stacks still follow
    return low if address in _NAT64 or (int(address) >> 32 == 0 and int(address) > 1) else None


def parse(text: str) -> SplitResult:
    """Split a URL. Raises ToolError: it is none, has a user name or password, or is not http(s)."""
    if len(text) > 4096 or any(ord(c) <= 32 or ord(c) == 127 for c in text) or "\\" in text:
        raise ToolError(
            "not a URL: it is too long, or holds spaces, control characters or backslashes", "address_refused"
        )
    try:
        url = urlsplit(text if text.isascii() else _ascii(text))
        port = url.port
    except (ValueError, UnicodeError) as error:
        raise ToolError(f"not a URL: {error}", "address_refused") from error
    if url.scheme not in PORTS or not url.hostname:
        raise ToolError("only http:// and https:// URLs with a host are fetched", "address_refused")
    if url.username is not None or url.password is not None:
        raise ToolError("a URL with a user name or password is not fetched", "address_refused")
    if port == 0:
        raise ToolError("port 0 is no port", "address_refused")
    return url


def _ascii(text: str) -> str:
    url = urlsplit(text)
    authority = url.netloc.encode("idna").decode("ascii")
    return url._replace(
        netloc=authority, **{field: _quoted(getattr(url, field)) for field in ("path", "query")}
    ).geturl()


def _quoted(text: str) -> str:
    return re.sub(r"[^\x00-\x7f]+", lambda letters: quote(letters[0]), text)


def target(
    text: str, allow: Collection[str] = (), ports: Collection[int] = (80, 443), deny: DenyList | None = None
) -> ConnectionTarget:
    """Judge a URL's addresses. Asks the name server once.

    Args:
        allow: `host:port` as they stand in URLs, fetched whatever their address: an operator's own servers.
        ports: all others are refused.
        deny: not fetched, also where `allow` has it. Raises ToolError for it, and for hosts, ports and addresses that are not accepted.
    """
    url = parse(text)
    if deny is not None and (entry := deny.entry_for(url.geturl())):
        raise ToolError(f"addresses of {entry} are not fetched in this task", "host_denied", denied=1)
    host, port = (url.hostname or "").lower(), url.port or PORTS[url.scheme]
    allowed = f"{f'[{host}]' if ':' in host else host}:{port}" in allow
    if not allowed and port not in ports:
        raise ToolError(f"port {port} is not fetched; only {', '.join(map(str, sorted(ports)))}", "address_refused")
    literal = _literal(host)
    addresses = [literal] if literal is not None else _resolve(host, port)
    for address in addresses:
        if (reason := why_not(address)) and not allowed:
            raise ToolError(f"{host} leads to a {reason} address, which is not fetched", "address_refused")
    return ConnectionTarget(url, host, port, tuple(str(address) for address in addresses))


def _literal(host: str) -> Address | None:
    """The address that a host is written as; None for a name.
    Raises ToolError: a number in another form than four decimals (`2130706433`, `0x7f.1`, `0177.0.0.1`), a zone, or no name."""
    if ":" in host:
        if "%" in host:
            raise ToolError("an IPv6 address with a zone is not fetched", "address_refused")
        try:
            return ipaddress.IPv6Address(host)
        except ValueError as error:
            raise ToolError(f"not an IPv6 address: {error}", "address_refused") from error
    if _NUMBERS.fullmatch(host):
        try:
            return ipaddress.IPv4Address(host)
        except ValueError as error:
            raise ToolError("an IP address is written as four decimal numbers", "address_refused") from error
    if not host or len(host) > 253 or not all(_LABEL.fullmatch(label) for label in host.rstrip(".").split(".")):
        raise ToolError(f"not a host name: {host[:80]!r}", "address_refused")
    return None


def _resolve(host: str, port: int) -> list[Address]:
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ToolError(f"the host {host} was not found", "host_not_found") from error
    texts = dict.fromkeys(str(answer[4][0]).partition("%")[0] for answer in answers)
    return [ipaddress.ip_address(text) for text in texts]
