"""Pages become text: whatever they are, however they come, or however little."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from browsed_pages import browse, kind, pages_served
from tool_errors import raises

from reagent.errors import ToolError
from reagent.tools.documents.html import html_text
from reagent.tools.fetch import fetch


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with pages_served() as pages:
        yield pages


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
