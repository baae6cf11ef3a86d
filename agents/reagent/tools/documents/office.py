"""Workbooks (openpyxl), Word documents (their XML), PDF files (pypdf) as text."""

import csv
import io
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from typing import Any
from xml.etree import ElementTree

from .archive import Problem, open_zip, unpacked

MAX_UNPACKED = 300_000_000  # bytes of all parts of an office document
MAX_ROWS = 1_048_576  # of a sheet, as in a workbook's own limits; a file may claim more
_BLANKS = 3  # longer runs of blank rows are one line with their number
FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_STRICT = re.compile(rb"([\"'])http://purl\.oclc\.org/ooxml/(\w+)/(main|relationships)(?=[\"'/])")
"""Namespaces of documents saved as "Strict Open XML"; their elements are the same."""
_USUAL = rb"\1http://schemas.openxmlformats.org/\2/2006/\3"


def bounded(data: bytes) -> zipfile.ZipFile:
    """Open an office document's archive. Raises Problem: it is none, or too large."""
    archive = open_zip(data)
    size = sum(info.file_size for info in archive.infolist())
    if size > MAX_UNPACKED:
        raise Problem(f"its parts have {size} bytes unpacked, and {MAX_UNPACKED} are read at most")
    return archive


def parsed(content: bytes) -> ElementTree.Element:
    return ElementTree.fromstring(_STRICT.sub(_USUAL, content))


def _ordinary(data: bytes) -> bytes:
    """A workbook in the usual namespaces, the only ones that openpyxl knows."""
    with bounded(data) as archive:
        if "xl/workbook.xml" not in archive.namelist() or not _STRICT.search(unpacked(archive, "xl/workbook.xml")):
            return data
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as usual:
            for name in archive.namelist():
                content = unpacked(archive, name)
                usual.writestr(name, _STRICT.sub(_USUAL, content) if name.endswith((".xml", ".rels")) else content)
    return buffer.getvalue()


def workbook(data: bytes, sheet: str) -> Iterator[str]:
    """Each sheet (or the one of that name) as comma-separated values; formulas as their last value.
    Raises Problem: it cannot be read, or has no such sheet."""
    data = _ordinary(data)
    try:
        from openpyxl import load_workbook
    except ImportError as error:
        raise Problem("reading a .xlsx file needs openpyxl: pip install 'agent-rrm[tools]'") from error
    book = load_workbook(io.BytesIO(data), read_only=True, data_only=True, keep_links=False)
    if not book.sheetnames:
        raise Problem("it has no sheets that can be read")
    if sheet and sheet not in book.sheetnames:
        raise Problem(f"there is no sheet {sheet!r}; there are: {', '.join(book.sheetnames)[:200]}")
    for name in [sheet] if sheet else book.sheetnames:
        page: Any = book[name]
        if not hasattr(page, "iter_rows"):
            continue  # a chart
        page.reset_dimensions()  # what the file says of its size may be wrong, and the rest would be left out
        yield f"## Sheet: {name}\n"
        yield from _rows(page.iter_rows(values_only=True))
        yield "\n"


def _rows(rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Rows as lines, without blank ones at the end; a sheet may claim a million."""
    blank, empty = 0, None
    for number, row in enumerate(rows):
        if number == MAX_ROWS:
            yield f"[rows after the first {MAX_ROWS} are not read]\n"
            return
        # a row that the file leaves out is one object, however often it comes
        if row is empty or all(value is None for value in row):
            blank, empty = blank + 1, row
            continue
        yield "\n" * blank if blank <= _BLANKS else f"[{blank} blank rows]\n"
        blank = 0
        cells = list(row)
        while cells[-1] is None:
            cells.pop()
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerow([_cell(value) for value in cells])
        yield out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat(" ") if value.time().isoformat() != "00:00:00" else value.date().isoformat()
    return value.isoformat() if isinstance(value, date) else value


def word_document(data: bytes) -> Iterator[str]:
    """Paragraphs, headings, lists and tables in the document's order. Raises Problem."""
    with bounded(data) as archive:
        text = unpacked(archive, "word/document.xml")
    body = parsed(text).find(f"{_W}body")
    if body is None:
        raise Problem("not a Word document: it has no body")
    yield from _blocks(body)


def _blocks(parent: ElementTree.Element) -> Iterator[str]:
    for block in parent:
        if block.tag == f"{_W}p":
            yield _paragraph(block) + "\n"
        elif block.tag == f"{_W}tbl":
            for row in _of(block, "tr"):
                yield " | ".join(" ".join("".join(_blocks(cell)).split()) for cell in _of(row, "tc")) + "\n"
            yield "\n"
        else:
            yield from _blocks(block)


def _of(parent: ElementTree.Element, name: str) -> Iterator[ElementTree.Element]:
    """Rows of a table or cells of a row, also within content controls, without those of nested tables."""
    for child in parent:
        if child.tag == f"{_W}{name}":
            yield child
        else:
            yield from _of(child, name)


def _paragraph(block: ElementTree.Element) -> str:
    style = block.find(f"{_W}pPr/{_W}pStyle")
    name = style.get(f"{_W}val", "") if style is not None else ""
    level = name[7:] if name.lower().startswith("heading") else ""
    mark = "#" * int(level) + " " if level.isdigit() and 1 <= int(level) <= 6 else ""
    item = "- " if block.find(f"{_W}pPr/{_W}numPr") is not None else ""
    return mark + item + "".join(runs(block, _W))


def runs(block: ElementTree.Element, space: str) -> Iterator[str]:
    """A paragraph's text, that of text boxes included. `space`: namespace of its elements, in braces."""
    waiting = [block]
    while waiting:
        node = waiting.pop()
        if node.tag in (FALLBACK, f"{space}pPr"):
            continue  # the same again, for older readers; where a paragraph's tabs stop
        if node.tag == f"{space}t":
            yield node.text or ""
        elif node.tag == f"{space}tab":
            yield "\t"
        elif node.tag in (f"{space}br", f"{space}cr"):
            yield "\n"
        elif node.tag == f"{space}p" and node is not block:
            yield " "
        waiting.extend(reversed(node))


def pdf_pages(data: bytes, pages: str) -> Iterator[str]:
    """The text of each page (or of `3`, `3-5`), in the order a PDF's writer left it in.
    Raises Problem: it cannot be read, or has no such pages."""
    try:
        from pypdf import PdfReader
        from pypdf.errors import PyPdfError
    except ImportError as error:
        raise Problem("reading a .pdf file needs pypdf: pip install 'agent-rrm[tools]'") from error
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise Problem("it is encrypted")
        count = len(reader.pages)
        for number in numbered(pages, count, "pages"):
            yield f"--- page {number} of {count} ---\n{reader.pages[number - 1].extract_text()}\n"
    except PyPdfError as error:
        raise Problem(f"not a readable PDF: {error}") from error


def numbered(span: str, count: int, noun: str) -> range:
    """The numbers that `3` or `3-5` names, up to `count`; all for an empty range. Raises Problem."""
    if not span:
        return range(1, count + 1)
    first, dash, last = span.replace(" ", "").partition("-")
    if not first.isdigit() or (dash and not last.isdigit()):
        raise Problem(f"part={span!r}: {noun} are asked for as 3 or 3-5")
    low, high = int(first), int(last or first)
    if not 1 <= low <= high <= count:
        raise Problem(f"there are {noun} 1 to {count}, not {span}")
    return range(low, high + 1)
