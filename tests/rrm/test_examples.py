"""The short scripts of examples/ that put a judge into other tools."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_measure_is_a_metric_of_evaluate() -> None:
    pytest.importorskip("evaluate", reason="evaluate is not installed")
    metric = load("evaluate_metric").AUROC(keep_in_memory=True)
    assert metric.compute(predictions=[0.8, 0.4, 0.4, 0.2], references=[1, 0.5, 0.49, 0]) == {"auroc": 0.875}
