"""Presentations (their XML) as text, with tables, names of pictures and the speaker's notes."""

import posixpath
import zipfile
from collections.abc import Collection, Iterator
from xml.etree import ElementTree

from .archive import Problem, unpacked
from .office import FALLBACK, bounded, numbered, parsed, runs

_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_MAIN = "ppt/presentation.xml"
_TITLES = ("title", "ctrTitle")
_ON_EACH = ("sldNum",)
"""Placeholders without content: a slide's own number. Notes repeat more of the page."""
_ON_NOTES = ("sldNum", "sldImg", "hdr", "ftr", "dt")


def presentation(data: bytes, slides: str) -> Iterator[str]:
    """The text of each slide (or of `3`, `3-5`), without charts, drawn diagrams and comments.
    Raises Problem: it cannot be read, or has no such slides."""
    with bounded(data) as archive:
        listed = parsed(unpacked(archive, _MAIN)).iterfind(f"{_P}sldIdLst/{_P}sldId")
        parts = {name: target for name, _, target in _related(archive, _MAIN)}
        names = [parts.get(entry.get(f"{_R}id", ""), "") for entry in listed]
        if not names:
            raise Problem("it has no slides")
        for number in numbered(slides, len(names), "slides"):
            if not (name := names[number - 1]):
                raise Problem(f"slide {number} of {len(names)} is not in the file")
            root = parsed(unpacked(archive, name))
            hidden = ", hidden" if root.get("show") in ("0", "false") else ""
            yield f"--- slide {number} of {len(names)}{hidden} ---\n"
            yield from _shapes(root, _ON_EACH)
            for _, relation, target in _related(archive, name):
                if relation == "notesSlide":
                    notes = "".join(_shapes(parsed(unpacked(archive, target)), _ON_NOTES))
                    yield f"Notes: {notes}" if notes else ""


def _related(archive: zipfile.ZipFile, name: str) -> list[tuple[str, str, str]]:
    """(id, type, member's name) of the parts that a part refers to."""
    folder, base = posixpath.split(name)
    try:
        archive.getinfo(rels := f"{folder}/_rels/{base}.rels")
    except KeyError:
        return []
    related = []
    for entry in ElementTree.fromstring(unpacked(archive, rels)):
        if entry.get("TargetMode") != "External":
            target = posixpath.normpath(posixpath.join("/", folder, entry.get("Target", ""))).lstrip("/")
            related.append((entry.get("Id", ""), entry.get("Type", "").rpartition("/")[2], target))
    return related


def _shapes(parent: ElementTree.Element, left_out: Collection[str]) -> Iterator[str]:
    """The shapes' text, a line a paragraph or a row. `left_out`: types of placeholders."""
    for shape in parent:
        if shape.tag == f"{_P}sp":
            holder = shape.find(f"{_P}nvSpPr/{_P}nvPr/{_P}ph")
            holder_type = holder.get("type", "") if holder is not None else ""
            if holder_type not in left_out:
                lines = [text for text in map(_words, shape.iterfind(f"{_P}txBody/{_A}p")) if text.strip()]
                yield "".join(f"{'# ' if holder_type in _TITLES else ''}{text}\n" for text in lines)
        elif shape.tag == f"{_A}tbl":
            for row in shape.iterfind(f"{_A}tr"):
                cells = (" ".join(map(_words, cell.iterfind(f"{_A}txBody/{_A}p"))) for cell in row.iterfind(f"{_A}tc"))
                yield " | ".join(" ".join(cell.split()) for cell in cells) + "\n"
        elif shape.tag == f"{_P}pic":
            named = shape.find(f"{_P}nvPicPr/{_P}cNvPr")
            if named is not None and (description := named.get("descr")):
                yield f"[image: {description}]\n"
        elif shape.tag != FALLBACK:  # the same again, for older readers
            yield from _shapes(shape, left_out)


def _words(paragraph: ElementTree.Element) -> str:
    return "".join(runs(paragraph, _A))
