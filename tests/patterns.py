"""Finds every regular expression of a package in its source, and makes the texts on which one that backtracks takes for ever."""

from __future__ import annotations

import ast
import builtins
import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

METHODS = ("search", "match", "fullmatch", "sub", "subn", "findall", "finditer", "split")
ANY_USE = frozenset({"search", "fullmatch", "sub"})
"""What is tried of a pattern that no name leads to its uses."""
_parser = importlib.import_module("re._parser")


@dataclass
class Found:
    """A pattern, where it stands, and the methods that the source calls on it."""

    where: str
    pattern: re.Pattern[Any]
    uses: set[str] = field(default_factory=set)

    def run(self, text: str) -> None:
        """Do on a text what the source does with the pattern."""
        given = text.encode() if isinstance(self.pattern.pattern, bytes) else text
        for use in sorted(self.uses):
            if use == "finditer":
                for _ in self.pattern.finditer(given):
                    pass
            elif use in ("sub", "subn"):
                self.pattern.sub(given[:0], given)
            else:
                getattr(self.pattern, use)(given)


def patterns_of(roots: Mapping[str, Path], samples: Mapping[str, Sequence[str]]) -> tuple[list[Found], list[str]]:
    """(each distinct pattern of some packages, the places whose pattern is made of what only a call knows and has no sample).

    Nothing of the packages is imported: a pattern's text is evaluated from the assignments that it names.

    Args:
        roots: package → its folder. samples: `module:function` → patterns as they are made there.
    """
    found: dict[tuple[Any, int], Found] = {}
    unknown: list[str] = []
    sources = {
        ".".join([package, *path.relative_to(root).with_suffix("").parts]).removesuffix(".__init__"): path.read_text(
            "utf-8"
        )
        for package, root in roots.items()
        for path in sorted(root.rglob("*.py"))
    }
    trees = {module: ast.parse(text) for module, text in sources.items()}
    names = _Names.of(trees)
    said = _uses(trees)

    def add(where: str, pattern: re.Pattern[Any], uses: set[str]) -> None:
        found.setdefault((pattern.pattern, pattern.flags), Found(where, pattern)).uses.update(uses or ANY_USE)

    for module, tree in trees.items():
        for statement in tree.body if "import re\n" in sources[module] else ():
            if isinstance(statement, ast.Assign | ast.AnnAssign) and any(map(_is_re, ast.walk(statement))):
                for name in _bound(statement):
                    value = names[module][name]
                    for pattern in _held(value):
                        add(f"{module}.{name}", pattern, said.get((module, name), set()) if value is pattern else set())
            else:
                for scope, call in _scoped(statement, _named(statement, "")):
                    if not _is_re(call):
                        continue
                    where = f"{module}:{scope}"
                    patterns = _compiled(call, names[module]) or [re.compile(text) for text in samples.get(where, ())]
                    for pattern in patterns:
                        add(f"{where}:{call.lineno}", pattern, {call.func.attr} - {"compile"})
                    unknown += [] if patterns else [f"{where}:{call.lineno}"]
    return list(found.values()), unknown


class _Names(dict[str, Any]):
    """The names of one module, each evaluated once it is asked for."""

    def __init__(self, tree: ast.Module, others: dict[str, _Names]) -> None:
        super().__init__()
        self.others = others
        self.bound = {name: node for node in tree.body for name in _bound(node)}

    @classmethod
    def of(cls, trees: Mapping[str, ast.Module]) -> dict[str, _Names]:
        """Of each module; they know one another."""
        others: dict[str, _Names] = {}
        others.update({module: cls(tree, others) for module, tree in trees.items()})
        return others

    def __missing__(self, name: str) -> Any:
        node = self.bound[name]
        if isinstance(node, ast.ImportFrom):
            alias = next(a for a in node.names if (a.asname or a.name) == name)
            home = self.others.get(node.module or "")
            self[name] = (
                getattr(importlib.import_module(node.module or ""), alias.name) if home is None else home[alias.name]
            )
        else:
            exec(compile(ast.Module([node], []), "<module>", "exec"), self)  # noqa: S102 - this repository's own
        return self[name]


def _bound(node: ast.stmt) -> list[str]:
    """The names that a statement binds."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]


BLANKS = (" ", "\n", " \n", "\t \r\n")


def whole_texts(pattern: re.Pattern[Any], size: int) -> Iterator[str]:
    """Blanks, line breaks, mixes of both, and all that the pattern repeats and chooses between in turn, with and without blanks."""
    own = list(dict.fromkeys(_pumps(pattern)))
    for pump in (*BLANKS, "".join(own), " ".join(own), "\n".join(own)):
        yield (pump * (size // max(len(pump), 1) + 1))[:size]


def texts_for(pattern: re.Pattern[Any], size: int) -> Iterator[str]:
    """What the pattern itself repeats, begins with and chooses between, each alone to `size`."""
    for pump in dict.fromkeys(_pumps(pattern)):
        yield (pump * (size // len(pump) + 1))[:size]
    for head, pump in dict.fromkeys(_headed(pattern)):
        yield head + (pump * (size // len(pump) + 1))[: size - len(head)]


def _pumps(pattern: re.Pattern[Any]) -> Iterator[str]:
    """Examples of the whole pattern, of each part that repeats, and of each alternative; each also before a blank and a line break."""
    tree = _tree(pattern)
    seen = [_example(tree), *(text for text in _parts(tree) if text)]
    for text in seen:
        if text:
            yield from (text, text + " ")


def _headed(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str]]:
    """(what stands before a part that repeats, that part): the head, then the pump."""
    tree = _tree(pattern)
    return ((head, body) for head, body in _repeats(tree, "") if body and head)


def _tree(pattern: re.Pattern[Any]) -> Any:
    text = pattern.pattern.decode("latin-1") if isinstance(pattern.pattern, bytes) else pattern.pattern
    return _parser.parse(text, pattern.flags & ~(re.UNICODE | re.ASCII | re.LOCALE))


def _inside(op: Any, value: Any) -> list[Any]:
    """The sequences within one node of a parsed pattern."""
    name = str(op)
    if name == "BRANCH":
        return list(value[1])
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return [value[2]]
    if name == "SUBPATTERN":
        return [value[3]]
    if name == "ATOMIC_GROUP":
        return [value]
    if name in ("ASSERT", "ASSERT_NOT"):
        return [value[1]]
    if name == "GROUPREF_EXISTS":
        return [part for part in value[1:] if part is not None]
    return []


def _example(sequence: Any) -> str:
    """A text that the sequence matches, assertions left aside."""
    said = ""
    for op, value in sequence:
        name = str(op)
        if name == "LITERAL":
            said += chr(value)
        elif name == "NOT_LITERAL":
            said += "b" if value == ord("a") else "a"
        elif name == "ANY":
            said += "a"
        elif name == "IN":
            said += _member(value)
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            said += _example(value[2]) * max(1, min(value[0], 20))
        elif name in ("BRANCH", "SUBPATTERN", "ATOMIC_GROUP"):
            inside = _inside(op, value)
            said += _example(inside[0]) if inside else ""
    return said


_CATEGORIES = {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "a", "CATEGORY_NOT_WORD": "-"}


def _member(members: Any) -> str:
    """A character of a set."""
    if str(members[0][0]) == "NEGATE":
        refused = re.compile(_set_source(members[1:]))
        return next(c for c in "a 1-\n%é" if not refused.match(c))
    name, value = str(members[0][0]), members[0][1]
    if name == "LITERAL":
        return chr(value)
    if name == "RANGE":
        return chr(value[0])
    return _CATEGORIES.get(str(value), "x")


def _set_source(members: Any) -> str:
    """The set that parsed members came from."""
    source = ""
    for name, value in members:
        if str(name) == "LITERAL":
            source += re.escape(chr(value))
        elif str(name) == "RANGE":
            source += f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
        else:
            kind = str(value).removeprefix("CATEGORY_")
            letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[kind.removeprefix("NOT_")]
            source += "\\" + (letter.upper() if kind.startswith("NOT_") else letter)
    return f"[{source}]"


def _parts(sequence: Any) -> Iterator[str]:
    """Examples of what a pattern repeats and chooses between, at every depth; of a repeated set each member, up to eight."""
    for op, value in sequence:
        name = str(op)
        inside = _inside(op, value)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") or name == "BRANCH":
            for part in inside:
                yield _example(part)
                if len(part) == 1 and str(part[0][0]) == "IN":
                    yield from [_member([one]) for one in part[0][1] if str(one[0]) != "NEGATE"][:8]
        for part in inside:
            yield from _parts(part)


def _repeats(sequence: Any, before: str) -> Iterator[tuple[str, str]]:
    """(an example of what stands before a repeated part, an example of that part)."""
    head = before
    for op, value in sequence:
        if str(op) in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            yield head, _example(value[2])
        for part in _inside(op, value):
            yield from _repeats(part, head)
        head += _example([(op, value)])


def _is_re(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr in (*METHODS, "compile")
    )


def _named(node: ast.AST, scope: str) -> str:
    """The scope within a node: functions by their names, without classes."""
    return f"{scope}.{node.name}".lstrip(".") if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else scope


def _scoped(node: ast.AST, scope: str) -> Iterator[tuple[str, Any]]:
    """(the function it stands in, the node) of every node below."""
    for child in ast.iter_child_nodes(node):
        yield scope, child
        yield from _scoped(child, _named(child, scope))


def _held(value: object, depth: int = 3) -> Iterator[re.Pattern[Any]]:
    """The patterns of a value, also within tuples, lists, sets and dicts."""
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, tuple | list | set | frozenset | Mapping):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _held(one, depth - 1)


def _uses(trees: Mapping[str, ast.Module]) -> dict[tuple[str, str], set[str]]:
    """(module, name) → methods of patterns that are called on that name, there or where it is imported."""
    found: dict[tuple[str, str], set[str]] = {}
    for module, tree in trees.items():
        origin = {
            alias.asname or alias.name: (node.module or "", alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in METHODS:
                if isinstance(node.value, ast.Name):
                    found.setdefault(origin.get(node.value.id, (module, node.value.id)), set()).add(node.attr)
                elif isinstance(node.value, ast.Attribute) and isinstance(node.value.value, ast.Name):
                    home = ".".join(origin.get(node.value.value.id, (module, "")))
                    found.setdefault((home, node.value.attr), set()).add(node.attr)
    return found


_FLAGS_AT = {"sub": 4, "subn": 4, "split": 3, "compile": 1}
"""Which argument the flags are; 2 of the others."""


def _compiled(call: ast.Call, names: _Names) -> list[re.Pattern[Any]]:
    """The pattern of a call whose arguments the module's own names tell; where it escapes what a call alone knows, that is `one, two`."""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    flags = [word.value for word in call.keywords if word.arg == "flags"] + call.args[_FLAGS_AT.get(method, 2) :][:1]
    try:
        text, *how = [_evaluated(node, names) for node in (call.args[0], *flags)]
    except NameError:
        return []
    return [re.compile(text, *how)]


def _evaluated(node: ast.expr, names: _Names) -> Any:
    filled = ast.fix_missing_locations(ast.Expression(_Fill(names).visit(node)))
    return eval(compile(filled, "<pattern>", "eval"), names)  # noqa: S307 - this repository's own


class _Fill(ast.NodeTransformer):
    """Puts a literal in place of `re.escape(x)` where the module does not know x."""

    def __init__(self, names: _Names) -> None:
        self.names = names

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "escape":
            said = {n.id for n in ast.walk(node.args[0]) if isinstance(n, ast.Name)}
            if not all(name in self.names.bound or hasattr(builtins, name) for name in said):
                return ast.copy_location(ast.Constant(re.escape("one, two")), node)
        return self.generic_visit(node)
