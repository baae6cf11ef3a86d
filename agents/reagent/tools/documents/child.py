"""The child: takes a request line and a document from standard input, writes a window of its text, as JSON."""

import codecs
import json
import os
import resource
import sys
from collections.abc import Iterator
from typing import Any

from .archive import OLE, Problem

MAX_CHARS = 4_000_000
"""Of a document's text; what comes after is never read."""
_BROKEN = 0.01
"""Share of letters that may be broken in text of the charset that is said."""
_CUT = ("unexpected end of data", "incomplete multibyte sequence")
_NEWER = {"xls": "xlsx", "doc": "docx", "ppt": "pptx"}
"""Office before 2007: of a form that needs a reader for each program."""
_WEB_NAMES = {
    "ascii": "cp1252", "us-ascii": "cp1252", "iso-8859-1": "cp1252", "latin1": "cp1252", "iso-8859-9": "cp1254", "tis-620": "cp874",
    "iso-8859-11": "cp874", "gb2312": "gb18030", "gbk": "gb18030", "big5": "big5hkscs", "shift_jis": "cp932", "shift-jis": "cp932",
    "x-sjis": "cp932", "euc-kr": "cp949", "ks_c_5601-1987": "cp949", "windows-31j": "cp932", "x-gbk": "gb18030", "utf8": "utf-8-sig",
    "utf-8": "utf-8-sig",
}  # fmt: skip
"""Charsets that stand on pages for a larger one (the WHATWG's Encoding Standard), or that Python calls otherwise."""


def main() -> None:
    """Read standard input, write standard output."""
    said, descriptor = sys.stdin.buffer, os.dup(1)
    os.dup2(2, 1)  # what a library prints is no answer
    request = json.loads(said.readline())
    try:
        unset = limit(request["memory_bytes"], request["cpu_s"])
        if unset:
            print(f"not limited: {', '.join(unset)}", file=sys.stderr)
        answer: dict[str, Any] = window(request, said.read())
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
    """Limit this process, as far as it may be: a limit that is lower already stays. Returns what this system does not limit."""
    wanted = {
        "address space": (resource.RLIMIT_AS, memory, memory),
        "core files": (resource.RLIMIT_CORE, 0, 0),
        "file size": (resource.RLIMIT_FSIZE, 0, 0),  # pipes are no files
        "processor time": (resource.RLIMIT_CPU, cpu_s, cpu_s + 1),
    }
    unset = []
    for name, (what, soft, hard) in wanted.items():
        highest = resource.getrlimit(what)[1]
        if highest != resource.RLIM_INFINITY:
            soft, hard = min(soft, highest), min(hard, highest)
        try:
            resource.setrlimit(what, (soft, hard))
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
    shown = text[start : start + request["max_chars"]]
    return {"text": shown, "start": start, "total": len(text), "cut": cut}


def pieces_of(data: bytes, kind: str, request: dict[str, Any]) -> Iterator[str]:
    """A document's text in pieces. Raises Problem: it cannot be read."""
    if kind in ("html", "htm", "xhtml"):
        from .html import declared, html_text

        yield html_text(decoded(data, request["charset"] or declared(data)), request["base_url"])
    elif kind in ("xlsx", "xlsm"):
        from .office import workbook

        yield from workbook(data, request["part"])
    elif kind == "docx":
        from .office import word_document

        yield from word_document(data)
    elif kind in ("pptx", "pptm", "ppsx"):
        from .slides import presentation

        yield from presentation(data, request["part"])
    elif kind == "pdf":
        from .office import pdf_pages

        yield from pdf_pages(data, request["part"])
    elif kind == "zip":
        from .archive import archive

        yield from archive(
            data, request["part"], lambda member, suffix: pieces_of(member, suffix, request | {"part": ""})
        )
    else:
        if data.startswith(OLE) and (newer := _NEWER.get(kind)):
            raise Problem(
                f"a .{kind} file is of Office before 2007 and is not read: convert it to .{newer} "
                f"(soffice --headless --convert-to {newer} FILE) and read that"
            )
        if b"\0" in data[:8192] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise Problem(
                f"a .{kind or 'nameless'} file with binary content is not read; read are text of any kind, html, csv, json, jsonl, "
                "xlsx, docx, pptx, pdf and zip"
            )
        yield decoded(data, request["charset"])


def decoded(data: bytes, charset: str | None) -> str:
    """Bytes as text: by a byte order mark, the charset that is said, UTF-8, else Windows-1252 (which never fails). Where the charset that
    is said fits all but a few letters, these are replaced."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    said = charset_named(charset) if charset else None
    for name in filter(None, (said, "utf-8-sig")):
        try:
            return data.decode(name)
        except UnicodeDecodeError as error:
            if error.reason in _CUT and error.start > 0 and len(data) - error.start < 4:
                return data[: error.start].decode(name)  # it was cut within a letter
    if said:
        text = data.decode(said, "replace")
        if text.count("\ufffd") < _BROKEN * len(text):
            return text
    return data.decode("cp1252", "replace")


def charset_named(name: str) -> str | None:
    """The codec for a charset as web pages name it; None where there is none."""
    name = name.strip().lower()
    try:
        found = codecs.lookup(_WEB_NAMES.get(name, name))
    except (LookupError, ValueError):
        return None
    return found.name if found._is_text_encoding else None  # pyright: ignore[reportAttributeAccessIssue] - `rot13`, `zip`
