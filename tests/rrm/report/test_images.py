"""Which pictures of a transcript stand in the page."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_pages import complaints, opened, pair

from benchmarks.speed.devtools import Chromium
from rrm.data.trajectory import Message
from rrm.report.images import MOST_BYTES, Room, images, size_of


def png(width: int = 2, height: int = 3) -> bytes:
    """A white picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = zlib.compress((b"\x00" + b"\xff" * 3 * min(width, 100)) * min(height, 100))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", lines) + chunk(b"IEND", b"")


def text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


SRC = "data:image/png;base64," + text(png())


def shown(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    return images(Message(role="user", content=list(parts)), Room())


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": SRC}},
        {
            "type": "image_url",
            "image_url": {"url": "data:image/jpeg;base64," + text(png())},
        },  # its bytes say what it is
        {"type": "input_image", "image_url": SRC},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": text(png())}},
        {"type": "image", "data": text(png()), "mimeType": "image/png"},
    ],
)
def test_bytes_in_a_transcript_are_shown_with_their_size(part: dict[str, Any]) -> None:
    assert shown({"type": "text", "text": "look"}, part) == [{"src": SRC, "width": 2, "height": 3}]


@pytest.mark.parametrize(
    ("url", "note"),
    [
        ("https://example.org/x.png", "image at https://example.org/x.png, not loaded"),
        ("javascript:alert(1)", "image at javascript:alert(1), not loaded"),
        ("data:text/html;base64,PHNjcmlwdD4=", "image at data:text/html;base64,PHNjcmlwdD4=, not loaded"),
        ("data:image/svg+xml;base64," + text(b"<svg onload='alert(1)'/>"), "image that is no PNG, JPEG, GIF or WebP"),
        ("data:image/png;base64,%%%", "image that is not base64"),
        (
            "data:image/png;base64," + text(png(100_000, 100_000)),
            "image of 100,000 × 100,000 pixels, left out: over 40,000,000",
        ),
    ],
)
def test_what_is_not_shown_is_named(url: str, note: str) -> None:
    assert shown({"type": "image_url", "image_url": {"url": url}}) == [{"note": note}]


def test_a_picture_that_is_too_large_is_left_out() -> None:
    (found,) = shown({"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * (MOST_BYTES * 2)}})
    assert found["note"].endswith("left out: over 4,194,304")
    assert shown({"type": "image_url"}, {"type": "audio"}) == [{"note": "image without its bytes"}]


def test_a_page_has_room_for_so_many_pictures_and_names_the_rest() -> None:
    part = {"type": "image_url", "image_url": {"url": SRC}}
    size = len(base64.b64decode(SRC.partition(",")[2]))
    first, second, third = images(Message(role="user", content=[part] * 3), Room(2 * size))
    assert first["src"] == second["src"] == SRC and third["note"].startswith(
        f"image of {size} bytes, left out: the page's"
    )


def test_sizes_are_read_of_four_types() -> None:
    assert size_of(b"GIF89a" + struct.pack("<HH", 7, 9) + b"...") == ("gif", 7, 9)
    head = b"\xff\xd8\xff\xe0" + struct.pack(">H", 4) + b"ab"
    assert size_of(head + b"\xff\xc2" + struct.pack(">HBHH", 11, 8, 5, 6) + b"rest") == ("jpeg", 6, 5)
    assert size_of(b"RIFF....WEBPVP8X" + bytes(8) + b"\x04\x00\x00\x09\x00\x00") == ("webp", 5, 10)
    assert size_of(b"RIFF....WEBPVP8L...." + b"\x2f" + struct.pack("<I", 3 | 4 << 14)) == ("webp", 4, 5)
    assert size_of(png(0, 3)) is None and size_of(b"") is None


@settings(deadline=None)
@given(
    st.sampled_from([b"\xff\xd8", b"\xff\xd8\xff\xe0", b"GIF89a", b"RIFF....WEBPVP8 ", b"\x89PNG\r\n\x1a\n"]),
    st.binary(max_size=40),
)
def test_garbage_is_no_picture_and_no_error(start: bytes, rest: bytes) -> None:
    found = size_of(start + rest)
    assert found is None or (found[1] > 0 and found[2] > 0)


def test_steps_that_differ_in_a_picture_alone_differ_side_by_side(browser: Chromium, tmp_path: Path) -> None:
    pairs = [pair(n) for n in range(3)]
    for (trajectory, _), width in zip(pairs, (2, 2, 5), strict=True):
        url = "data:image/png;base64," + text(png(width))
        part = {"type": "image_url", "image_url": {"url": url}}
        trajectory.messages[2] = Message(role="tool", name="screen", content=[part])
    for other, marked in ((1, []), (2, ["del picture", "ins picture"])):
        opened(browser, tmp_path / "report.html", pairs, f"#run%2F0?with=run%2F{other}")
        browser.wait("document.querySelector('.beside')")
        found = "[...document.querySelectorAll('.pair del, .pair ins')].map(el => `${el.localName} ${el.textContent}`)"
        assert browser.evaluate(found) == marked
        assert browser.evaluate("document.querySelectorAll('.beside .picture').length") == 2
        assert browser.evaluate("document.querySelectorAll('.pair.differs').length") == len(marked) // 2


def test_a_picture_is_drawn_and_none_is_fetched(browser: Chromium, tmp_path: Path) -> None:
    trajectory, row = pair(0)
    parts = [
        {"type": "image_url", "image_url": {"url": SRC}},
        {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/x"}},
    ]
    trajectory.messages[2] = Message(role="tool", name="screen", content=parts)
    opened(browser, tmp_path / "report.html", [(trajectory, row)], "#run%2F0")
    browser.wait("document.querySelector('.picture')?.complete")
    assert browser.evaluate("[document.images.length, document.images[0].naturalWidth]") == [1, 2]
    assert "image at http://127.0.0.1:9/x, not loaded" in browser.evaluate(
        "document.getElementById('main').textContent"
    )
    requests = [e for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    assert {e["params"]["request"]["url"].split(":")[0] for e in requests} <= {"file", "data"}
    assert not [e for e in complaints(browser) if e["method"] != "Network.requestWillBeSent"]
