"""Pages of a server on loopback, ordinary and hostile ones."""

from __future__ import annotations

import asyncio
import gzip
import http.server
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote_to_bytes

from reagent.env.tool import ToolResult
from reagent.tools import build

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
