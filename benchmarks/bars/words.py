"""Words of the code: how much of it is docstrings, and how many variables have names that say nothing.

python -m benchmarks.bars.words rrm/readers agents/reagent      # a line for each package, then the worst files
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.record import ROOT

VAGUE = frozenset(
    [
        "found",
        "said",
        "told",
        "wanted",
        "known",
        "kept",
        "whole",
        "one",
        "part",
        "at",
        "of",
        "kind",
        "asked",
        "made",
        "shown",
        "given",
        "what",
        "read",
        "place",
        "held",
        "seen",
    ]
)
"""Names of variables that say that something was found, not what."""
FIRST_LINE = 100
"""Characters of a docstring's first line."""
QUESTIONS = ("What ", "Whether ", "How ", "Where ", "Which ", "Who ", "Why ")


@dataclass
class Words:
    """Counts of some files."""

    lines: int = 0
    docstring_lines: int = 0
    vague: Counter[str] = field(default_factory=Counter)
    """Bindings by name."""
    long_first_lines: int = 0
    questions: int = 0
    """Docstrings that begin with a question word."""

    def add(self, other: Words) -> None:
        """Count another's too."""
        self.lines += other.lines
        self.docstring_lines += other.docstring_lines
        self.vague += other.vague
        self.long_first_lines += other.long_first_lines
        self.questions += other.questions

    @property
    def docstring_share(self) -> float:
        """Of all lines."""
        return self.docstring_lines / max(1, self.lines)


def words_of(path: Path) -> Words:
    """The counts of a file."""
    text = path.read_text(encoding="utf-8")
    counts = Words(lines=text.count("\n"))
    for node in ast.walk(ast.parse(text)):
        for string in _docstrings(node):
            counts.docstring_lines += (string.end_lineno or string.lineno) - string.lineno + 1
            first = str(string.value).strip().split("\n")[0]
            counts.long_first_lines += len(first) > FIRST_LINE
            counts.questions += first.startswith(QUESTIONS)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE:
            counts.vague[node.id] += 1
        elif isinstance(node, ast.arg) and node.arg in VAGUE:
            counts.vague[node.arg] += 1
    return counts


def _docstrings(node: ast.AST) -> Iterator[ast.Constant]:
    """Strings that stand alone: docstrings, and those below fields and constants."""
    for one in getattr(node, "body", ()) if isinstance(getattr(node, "body", ()), list) else ():
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
            yield one.value


def words_below(folders: Sequence[str]) -> dict[Path, Words]:
    """File → counts, of all Python files below some folders of the repository."""
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return {path: words_of(path) for path in files if "__pycache__" not in path.parts}


def total(files: dict[Path, Words]) -> Words:
    """The counts of all files."""
    summed = Words()
    for counts in files.values():
        summed.add(counts)
    return summed


def main() -> None:
    folders = sys.argv[1:] or ["rrm", "agents/reagent"]
    for folder in folders:
        counts = total(words_below([folder]))
        vague = ", ".join(f"{name} {n}" for name, n in counts.vague.most_common(12))
        print(
            f"{folder}: {counts.lines} lines, docstrings {counts.docstring_share:.1%}, first lines > {FIRST_LINE}: {counts.long_first_lines}, "
            f"beginning with a question word: {counts.questions}, vague variables {counts.vague.total()} ({vague})"
        )
    files = words_below(folders)
    for path in sorted(files, key=lambda p: -files[p].docstring_lines)[:10]:
        print(
            f"  {path.relative_to(ROOT)}: {files[path].docstring_lines} of {files[path].lines} lines, vague {files[path].vague.total()}"
        )


if __name__ == "__main__":
    main()
