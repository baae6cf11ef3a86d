"""`reagent train` and `distil` go on after something happened to a checkpoint or a log: to the bit as if nothing had."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import test_distil_run as distilling
from feedback_lab import same_run, scripted
from trainer_setup import settings

from reagent.train.config import AgentConfig
from reagent.train.distil import distil
from reagent.train.run import train
from rrm.errors import RRMError


def config(base: Path, folder: Path) -> AgentConfig:
    """Three updates, each with a checkpoint, of which two are kept, and an evaluation."""
    return settings(base, folder, eval={"every": 1})


@pytest.fixture(scope="module")
def whole(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole")
    train(config(base, folder))
    return folder


@pytest.fixture
def stopped(whole: Path, tmp_path: Path) -> Path:
    """It, as a kill leaves it before its last evaluation."""
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    shutil.rmtree(folder / "policy")
    lines = (folder / "eval.jsonl").read_text().splitlines(keepends=True)
    (folder / "eval.jsonl").write_text("".join(lines[:-1]))
    return folder


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) * 3 // 4] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("optimizer.safetensors", Path.unlink), ("model.safetensors", flip), ("optimizer.safetensors", flip),
        ("random.safetensors", Path.unlink), ("state.json", lambda path: path.write_text('{"update": 3')),
        ("manifest.json", Path.unlink),
    ],
)  # fmt: skip
def test_a_damaged_checkpoint_changes_nothing(base, whole, stopped, caplog, name, harm) -> None:
    harm(stopped / "checkpoints" / "checkpoint-000003" / name)
    train(config(base, stopped))
    assert "checkpoint-000003 is not used: " in caplog.text
    assert f"continuing from {stopped / 'checkpoints' / 'checkpoint-000002'}" in caplog.text
    same_run(stopped, whole)


@pytest.mark.parametrize("name", ["metrics.jsonl", "eval.jsonl"])
@pytest.mark.parametrize("how", ["emptied", "removed", "cut within a row", "a row lost in the middle"])
def test_logs_that_were_cut_lose_no_row(base, whole, stopped, caplog, name: str, how: str) -> None:
    path = stopped / name
    lines = path.read_bytes().splitlines(keepends=True)
    harms = {
        "emptied": b"",
        "cut within a row": b"".join(lines)[: len(lines[0]) + 30],
        "a row lost in the middle": b"".join(lines[1:]),
    }
    path.unlink() if how == "removed" else path.write_bytes(harms[how])
    train(config(base, stopped))
    assert f"{path} was cut or changed since" in caplog.text
    same_run(stopped, whole)


def test_without_a_whole_checkpoint_a_run_does_not_begin_anew(base, stopped) -> None:
    for path in (stopped / "checkpoints").iterdir():
        flip(path / "optimizer.safetensors")
    before = (stopped / "metrics.jsonl").read_bytes()
    with pytest.raises(RRMError, match="no checkpoint is whole to go on from"):
        train(config(base, stopped))
    assert (stopped / "metrics.jsonl").read_bytes() == before


def test_a_distillation_does_not_lose_what_it_was_before(base, tmp_path) -> None:
    expected = distilling.config(base, tmp_path)
    said = distil(expected, judge=scripted())
    for name in ("metrics.jsonl", "eval.jsonl"):
        rows = (tmp_path / name).read_text().splitlines(keepends=True)
        (tmp_path / name).write_text("".join(rows[1:]))
    assert distil(expected, judge=scripted()) == said
