"""The child process: reads a request line and a document from stdin, writes a window of its text."""

import codecs
import json
import os
import resource
import sys
from collections.abc import Iterator
from typing import Any

from .archive import OLE, Problem

MAX_CHARS = 4_000_000  # of a document's text; the rest is never read
_BROKEN = 0.01  # share of letters that may be broken in text of the declared charset
_CUT = ("unexpected end of data", "incomplete multibyte sequence")
_NEWER = {"xls": "xlsx", "doc": "docx", "ppt": "pptx"}
"""Formats of Office before 2007, which would need a reader for each program."""
_WEB_NAMES = {
    "ascii": "cp1252", "us-ascii": "cp1252", "iso-8859-1": "cp1252", "latin1": "cp1252", "iso-8859-9": "cp1254", "tis-620": "cp874",
    "iso-8859-11": "cp874", "gb2312": "gb18030", "gbk": "gb18030", "big5": "big5hkscs", "shift_jis": "cp932", "shift-jis": "cp932",
    "x-sjis": "cp932", "euc-kr": "cp949", "ks_c_5601-1987": "cp949", "windows-31j": "cp932", "x-gbk": "gb18030", "utf8": "utf-8-sig",
    "utf-8": "utf-8-sig",
}  # fmt: skip


def main() -> None:
    stdin, descriptor = sys.stdin.buffer, os.dup(1)
    os.dup2(2, 1)  # what a library prints is no answer
    request = json.loads(stdin.readline())
    try:
        unset = limit(request["memory_bytes"], request["cpu_s"])
        if unset:
            print(f"not limited: {', '.join(unset)}", file=sys.stderr)
        answer: dict[str, Any] = window(request, stdin.read())
    except Problem as error:
        answer = {"error": "unreadable", "message": str(error)}
    except MemoryError:
        answer = {"error": "reading_memory", "message": "reading it took too much memory"}
    except RecursionError:
        answer = {"error": "unreadable", "message": "it is nested too deeply"}
    except Exception as error:  # noqa: BLE001 - readers raise what they like on a broken document
        answer = {
            "error": "unreadable",
            "message": f"not a readable .{request['kind']}: {type(error).__name__}: {error}"[:280],
        }
    with open(descriptor, "w", encoding="ascii") as out:
        json.dump(answer, out)


def limit(memory: int, cpu_s: int) -> list[str]:
    """Limit this process; lower limits stay. Returns the names of limits that this system does not set."""
    limits = {
        "address space": (resource.RLIMIT_AS, memory, memory),
        "core files": (resource.RLIMIT_CORE, 0, 0),
        "file size": (resource.RLIMIT_FSIZE, 0, 0),  # pipes are no files
        "processor time": (resource.RLIMIT_CPU, cpu_s, cpu_s + 1),
    }
    unset = []
    for name, (number, soft, hard) in limits.items():
        highest = resource.getrlimit(number)[1]
        if highest != resource.RLIM_INFINITY:
            soft, hard = min(soft, highest), min(hard, highest)
        try:
            resource.setrlimit(number, (soft, hard))
        except (OSError, ValueError):  # macOS takes no limit of the address space
            unset.append(name)
    return unset


def window(request: dict[str, Any], data: bytes) -> dict[str, Any]:
    """`text`, `start`, `total` and `cut` of a document. Raises Problem: it cannot be read."""
    pieces, total, cut = [], 0, False
    for piece in pieces_of(data, request["kind"], request):
        pieces.append(piece)
        total += len(piece)
        if total > MAX_CHARS:
            cut = True
            break
    text = "".join(pieces)[:MAX_CHARS]
    start = request["start"]
    if start < 0 or (start and start >= len(text)):
        raise Problem(f"start={start} is outside of its {len(text)} characters")
    stretch = text[start : start + request["max_chars"]]
    return {"text": stretch, "start": start, "total": len(text), "cut": cut}


def pieces_of(data: bytes, suffix: str, request: dict[str, Any]) -> Iterator[str]:
    if suffix in ("html", "htm", "xhtml"):
        from .html import declared, html_text

        yield html_text(decoded(data, request["charset"] or declared(data)), request["base_url"])
    elif suffix in ("xlsx", "xlsm"):
        from .office import workbook

        yield from workbook(data, request["part"])
    elif suffix == "docx":
        from .office import word_document

        yield from word_document(data)
    elif suffix in ("pptx", "pptm", "ppsx"):
        from .slides import presentation

        yield from presentation(data, request["part"])
    elif suffix == "pdf":
        from .office import pdf_pages

        yield from pdf_pages(data, request["part"])
    elif suffix == "zip":
        from .archive import archive

        yield from archive(
            data, request["part"], lambda member, suffix: pieces_of(member, suffix, request | {"part": ""})
        )
    else:
        if data.startswith(OLE) and (newer := _NEWER.get(suffix)):
            raise Problem(
                f"a .{suffix} file is of Office before 2007 and is not read: convert it to .{newer} "
                f"(soffice --headless --convert-to {newer} FILE) and read that"
            )
        if b"\0" in data[:8192] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise Problem(
                f"a .{suffix or 'nameless'} file with binary content is not read; read are text of any kind, html, csv, json, jsonl, "
                "xlsx, docx, pptx, pdf and zip"
            )
        yield decoded(data, request["charset"])


def decoded(data: bytes, charset: str | None) -> str:
    """Bytes as text: by a byte order mark, the declared charset, UTF-8, else Windows-1252.
    Where the declared charset fits all but a few letters, these are replaced."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    declared = charset_named(charset) if charset else None
    for name in filter(None, (declared, "utf-8-sig")):
        try:
            return data.decode(name)
        except UnicodeDecodeError as error:
            if error.reason in _CUT and error.start > 0 and len(data) - error.start < 4:
                return data[: error.start].decode(name)  # it was cut within a letter
    if declared:
        text = data.decode(declared, "replace")
        if text.count("\ufffd") < _BROKEN * len(text):
            return text
    return data.decode("cp1252", "replace")


def charset_named(name: str) -> str | None:
    """The codec for a charset as web pages name it; None where there is none."""
    name = name.strip().lower()
    try:
        codec = codecs.lookup(_WEB_NAMES.get(name, name))
    except (LookupError, ValueError):
        return None
    return codec.name if codec._is_text_encoding else None  # pyright: ignore[reportAttributeAccessIssue] - `rot13`, `zip`
