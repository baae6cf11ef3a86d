"""Files of every kind that is read, paths that must not be, and documents made to harm their reader."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import resource
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from tool_errors import raises

from reagent.env.tool import ToolResult
from reagent.tools import build
from reagent.tools.documents.run import read_document
from rrm.errors import ConfigError, MissingExtra

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
DOCX = f"""<?xml version="1.0"?><w:document {W}><w:body>
<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>Rivers</w:t></w:r></w:p>
<w:p><w:r><w:t>The Tove is </w:t></w:r><w:r><w:t>24 miles long.</w:t></w:r></w:p>
<w:p><w:pPr><w:numPr/></w:pPr><w:r><w:t>an item</w:t></w:r></w:p>
<w:tbl><w:tr><w:tc><w:p><w:r><w:t>Town</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>People</w:t></w:r></w:p></w:tc></w:tr></w:tbl>
</w:body></w:document>"""


def zipped(**members: bytes | str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "/"), data)
    return out.getvalue()


def docx(document: str = DOCX) -> bytes:
    return zipped(**{"word__document.xml": document})


def pdf(pages: list[str], packed: bytes = b"") -> bytes:
    """A small PDF, written by hand: one line of text a page; `packed` is drawn instead where it is given."""
    objects = [b"<</Type/Catalog/Pages 2 0 R>>"]
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(pages)))
    objects.append(f"<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>".encode())
    objects.append(b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>")
    for i, text in enumerate(pages):
        objects.append(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/Resources<</Font<</F 3 0 R>>>>/Contents {5 + 2 * i} 0 R>>".encode()
        )
        drawn = f"BT /F 12 Tf 20 100 Td ({text}) Tj ET".encode()
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(drawn), drawn))
        if packed:
            objects[-1] = b"<</Length %d/Filter/FlateDecode>>stream\n%s\nendstream" % (len(packed), packed)
    out, offsets = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, start)
    return bytes(out)


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., ToolResult]:
    root = tmp_path / "root"
    root.mkdir()

    def call(
        path: str, data: bytes | None = None, options: dict[str, object] | None = None, **arguments: object
    ) -> ToolResult:
        if data is not None:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(data)
        (tool,) = build(["read_file"], {"read_file": {"root": str(root)} | (options or {})})
        return asyncio.run(tool.call({"path": path} | arguments))

    return call


Read = Callable[..., ToolResult]


def test_text_of_any_kind(read: Read) -> None:
    assert read("a/notes.md", b"# Notes\nKept.").content == "# Notes\nKept."
    assert read("table.csv", "town,people\nKöln,1\n".encode()).content == "town,people\nKöln,1\n"
    assert read("latin.txt", "Köln".encode("latin-1")).content == "Köln"
    assert read("wide.txt", "Köln".encode("utf-16")).content == "Köln"
    assert read("rows.jsonl", b'{"a": 1}\n').content == '{"a": 1}\n'
    assert read("page.html", b"<p>Hi <b>you</b><script>x</script>").content == "Hi you"
    assert read("empty.txt", b"").content == "(no output)"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ('<meta charset="gb2312"><p>长江'.encode("gb18030"), "长江"),
        ("<html><head><META Charset=shift_jis><p>東京①".encode("cp932"), "東京①"),
        (
            '<meta http-equiv="Content-Type" content="text/html; charset=windows-1251"><p>Волга'.encode("cp1251"),
            "Волга",
        ),
        ('<?xml version="1.0" encoding="euc-jp"?><p>東京'.encode("euc-jp"), "東京"),
        ('<meta charset="iso-2022-jp"><p>東京'.encode("iso-2022-jp"), "東京"),  # ASCII to whoever does not look
        ('<meta charset="iso-8859-1"><p>“10 €”'.encode("cp1252"), "“10 €”"),
        ('<!-- <meta charset="cp1251"> --><p>Köln'.encode(), "Köln"),
        (f'<!--{"x" * 1100}--><meta charset="cp1251"><p>Köln'.encode(), "Köln"),
        ('<meta charset="utf-16"><p>Köln'.encode(), "Köln"),
        ('<meta charset="gbk"><p>Köln'.encode(), "K枚ln"),  # as browsers show it
        ('<meta charset="rot13"><p>Köln'.encode(), "Köln"),
        ('<meta charset="no such"><p>Köln'.encode(), "Köln"),
        ('<meta charset="utf-8"><p>Köln'.encode("latin-1"), "Köln"),
        (b'<meta charset="gbk"><p>' + "长江".encode("gbk") * 100 + b"\xff.", "长江" * 100 + "\ufffd."),
        ('<meta charset="gbk"><p>长江'.encode("gbk") + b"\xb3", "长江"),  # cut within a letter
    ],
)
def test_a_page_says_its_charset(page: bytes, text: str) -> None:
    assert read_document(page, "html").text == text


def test_what_a_server_says_of_the_charset_comes_first() -> None:
    page = '<meta charset="cp1251"><p>Köln'
    assert read_document(page.encode(), "html", charset="UTF-8").text == "Köln"
    assert read_document(page.encode("latin-1"), "html", charset="ISO-8859-1").text == "Köln"


def test_a_word_document(read: Read) -> None:
    assert read("r.docx", docx()).content == ("# Rivers\nThe Tove is 24 miles long.\n- an item\nTown | People\n\n")


def test_words_of_a_word_document_stand_apart_and_once(read: Read) -> None:
    """Paragraphs of one cell or of a content control, a table within a cell, a text box with its copy for older readers."""

    def said(*words: str) -> str:
        return "".join(f"<w:p><w:r><w:t>{word}</w:t></w:r></w:p>" for word in words)

    def table(*cells: str) -> str:
        return f"<w:tbl><w:tr>{''.join(f'<w:tc>{cell}</w:tc>' for cell in cells)}</w:tr></w:tbl>"

    def content(body: str) -> str:
        spaces = "http://schemas.openxmlformats.org"
        names = f'xmlns:w="{spaces}/wordprocessingml/2006/main" xmlns:mc="{spaces}/markup-compatibility/2006"'
        return read("s.docx", docx(f"<w:document {names}><w:body>{body}</w:body></w:document>")).content

    assert content(table(said("Alder", "moor"), said("4120"))) == "Alder moor | 4120\n\n"
    control = f"<w:sdt><w:sdtPr/><w:sdtContent>{said('one', 'two')}{table(said('x'))}</w:sdtContent></w:sdt>"
    assert content(control + said("three")) == "one\ntwo\nx\n\nthree\n"
    assert content(table(said("out") + table(said("in"), said("side")), said("last"))) == "out in | side | last\n\n"
    box = f"<mc:AlternateContent><mc:Choice>{said('in', 'box')}</mc:Choice><mc:Fallback>{said('in', 'box')}</mc:Fallback></mc:AlternateContent>"
    assert content(f"<w:p><w:r><w:t>text</w:t></w:r><w:r>{box}</w:r></w:p>") == "text in box\n"


def test_an_archive_and_its_members(read: Read) -> None:
    data = zipped(**{"in__towns.csv": "a,b\n1,2\n", "r.docx": docx(), "inner.zip": zipped(x="y")})
    listing = read("all.zip", data).content
    assert listing.splitlines()[:2] == ["3 entries; read one with part=NAME", "in/towns.csv  8 bytes"]
    assert read("all.zip", part="in/towns.csv").content == "a,b\n1,2\n"
    assert read("all.zip", part="r.docx").content.startswith("# Rivers")
    assert read("all.zip", part="inner.zip").content.startswith("1 entries")
    assert "there is no '../towns.csv'" in read("all.zip", part="../towns.csv").content


def test_a_workbook(read: Read) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="the extra tools is not installed")
    import datetime

    book = openpyxl.Workbook()
    page = book.active
    page.title = "Towns"
    page.append(["town", "people", "since"])
    page.append(["Alder, moor", 4120, datetime.datetime(1824, 5, 1)])
    book.create_sheet("Empty")
    out = io.BytesIO()
    book.save(out)
    content = read("w.xlsx", out.getvalue()).content
    assert content == '## Sheet: Towns\ntown,people,since\n"Alder, moor",4120,1824-05-01\n\n## Sheet: Empty\n\n'
    assert read("w.xlsx", part="Empty").content == "## Sheet: Empty\n\n"
    assert "there are: Towns, Empty" in read("w.xlsx", part="Rivers").content


def test_rows_after_blank_ones_are_read(read: Read) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="the extra tools is not installed")
    book = openpyxl.Workbook()
    page = book.active
    for row, value in ((1, "first"), (3, "third"), (5000, "late")):
        page.cell(row, 2, value)
    page.cell(1_048_576, 2, "last")
    page.cell(9000, 500, "").number_format = "0.00"  # nothing in it, and every row is as wide
    out = io.BytesIO()
    book.save(out)
    assert read("w.xlsx", out.getvalue()).content == (
        "## Sheet: Sheet\n,first\n\n,third\n[4996 blank rows]\n,late\n[1043575 blank rows]\n,last\n\n"
    )


def test_a_sheet_of_more_rows_than_there_can_be_is_cut_with_a_word(read: Read) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="the extra tools is not installed")
    book = openpyxl.Workbook()
    book.active.append(["first"])
    out, changed = io.BytesIO(), io.BytesIO()
    book.save(out)
    with zipfile.ZipFile(out) as whole, zipfile.ZipFile(changed, "w", zipfile.ZIP_DEFLATED) as other:
        for name in whole.namelist():
            text = whole.read(name)
            if name == "xl/worksheets/sheet1.xml":
                text = text.replace(
                    b"</sheetData>", b'<row r="9000000000"><c r="A9000000000"><v>1</v></c></row></sheetData>'
                )
            other.writestr(name, text)
    content = read("w.xlsx", changed.getvalue()).content
    assert content == "## Sheet: Sheet\nfirst\n[rows after the first 1048576 are not read]\n\n"


def test_a_pdf_and_its_pages(read: Read) -> None:
    pytest.importorskip("pypdf", reason="the extra tools is not installed")
    data = pdf(["Aldermoor has a mill", "The Tove is long", "The end"])
    assert read("t.pdf", data).content == (
        "--- page 1 of 3 ---\nAldermoor has a mill\n--- page 2 of 3 ---\nThe Tove is long\n--- page 3 of 3 ---\nThe end\n"
    )
    assert read("t.pdf", part="2-3").content.startswith("--- page 2 of 3 ---")
    assert "pages 1 to 3, not 4" in read("t.pdf", part="4").content
    assert "as 3 or 3-5" in read("t.pdf", part="two").content


def test_an_absent_reader_names_its_extra(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pypdf" else real(name))
    with pytest.raises(MissingExtra, match=r"pip install 'agent-rrm\[tools\]'"):
        read_document(b"", "pdf")
    assert "pip install 'agent-rrm[tools]'" in read("x.pdf", b"%PDF").content


def test_long_files_are_read_on(read: Read) -> None:
    text = "".join(f"line {n:05}\n" for n in range(2000))
    first = read("long.txt", text.encode(), {"max_chars": 1100})
    assert first.content.endswith("\n[characters 0 to 1100 of 22000; read on with start=1100]")
    assert (
        read("long.txt", None, {"max_chars": 1100}, start=21_989).content
        == "line 01999\n\n[characters 21989 to 22000 of 22000]"
    )
    assert "start=-1" in read("long.txt", start=-1).content


# ---- paths ------------------------------------------------------------------------------------------------------------------


def test_nothing_outside_the_folder_is_reached(read: Read, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "root-beside").mkdir()
    (tmp_path / "root-beside" / "x.txt").write_text("secret")
    root = tmp_path / "root"
    (root / "in.txt").write_text("inside")
    (root / "out.txt").symlink_to(tmp_path / "secret.txt")
    (root / "up").symlink_to(tmp_path)
    (root / "fine.txt").symlink_to("in.txt")
    (root / "loop").symlink_to("loop")
    os.mkfifo(root / "pipe")
    for path in (
        "../secret.txt", "../root-beside/x.txt", "/etc/passwd", str(tmp_path / "secret.txt"), "out.txt", "up/secret.txt",
        "a/../../secret.txt", "loop", "pipe", ".", "", "nothing.txt", "in.txt/x", "in\0.txt", "x" * 5000,
    ):  # fmt: skip
        result = read(path)
        assert result.error is not None and result.error.kind in ("file_refused", "no_file"), path
        assert "secret\n" not in result.content and result.content != "secret"
    assert read("fine.txt").content == "inside"
    assert "there are: fine.txt, in.txt" in read("nothing.txt").content
    with pytest.raises(ConfigError, match="there is no folder"):
        build(["read_file"], {"read_file": {"root": str(tmp_path / "absent")}})


def test_large_files_are_refused_before_they_are_read(read: Read, tmp_path: Path) -> None:
    with open(tmp_path / "root" / "huge.txt", "wb") as out:
        out.truncate(10 << 30)
    result = read("huge.txt")
    assert result.error is not None and result.error.kind == "unreadable" and "10737418240 bytes" in result.content


# ---- documents made to harm ---------------------------------------------------------------------------------------------------


def bomb(size: int) -> bytes:
    """`size` zero bytes, packed a thousand to one."""
    out = io.BytesIO()
    with (
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("b.txt", "w") as member,
    ):
        for _ in range(size >> 20):
            member.write(bytes(1 << 20))
    return out.getvalue()


def restated(data: bytes, size: int) -> bytes:
    """The archive, the stated size of its one member changed."""
    real = struct.pack("<I", zipfile.ZipFile(io.BytesIO(data)).infolist()[0].file_size)
    assert data.count(real) == 2  # before the member, and in the list
    return data.replace(real, struct.pack("<I", size))


def test_zip_bombs_are_bounded(read: Read) -> None:
    data = bomb(8 << 20)
    assert "50000000 are read at most" in read("b.zip", restated(data, 60_000_000), part="b.txt").content
    lying = read("l.zip", restated(data, 1000), part="b.txt")
    assert lying.error is not None and lying.error.kind == "unreadable"
    office = restated(docx(DOCX + " " * 70_000), 400_000_000)
    assert "are read at most" in read("b.docx", office).content


def test_xml_bombs_end_typed(read: Read) -> None:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    laughs = f'<?xml version="1.0"?><!DOCTYPE d [<!ENTITY e0 "ha">{entities}]><w:document {W}><w:body>&e9;</w:body></w:document>'
    outside = f'<?xml version="1.0"?><!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]><w:document {W}><w:body><w:p><w:r><w:t>&x;</w:t></w:r></w:p></w:body></w:document>'
    for document in (laughs, outside, f"<w:document {W}>" + "<w:p>" * 100_000):
        result = read("x.docx", docx(document))
        assert result.error is not None and result.error.kind in ("unreadable", "reading_memory", "reading_timeout")
        assert "root:" not in result.content


def test_broken_documents_are_typed(read: Read) -> None:
    cases = {
        "a.zip": b"PK\x03\x04 no archive", "a.docx": b"no archive", "b.docx": zipped(other="x"), "a.bin": bytes(100), "c.docx": docx("<x/>"),
    }  # fmt: skip
    for name, data in cases.items():
        result = read(name, data)
        assert result.error is not None and result.error.kind == "unreadable", (name, result)
    if pytest.importorskip("pypdf"):
        for data in (b"no pdf", pdf(["x"])[:200]):
            result = read("a.pdf", data)
            assert result.error is not None and result.error.kind == "unreadable", data


def test_a_reader_that_needs_too_much_is_stopped() -> None:
    with raises("reading_memory") as stopped:
        read_document(json.dumps("x" * 60_000_000).encode(), "txt", memory_mb=110)
    assert stopped.value.kind == "reading_memory"


def test_a_stream_of_a_pdf_is_bounded(read: Read) -> None:
    pytest.importorskip("pypdf")
    assert read("s.pdf", pdf([""], zlib.compress(b"BT /F 12 Tf 20 100 Td (small) Tj ET"))).content.endswith("small\n")
    result = read("p.pdf", pdf([""], zlib.compress(bytes(120 << 20), 1)), {"memory_mb": 150, "timeout_s": 3})
    assert result.error is not None and result.error.kind in ("unreadable", "reading_memory", "reading_timeout")
    assert len(result.content) < 1000


def test_what_lies_outside_cannot_be_asked(read: Read, tmp_path: Path) -> None:
    """What is there and what is not gets the same words, by any way out; a name that is none is no crash."""
    (tmp_path.parent / "there.txt").write_text("x")
    told = [read(path).content.replace("gone", "there") for path in ("../there.txt", "../gone.txt")]
    assert told[0] == told[1]
    (tmp_path / "root" / "link.txt").symlink_to(tmp_path.parent / "there.txt")
    (tmp_path / "root" / "in.txt").write_text("inside")
    assert read("link.txt").content.endswith("there are: in.txt")  # what is not read is not offered
    for path in ("../there.txt", "/etc", "\ud800"):
        result = read(path)
        assert result.error is not None and result.error.kind == "no_file", path


SPACES = "http://schemas.openxmlformats.org"
OFFICE_NAMES = (
    f'xmlns:a="{SPACES}/drawingml/2006/main" xmlns:p="{SPACES}/presentationml/2006/main" '
    f'xmlns:r="{SPACES}/officeDocument/2006/relationships" xmlns:mc="{SPACES}/markup-compatibility/2006"'
)


def shape(*paragraphs: str, holder: str = "") -> str:
    """A text box, or a placeholder of a kind."""
    body = "".join(f"<a:p><a:r><a:t>{text}</a:t></a:r></a:p>" for text in paragraphs)
    placeholder = f'<p:ph type="{holder}"/>' if holder else ""
    return f"<p:sp><p:nvSpPr><p:nvPr>{placeholder}</p:nvPr></p:nvSpPr><p:txBody>{body}</p:txBody></p:sp>"


def slide(*shapes: str, element: str = "sld", about: str = "") -> str:
    tree = "".join(shapes)
    return f"<p:{element} {OFFICE_NAMES} {about}><p:cSld><p:spTree>{tree}</p:spTree></p:cSld></p:{element}>"


def related(*entries: tuple[str, str, str]) -> str:
    """The part that says what another part's ids stand for: (id, kind, target)."""
    form = f'<Relationship Id="{{}}" Type="{SPACES}/officeDocument/2006/relationships/{{}}" Target="{{}}"/>'
    listed = "".join(form.format(*entry) for entry in entries)
    return f'<Relationships xmlns="{SPACES}/package/2006/relationships">{listed}</Relationships>'


def zipped_texts(members: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return out.getvalue()


def pptx(slides: dict[str, str], order: list[str], others: dict[str, str] | None = None) -> bytes:
    """Slides by file name, shown in this order, and further members."""
    ids = "".join(f'<p:sldId id="{256 + i}" r:id="{name}"/>' for i, name in enumerate(order))
    members = {
        "presentation.xml": f"<p:presentation {OFFICE_NAMES}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>",
        "_rels/presentation.xml.rels": related(*((name, "slide", f"slides/{name}.xml") for name in slides)),
        **{f"slides/{name}.xml": text for name, text in slides.items()},
    }
    return zipped_texts({f"ppt/{name}": text for name, text in (members | (others or {})).items()})


TABLE = (
    "<p:graphicFrame><a:graphic><a:graphicData><a:tbl><a:tr><a:tc><a:txBody><a:p><a:r><a:t>Town</a:t></a:r></a:p></a:txBody></a:tc>"
    "<a:tc><a:txBody><a:p><a:r><a:t>People,</a:t></a:r></a:p><a:p><a:r><a:t>all</a:t></a:r></a:p></a:txBody></a:tc></a:tr></a:tbl>"
    "</a:graphicData></a:graphic></p:graphicFrame>"
)
PICTURE = '<p:pic><p:nvPicPr><p:cNvPr id="4" name="Picture 3" descr="A mill"/></p:nvPicPr></p:pic>'


def test_slides_come_in_the_order_they_are_shown_in() -> None:
    twice = f"<mc:AlternateContent><mc:Choice>{shape('once')}</mc:Choice><mc:Fallback>{shape('once')}</mc:Fallback></mc:AlternateContent>"
    slides = {
        "slide1": slide(shape("The end", holder="title"), shape("2", holder="sldNum"), about='show="0"'),
        "slide2": slide(shape("Rivers", holder="ctrTitle"), f"<p:grpSp>{shape('The Tove', '', 'is long')}</p:grpSp>", twice, PICTURE),
        "slide3": slide(shape("not shown")),
    }  # fmt: skip
    notes = slide(shape("Say how long.", holder="body"), shape("1", holder="sldNum"), element="notes")
    refers = related(("r1", "slideLayout", "../x.xml"), ("r2", "notesSlide", "../notesSlides/n1.xml"))
    others = {"slides/_rels/slide2.xml.rels": refers, "notesSlides/n1.xml": notes}
    data = pptx(slides, ["slide2", "slide1"], others)
    first = "--- slide 1 of 2 ---\n# Rivers\nThe Tove\nis long\nonce\n[image: A mill]\nNotes: Say how long.\n"
    last = "--- slide 2 of 2, hidden ---\n# The end\n"
    assert read_document(data, "pptx").text == first + last
    assert read_document(data, "pptx", part="2").text == last
    for part, message in (("3", "slides 1 to 2, not 3"), ("all", "slides are asked for as 3 or 3-5")):
        with raises("unreadable", match=message):
            read_document(data, "pptx", part=part)


def test_a_table_on_a_slide_within_an_archive() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("talk.pptx", pptx({"s": slide(TABLE)}, ["s"]))
    assert read_document(out.getvalue(), "zip", part="talk.pptx").text == "--- slide 1 of 1 ---\nTown | People, all\n"


def test_presentations_made_to_harm_end_typed() -> None:
    text = slide(shape("x" * 777))
    archive_bytes, size = pptx({"s": text}, ["s"]), struct.pack("<I", len(text))
    assert archive_bytes.count(size) == 2  # before the member, and in the list
    nested = "<p:grpSp>" * 3000 + "</p:grpSp>" * 3000
    laughs = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    bomb = f'<!DOCTYPE d [<!ENTITY e0 "ha">{laughs}]><p:sld {OFFICE_NAMES}>&e9;</p:sld>'
    cases = {
        "not a zip archive": b"no archive",
        r"no 'ppt/presentation\.xml' in the archive$": zipped_texts({"word/document.xml": "<x/>"}),
        "slide 1 of 1 is not in the file": pptx({"s": slide()}, ["gone"]),
        "it has no slides": pptx({"s": slide()}, []),
        "has a password, or is of Office before 2007": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(100),
        "unclosed token": pptx({"s": "<p:sld"}, ["s"]),
        "nested too deeply": pptx({"s": slide(nested)}, ["s"]),
        "not a readable .pptx: ParseError: .*(amplification|entity)": pptx({"s": bomb}, ["s"]),
        "60000000 bytes unpacked, and 50000000 are read": archive_bytes.replace(size, struct.pack("<I", 60_000_000)),
        "parts have .* bytes unpacked, and 300000000 are read": archive_bytes.replace(
            size, struct.pack("<I", 400_000_000)
        ),
    }
    for message, data in cases.items():
        with raises("unreadable", match=message):
            read_document(data, "pptx")
    assert read_document(archive_bytes, "pptx").text.endswith("x\n")


@pytest.mark.parametrize("suffix", ["pptx", "docx"])
def test_strict_documents_are_read(suffix: str) -> None:
    body = f'<w:document xmlns:w="{SPACES}/wordprocessingml/2006/main"><w:body><w:p><w:r><w:t>Rivers</w:t></w:r></w:p></w:body></w:document>'
    usual = (
        pptx({"s": slide(shape("Rivers"))}, ["s"]) if suffix == "pptx" else zipped_texts({"word/document.xml": body})
    )
    with zipfile.ZipFile(io.BytesIO(usual)) as archive:
        members = {name: archive.read(name).decode() for name in archive.namelist()}
    strict = {
        name: text.replace(SPACES, "http://purl.oclc.org/ooxml").replace("/2006/", "/")
        for name, text in members.items()
    }
    content = read_document(zipped_texts(strict), suffix).text
    assert "Rivers\n" in content and content == read_document(usual, suffix).text


def test_a_strict_workbook_is_read_and_one_without_sheets_is_said() -> None:
    """openpyxl knows the usual namespaces alone, and found a workbook without sheets."""
    openpyxl = pytest.importorskip("openpyxl", reason="the extra tools is not installed")
    buffer, book = io.BytesIO(), openpyxl.Workbook()
    book.active.append(["hello", 3])
    book.save(buffer)
    with zipfile.ZipFile(buffer) as archive:
        members = {name: archive.read(name).decode() for name in archive.namelist()}
    strict = dict(members)
    for name in ("officeDocument", "spreadsheetml"):
        usual, other = f"{SPACES}/{name}/2006/", f"http://purl.oclc.org/ooxml/{name}/"
        strict = {member: text.replace(usual, other) for member, text in strict.items()}
    content = read_document(zipped_texts(strict), "xlsx").text
    assert "hello,3" in content and content == read_document(buffer.getvalue(), "xlsx").text
    members["xl/workbook.xml"] = re.sub("<sheet .*?/>", "", members["xl/workbook.xml"])
    with raises("unreadable", match="no sheets that can be read"):
        read_document(zipped_texts(members), "xlsx")


def test_where_tabs_stop_is_no_text() -> None:
    stops = '<a:pPr><a:tabLst><a:tab pos="1"/><a:tab pos="2"/></a:tabLst></a:pPr>'
    xml = slide(shape("Rivers").replace("<a:p>", f"<a:p>{stops}"))
    assert read_document(pptx({"s": xml}, ["s"]), "pptx").text == "--- slide 1 of 1 ---\nRivers\n"
    run = "<w:r><w:t>long</w:t><w:tab/><w:t>9</w:t></w:r>"
    body = f"<w:body><w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr>{run}</w:p></w:body>"
    word = f'<w:document xmlns:w="{SPACES}/wordprocessingml/2006/main">{body}</w:document>'
    assert read_document(zipped_texts({"word/document.xml": word}), "docx").text == "long\t9\n"


def test_a_file_of_old_office_says_what_to_do() -> None:
    old = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(100)
    with raises("unreadable", match=r"a \.xls file is of Office before 2007 .* convert it to \.xlsx"):
        read_document(old, "xls")
    assert read_document(b"town\tpeople\n", "xls").text == "town\tpeople\n"  # text that a program called so


MEMORY = 900 << 20
_UNDER = """
import resource
resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
{code}
"""
_READ = "from reagent.tools.documents.run import read_document\nprint(read_document(b'hello', 'txt').text)"
_LIMIT = """
from reagent.tools.documents.child import limit
print(limit(1 << 40, 7), resource.getrlimit(resource.RLIMIT_AS), resource.getrlimit(resource.RLIMIT_CPU))
"""


def under(code: str, *start: str) -> str:
    command = [*start, sys.executable, "-c", _UNDER.format(memory=MEMORY, code=code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-800:]
    return done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="macOS limits no address space")
def test_lower_limits_stay() -> None:
    assert under(_LIMIT) == f"[] ({MEMORY}, {MEMORY}) (7, 8)\n"


@pytest.mark.skipif(sys.platform != "linux", reason="macOS limits no address space")
def test_a_document_is_read_under_lower_limits() -> None:
    assert under(_READ) == "hello\n"


def test_what_a_system_does_not_limit_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS: the address space cannot be limited. The others are set to what they are."""
    from reagent.tools.documents import child

    limits: list[int] = []

    def refuses(number: int, values: tuple[int, int]) -> None:
        if number == resource.RLIMIT_AS:
            raise ValueError("current limit exceeds maximum limit")
        limits.append(number)

    monkeypatch.setattr(child.resource, "setrlimit", refuses)
    assert child.limit(1 << 30, 5) == ["address space"] and len(limits) == 3
