"""`rrm train` goes on after something happened to its folder: as if nothing had, or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from test_checkpoints import flip
from test_run import tree

from rrm.config import TrainConfig
from rrm.errors import RRMError
from rrm.train.run import train

OFF = {"enabled": False}
WEIGHTS = Path("sft", "model", "model.safetensors")


def config(folder: Path) -> TrainConfig:
    """Three steps, a checkpoint after each, of which two are kept."""
    settings = tree(folder, rl=OFF, calibration=OFF, evaluation=OFF)
    settings["sft"] |= {"save_steps": 1, "mix": {"score": 1}}
    return TrainConfig.model_validate(settings)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(config(folder))
    return folder


@pytest.fixture
def stopped(finished: Path, tmp_path: Path) -> Path:
    """It, as a kill leaves it after its last checkpoint."""
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    for name in ("sft/model", "judge"):
        shutil.rmtree(folder / name)
    (folder / "sft" / "done.json").unlink()
    return folder


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("optimizer.pt", Path.unlink),
        ("scheduler.pt", Path.unlink),
        ("rng_state.pth", Path.unlink),
        ("model.safetensors", flip),
        ("optimizer.pt", flip),
        ("trainer_state.json", lambda path: path.write_text('{"global_')),
    ],
)
def test_a_damaged_checkpoint_changes_nothing(
    finished: Path, stopped: Path, caplog: pytest.LogCaptureFixture, name: str, harm: Callable[[Path], object]
) -> None:
    harm(stopped / "sft" / "checkpoint-3" / name)
    train(config(stopped))
    assert f"checkpoint-3 is not used: {name} " in caplog.text and "continuing from" in caplog.text
    assert (stopped / WEIGHTS).read_bytes() == (finished / WEIGHTS).read_bytes()


def test_weights_of_a_finished_stage_that_are_not_what_was_saved_are_refused(finished: Path, stopped: Path) -> None:
    """The run's judge was made of them."""
    for name in ("model", "done.json"):
        source = finished / "sft" / name
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, stopped / "sft" / name)
    flip(stopped / WEIGHTS)
    with pytest.raises(
        RRMError, match=r"sft/model is not used: model\.safetensors is not what was written.*delete .*done\.json"
    ):
        train(config(stopped))
    (stopped / "sft" / "done.json").unlink()
    train(config(stopped))
    assert (stopped / WEIGHTS).read_bytes() == (finished / WEIGHTS).read_bytes()


@pytest.mark.parametrize("name", ["data.json", "earlier.json", "sft/done.json"])
def test_a_damaged_record_is_named(finished: Path, tmp_path: Path, name: str) -> None:
    """It was a traceback."""
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / name).write_bytes((folder / name).read_bytes()[:-4])
    with pytest.raises(RRMError, match=rf"{name} is damaged .*choose another output_dir"):
        train(config(folder))
