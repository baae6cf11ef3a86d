"""The house keeps its plan: imports go one way, and no modules import each other in a circle. (That rrm names no lab: tests/rrm/test_config.py.)"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = {"rrm": ROOT / "rrm", "reagent": ROOT / "agents" / "reagent"}


def modules() -> dict[str, Path]:
    """Every module of both packages by its dotted name; packages by their own."""
    found = {}
    for package, folder in SOURCES.items():
        for path in folder.rglob("*.py"):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """Modules of ours that a file imports, anywhere in it: at the top, inside functions, for type checking."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else node.module for name in inner}
    return found & known.keys()


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Sets of modules that reach each other (Tarjan's strongly connected components of two or more)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in graph[name]:
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for name in graph:
        if name not in order:
            visit(name)
    return found


def test_no_modules_import_each_other_in_a_circle() -> None:
    known = modules()
    # a package's face only hands names on: who imports the package means one of its modules
    graph = {name: imports(path, known) for name, path in known.items() if path.name != "__init__.py"}
    graph = {name: {other for other in of if other in graph} for name, of in graph.items()}
    assert circles(graph) == []


def test_a_circle_would_be_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [["b", "c"]]


ORDER = {
    "rrm": (
        "config errors moved removed data",
        "readers prompt",
        "engines",
        "judge",
        "train evaluation scoring",
        "serve guard integrations report annotate cli",
    ),
    "reagent": (
        "errors moved removed config_types",
        "env",
        "tools",
        "tasks",
        "rollout algorithms",
        "feedback",
        "lab",
        "train",
        "report integrations cli",
    ),
}
"""Package → its rooms, line by line: a room imports rooms of its own line and of those above it (docs/decisions.md, ADR 18)."""
EXCEPTIONS: tuple[tuple[str, str], ...] = ()
"""(module, imported module) that go the other way."""


def against_the_order(graph: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Imports of a room that stands below in `ORDER`, and those of the other package that `rrm` has."""
    place = {
        f"{top}.{room}": at for top, lines in ORDER.items() for at, line in enumerate(lines) for room in line.split()
    }
    found = set()
    for name, others in graph.items():
        for other in others:
            rooms = [".".join(one.split(".")[:2]) for one in (name, other)]
            tops = [one.partition(".")[0] for one in rooms]
            if tops == ["rrm", "reagent"] or (tops[0] == tops[1] and place[rooms[1]] > place[rooms[0]]):
                found.add((name, other))
    return found


def test_imports_go_one_way() -> None:
    known = modules()
    graph = {
        name: imports(path, known) for name, path in known.items() if name.count(".") and path.name != "__main__.py"
    }
    graph = {name: {other for other in others if other.count(".")} for name, others in graph.items()}
    assert against_the_order(graph) == set(EXCEPTIONS)


def test_an_import_against_the_order_would_be_found() -> None:
    graph = {"rrm.data.text": {"rrm.judge.chat"}, "rrm.judge.chat": {"rrm.data.text"}, "rrm.cli": {"reagent.env.env"}}
    assert against_the_order(graph) == {("rrm.data.text", "rrm.judge.chat"), ("rrm.cli", "reagent.env.env")}
