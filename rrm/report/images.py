"""The pictures of a transcript for the page.

Only raster pictures with their bytes in the transcript are put in, as `data:` addresses. Addresses on the network, SVG and what is
too large are named, never fetched. The type comes from the first bytes, not from what the file says.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any

from rrm.data.pictures import address_of, bytes_text, is_picture, size_of
from rrm.data.trajectory import Message

MOST_BYTES = 4 * 1024 * 1024
MOST_TOGETHER = 64 * 1024 * 1024
"""Bytes of a page's pictures."""
MOST_PIXELS = 40_000_000
"""Largest unpacked picture: a few hundred bytes of PNG can claim billions of pixels."""


@dataclass
class Room:
    bytes: int = MOST_TOGETHER

    def takes(self, size: int) -> bool:
        """Take so many bytes where they fit, else return False."""
        if size > self.bytes:
            return False
        self.bytes -= size
        return True


def images(message: Message, room: Room) -> list[dict[str, Any]]:
    """Return a message's pictures in order: `{src, width, height}`, or `{note}` where one is not put in."""
    if not isinstance(message.content, list):
        return []
    return [_picture(block, room) for block in message.content if is_picture(block)]


def _picture(block: dict[str, Any], room: Room) -> dict[str, Any]:
    text = bytes_text(block)
    if text is None:
        address = address_of(block)
        return {"note": f"image at {address[:200]}, not loaded" if address else "image without its bytes"}
    if len(text) * 3 // 4 > MOST_BYTES:
        return {"note": f"image of {len(text) * 3 // 4:,} bytes, left out: over {MOST_BYTES:,}"}
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return {"note": "image that is not base64"}
    size = size_of(data)
    if size is None:
        return {"note": "image that is no PNG, JPEG, GIF or WebP"}
    form, width, height = size
    if width * height > MOST_PIXELS:
        return {"note": f"image of {width:,} × {height:,} pixels, left out: over {MOST_PIXELS:,}"}
    if not room.takes(len(data)):
        return {"note": f"image of {len(data):,} bytes, left out: the page's pictures are over {MOST_TOGETHER:,} bytes"}
    src = f"data:image/{form};base64,{base64.b64encode(data).decode('ascii')}"
    return {"src": src, "width": width, "height": height}
