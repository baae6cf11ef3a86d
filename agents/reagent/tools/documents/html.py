"""A page as text: headings, lists, tables and links in Markdown's manner, without scripts and styles."""

import re
from html.parser import HTMLParser
from urllib.parse import urljoin

_SKIPPED = {"script", "style", "noscript", "template", "svg", "math", "iframe", "object", "canvas", "select"}
_BLOCKS = {
    "address", "article", "aside", "blockquote", "dd", "details", "dialog", "div", "dl", "dt", "fieldset", "figcaption", "figure",
    "footer", "form", "header", "hr", "main", "nav", "ol", "p", "section", "summary", "table", "tbody", "thead", "tr", "ul", "caption",
}  # fmt: skip
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_LEFT_BY_BLOCKS = {"svg", "math", "select"}
"""They hold no blocks, so a block begins after one that was not closed."""


_DECLARED = re.compile(
    rb"<meta\b[^<>]*?\bcharset\s*+=\s*+[\"']?+\s*+([\w.:-]+)|<\?xml\b[^<>]*?\bencoding\s*+=\s*+[\"']([\w.:-]+)",
    re.IGNORECASE | re.ASCII,
)
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)


def declared(page: bytes) -> str | None:
    """The charset that a page's first kilobyte names, where browsers look for it."""
    match = _DECLARED.search(_COMMENT.sub(b"", page[:1024]))
    name = (match[1] or match[2]).decode("ascii").lower() if match else None
    return "utf-8" if name and name.startswith("utf-16") else name  # it was read as ASCII, so it is none


class _Text(HTMLParser):
    """Collects text in pieces; "\\n" and "\\n\\n" are wishes that `html_text` reconciles."""

    def __init__(self, base: str) -> None:
        super().__init__(convert_charrefs=True)
        self.base, self.pieces, self.title = base, [], ""
        self.skipped: str | None = None
        self.depth = self.pre = 0
        self.in_title = False
        self.links: list[tuple[str, int]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title" and not self.title and not self.skipped:
            self.in_title = True
        if tag == "body" or (self.skipped in _LEFT_BY_BLOCKS and (tag in _BLOCKS or tag in _HEADINGS)):
            self.skipped, self.depth = None, 0
        if self.skipped:
            self.depth += tag == self.skipped
            return
        if tag in _SKIPPED:
            self.skipped, self.depth = tag, 1
        elif tag in _HEADINGS:
            self.pieces += ["\n\n", _HEADINGS[tag]]
        elif tag == "li":
            self.pieces += ["\n", "- "]
        elif tag in ("td", "th"):
            self.pieces.append(" | ")
        elif tag == "tr" or tag == "br":
            self.pieces.append("\n")
        elif tag in _BLOCKS:
            self.pieces.append("\n\n")
        elif tag == "pre":
            self.pre += 1
            self.pieces.append("\n\n")
        elif tag == "img":
            alt = dict(attrs).get("alt")
            self.pieces += [f"[image: {alt}]"] if alt else []
        elif tag == "a":
            self.links.append((dict(attrs).get("href") or "", len(self.pieces)))

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self.in_title = False
        if self.skipped:
            self.depth -= tag == self.skipped
            if not self.depth:
                self.skipped = None
        elif tag in _HEADINGS or (tag in _BLOCKS and tag != "tr"):
            self.pieces.append("\n\n")
        elif tag == "pre":
            self.pre = max(self.pre - 1, 0)
            self.pieces.append("\n\n")
        elif tag == "a" and self.links:
            self._link(*self.links.pop())

    def _link(self, href: str, since: int) -> None:
        text = " ".join("".join(self.pieces[since:]).split())
        try:
            url = urljoin(self.base, href.strip())
        except ValueError:
            return
        if text and href and not href.startswith("#") and url.startswith(("http://", "https://")):
            self.pieces[since:] = [f"[{text}]({url})"]

    def handle_data(self, data: str) -> None:
        if self.in_title:
            self.title += data
        elif not self.skipped:
            self.pieces.append(data if self.pre else re.sub(r"\s+", " ", data))


def html_text(page: str, base: str = "") -> str:
    """The text of a page, its title first. `base` completes relative links; without it they are left out."""
    parser = _Text(base)
    parser.feed(page)
    parser.close()
    text = re.sub(r"(?<![ \t\xa0])[ \t\xa0]++\n", "\n", "".join(parser.pieces))
    text = re.sub(r"\n[ \t]+(?=[-#|\n])", "\n", text)
    text = re.sub(r"\n{3,}", "\n\n", re.sub(r" {2,}", " ", text)).strip()
    title = " ".join(parser.title.split())
    return f"{title}\n\n{text}" if title and not text.startswith(f"# {title}") else text
