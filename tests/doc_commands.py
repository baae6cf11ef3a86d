"""What the shell blocks of the documentation say: read as a shell reads it, checked against the programs' own options, and run."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer
from doc_blocks import ROOT
from typer.testing import CliRunner

TRAIN = {("rrm", "train"), ("reagent", "train"), ("reagent", "eval"), ("reagent", "distil")}
"""Commands whose arguments are overrides of a config."""


class Wrong(AssertionError):
    """A command of the documentation that the programs would refuse."""


@dataclass
class Command:
    """One command."""

    words: list[str]
    env: dict[str, str] = field(default_factory=dict)

    @property
    def program(self) -> tuple[str, ...]:
        """`("rrm", "score")`, `("python", "benchmarks.scale")`, `("pip",)`, …"""
        words = self.words
        if words[:1] == ["python"]:
            return ("python", words[2] if words[1:2] == ["-m"] else words[1])
        if words[:1] in (["rrm"], ["reagent"]):
            return tuple(words[:2])
        return (words[0],)


def parse(text: str) -> list[Command]:
    """A line's commands, at `;` apart: variables before a command, comments and … left out.

    Raises:
        Wrong: a quote is not closed.
    """
    try:
        lexer = shlex.shlex(text, posix=True, punctuation_chars=";")
        lexer.whitespace_split, lexer.commenters = True, ""
        words = [word for word in uncommented(list(lexer)) if word != "…"]
    except ValueError as error:
        raise Wrong(f"{text!r}: {error}") from error
    commands, now = [], Command([])
    for word in [*words, ";"]:
        if set(word) == {";"}:
            commands += [now] if now.words else []
            now = Command([])
        elif not now.words and (match := re.fullmatch(r"([A-Z_]+)=(.*)", word)):
            now.env[match[1]] = match[2]
        else:
            now.words.append(word)
    return commands


def uncommented(words: list[str]) -> list[str]:
    """Words up to the first that begins with #, as in a shell (an address has one in its middle)."""
    return words[: next((k for k, word in enumerate(words) if word.startswith("#")), len(words))]


@functools.cache
def app(name: str) -> typer.Typer:
    """`rrm` or `reagent`, with every command."""
    cli = importlib.import_module(f"{name}.cli")
    made = typer.Typer(
        no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
    )
    made.callback()(cli.options if name == "rrm" else lambda: None)
    for command in cli.COMMANDS:
        made.command(command)(importlib.import_module(f"{name}.cli.{command}_cmd").command)
    if name == "rrm":
        for group in cli.GROUPS:
            made.add_typer(importlib.import_module(f"rrm.cli.{group}_cmd").app, name=group)
    else:
        made.add_typer(importlib.import_module("reagent.cli.lab_cmd").app, name="lab")
    return made


def check(command: Command) -> None:
    """Check that a command is one: its program, its options, and the overrides of its config. Nothing is run.

    Raises:
        Wrong: with the program's own words.
    """
    words, program = command.words, command.program
    if "-m" in words[1:] and words[words.index("-m") + 1] == "reagent":  # accelerate launch … -m reagent train …
        words, program = words[words.index("-m") + 1 :], ("reagent", words[words.index("-m") + 2])
    if program[0] in ("rrm", "reagent"):
        _check_ours(words, program)
    elif program[0] == "python":
        _check_module(command)
    elif program[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        if missing := [word for word in words[1:] if word not in targets]:
            raise Wrong(f"the Makefile has no {', '.join(missing)}")
    elif program[0] == "pip":
        _check_extras(words)


def _check_ours(words: list[str], program: tuple[str, ...]) -> None:
    group: Any = typer.main.get_command(app(words[0]))
    rest = words[1:]
    name = words[0]
    while hasattr(group, "commands"):
        if not rest or rest[0] not in group.commands:
            raise Wrong(f"{name} has no command {rest[0] if rest else ''!r}: {', '.join(group.commands)}")
        group, name, rest = group.commands[rest[0]], f"{name} {rest[0]}", rest[1:]
    options = {opt for p in group.params for opt in (*p.opts, *p.secondary_opts)} | {"--help"}
    for word in rest:
        if (
            word.startswith("-")
            and word != "-"
            and (given := word.partition("=")[0]) not in options
            and not number(word)
        ):
            raise Wrong(f"{name} has no {given}")
    try:
        context = group.make_context(name, list(rest))
    except Exception as error:
        said = getattr(error, "message", str(error))
        if "does not exist" in said:  # a file of the reader's
            return
        raise Wrong(f"{name}: {said}") from error
    if program == ("rrm", "train") and not (context.params.get("config") or context.params.get("own")):
        raise Wrong("rrm train: no --config")
    if program in TRAIN:
        _check_config(program, context.params.get("config"), list(context.params.get("overrides") or []))


def number(word: str) -> bool:
    return re.fullmatch(r"-[\d.]+", word) is not None


def _check_config(program: tuple[str, ...], config: str | None, overrides: list[str]) -> None:
    """The overrides are valid for the config; for a reader's own YAML file, for the shipped one."""
    from reagent.train.config import load_agent_config
    from rrm.config import config_names, load_config
    from rrm.errors import RRMError

    kind = "rrm" if program[0] == "rrm" else "agents"
    name = config if config in config_names(kind) else "lab"
    try:
        (load_config if kind == "rrm" else load_agent_config)(name, overrides)
    except RRMError as error:
        raise Wrong(f"{' '.join(program)}: {error}") from error


def _check_module(command: Command) -> None:
    """A module or script of ours exists, and names every option that it is given."""
    name = command.program[1]
    options = {word.partition("=")[0] for word in command.words[2:] if re.match(r"--?[a-zA-Z]", word) and word != "-m"}
    if name.partition(".")[0] in ("benchmarks", "rrm", "reagent"):
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise Wrong(f"there is no module {name}")
        path = Path(spec.origin)
    elif name.startswith("examples/"):
        path = ROOT / name
        if not path.is_file():
            raise Wrong(f"there is no {name}")
    else:
        return
    source = path.read_text(encoding="utf-8")
    if path.name == "__init__.py":
        source += (path.parent / "__main__.py").read_text(encoding="utf-8")
    for option in options:
        spelled = option.lstrip("-").replace("-", "_")
        if f'"{option}"' not in source and not re.search(rf"\b{spelled}\b\s*[:=]", source):
            raise Wrong(f"{name} has no {option}")


def _check_extras(words: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for word in words:
        for listed in re.findall(r"(?:agent-rrm|\.)\[([\w,-]+)\]", word):
            if unknown := set(listed.split(",")) - set(extras):
                raise Wrong(f"there is no extra {', '.join(sorted(unknown))}")


@dataclass
class Ran:
    """What a command came to."""

    code: int
    said: str


def run(command: Command, folder: Path) -> Ran:
    """Run one command in a folder: ours in this process, scripts and what a shell has beside it."""
    if command.program[0] in ("rrm", "reagent") and not command.env:
        return _run_ours(command, folder)
    words = [sys.executable, *command.words[1:]] if command.program[0] == "python" else command.words
    if command.program[0] in ("rrm", "reagent"):
        words = [sys.executable, "-m", *command.words]
    if command.program[0] == "python" and command.words[1].startswith("examples/"):
        words[1] = str(ROOT / words[1])
    path = os.pathsep.join([*filter(None, [command.env.get("PYTHONPATH")]), str(ROOT), str(ROOT / "agents")])
    env = {**os.environ, **command.env, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=1800)
    return Ran(done.returncode, done.stdout + done.stderr)


def _run_ours(command: Command, folder: Path) -> Ran:
    with within(folder):
        result = CliRunner(env={"COLUMNS": "110"}).invoke(app(command.words[0]), command.words[1:])
    said = result.output
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return Ran(2, f"{said}\n{type(result.exception).__name__}: {result.exception}")
    return Ran(result.exit_code, said)


@contextmanager
def within(folder: Path) -> Iterator[None]:
    """Work in a folder, where modules are found as the command line finds them."""
    before, path = Path.cwd(), list(sys.path)
    os.chdir(folder)
    sys.path.append(str(folder))
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path
