"""The code blocks of README.md and docs/, and what stands before each of them in HTML comments for the tests.

    <!-- not run: WHY -->           needs what a test has not (a GPU, a cluster, the network): only its options are checked
    <!-- heavy: WHY -->             takes minutes: run where RRM_DOCS_HEAVY=1 (make docs-check), else only its options are checked
    <!-- run by: tests/….py -->     that file runs it
    <!-- before: SHELL -->          what the reader is taken to have: run first, in the page's folder ($EXAMPLES holds files to copy)
    <!-- with COMMAND: ARGUMENTS --> added to that command (`reagent train`, `rrm score`, …), to make it small
    <!-- needs a server: WHICH -->  the tests start it; `benchmarks.newcomer`, who has none, leaves the block out
    <!-- file: NAME -->             the block is that file
    <!-- config: KIND -->           the block is a config of that kind (`VALIDATORS` in test_docs.py)

A page may say `<!-- every LANGUAGE block is run by: tests/….py -->` once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LANGUAGES = ("bash", "console", "python", "yaml", "toml", "json", "jsonl", "csv", "text")
NOTES = ("not run", "heavy", "run by", "needs a server", "before", "file", "config")
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```[ ]*$", re.MULTILINE | re.DOTALL
)
COMMENT = re.compile(r"<!--\s*(.*?)\s*-->", re.DOTALL)
EVERY = re.compile(r"<!-- every (\w+) block is run by: (\S+) -->")


@dataclass
class Block:
    """One code block."""

    page: str
    """Its page, from the repository's root."""
    line: int
    language: str
    text: str
    notes: dict[str, str] = field(default_factory=dict)
    extra: dict[str, str] = field(default_factory=dict)
    """Command → arguments that are added to it."""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


class BadNote(ValueError):
    """A comment before a block that is no note; the message has its place."""


def pages() -> list[Path]:
    """README.md and every page of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks_of(path: Path) -> Iterator[Block]:
    """The blocks of a page, in order.

    Raises:
        BadNote: a comment right before a block is none of those above.
    """
    page = path.relative_to(ROOT).as_posix()
    whole = path.read_text(encoding="utf-8")
    every = dict(EVERY.findall(whole))
    for found in FENCE.finditer(whole):
        indent = found["indent"]
        text = "".join(line.removeprefix(indent) for line in found["text"].splitlines(keepends=True))
        block = Block(page, whole.count("\n", 0, found.start()) + 1, found["language"].strip(), text)
        if block.language in every:
            block.notes["run by"] = every[block.language]
        for comment in before(whole[: found.start()]):
            note(block, comment)
        yield block


def before(text: str) -> list[str]:
    """The comments that end a text, with nothing but white space between them."""
    found = []
    while (end := text.rstrip()).endswith("-->"):
        start = end.rindex("<!--")
        match = COMMENT.fullmatch(end[start:])
        if match is None:
            break
        found.append(match[1])
        text = end[:start]
    return [comment for comment in reversed(found) if not EVERY.match(f"<!-- {comment} -->")]


def note(block: Block, comment: str) -> None:
    """Take one comment as a note of a block."""
    name, colon, value = comment.partition(":")
    if not colon or not value.strip():
        raise BadNote(f"{block.place}: <!-- {comment} --> is no note: see {Path(__file__).name}")
    if name.startswith("with "):
        block.extra[name.removeprefix("with ").strip()] = value.strip()
    elif name in NOTES:
        block.notes[name] = value.strip()
    else:
        raise BadNote(f"{block.place}: `{name}` is no note: one of {', '.join(NOTES)}, with COMMAND")


@dataclass
class Line:
    """One command of a shell block, and what the page says that it prints."""

    text: str
    wanted: list[str] = field(default_factory=list)


def lines_of(block: Block) -> list[Line]:
    """The commands of a shell block: lines, continued ones joined, without comments; of a console block those behind `$`."""
    text = re.sub(r"\\\n\s*", " ", block.text)
    found: list[Line] = []
    quoted = ""
    for line in text.splitlines():
        if block.language == "console":
            if line.startswith("$ "):
                found.append(Line(line[2:]))
            elif found:
                found[-1].wanted.append(line)
        else:
            line = line if quoted else re.sub(r"(^|\s)#(\s.*)?$", "", line)
            if not quoted and not line.strip():
                continue
            quoted = f"{quoted}\n{line}" if quoted else line
            if quoted.count("'") % 2 == 0:
                found.append(Line(quoted.strip()))
                quoted = ""
    return found


def idle(block: Block, heavy: bool = False) -> str | None:
    """Why a block is not run, None where it is."""
    if "not run" in block.notes:
        return block.notes["not run"]
    if "run by" in block.notes:
        return f"run by {block.notes['run by']}"
    return None if heavy else block.notes.get("heavy")


if __name__ == "__main__":
    for page in pages():
        for one in blocks_of(page):
            if why := idle(one):
                print(f"{one.place}: {why}")
