"""The examples of the integrations run as a user runs them, each where its framework is installed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from openai_server import completion, serve

from reagent.lab.shipped import judge_folder

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = {
    "verifiers_judge.py": "verifiers",
    "langchain_judge.py": "langchain_core",
    "agentevals_evaluator.py": "agentevals",
    "openenv_judge.py": "openenv",
    "gymnasium_judge.py": "gymnasium",
    "lighteval_metric.py": "lighteval",
}
"""Example → the module it needs."""


def said(example: str, folder: Path, *words: str) -> Any:
    """The last line of an example, as it stands but for the lab judge's folder: its name is an entry point of the installed distribution."""
    path = folder / example
    text = (ROOT / "examples" / example).read_text(encoding="utf-8")
    path.write_text(text.replace('"lab"', repr(str(judge_folder()))), encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "agents")]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(path), *words], env=env, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("example", "module"), EXAMPLES.items())
def test_an_example_runs(example: str, module: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    told = said(example, tmp_path)
    scores = [value for key, value in told.items() if isinstance(value, float)] + list(told.get("scores", ()))
    assert scores and all(0 <= score <= 1 for score in scores), told


def test_arts_example_runs(tmp_path: Path) -> None:
    if importlib.util.find_spec("art") is None:
        pytest.skip("openpipe-art is not installed")
    with serve(lambda *_: completion("<ranking>A > B > C</ranking>")) as server:
        told = said("art_group.py", tmp_path, f"openai:{server.url}#judge")
    assert sorted(told["rewards"]) == [0.0, 0.5, 1.0]
