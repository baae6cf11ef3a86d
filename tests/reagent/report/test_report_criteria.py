"""The training report says what a run's judge was asked, and from when on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from report_runs import Page, make_run, write_rows

from reagent.report.curves import draw
from reagent.report.page import write_page
from reagent.report.runs import read_runs


def judged(folder: Path, criteria: Any, stage: float | None = None) -> Path:
    """A run whose judge was asked criteria, at last those of a stage."""
    run = make_run(folder, mode="r")
    tree = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(tree | {"feedback": {"mode": "r", "criteria": criteria}}))
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    more = {"feedback/judged": 64.0} | ({} if stage is None else {"feedback/criteria_stage": stage})
    write_rows(run / "metrics.jsonl", [row | more for row in rows])
    rows = [json.loads(line) for line in (run / "eval.jsonl").read_text().splitlines()]
    write_rows(run / "eval.jsonl", [row | {"score": {"value": 0.5}} for row in rows])
    return run


@pytest.mark.parametrize(
    ("criteria", "text"),
    [
        ("tool-use", ", criteria tool-use"),
        ([{"from": 0, "file": "a.yaml"}, {"from": 8, "file": "b.yaml"}], ", criteria a.yaml, from update 8 b.yaml"),
        ([{"from": 0, "file": "<b>a"}], ", criteria <b>a"),
        (None, ""),
        ([3, None], ""),
    ],
)
def test_the_table_says_which_criteria_judged(tmp_path: Path, criteria: Any, text: str) -> None:
    page = tmp_path / "page.html"
    write_page(page, read_runs([judged(tmp_path / "run", criteria)]))
    assert Page(page).row("Runs", 1)["environment"] == f"search, seed 0{text}" and "<b>a" not in page.read_text()


def test_a_drawing_of_scores_says_that_criteria_changed(tmp_path: Path) -> None:
    stages = [{"from": 0, "file": "a.yaml"}, {"from": 2, "file": "b.yaml"}]
    for name, stage, changed in (("first", 0.0, False), ("second", 1.0, True)):
        (panel,) = [p for p in draw(read_runs([judged(tmp_path / name, stages, stage)])) if "beside" in p.title]
        assert ("its judge's score jumps, and guards begin anew" in panel.text) == changed


def test_criteria_of_a_run_that_asked_no_judge_are_not_said(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    tree = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(tree | {"feedback": {"mode": "none", "criteria": "tool-use"}}))
    assert [recorded.criteria for recorded in read_runs([run])] == [None]
