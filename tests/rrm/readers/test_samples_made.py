"""Sample files are a framework's own: each is named by a script beside it, which says by which versions of which packages it was made."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parent / "samples"
SCRIPTS = sorted(SAMPLES.glob("make_*.py"))


def names(script: Path) -> str:
    """All string constants of a script but its docstring: file names stand whole, or as the parts of a formatted string."""
    tree = ast.parse(script.read_text(encoding="utf-8"))
    said = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return "\n".join(text for text in said if text != ast.get_docstring(tree, clean=False))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_names_its_packages_and_their_versions(script: Path) -> None:
    told = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
    assert re.search(r"pip install [\w-]+==\d+(\.\d+)+", told), script.name


def test_every_sample_is_made_by_a_script() -> None:
    said = "\n".join([*map(names, SCRIPTS), *(path.read_text(encoding="utf-8") for path in SAMPLES.glob("make_*.mjs"))])
    files = [path.name for path in SAMPLES.iterdir() if path.is_file() and path.suffix not in (".py", ".mjs", ".md")]
    assert len(files) >= 15
    for name in files:
        assert re.search(rf"\b{re.escape(name.partition('.')[0])}\b", said), f"no script makes {name}"
