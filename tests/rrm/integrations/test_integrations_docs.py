"""The examples of docs/integrations.md run as they stand, each where its framework is installed."""

from __future__ import annotations

import importlib.util
import re
import runpy
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "integrations.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
WANTED = {"compute_score": "yaml", "= eval(": "inspect_ai"}
"""What names a block, and what it needs."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The blocks run in one folder: what one leaves there the next may read."""
    return tmp_path_factory.mktemp("docs")


def test_every_block_is_run() -> None:
    assert len(BLOCKS) == len(WANTED)


@pytest.mark.parametrize(("mark", "module"), WANTED.items())
def test_a_block_runs(mark: str, module: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    from reagent.lab.shipped import judge_folder

    (block,) = [block for block in BLOCKS if mark in block]
    path = folder / "block.py"
    # by its folder: the name `lab` is an entry point of the installed distribution
    path.write_text(block.replace('"lab"', repr(str(judge_folder()))), encoding="utf-8")
    monkeypatch.chdir(folder)
    if module == "inspect_ai":  # its mock model counts tokens with a vocabulary from the network
        monkeypatch.setattr("inspect_ai.model._model.count_text_tokens", len)
    made = runpy.run_path(str(path), run_name="__main__")
    assert "log" not in made or made["log"].status == "success"
