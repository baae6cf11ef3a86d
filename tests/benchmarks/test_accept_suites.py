"""The tests that `make accept-N` names are there: a bar must not fail, or pass, for want of its test."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLES = sorted(path.stem for path in (ROOT / "benchmarks").glob("accept_*.py"))


@pytest.mark.parametrize("table", TABLES)
def test_every_named_test_exists(table: str) -> None:
    suites = importlib.import_module(f"benchmarks.{table}").SUITES
    for tests in suites.values():
        for node in tests.split():
            file, _, name = node.partition("::")
            path = ROOT / file
            assert path.exists(), f"{table} names {file}"
            if name:
                functions = {n.name for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef)}
                assert name.partition("[")[0] in functions, f"{table} names {node}"
