"""BFCL's simulated programs (files, cars, tickets, …): made, called by name, and compared.

They are classes of the package `bfcl_eval`, which is imported only here. Its own checker is not used: it runs calls with `eval`, and
keeps the programs in a table of the process, so that a second attempt begins where the first one ended."""

from __future__ import annotations

import ast
import copy
import importlib
import importlib.util
import inspect
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rrm.errors import ConfigError, MissingExtra

PACKAGE = "bfcl_eval"
INSTALL = "pip install --no-deps bfcl-eval"
"""Without its dependencies: they pin an old numpy, and these programs need none."""
_CONFIG = f"{PACKAGE}.constants.executable_backend_config"
LARGEST = 1e12
LARGEST_POWER = 10_000  # larger numbers would keep the calculator busy for ever
FAILED = "Error during execution: "  # prefix of the result of a call that raised
_POWERS = ("exponent", "precision")
_TYPES = {"dict": "object", "float": "number", "tuple": "array"}


def data_folder() -> Path:
    """The package's data. Raises MissingExtra: it is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra(f"BFCL's data and programs are those of the package bfcl-eval: {INSTALL}")
    return Path(next(iter(spec.submodule_search_locations))) / "data"


@cache
def schemas(program: str) -> tuple[dict[str, Any], ...]:
    """The functions of a program, in OpenAI's form. Raises ConfigError: the package has no such program."""
    files = getattr(importlib.import_module(_CONFIG), "MULTI_TURN_FUNC_DOC_FILE_MAPPING", {})
    if program not in files:
        raise ConfigError(f"bfcl: the installed bfcl-eval has no program {program!r}")
    lines = (data_folder() / "multi_turn_func_doc" / files[program]).read_text(encoding="utf-8").splitlines()
    return tuple(_schema(json.loads(line)) for line in lines if line.strip())


def _schema(doc: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": doc["name"], "description": doc["description"], "parameters": _plain(doc["parameters"])}
    return {"type": "function", "function": function}


def _plain(node: Any) -> Any:
    if isinstance(node, list):
        return [_plain(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _TYPES.get(value, value) if key == "type" and isinstance(value, str) else _plain(value)
        for key, value in node.items()
    }


class Programs:
    """The programs of one question, each in its initial state (`initial`, by name).
    `names`: of their classes; `long_context`: fill them with irrelevant content."""

    def __init__(self, names: Sequence[str], initial: Mapping[str, Any], *, long_context: bool = False) -> None:
        config = importlib.import_module(_CONFIG)
        self.instances: dict[str, Any] = {}
        self.methods: dict[str, Any] = {}
        for name in names:
            module = config.CLASS_FILE_PATH_MAPPING.get(name)
            if module is None:
                raise ConfigError(f"bfcl: the installed bfcl-eval has no program {name!r}")
            instance = getattr(importlib.import_module(module), name)()
            if name not in config.STATELESS_CLASSES:
                instance._load_scenario(copy.deepcopy(initial.get(name, {})), long_context=long_context)
            self.instances[name] = instance
            for method, bound in inspect.getmembers(instance, predicate=inspect.ismethod):
                if not method.startswith("_"):
                    self.methods[method] = bound

    def call(self, name: str, /, *args: Any, **kwargs: Any) -> str:
        """A function's return value as text; for an exception the text that BFCL makes of it."""
        try:
            value = self.methods[name](*args, **kwargs)
            if isinstance(value, str):
                return value
            if not isinstance(value, dict):
                return str(value)
            try:
                return json.dumps(value)
            except TypeError:
                return str(value)
        except Exception as error:  # noqa: BLE001 - the programs raise what they like, and the text is part of the game
            return f"{FAILED}{error}"

    def run(self, written: str) -> str:
        """Run a call of the ground truth, `sort('a.txt')`, with literals. Raises ValueError: anything else."""
        try:
            call = ast.parse(written.strip(), mode="eval").body
            if (
                not isinstance(call, ast.Call)
                or not isinstance(call.func, ast.Name)
                or call.func.id not in self.methods
            ):
                raise ValueError("not a call of one of the programs' functions")
            args = [ast.literal_eval(each) for each in call.args]
            kwargs = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        except (SyntaxError, ValueError) as error:
            raise ValueError(f"bfcl: the ground truth {written!r} cannot be run: {error}") from error
        return self.call(call.func.id, *args, **kwargs)

    def differs_from(self, other: Programs) -> str | None:
        """The first program and public attribute whose value differs from `other`'s; None where all agree."""
        for name, expected in other.instances.items():
            for attribute, value in vars(expected).items():
                if not attribute.startswith("_") and getattr(self.instances[name], attribute) != value:
                    return f"{name}.{attribute}"
        return None


def too_large(arguments: Mapping[str, Any]) -> str | None:
    """The argument whose number is too large to compute with; None without any."""
    return next(
        (key for key, value in arguments.items() if _exceeds(value, LARGEST_POWER if key in _POWERS else LARGEST)), None
    )


def _exceeds(value: Any, bound: float) -> bool:
    if isinstance(value, list):
        return any(_exceeds(each, bound) for each in value)
    return isinstance(value, int | float) and abs(value) > bound


def missing(expected: Sequence[str], actual: Sequence[str]) -> list[str]:
    """The elements of `expected` that are not in `actual`, in any order; each counts once."""
    left, absent = list(actual), []
    for each in expected:
        if each in left:
            left.remove(each)
        else:
            absent.append(each)
    return absent
