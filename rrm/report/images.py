"""Which pictures of a transcript stand in the page.

Only raster pictures whose bytes the transcript holds (`data:image/png;base64,…`, or a part with the bytes beside their
type) are put in, as `data:` addresses; the page's policy lets nothing else load. An address on the network, a drawing
(SVG) and what is too large are named, never fetched: a transcript must not tell anyone that it is read, nor fill a
reader's memory. What a file says of its type does not count, its first bytes do.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any

from rrm.data.pictures import address_of, bytes_text, is_picture, size_of
from rrm.data.trajectory import Message

MOST_BYTES = 4 * 1024 * 1024
"""Of one picture."""
MOST_TOGETHER = 64 * 1024 * 1024
"""Of a page's pictures: runs that look at a screen hold thousands, and nobody's browser opens a page of gigabytes."""
MOST_PIXELS = 40_000_000
"""Of one picture once it is unpacked: a few hundred bytes of PNG can claim billions."""


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
    return [_picture(part, room) for part in message.content if is_picture(part)]


def _picture(part: dict[str, Any], room: Room) -> dict[str, Any]:
    text = bytes_text(part)
    if text is None:
        address = address_of(part)
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
