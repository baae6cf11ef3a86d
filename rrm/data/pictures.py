"""The pictures of a transcript: found in the forms of Chat Completions, Responses, Anthropic and MCP, described, and handed to a judge that sees.

A picture counts by its first bytes, not by what its part says of itself. Nothing is ever fetched: of an address it is only said that it is one. Before
anything is unpacked its size is read from its head, since a few hundred bytes of PNG can claim billions of pixels.
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
MOST_READ = 32 * 1024 * 1024
"""Characters of base64 that are looked at of one picture."""
ADDRESS = "an address, not fetched"
NO_BYTES = "without its bytes"
NOT_BASE64 = "not base64"
UNKNOWN = "no PNG, JPEG, GIF or WebP"
UNREADABLE = "cannot be decoded"
TEXT_ONLY = "the judge reads text alone"
COMPARED = "attempts are compared in words"


@dataclass(frozen=True)
class ImageBudget:
    """What a judge that sees is shown of one transcript's pictures."""

    number: int = 8
    """At most so many, the latest: what a run ended with decides."""
    pixels: int = 16_000_000
    """Of one."""
    bytes: int = 4 * 1024 * 1024
    """Of one, as the transcript holds it."""
    decode: bool = False
    """Whether it is unpacked here: one that cannot be is not shown then."""

    def __post_init__(self) -> None:
        if self.number < 1 or self.pixels < 1 or self.bytes < 1:
            raise ConfigError(
                f"an image budget of {self.number} images, {self.pixels} pixels, {self.bytes} bytes shows none"
            )

    @property
    def deciding(self) -> dict[str, int]:
        """What decides a score."""
        return {"images": self.number, "image_pixels": self.pixels, "image_bytes": self.bytes}


@dataclass(frozen=True)
class Picture:
    """A picture whose bytes a transcript holds."""

    kind: str
    """png, jpeg, gif or webp."""
    width: int
    height: int
    data: bytes = field(repr=False)

    @property
    def digest(self) -> str:
        """Twelve hex digits over the bytes."""
        return hashlib.sha256(self.data).hexdigest()[:12]

    @property
    def described(self) -> str:
        """Kind, size and digest: what is said in its place."""
        return f"{self.kind.upper()}, {self.width} x {self.height} pixels, {len(self.data)} bytes, sha256 {self.digest}"

    @property
    def address(self) -> str:
        """As a `data:` address."""
        return f"data:image/{self.kind};base64,{base64.b64encode(self.data).decode('ascii')}"


def picture_of(part: dict[str, Any]) -> Picture | str:
    """A part's picture, or why there is none."""
    text = bytes_text(part)
    if text is None:
        return ADDRESS if address_of(part) else NO_BYTES
    if len(text) > MOST_READ:
        return f"over {MOST_READ * 3 // 4} bytes"
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return NOT_BASE64
    found = size_of(data)
    return UNKNOWN if found is None else Picture(*found, data)


def placeholder(part: dict[str, Any]) -> str:
    """What a judge of text reads in the place of a picture: `[image: PNG, 640 x 480 pixels, 12345 bytes, sha256 3f…]`."""
    found = picture_of(part)
    return f"[image: {found if isinstance(found, str) else found.described}]"


def decoded(picture: Picture) -> Any:
    """The picture unpacked, as RGB (`PIL.Image.Image`): its first frame, on white where it is transparent.

    Raises:
        ValueError: it cannot be.
    """
    from PIL import Image

    try:
        image = Image.open(io.BytesIO(picture.data), formats=("PNG", "JPEG", "GIF", "WEBP"))
        if image.size != (picture.width, picture.height):
            raise ValueError(f"its head says {picture.width} x {picture.height} and it holds {image.size}")
        if not image.has_transparency_data:
            return image.convert("RGB")
        # `convert` drops the alpha, and what is transparent is often stored as black: black text would stand on black
        shown = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", shown.size, "white"), shown).convert("RGB")
    # whatever a decoder makes of garbage; a size that Pillow takes for a bomb among it
    except (OSError, ValueError, SyntaxError, EOFError, TypeError, IndexError, KeyError, struct.error, MemoryError, Image.DecompressionBombError) as error:  # fmt: skip
        raise ValueError(f"{UNREADABLE} ({error})") from error


def in_words(trajectory: Trajectory) -> Trajectory:
    """The transcript as a judge of text reads it, each picture a placeholder; itself where there is none."""
    return _replaced(trajectory, lambda part: placeholder(part)) if has_pictures(trajectory) else trajectory


class VisibleImages(Trajectory):
    """A transcript whose pictures a judge is shown: in their places stand marks that nobody can forge (`seen`)."""

    _mark: str = PrivateAttr(default="")
    _pictures: dict[int, Picture] = PrivateAttr(default_factory=dict)
    _sent: set[int] = PrivateAttr(default_factory=set)
    _of: int = PrivateAttr(default=0)
    _left_out: Counter[str] = PrivateAttr(default_factory=Counter)

    def parts(self, text: str) -> str | list[dict[str, Any]]:
        """A text of the prompt with its pictures, as content parts of Chat Completions; the text itself where it has none."""
        pieces = re.split(rf"\[image (\d{{1,6}}) {self._mark}\]", text)
        if len(pieces) == 1:
            return text
        found = list[dict[str, Any]]()
        said = pieces[0]
        for number, after in zip(pieces[1::2], pieces[2::2], strict=True):
            picture = self._pictures[int(number)]
            self._sent.add(int(number))
            found.append({"type": "text", "text": f"{said}[image {number}: {picture.described}]"})
            found.append({"type": "image_url", "image_url": {"url": picture.address}})
            said = after
        return [*found, {"type": "text", "text": said}] if said else found

    def summary(self) -> dict[str, Any]:
        """How many pictures the prompts so far held, of how many, and why not the others."""
        cut = len(self._pictures) - len(self._sent)
        left_out = self._left_out + Counter({"its text was cut": cut} if cut else {})
        return {"shown": len(self._sent), "of": self._of, "left_out": dict(left_out)}


def seen(trajectory: Trajectory, budget: ImageBudget) -> Trajectory:
    """The transcript for a judge that sees: the latest pictures within the budget, and words in the place of the others."""
    if not has_pictures(trajectory):
        return trajectory
    left_out, shown, number = Counter[str](), dict[int, Picture](), 0
    words = dict[int, str]()
    for message in trajectory.messages:
        for part in message.content if isinstance(message.content, list) else ():
            if is_picture(part):
                number += 1
                found = _within(picture_of(part), budget)
                words[number] = f"[image: {found[1]}; not shown: {found[0]}]" if isinstance(found, tuple) else ""
                if isinstance(found, tuple):
                    left_out[found[0]] += 1
                else:
                    shown[number] = found
    for early in sorted(shown)[: -budget.number]:
        words[early] = f"[image: {shown.pop(early).described}; not shown: over {budget.number} images]"
        left_out[f"over {budget.number} images"] += 1
    mark = secrets.token_hex(6)
    numbers = iter(range(1, number + 1))

    def word(part: dict[str, Any]) -> str:
        at = next(numbers)
        return f"[image {at} {mark}]" if at in shown else words[at]

    made = _replaced(trajectory, word, VisibleImages)
    assert isinstance(made, VisibleImages)
    made._mark, made._pictures, made._of, made._left_out = mark, shown, number, left_out
    return made


def _within(found: Picture | str, budget: ImageBudget) -> Picture | tuple[str, str]:
    """A picture that may be shown, else (why not, what is said of it)."""
    if isinstance(found, str):
        return found, found
    if len(found.data) > budget.bytes:
        return f"over {budget.bytes} bytes", found.described
    if found.width * found.height > budget.pixels:
        return f"over {budget.pixels} pixels", found.described
    if budget.decode:
        try:
            decoded(found)
        except ValueError:
            return UNREADABLE, found.described
    return found


def told_of(trajectory: Trajectory, unseen: str = TEXT_ONLY) -> dict[str, Any] | None:
    """What a row says of pictures (`rrm.data.feedback.ImagesRead`); None where there is none.

    Args:
        unseen: why none is shown, where the transcript was not made for a judge that sees (`seen`).
    """
    if isinstance(trajectory, VisibleImages):
        return trajectory.summary()
    count = sum(is_picture(p) for m in trajectory.messages if isinstance(m.content, list) for p in m.content)
    return {"shown": 0, "of": count, "left_out": {unseen: count}} if count else None


def has_pictures(trajectory: Trajectory) -> bool:
    """Whether any message holds one."""
    return any(is_picture(part) for m in trajectory.messages if isinstance(m.content, list) for part in m.content)


def _replaced(trajectory: Trajectory, word: Any, kind: type[Trajectory] = Trajectory) -> Trajectory:
    """A copy with words in the place of pictures; its ids stay what they are."""

    def without(message: Message) -> Message:
        if not isinstance(message.content, list):
            return message
        content = [{"type": "text", "text": word(part)} if is_picture(part) else part for part in message.content]
        return message.model_copy(update={"content": content})

    fields: dict[str, Any] = {name: getattr(trajectory, name) for name in Trajectory.model_fields}
    fields["messages"] = [without(m) for m in trajectory.messages]
    made = kind.model_construct(None, **fields)
    made._own_id = trajectory.own_id
    return made


def is_picture(part: dict[str, Any]) -> bool:
    """Whether a content part is one."""
    return not isinstance(part.get("text"), str) and "image" in str(part.get("type", ""))


def address_of(part: dict[str, Any]) -> str | None:
    """Where a part says that its picture is, in the forms of chat completions, Responses and Anthropic."""
    for holder in (part.get("image_url"), part.get("source"), part):
        found = holder if isinstance(holder, str) else holder.get("url") if isinstance(holder, dict) else None
        if isinstance(found, str):
            return found
    return None


def bytes_text(part: dict[str, Any]) -> str | None:
    """The base64 of a part's own bytes."""
    address = address_of(part)
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
