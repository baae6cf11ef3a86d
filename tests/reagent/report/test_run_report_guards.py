"""The training report on guarded runs: what fired and when, and success beside the judge's score."""

from __future__ import annotations

import json
from pathlib import Path

from report_runs import EVIL, Page, make_run, write_rows

from reagent.report import read_runs, write_page
from reagent.report.curves import draw


def guarded(folder: Path, text: str = "the score moved, success did not") -> Path:
    """A run whose evaluations were judged, and that a guard stopped."""
    run = make_run(folder, mode="r")
    means = [{"value": v, "low": None, "high": None} for v in (0.3, 0.7, 0.2)]
    rows = [
        {"update": n, "episodes": 64 * (n + 1), "success": means[0], "score": means[1], "auditor": means[2]}
        for n in (-1, 2)
    ]
    write_rows(run / "eval.jsonl", rows)
    write_rows(run / "guards.jsonl", [
        {"update": -1, "episodes": 0, "guard": "auditor", "action": "warn", "text": "they part ways"},
        {"update": 1, "episodes": 128, "guard": "length", "action": "warn", "text": "longer"},
        {"update": 2, "episodes": 192, "guard": "drift", "action": "stop", "text": text},
    ])  # fmt: skip
    return run


def test_success_stands_beside_score_and_guards_that_fired_are_marked(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_page(page, read_runs([guarded(tmp_path / "gamed"), make_run(tmp_path / "plain", mode="r")]))
    parsed = Page(page)
    assert parsed.tables["Guards"] == [
        ["run", "guard", "it", "after update", "what it saw"],
        ["gamed", "auditor", "warned", "before the first", "they part ways"],
        ["gamed", "length", "warned", "1", "longer"],
        ["gamed", "drift", "stopped the run", "2", "the score moved, success did not"],
    ]
    assert "Success beside the judge's score" in parsed.text and "a judge being gamed" in parsed.text
    svg = next(p.svg for p in draw(read_runs([tmp_path / "gamed"])) if p.title.startswith("Success beside"))
    plain = next(p.svg for p in draw(read_runs([tmp_path / "gamed"])) if p.title == "Success")
    assert svg.count('stroke-opacity="0.55"') == 3 and plain.count('stroke-opacity="0.55"') == 0  # an upright line each


def test_without_judged_evaluations_success_stands_beside_scores_of_one_calibration(tmp_path: Path) -> None:
    """Under feedback.recalibrate `feedback/score` is of another map after each refit."""
    drawn = []
    for name, paid, own in (("refit", 0.9, 0.5), ("own", 0.5, None)):
        run = guarded(tmp_path / name)
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        more = {} if own is None else {"feedback/own_score": own}
        write_rows(run / "metrics.jsonl", [row | {"feedback/score": paid} | more for row in rows])
        rows = [json.loads(line) for line in (run / "eval.jsonl").read_text().splitlines()]
        write_rows(run / "eval.jsonl", [{k: v for k, v in row.items() if k != "score"} for row in rows])
        drawn.append(next(p.svg for p in draw(read_runs([run])) if p.title.startswith("Success beside")))
    assert drawn[0] == drawn[1]


def test_runs_without_guards_have_no_such_drawing(tmp_path: Path, run: Path) -> None:
    page = tmp_path / "page.html"
    write_page(page, read_runs([run]))
    parsed = Page(page)
    assert "Guards" not in parsed.tables and "Success beside" not in parsed.text


def test_what_a_guard_saw_is_text(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_page(page, read_runs([guarded(tmp_path / "gamed", EVIL)]))
    assert "<script" not in page.read_text() and "49" not in Page(page).tables["Guards"][3][4]
