"""Presentations: slides in the order they are shown in, what stands on them, and files made to harm their reader."""

from __future__ import annotations

import io
import re
import struct
import zipfile

import pytest
from tool_errors import raises

from reagent.tools.documents.run import read_document

SPACES = "http://schemas.openxmlformats.org"
NAMES = (
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
    return f"<p:{element} {NAMES} {about}><p:cSld><p:spTree>{tree}</p:spTree></p:cSld></p:{element}>"


def related(*entries: tuple[str, str, str]) -> str:
    """The part that says what another part's ids stand for: (id, kind, target)."""
    form = f'<Relationship Id="{{}}" Type="{SPACES}/officeDocument/2006/relationships/{{}}" Target="{{}}"/>'
    listed = "".join(form.format(*entry) for entry in entries)
    return f'<Relationships xmlns="{SPACES}/package/2006/relationships">{listed}</Relationships>'


def zipped(members: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return out.getvalue()


def pptx(slides: dict[str, str], order: list[str], others: dict[str, str] | None = None) -> bytes:
    """Slides by file name, shown in this order, and further members."""
    ids = "".join(f'<p:sldId id="{256 + i}" r:id="{name}"/>' for i, name in enumerate(order))
    members = {
        "presentation.xml": f"<p:presentation {NAMES}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>",
        "_rels/presentation.xml.rels": related(*((name, "slide", f"slides/{name}.xml") for name in slides)),
        **{f"slides/{name}.xml": text for name, text in slides.items()},
    }
    return zipped({f"ppt/{name}": text for name, text in (members | (others or {})).items()})


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
    bomb = f'<!DOCTYPE d [<!ENTITY e0 "ha">{laughs}]><p:sld {NAMES}>&e9;</p:sld>'
    cases = {
        "not a zip archive": b"no archive",
        r"no 'ppt/presentation\.xml' in the archive$": zipped({"word/document.xml": "<x/>"}),
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
    usual = pptx({"s": slide(shape("Rivers"))}, ["s"]) if suffix == "pptx" else zipped({"word/document.xml": body})
    with zipfile.ZipFile(io.BytesIO(usual)) as archive:
        members = {name: archive.read(name).decode() for name in archive.namelist()}
    strict = {
        name: text.replace(SPACES, "http://purl.oclc.org/ooxml").replace("/2006/", "/")
        for name, text in members.items()
    }
    content = read_document(zipped(strict), suffix).text
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
    content = read_document(zipped(strict), "xlsx").text
    assert "hello,3" in content and content == read_document(buffer.getvalue(), "xlsx").text
    members["xl/workbook.xml"] = re.sub("<sheet .*?/>", "", members["xl/workbook.xml"])
    with raises("unreadable", match="no sheets that can be read"):
        read_document(zipped(members), "xlsx")


def test_where_tabs_stop_is_no_text() -> None:
    stops = '<a:pPr><a:tabLst><a:tab pos="1"/><a:tab pos="2"/></a:tabLst></a:pPr>'
    xml = slide(shape("Rivers").replace("<a:p>", f"<a:p>{stops}"))
    assert read_document(pptx({"s": xml}, ["s"]), "pptx").text == "--- slide 1 of 1 ---\nRivers\n"
    run = "<w:r><w:t>long</w:t><w:tab/><w:t>9</w:t></w:r>"
    body = f"<w:body><w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr>{run}</w:p></w:body>"
    word = f'<w:document xmlns:w="{SPACES}/wordprocessingml/2006/main">{body}</w:document>'
    assert read_document(zipped({"word/document.xml": word}), "docx").text == "long\t9\n"


def test_a_file_of_old_office_says_what_to_do() -> None:
    old = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(100)
    with raises("unreadable", match=r"a \.xls file is of Office before 2007 .* convert it to \.xlsx"):
        read_document(old, "xls")
    assert read_document(b"town\tpeople\n", "xls").text == "town\tpeople\n"  # text that a program called so
