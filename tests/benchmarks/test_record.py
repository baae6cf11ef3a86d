"""What stands in a record of a measurement."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.record import command, write


def test_a_command_names_no_folder_of_the_machine_it_ran_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys, "argv", ["x", "--runs", "/home/me/runs/study", "--output", "benchmarks/results/a.json", "-n", "3"]
    )
    assert (
        command("studies.one")
        == "python -m benchmarks.studies.one --runs study --output benchmarks/results/a.json -n 3"
    )


def test_a_record_reads_back_and_keeps_plain_values_on_one_line(tmp_path: Path) -> None:
    found = {"command": "c", "by_seed": [0.1, None], "arms": {"a, [b]": {"value": 1e-7, "low": None}, "none": []}, "rows": [[1, 2], {3: "é"}], "t": (True,)}  # fmt: skip
    path = tmp_path / "results" / "one.json"
    write(path, found)
    text = path.read_text()
    assert json.loads(text) == json.loads(json.dumps(found))
    assert ' "by_seed": [0.1, null],\n' in text and '\n  "a, [b]": {"value": 1e-07, "low": null},\n' in text
    assert len(text.splitlines()) == 13
