"""What stands in a record of a measurement."""

from __future__ import annotations

import sys

import pytest

from benchmarks.record import command


def test_a_command_names_no_folder_of_the_machine_it_ran_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys, "argv", ["x", "--runs", "/home/me/runs/study", "--output", "benchmarks/results/a.json", "-n", "3"]
    )
    assert (
        command("studies.one")
        == "python -m benchmarks.studies.one --runs study --output benchmarks/results/a.json -n 3"
    )
