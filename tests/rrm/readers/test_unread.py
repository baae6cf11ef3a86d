"""What a reading must not lose without a word: folders, ids, outcomes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers import read

MESSAGES = [{"role": "user", "content": "What is 2+2?"}, {"role": "assistant", "content": "4"}]


def rows(path: Path, *more: dict[str, Any]) -> list[Trajectory]:
    """What is read of rows with these fields."""
    path.write_text("".join(json.dumps({"messages": MESSAGES, **fields}) + "\n" for fields in more))
    return list(read(path))


def test_a_subfolder_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was five rows fewer, and no word."""
    closed, scandir = tmp_path / "closed", os.scandir
    for folder in (tmp_path, closed):
        folder.mkdir(exist_ok=True)
        rows(folder / "runs.jsonl", {}, {})

    def refusing(path: Any) -> Any:  # root may read everything
        if Path(path) == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(ReadError, match=r"closed: this folder cannot be read: Permission denied"):
        list(read(tmp_path))
    errors: list[ReadError] = []
    assert len(list(read(tmp_path, on_error=errors.append))) == 2 and [e.path for e in errors] == [str(closed)]


def test_ids_of_every_type_are_kept_as_text(tmp_path: Path) -> None:
    """Of true, 1.5 and a list nothing was left: the rows were called by their places."""
    given: list[Any] = ["a", 7, True, 1.5, ["x", 2], 0]
    found = rows(tmp_path / "runs.jsonl", *({"id": id} for id in given))
    assert [t.id for t in found] == ["a", "7", "true", "1.5", '["x", 2]', "0"]
    assert [t.id for t in rows(tmp_path / "runs.jsonl", {"id": ""}, {"id": None}, {"id": []})] == [
        "runs:1",
        "runs:2",
        "runs:3",
    ]


@pytest.mark.parametrize("field", ["outcome", "reward", "score", "success"])
def test_numbers_that_are_no_outcomes_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, field: str
) -> None:
    """ "0.5", 2 and NaN were no outcome, and nothing said so."""
    found = rows(
        tmp_path / "runs.jsonl",
        {field: "0.5"},
        {field: 2},
        {field: float("nan")},
        {field: True if field == "success" else 1},
    )
    assert [t.outcome for t in found] == [None, None, None, 1.0]
    assert (
        f"`{field}` holds a number that is no label in [0, 1] in 3 runs, which have no outcome; the first: '0.5' of runs:1"
        in caplog.text
    )


def test_words_and_choices_are_no_numbers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows(tmp_path / "runs.jsonl", {"correct": "B"}, {"correct": 3, "options": ["a"]}, {"outcome": "unknown"})
    assert "no label" not in caplog.text
