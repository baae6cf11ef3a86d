"""Pictures of a transcript, from Chat Completions, Responses, Anthropic and MCP; none is fetched.

Type and size are read from the first bytes before decoding, as a few hundred bytes of PNG can claim billions of pixels.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import re
import secrets
import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from pydantic import PrivateAttr

from rrm.data.trajectory import Message, Trajectory
from rrm.errors import ConfigError

_DATA = re.compile(r"data:image/[a-z0-9.+-]{1,20}(?:;[a-z0-9=-]{1,40})*;base64,", re.IGNORECASE)
_START_OF_FRAME = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
MOST_READ = 32 * 1024 * 1024  # characters of base64 of one picture
ADDRESS = "an address, not fetched"
NO_BYTES = "without its bytes"
NOT_BASE64 = "not base64"
UNKNOWN = "no PNG, JPEG, GIF or WebP"
UNREADABLE = "cannot be decoded"
TEXT_ONLY = "the judge reads text alone"
COMPARED = "attempts are compared in words"


@dataclass(frozen=True)
class ImageBudget:
    """Limits of the pictures that a judge is shown of one transcript."""

    number: int = 8  # the latest ones
    pixels: int = 16_000_000  # of each
    bytes: int = 4 * 1024 * 1024  # of each, encoded
    decode: bool = False  # leave out those that cannot be decoded

    def __post_init__(self) -> None:
        if self.number < 1 or self.pixels < 1 or self.bytes < 1:
            raise ConfigError(
                f"an image budget of {self.number} images, {self.pixels} pixels, {self.bytes} bytes shows none"
            )

    @property
    def deciding(self) -> dict[str, int]:
        return {"images": self.number, "image_pixels": self.pixels, "image_bytes": self.bytes}


@dataclass(frozen=True)
class Picture:
    kind: str  # png, jpeg, gif or webp
    width: int
    height: int
    data: bytes = field(repr=False)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.data).hexdigest()[:12]

    @property
    def described(self) -> str:
        return f"{self.kind.upper()}, {self.width} x {self.height} pixels, {len(self.data)} bytes, sha256 {self.digest}"

    @property
    def address(self) -> str:
        return f"data:image/{self.kind};base64,{base64.b64encode(self.data).decode('ascii')}"


def picture_of(content_part: dict[str, Any]) -> Picture | str:
    """Return a part's picture, or why there is none."""
    text = bytes_text(content_part)
    if text is None:
        return ADDRESS if address_of(content_part) else NO_BYTES
    if len(text) > MOST_READ:
        return f"over {MOST_READ * 3 // 4} bytes"
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return NOT_BASE64
    size = size_of(data)
    return UNKNOWN if size is None else Picture(*size, data)


def placeholder(content_part: dict[str, Any]) -> str:
    """Return the text in a picture's place: `[image: PNG, 640 x 480 pixels, 12345 bytes, sha256 3f…]`."""
    picture = picture_of(content_part)
    return f"[image: {picture if isinstance(picture, str) else picture.described}]"


def decoded(picture: Picture) -> Any:
    """Decode to RGB (`PIL.Image.Image`): the first frame, on white where transparent; raises `ValueError`."""
    from PIL import Image

    try:
        image = Image.open(io.BytesIO(picture.data), formats=("PNG", "JPEG", "GIF", "WEBP"))
        if image.size != (picture.width, picture.height):
            raise ValueError(f"its head says {picture.width} x {picture.height} and it holds {image.size}")
        if not image.has_transparency_data:
            return image.convert("RGB")
        # `convert` drops the alpha, and what is transparent is often stored as black: black text would stand on black
        rgba = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba).convert("RGB")
    # whatever a decoder makes of garbage; a size that Pillow takes for a bomb among it
    except (OSError, ValueError, SyntaxError, EOFError, TypeError, IndexError, KeyError, struct.error, MemoryError, Image.DecompressionBombError) as error:  # fmt: skip
        raise ValueError(f"{UNREADABLE} ({error})") from error


def in_words(trajectory: Trajectory) -> Trajectory:
    return (
        _replaced(trajectory, lambda content_part: placeholder(content_part))
        if has_pictures(trajectory)
        else trajectory
    )


class VisibleImages(Trajectory):
    """A transcript whose pictures stand as unforgeable marks in its texts (`seen`)."""

    _mark: str = PrivateAttr(default="")
    _pictures: dict[int, Picture] = PrivateAttr(default_factory=dict)
    _sent: set[int] = PrivateAttr(default_factory=set)
    _of: int = PrivateAttr(default=0)
    _left_out: Counter[str] = PrivateAttr(default_factory=Counter)

    def parts(self, text: str) -> str | list[dict[str, Any]]:
        """Split a text of the prompt at its marks into content parts of Chat Completions."""
        pieces = re.split(rf"\[image (\d{{1,6}}) {self._mark}\]", text)
        if len(pieces) == 1:
            return text
        parts = list[dict[str, Any]]()
        text_before = pieces[0]
        for number, after in zip(pieces[1::2], pieces[2::2], strict=True):
            picture = self._pictures[int(number)]
            self._sent.add(int(number))
            parts.append({"type": "text", "text": f"{text_before}[image {number}: {picture.described}]"})
            parts.append({"type": "image_url", "image_url": {"url": picture.address}})
            text_before = after
        return [*parts, {"type": "text", "text": text_before}] if text_before else parts

    def summary(self) -> dict[str, Any]:
        """Counts of the pictures in the prompts so far (`ImagesRead`)."""
        cut = len(self._pictures) - len(self._sent)
        left_out = self._left_out + Counter({"its text was cut": cut} if cut else {})
        return {"shown": len(self._sent), "of": self._of, "left_out": dict(left_out)}


def seen(trajectory: Trajectory, budget: ImageBudget) -> Trajectory:
    """Mark the latest pictures within the budget, and replace the others by placeholders."""
    if not has_pictures(trajectory):
        return trajectory
    left_out, visible, number = Counter[str](), dict[int, Picture](), 0
    words = dict[int, str]()
    for message in trajectory.messages:
        for content_part in message.content if isinstance(message.content, list) else ():
            if is_picture(content_part):
                number += 1
                picture = _within(picture_of(content_part), budget)
                words[number] = f"[image: {picture[1]}; not shown: {picture[0]}]" if isinstance(picture, tuple) else ""
                if isinstance(picture, tuple):
                    left_out[picture[0]] += 1
                else:
                    visible[number] = picture
    for early in sorted(visible)[: -budget.number]:
        words[early] = f"[image: {visible.pop(early).described}; not shown: over {budget.number} images]"
        left_out[f"over {budget.number} images"] += 1
    mark = secrets.token_hex(6)
    numbers = iter(range(1, number + 1))

    def word(content_part: dict[str, Any]) -> str:
        index = next(numbers)
        return f"[image {index} {mark}]" if index in visible else words[index]

    copy = _replaced(trajectory, word, VisibleImages)
    assert isinstance(copy, VisibleImages)
    copy._mark, copy._pictures, copy._of, copy._left_out = mark, visible, number, left_out
    return copy


def _within(picture: Picture | str, budget: ImageBudget) -> Picture | tuple[str, str]:
    if isinstance(picture, str):
        return picture, picture
    if len(picture.data) > budget.bytes:
        return f"over {budget.bytes} bytes", picture.described
    if picture.width * picture.height > budget.pixels:
        return f"over {budget.pixels} pixels", picture.described
    if budget.decode:
        try:
            decoded(picture)
        except ValueError:
            return UNREADABLE, picture.described
    return picture


def told_of(trajectory: Trajectory, unseen: str = TEXT_ONLY) -> dict[str, Any] | None:
    """Count a transcript's pictures (`ImagesRead`), with reason `unseen` where it is not made by `seen`."""
    if isinstance(trajectory, VisibleImages):
        return trajectory.summary()
    count = sum(is_picture(p) for m in trajectory.messages if isinstance(m.content, list) for p in m.content)
    return {"shown": 0, "of": count, "left_out": {unseen: count}} if count else None


def has_pictures(trajectory: Trajectory) -> bool:
    return any(
        is_picture(content_part)
        for m in trajectory.messages
        if isinstance(m.content, list)
        for content_part in m.content
    )


def _replaced(trajectory: Trajectory, word: Any, cls: type[Trajectory] = Trajectory) -> Trajectory:
    """Copy with texts in place of pictures; ids stay."""

    def without(message: Message) -> Message:
        if not isinstance(message.content, list):
            return message
        content = [
            {"type": "text", "text": word(content_part)} if is_picture(content_part) else content_part
            for content_part in message.content
        ]
        return message.model_copy(update={"content": content})

    fields: dict[str, Any] = {name: getattr(trajectory, name) for name in Trajectory.model_fields}
    fields["messages"] = [without(m) for m in trajectory.messages]
    copy = cls.model_construct(None, **fields)
    copy._own_id = trajectory.own_id
    return copy


def is_picture(content_part: dict[str, Any]) -> bool:
    return not isinstance(content_part.get("text"), str) and "image" in str(content_part.get("type", ""))


def address_of(content_part: dict[str, Any]) -> str | None:
    """Return a picture part's address, in the forms of Chat Completions, Responses and Anthropic."""
    for holder in (content_part.get("image_url"), content_part.get("source"), content_part):
        address = holder if isinstance(holder, str) else holder.get("url") if isinstance(holder, dict) else None
        if isinstance(address, str):
            return address
    return None


def bytes_text(content_part: dict[str, Any]) -> str | None:
    address = address_of(content_part)
    if address is not None and (start := _DATA.match(address)):
        return address[start.end() :]
    for holder in (content_part.get("source"), content_part):
        if isinstance(holder, dict) and isinstance(holder.get("data"), str) and address is None:
            return holder["data"]
    return None


def size_of(data: bytes) -> tuple[str, int, int] | None:
    """Read (type, width, height) from the first bytes; None for anything but PNG, JPEG, GIF and WebP."""
    try:
        if data[:8] == b"\x89PNG\r\n\x1a\n" and data[12:16] == b"IHDR":
            size = ("png", *struct.unpack(">II", data[16:24]))
        elif data[:6] in (b"GIF87a", b"GIF89a"):
            size = ("gif", *struct.unpack("<HH", data[6:10]))
        elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            size = _webp(data)
        else:
            size = _jpeg(data) if data[:2] == b"\xff\xd8" else None
    except (struct.error, IndexError):
        return None
    return size if size is not None and size[1] > 0 and size[2] > 0 else None


def _webp(data: bytes) -> tuple[str, int, int] | None:
    # first chunk: lossy, lossless or extended
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
    # segments up to the start of a frame
    position = 2
    while data[position] == 0xFF:
        marker = data[position + 1]
        if marker == 0xFF:  # fill
            position += 1
            continue
        length = struct.unpack(">H", data[position + 2 : position + 4])[0]
        if marker in _START_OF_FRAME:
            height, width = struct.unpack(">HH", data[position + 5 : position + 9])
            return "jpeg", width, height
        position += 2 + max(length, 2)
    return None
