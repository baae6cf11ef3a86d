"""Every address that must not be fetched, whatever it is called and whoever leads to it."""

from __future__ import annotations

import asyncio
import gzip
import http.server
import ipaddress
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import pytest
from tool_errors import raises

from reagent.env.tool import ToolResult
from reagent.errors import ToolError
from reagent.tools import build
from reagent.tools.addresses import parse, target, why_not
from reagent.tools.deny import DenyList
from reagent.tools.documents.html import html_text
from reagent.tools.fetch import fetch
from rrm.errors import ConfigError


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with pages_served() as pages:
        yield pages


REFUSED = [
    "http://127.0.0.1/", "http://127.1.2.3/", "http://localhost/", "http://localhost./", "http://LOCALHOST/",
    "http://0.0.0.0/", "http://10.0.0.1/", "http://172.16.0.1/", "http://192.168.1.1/",
    "http://169.254.169.254/latest/meta-data/", "http://168.63.129.16/machine?comp=goalstate", "http://100.64.0.1/",
    "http://100.100.100.200/latest/meta-data/", "http://192.0.0.8/", "http://192.0.0.192/latest/", "http://198.18.0.1/",
    "http://224.0.0.1/", "http://240.0.0.1/", "http://255.255.255.255/", "http://2130706433/", "http://0x7f000001/",
    "http://0x7f.0.0.1/", "http://0177.0.0.1/", "http://017700000001/", "http://127.1/", "http://127.0.1/",
    "http://127.0.0.1./", "http://134744072/",  # 8.8.8.8: public, but nobody writes it so
    "http://[::1]/", "http://[::]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:10.0.0.1]/",
    "http://[::ffff:a9fe:a9fe]/", "http://[::127.0.0.1]/", "http://[::ffff:168.63.129.16]/",
    "http://[64:ff9b::7f00:1]/", "http://[64:ff9b::a83f:8110]/", "http://[64:ff9b:1::1]/", "http://[2002:7f00:1::]/",
    "http://[2001:0:7f00:1:0:0:f5ff:fffe]/", "http://[fe80::1]/", "http://[fe80::1%25eth0]/", "http://[fc00::1]/",
    "http://[fd00:ec2::254]/latest/meta-data/", "http://[fd20:ce::254]/", "http://[fec0::1]/", "http://[ff02::1]/",
    "http://user@example.com/", "http://user:pass@example.com/", "http://example.com@127.0.0.1/", "http://8.8.8.8:22/",
    "http://8.8.8.8:0/", "http://8.8.8.8:99999/", "http://8.8.8.8:8080/", "https://127.0.0.1/", "ftp://8.8.8.8/",
    "file:///etc/passwd", "gopher://8.8.8.8/", "javascript:alert(1)", "data:text/plain,hello", "//8.8.8.8/", "8.8.8.8",
    "", "http://", "http:///path", "http://exa mple.com/", "http://example.com/\r\nHost: x",
    "http://example.com\\@127.0.0.1/", "http://127%2e0.0.1/", "http://１２７.0.0.1/", "http://①②⑦.0.0.1/",
    "http://-example.com/", "http://[::1/", "http://" + "a" * 5000 + "/",
]  # fmt: skip


@pytest.mark.parametrize("url", REFUSED)
def test_what_must_not_be_fetched(url: str) -> None:
    with raises("address_refused", "host_not_found"):  # some resolvers do not know `localhost.`
        target(url)


@pytest.mark.parametrize(
    "url", [u for u in REFUSED if "://" in u and u not in ("http://", "http:///path") and "\r" not in u and len(u) < 99]
)
def test_nor_behind_a_redirect(server: Any, url: str) -> None:
    before = len(server.asked)
    with raises("address_refused", "host_not_found"):
        fetch(f"{server.base}/inside?{quote(url)}", allow=server.allow)
    assert len(server.asked) == before + 1  # the redirect alone


def test_public_addresses_pass() -> None:
    for text in ("8.8.8.8", "1.1.1.1", "168.63.129.17", "2001:4860:4860::8888", "64:ff9b::808:808", "2002:808:808::"):
        assert why_not(ipaddress.ip_address(text)) is None, text
    destination = target("https://8.8.8.8/dns?q=a")
    assert (destination.addresses, destination.port, destination.path, destination.authority) == (
        ("8.8.8.8",), 443, "/dns?q=a", "8.8.8.8",
    )  # fmt: skip
    assert target("http://[2001:4860:4860::8888]").authority == "[2001:4860:4860::8888]"


def test_other_letters_are_encoded() -> None:
    url = parse("https://de.wikipedia.org/wiki/Köln?x=ä")
    assert url.geturl() == "https://de.wikipedia.org/wiki/K%C3%B6ln?x=%C3%A4"
    assert parse("http://bücher.example/").hostname == "xn--bcher-kva.example"


def test_allow_is_for_that_host_and_port_alone(server: Any) -> None:
    assert target(f"{server.base}/x", server.allow).addresses == ("127.0.0.1",)
    for url in (
        f"http://127.0.0.1:{server.server_port + 1}/",
        f"http://localhost:{server.server_port}/",
        "http://127.0.0.1/",
    ):
        with raises("address_refused"):
            target(url, server.allow)
    with pytest.raises(ConfigError, match="write host:port"):
        build(["browse"], {"browse": {"allow": ["127.0.0.1"]}})


def test_a_redirect_from_an_allowed_server_leads_nowhere_else(server: Any) -> None:
    result = browse(server, "/inside?http://169.254.169.254/latest/")
    assert kind(result) == "address_refused" and "link-local" in result.content
    assert kind(browse(server, "/inside?file:///etc/passwd")) == "address_refused"


def test_a_cookie_is_sent_on_to_no_host(server: Any) -> None:
    other = f"localhost:{server.server_port}"
    result = browse(server, f"/marked?http://{other}/cookies", allow=[*server.allow, other])
    assert "None" in result.content and "visitor" not in result.content
    assert "visitor" not in browse(server, "/marked?/cookies").content


DENIED = ["sets.example", "code.example/lab"]


@pytest.mark.parametrize(
    "url",
    [
        "https://sets.example", "http://SETS.example:80/x", "https://sets.example./x", "https://www.a.sets.example/x",
        "https://sets。example/x",  # a full stop of another script
        "https://archive.example/web/2024/https://sets.example/x",
        "https://reader.example/?url=https%3A%2F%2Fsets.example%2Fx",
        "https://reader.example/?url=https%253A%252F%252Fsets%252Eexample", "https://code.example/lab",
        "https://raw.code.example/lab-two/x", "https://code.example//LAB/x", "https://code.example/x/../lab/x",
        "https://code.example/%6Cab/x",
    ],
)  # fmt: skip
def test_denied_addresses(url: str) -> None:
    """In whatever spelling, and where another server is asked for them."""
    with raises("host_denied", match=r"addresses of (sets|code)\.example.* are not fetched"):
        target(url, deny=DenyList(DENIED))


@pytest.mark.parametrize(
    "url",
    [
        "https://sets.example.org/x", "https://my-sets.example/x", "https://sets.examples/x",
        "https://a.example/sets-example", "https://code.example/", "https://code.example/other/lab",
    ],
)  # fmt: skip
def test_their_neighbours_are_not_denied(url: str) -> None:
    assert DenyList(DENIED).entry_for(url) is None and DenyList().entry_for(url) is None


@pytest.mark.parametrize(
    "text",
    [
        "https://se\u1806ts.example/x",  # which IDNA of 2003 drops, as Python's own codec does
        "https://se\u3164ts.example/x",
        "https://se\u206ats.example/x",
        "https://se\U000e0100ts.example/x",  # and that of 2008 by UTS 46
        "https://\u017fet\u017f.example/x",
        "请打开sets.example上的文件",  # a sentence without spaces
        "看code.example/lab",
    ],
)
def test_a_denied_address_in_a_text_is_found_whatever_stands_in_and_beside_it(text: str) -> None:
    assert DenyList(DENIED).entry_within({"request": [text]}) in DENIED


@pytest.mark.parametrize(
    "entry",
    ["code.example/OpenLab/Sets", "code.example//openlab/sets", "code.example/Stra\u00dfe", "code.example/lab//sets/"],
)
def test_a_path_is_denied_whatever_its_case(entry: str) -> None:
    denied = DenyList([entry])
    url = "https://" + entry.replace("//", "/")
    assert denied.entry_for(url + "/x") == denied.entry_for(url.lower()) == entry
    assert denied.entry_for("https://code.example/other") is None


def test_nothing_is_sent_to_a_denied_address_behind_a_redirect_either(server: Any) -> None:
    before = len(server.asked)
    for path in ("/towns", "/moved"):
        result = browse(server, path, deny=["127.0.0.1/towns"])
        assert kind(result) == "host_denied" and result.denied == 1, result
    assert [path.partition("?")[0] for path, _ in server.asked[before:]] == ["/moved"]
    assert browse(server, "/json", deny=["127.0.0.1/towns"]).denied == 0
    for entry in ("https://a.example", "A.example", "example", "a.example/?x", ""):
        with pytest.raises(ConfigError, match=r"deny holds .*; write a host in lower case"):
            build(["browse"], {"browse": {"deny": [entry]}})
    with pytest.raises(ConfigError, match=r"deny is a list, not the text 'a\.example'"):
        build(["browse"], {"browse": {"deny": "a.example"}})


def test_a_name_is_resolved_once_and_all_its_addresses_count(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real, answers, hosts = socket.getaddrinfo, [["127.0.0.1"], ["10.0.0.1"], ["168.63.129.16"]], []

    def lookup(host: str, port: int, *args: Any, **kwargs: Any) -> Any:
        if host not in ("rebind.example", "mixed.example"):
            return real(host, port, *args, **kwargs)
        hosts.append(host)
        addresses = ["8.8.8.8", "192.168.0.9"] if host == "mixed.example" else answers.pop(0)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    name = f"rebind.example:{server.server_port}"
    page = fetch(f"http://{name}/towns", allow=[name])
    assert b"Aldermoor" in page.body and hosts == ["rebind.example"]
    assert server.asked[-1] == ("/towns", name)  # the name is what the server is told
    with raises("address_refused", match="private"):
        target("http://rebind.example/")
    with raises("address_refused", match="cloud-internal"):
        target("http://rebind.example/")
    with raises("address_refused", match="private"):
        target("http://mixed.example/")


def test_a_name_without_an_address() -> None:
    with raises("host_not_found", match=r"no-such-host\.invalid"):
        target("http://no-such-host.invalid/")


PAGE = """<!doctype html><html><head><title>Towns &amp; rivers</title><style>p {color: red}</style>
<script>document.write("<p>never</p>")</script></head><body>
<nav><ul><li><a href="/about">About</a></li><li><a href="#here">Here</a></li><li><a href="javascript:alert(1)">Run</a></ul></nav>
<h1>Towns</h1><p>Aldermoor lies   on the
<b>Tove</b>.</p><table><tr><th>Town</th><th>People</th></tr><tr><td>Aldermoor</td><td>4,120</td></tr></table>
<pre>a  b
c</pre><noscript>hidden</noscript></body></html>"""


class Pages(http.server.BaseHTTPRequestHandler):
    """Ordinary and hostile answers by path."""

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        server: Any = self.server
        server.asked.append((self.path, self.headers.get("Host")))
        name = self.path.partition("?")[0].strip("/").replace("-", "_")
        getattr(self, f"page_{name}", self.page_missing)()

    def reply(
        self, body: bytes, content_type: str | None = "text/html; charset=utf-8", status: int = 200, **headers: str
    ) -> None:
        self.send_response(status)
        if content_type is not None:
            self.send_header("Content-Type", content_type)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def page_missing(self) -> None:
        self.reply(b"no", status=404)

    def page_towns(self) -> None:
        self.reply(PAGE.encode())

    def page_moved(self) -> None:
        self.reply(b"", status=302, Location="/towns")

    def page_marked(self) -> None:
        self.reply(b"", status=302, Location=self.path.partition("?")[2], Set_Cookie="visitor=7; Path=/")

    def page_cookies(self) -> None:
        self.reply(str(self.headers.get("Cookie")).encode(), "text/plain")

    def page_around(self) -> None:
        self.reply(b"", status=301, Location="/around")

    def page_inside(self) -> None:
        self.reply(b"", status=302, Location=unquote_to_bytes(self.path.partition("?")[2]).decode("latin-1"))

    def page_json(self) -> None:
        self.reply(b'{"towns": 3}', "application/json")

    def page_picture(self) -> None:
        self.reply(b"\x89PNG\0", "image/png")

    def page_untold(self) -> None:
        self.reply(b"<html><p>untold</p></html>", None)

    def page_latin(self) -> None:
        self.reply("Köln".encode("latin-1"), "text/plain; charset=iso-8859-1")

    def page_long(self) -> None:
        self.reply(b"word " * 10_000, "text/plain")

    def page_packed(self) -> None:
        self.reply(gzip.compress(b"packed text"), "text/plain", Content_Encoding="gzip")

    def page_bomb(self) -> None:
        self.reply(gzip.compress(bytes(30_000_000), 1), "text/plain", Content_Encoding="gzip")

    def page_short(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5000")
        self.end_headers()
        self.wfile.write(b"half a page")

    def page_short_packed(self) -> None:
        self.reply(gzip.compress(bytes(range(256)) * 9)[:-20], "text/plain", Content_Encoding="gzip")

    def page_members(self) -> None:
        self.reply(gzip.compress(b"one ") + gzip.compress(b"two") + bytes(8), "text/plain", Content_Encoding="gzip")

    def page_deflate(self) -> None:
        self.reply(zlib.compress(b"with a header"), "text/plain", Content_Encoding="deflate")

    def page_bare_deflate(self) -> None:
        self.reply(zlib.compress(b"without", wbits=-15), "text/plain", Content_Encoding="deflate")

    def page_empty_blocks(self) -> None:
        packer = zlib.compressobj(wbits=31)
        start = packer.compress(b"x") + packer.flush(zlib.Z_FULL_FLUSH)
        self.reply(start + b"\0\0\0\xff\xff" * 1_000_000, "text/plain", Content_Encoding="gzip")

    def page_strange(self) -> None:
        self.reply(b"x", "text/plain", Content_Encoding="br")

    def page_drip(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        server: Any = self.server
        while not server.done.wait(0.05):
            try:
                self.wfile.write(b".")
            except OSError:
                return

    def page_drip_head(self) -> None:
        server: Any = self.server
        try:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-A: ")
            while not server.done.wait(0.05):
                self.wfile.write(b".")
        except OSError:
            return

    def page_garbage(self) -> None:
        self.wfile.write(b"\x16\x03\x01 this is no HTTP\r\n\r\n")

    def page_comments(self) -> None:
        self.reply(b"<!--" * 200_000)


@contextmanager
def pages_served() -> Iterator[Any]:
    """Them on a server: `base` is its address, `allow` what lets a tool ask it, `asked` (path, Host) of each request so far."""
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    server.asked, server.done = [], threading.Event()
    server.base = f"http://127.0.0.1:{server.server_port}"
    server.allow = (f"127.0.0.1:{server.server_port}",)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        server.done.set()
        server.shutdown()
        server.server_close()


def browse(server: Any, path: str, start: int = 0, **options: Any) -> ToolResult:
    (tool,) = build(["browse"], {"browse": {"allow": list(server.allow), "timeout_s": 2.0} | options})
    return asyncio.run(tool.call({"url": server.base + path if path.startswith("/") else path, "start": start}))


def kind(result: ToolResult) -> str | None:
    return result.error.kind if result.error else None


def test_a_page_as_text(server: Any) -> None:
    result = browse(server, "/towns?x=1")
    assert result.error is None
    assert result.content == (
        f"{server.base}/towns?x=1\n\nTowns & rivers\n\n- [About]({server.base}/about)\n- Here\n- Run\n\n# Towns\n\n"
        "Aldermoor lies on the Tove.\n\n| Town | People\n| Aldermoor | 4,120\n\na b\nc"
    )


def test_redirects_are_followed_and_said(server: Any) -> None:
    assert browse(server, "/moved").content.startswith(f"{server.base}/towns\n")
    result = browse(server, "/around")
    assert kind(result) == "too_many_redirects" and "more than 5 redirects" in result.content
    with raises("too_many_redirects"):
        fetch(server.base + "/moved", allow=server.allow, max_redirects=0)


def test_content_types(server: Any) -> None:
    assert browse(server, "/json").content.endswith('{"towns": 3}')
    assert browse(server, "/untold").content.endswith("untold")
    assert browse(server, "/latin").content.endswith("Köln")
    assert browse(server, "/packed").content.endswith("packed text")
    assert kind(browse(server, "/picture")) == "content_refused"
    assert kind(browse(server, "/strange")) == "fetch_failed"
    assert "answered 404" in browse(server, "/nothing").content


def test_long_pages_are_read_on(server: Any) -> None:
    first = browse(server, "/long", max_chars=1000)
    assert first.content.endswith("[characters 0 to 1000 of 50000; read on with start=1000]")
    last = browse(server, "/long", start=49_900, max_chars=1000)
    assert last.content.endswith("[characters 49900 to 50000 of 50000]")
    assert "outside of its 50000 characters" in browse(server, "/long", start=50_000).content
    cut = browse(server, "/long", max_bytes=500)
    assert cut.content.endswith("[only the page's first 500 bytes were read]") and cut.content.count("word") == 100


def test_a_packed_bomb_is_cut(server: Any) -> None:
    page = fetch(server.base + "/bomb", allow=server.allow, max_bytes=100_000, timeout_s=10)
    assert len(page.body) == 100_000 and page.cut


@pytest.mark.parametrize("path", ["/drip", "/drip-head"])
def test_one_deadline_holds_for_all_of_it(server: Any, path: str) -> None:
    began = time.monotonic()
    with raises("fetch_timeout", match=r"within 0\.4 s"):
        fetch(server.base + path, allow=server.allow, timeout_s=0.4)
    assert 0.3 < time.monotonic() - began < 2


def test_a_page_that_keeps_a_parser_busy_is_stopped(server: Any) -> None:
    """200,000 unclosed comments, which some versions of html.parser read in quadratic time: read, or stopped in time."""
    from reagent.tools.documents.run import read_document

    began = time.monotonic()
    try:
        read_document(b"<!--" * 200_000, "html", timeout_s=1)
    except ToolError as error:
        assert error.kind == "reading_timeout"
    assert time.monotonic() - began < 5


def test_broken_answers_are_typed(server: Any) -> None:
    with raises("fetch_failed", match="could not be read"):
        fetch(server.base + "/garbage", allow=server.allow)
    with raises("fetch_failed", match=r"no secure connection|could not be read"):
        fetch(server.base.replace("http:", "https:") + "/towns", allow=server.allow)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with raises("fetch_failed", match="ConnectionRefusedError"):
        fetch(f"http://127.0.0.1:{port}/", allow=[f"127.0.0.1:{port}"])


def test_half_a_page_is_none_and_every_packing_is_read_to_its_end(server: Any) -> None:
    assert browse(server, "/short").error.kind == "fetch_failed"  # pyright: ignore[reportOptionalMemberAccess]
    assert "broke off after 11 of 5000 bytes" in browse(server, "/short").content
    assert "the packed page broke off" in browse(server, "/short-packed").content
    assert browse(server, "/members").content.endswith("one two")
    assert browse(server, "/deflate").content.endswith("with a header")
    assert browse(server, "/bare-deflate").content.endswith("without")
    assert "bytes packed, and 2000000 are read at most" in browse(server, "/empty-blocks").content


def test_elements_that_are_not_closed_take_no_page_with_them() -> None:
    assert html_text("<html><head><title>T</title><meta charset=utf-8><p>Paris<p>More") == "T\n\nParis\n\nMore"
    assert html_text("<head><title>T</title><style>p {}</style>Paris") == "T\n\nParis"
    assert html_text("<body><p>a<svg><title>icon</title><path d=1><p>Paris") == "a\n\nParis"
    assert html_text("<body><select><option>a<h2>Paris") == "## Paris"
    assert html_text("<p>a<svg><text>icon</text></svg> b<noscript><p>c</noscript>") == "a b"


def test_hostile_pages_become_text() -> None:
    assert html_text("<p>a<script>b</p>c") == "a"  # unclosed script: the rest is script
    assert html_text("<head><title>t</title><body>x") == "t\n\nx"
    assert html_text("<a href='http://[bad'>x</a>", "http://a/") == "x"
    assert html_text("<div>" * 50_000 + "deep") == "deep"
    assert html_text("") == ""
