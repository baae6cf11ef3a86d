"""Which pictures of a transcript stand in the page.

Only raster pictures whose bytes the transcript holds (`data:image/png;base64,…`, or a part with the bytes beside their
type) are put in, as `data:` addresses; the page's policy lets nothing else load. An address on the network, a drawing
(SVG) and what is too large are named, never fetched: a transcript must not tell anyone that it is read, nor fill a
reader's memory. What a file says of its type does not count, its first bytes do.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from dataclasses import dataclass
from typing import Any

from rrm.trajectory import Message

MOST_BYTES = 4 * 1024 * 1024
"""Of one picture."""
MOST_TOGETHER = 64 * 1024 * 1024
"""Of a page's pictures: runs that look at a screen hold thousands, and nobody's browser opens a page of gigabytes."""
MOST_PIXELS = 40_000_000
"""Of one picture once it is unpacked: a few hundred bytes of PNG can claim billions."""
_DATA = re.compile(r"data:image/[a-z0-9.+-]{1,20}(?:;[a-z0-9=-]{1,40})*;base64,", re.IGNORECASE)
_START_OF_FRAME = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}


@dataclass
class Room:
    """What a page still has room for."""

    bytes: int = MOST_TOGETHER

    def takes(self, size: int) -> bool:
        """Whether so many bytes have room; they are taken then."""
        if size > self.bytes:
            return False
        self.bytes -= size
        return True


def images(message: Message, room: Room) -> list[dict[str, Any]]:
    """A message's pictures in order: `{src, width, height}`, or `{note}` where one is not put in."""
    if not isinstance(message.content, list):
        return []
    return [_picture(part, room) for part in message.content if _is_picture(part)]


def _is_picture(part: dict[str, Any]) -> bool:
    return not isinstance(part.get("text"), str) and "image" in str(part.get("type", ""))


def _picture(part: dict[str, Any], room: Room) -> dict[str, Any]:
    text = _bytes_text(part)
    if text is None:
        address = _address(part)
        return {"note": f"image at {address[:200]}, not loaded" if address else "image without its bytes"}
    if len(text) * 3 // 4 > MOST_BYTES:
        return {"note": f"image of {len(text) * 3 // 4:,} bytes, left out: over {MOST_BYTES:,}"}
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return {"note": "image that is not base64"}
    found = size_of(data)
    if found is None:
        return {"note": "image that is no PNG, JPEG, GIF or WebP"}
    kind, width, height = found
    if width * height > MOST_PIXELS:
        return {"note": f"image of {width:,} × {height:,} pixels, left out: over {MOST_PIXELS:,}"}
    if not room.takes(len(data)):
        return {"note": f"image of {len(data):,} bytes, left out: the page's pictures are over {MOST_TOGETHER:,} bytes"}
    src = f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
    return {"src": src, "width": width, "height": height}


def _address(part: dict[str, Any]) -> str | None:
    """Where a part says that its picture is, in the forms of chat completions, Responses and Anthropic."""
    for holder in (part.get("image_url"), part.get("source"), part):
        found = holder if isinstance(holder, str) else holder.get("url") if isinstance(holder, dict) else None
        if isinstance(found, str):
            return found
    return None


def _bytes_text(part: dict[str, Any]) -> str | None:
    """The base64 of a part's own bytes."""
    address = _address(part)
    if address is not None and (start := _DATA.match(address)):
        return address[start.end() :]
    for holder in (part.get("source"), part):
        if isinstance(holder, dict) and isinstance(holder.get("data"), str) and address is None:
            return holder["data"]
    return None


def size_of(data: bytes) -> tuple[str, int, int] | None:
    """(type, width, height) as the first bytes say; None for anything but PNG, JPEG, GIF and WebP with a size."""
    try:
        if data[:8] == b"\x89PNG\r\n\x1a\n" and data[12:16] == b"IHDR":
            found = ("png", *struct.unpack(">II", data[16:24]))
        elif data[:6] in (b"GIF87a", b"GIF89a"):
            found = ("gif", *struct.unpack("<HH", data[6:10]))
        elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            found = _webp(data)
        else:
            found = _jpeg(data) if data[:2] == b"\xff\xd8" else None
    except (struct.error, IndexError):
        return None
    return found if found is not None and found[1] > 0 and found[2] > 0 else None


def _webp(data: bytes) -> tuple[str, int, int] | None:
    """WebP's three kinds of first chunk: lossy, lossless, extended."""
    chunk = data[12:16]
    if chunk == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack("<HH", data[26:30])
        return "webp", width & 0x3FFF, height & 0x3FFF
    if chunk == b"VP8L" and data[20] == 0x2F:
        bits = struct.unpack("<I", data[21:25])[0]
        return "webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if chunk == b"VP8X" and len(data) >= 30:
        return "webp", int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    return None


def _jpeg(data: bytes) -> tuple[str, int, int] | None:
    """JPEG: its segments up to the start of a frame."""
    at = 2
    while data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # fill
            at += 1
            continue
        length = struct.unpack(">H", data[at + 2 : at + 4])[0]
        if marker in _START_OF_FRAME:
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return "jpeg", width, height
        at += 2 + max(length, 2)
    return None
