"""Which of several checkpoints is gone on from, whatever happened to their files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rrm.checkpoints import MANIFEST, damage, newest_whole, seal
from rrm.errors import RRMError

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
    made = [tmp_path / "checkpoint-20", tmp_path / "checkpoint-40"]
    for folder in made:
        for name, data in FILES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        seal(folder)
    return made


@pytest.mark.parametrize("name", list(FILES))
@pytest.mark.parametrize("how", list(DAMAGES))
def test_a_damaged_file_makes_the_older_one_the_newest_whole(
    two: list[Path], caplog: pytest.LogCaptureFixture, name: str, how: str
) -> None:
    """A missing optimiser or scheduler was replaced by a fresh one without a word (3 of 3), one flipped byte changed the result
    silently (5 of 5), and ten of 37 damages were tracebacks though an older whole checkpoint stood beside."""
    assert newest_whole(two) == two[1]
    DAMAGES[how](two[1] / name)
    caplog.clear()
    assert newest_whole(two) == two[0]
    refused, said = (record.getMessage() for record in caplog.records)
    assert refused.startswith(f"{two[1]} is not used: {name} ") and said == f"continuing from {two[0]}"


@pytest.mark.parametrize("how", list(DAMAGES))
def test_a_damaged_manifest_does_too(two: list[Path], how: str) -> None:
    DAMAGES[how](two[1] / MANIFEST)
    whole = how == "one bit flipped"  # of the newline at its end: it says what it said, or cannot be read
    assert newest_whole(two) in ((two[0], two[1]) if whole else (two[0],))


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
    assert newest_whole(two) is None and "beginning anew" in caplog.text
    assert newest_whole([]) is None and damage(two[0]) is not None
