"""Resume from the newest whole checkpoint, whatever happened to the files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from rrm.errors import RRMError
from rrm.train.checkpoints import MANIFEST, damage, full_disk_named, newest_whole, seal

FILES = {"model.safetensors": b"\x01weights", "optimizer.pt": b"\x02moments", "sub/rng.pth": b"\x03state"}


def flip(path: Path) -> None:
    """One bit of the last byte."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "emptied": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "one bit flipped": flip,
}


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    """Two whole checkpoints, the older first."""
    folders = [tmp_path / "checkpoint-20", tmp_path / "checkpoint-40"]
    for folder in folders:
        for name, data in FILES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        seal(folder)
    return folders


@pytest.mark.parametrize("name", list(FILES))
@pytest.mark.parametrize("how", list(DAMAGES))
def test_a_damaged_file_makes_the_older_one_the_newest_whole(
    two: list[Path], caplog: pytest.LogCaptureFixture, name: str, how: str
) -> None:
    assert newest_whole(two) == two[1]
    DAMAGES[how](two[1] / name)
    caplog.clear()
    assert newest_whole(two) == two[0]
    refused, used = (record.getMessage() for record in caplog.records)
    assert refused.startswith(f"{two[1]} is not used: {name} ") and used == f"continuing from {two[0]}"


@pytest.mark.parametrize("how", list(DAMAGES))
def test_a_damaged_manifest_does_too(two: list[Path], how: str) -> None:
    DAMAGES[how](two[1] / MANIFEST)
    harmless = how == "one bit flipped"  # of the newline at its end: it says what it said, or cannot be read
    assert newest_whole(two) in ((two[0], two[1]) if harmless else (two[0],))


def test_without_a_whole_one_a_run_neither_guesses_nor_begins_anew(
    two: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    for folder in two:
        flip(folder / "optimizer.pt")
    with pytest.raises(
        RRMError, match=r"no checkpoint is whole.*checkpoint-40: optimizer.pt .*checkpoint-20: optimizer"
    ):
        newest_whole(two)
    for folder in two:  # as a kill leaves a first one: there is nothing to lose
        (folder / MANIFEST).unlink()
    with pytest.raises(RRMError, match=r"2 checkpoints .* those of an earlier version"):
        newest_whole(two)
    assert newest_whole(two[:1]) is None and "beginning anew" in caplog.text
    assert newest_whole([]) is None and damage(two[0]) is not None


def refuse(path: Path) -> None:
    """As safetensors does, whose file takes the place of another by its name."""
    raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


WRITES: dict[str, Callable[[Path], object]] = {
    "optimizer.pt": lambda path: torch.save({"step": torch.zeros(100_000)}, path),
    "model.safetensors": refuse,
    "trainer_state.json": lambda path: path.write_text("{}" * 100_000),
}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("name", list(WRITES))
def test_a_full_disk_is_said_with_the_files_name(tmp_path: Path, name: str) -> None:
    """`rrm train` said that some disk was full, or gave torch's traceback; `rrm score` names the file."""
    folder = tmp_path / "sft" / "checkpoint-20"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / name).symlink_to("/dev/full")
    message = rf"cannot write .*/{name}: No space left on device; mend that and run the same command to continue"
    with pytest.raises(RRMError, match=message), full_disk_named(tmp_path):
        WRITES[name](folder / name)


def test_other_errors_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="shape"), full_disk_named(tmp_path):
        raise RuntimeError("shape mismatch")
