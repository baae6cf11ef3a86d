"""Whether runs differ by more than noise, and the links to their folders."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from report_runs import Page, make_run, write_rows

from reagent.report import read_runs, write_page
from reagent.report.differences import _of_seeds, arms, differences
from reagent.report.runs import links


def measured(folder: Path, rates: dict[str, float], **config: object) -> Path:
    """A run whose last evaluation has these rates."""
    run = make_run(folder, **config)
    success = {"value": 0.5, "low": None, "high": None}
    write_rows(run / "eval.jsonl", [{"episodes": 192, "tasks": len(rates), "success": success, "by_task": rates}])
    return run


def questions(good: int, total: int = 40, start: int = 0) -> dict[str, float]:
    return {f"q{start + n}": float(n < good) for n in range(total)}


def test_a_large_difference_is_more_than_noise_and_a_small_one_is_within(tmp_path: Path) -> None:
    runs = [
        measured(tmp_path / "plain", questions(10)),
        measured(tmp_path / "better", questions(30), mode="u"),
        measured(tmp_path / "alike", questions(11), mode="r"),
        measured(tmp_path / "worse", questions(0), mode="c"),
    ]
    gaps = differences(read_runs(runs))
    assert [d.says for d in gaps] == ["more than noise: better", "within noise", "more than noise: worse"]
    assert [(d.questions, d.first_success, d.other_success) for d in gaps] == [
        (40, 0.25, 0.75),
        (40, 0.25, 0.275),
        (40, 0.25, 0.0),
    ]
    assert gaps[0].gap.value == 0.5 and gaps[0].gap.low is not None and 0.3 < gaps[0].gap.low < 0.5
    assert gaps[1].gap.low == 0.0  # paired: of the forty only one question differs, and it may not be drawn
    assert differences(read_runs(runs)) == gaps


def test_runs_of_one_setting_are_one_arm_whose_seeds_are_resampled(tmp_path: Path) -> None:
    a = [measured(tmp_path / f"a{s}", questions(good), seed=s) for s, good in enumerate((5, 35))]
    b = [measured(tmp_path / f"b{s}", questions(good), mode="u", seed=s) for s, good in enumerate((35, 5))]
    (difference,) = differences(read_runs([*a, *b]))
    assert (len(difference.first.runs), len(difference.other.runs)) == (2, 2)
    # the seeds, not the questions
    assert difference.gap.value == 0.0 and difference.gap.low is not None and difference.gap.low <= -0.7
    assert [arm.name for arm in arms(read_runs([*a, b[0]]))] == ["a0 and 1 more", "b0"]


@pytest.mark.parametrize("same", [True, False])
def test_two_seeds_that_happen_to_lie_apart_say_nothing(tmp_path: Path, same: bool) -> None:
    """Resampled themselves, two seeds of each side give no other mean than these: every such pair would be more than noise."""
    a = [measured(tmp_path / f"a{s}", questions(good), seed=s) for s, good in enumerate((10, 14))]
    seeds = (0, 1) if same else (2, 3)
    b = [
        measured(tmp_path / f"b{s}", questions(good), mode="u", seed=s) for s, good in zip(seeds, (17, 27), strict=True)
    ]
    (difference,) = differences(read_runs([*a, *b]))
    assert difference.gap.value == pytest.approx(0.25) and difference.says == "within noise"


def test_five_seeds_that_agree_are_believed(tmp_path: Path) -> None:
    a = [measured(tmp_path / f"a{s}", questions(10 + s % 2), seed=s) for s in range(5)]
    b = [measured(tmp_path / f"b{s}", questions(30 - s % 3), mode="u", seed=s) for s in range(5)]
    (difference,) = differences(read_runs([*a, *b]))
    assert difference.says == "more than noise: better"
    (same,) = differences(read_runs([a[0], *b]))  # one seed against five
    assert same.says == "more than noise: better" and (len(same.first.runs), len(same.other.runs)) == (1, 5)


def test_the_standard_error_of_seeds_is_that_of_the_t_test() -> None:
    a, b = np.array([0.1, 0.3, 0.2]), np.array([0.4, 0.5, 0.9])
    assert _of_seeds(a, b, True) == (pytest.approx(np.std([0.3, 0.2, 0.7], ddof=1) / 3**0.5), 2.0)
    error, freedom = _of_seeds(a, b, False)
    assert error == pytest.approx((0.01 / 3 + 0.07 / 3) ** 0.5) and freedom == pytest.approx(
        0.08**2 / (0.01**2 + 0.07**2) * 2
    )
    assert _of_seeds(a[:1], b[:1], True) == _of_seeds(a[:1], b[:1], False) == (0.0, 1.0)


def test_what_cannot_be_compared_is_said_and_has_no_interval(tmp_path: Path) -> None:
    runs = [
        measured(tmp_path / "a", questions(3, 20)),
        measured(tmp_path / "other", questions(3, 20, start=100), mode="u"),
        measured(tmp_path / "few", questions(3, 5), mode="r"),
        make_run(tmp_path / "unsaid", mode="c"),
    ]
    gaps = differences(read_runs(runs))
    assert [d.says for d in gaps] == [
        "measured on no question in common: not comparable",
        "too few common questions (5) to say",
    ]
    assert gaps[0].gap.value is None and gaps[1].gap.low is None
    assert differences(read_runs(runs[:1])) == [] and differences(read_runs(runs[3:])) == []


def test_the_page_says_it_and_links_the_folders(tmp_path: Path) -> None:
    runs = [
        measured(tmp_path / "runs" / "plain", questions(10)),
        measured(tmp_path / "runs" / "u", questions(30), mode="u"),
    ]
    (runs[0] / "transcripts.html").write_text("a page")
    out = tmp_path / "pages" / "report.html"
    out.parent.mkdir()
    write_page(out, read_runs(runs))
    page = Page(out)
    row = page.row("Differences", 1)
    assert (row["run"], row["against"], row["common questions"], row["says"]) == (
        "u", "plain", "40", "more than noise: better",
    )  # fmt: skip
    assert row["difference"].startswith("0.500 [0.3") and "another seed would differ" in page.text
    addresses = [str(a["href"]) for tag, a in page.tags if tag == "a" and str(a["href"]).startswith("./")]
    assert addresses[:2] == ["./../runs/plain", "./../runs/plain/config.yaml"]
    assert "./../runs/plain/transcripts.html" in addresses
    assert all((out.parent / address).exists() for address in addresses)


@pytest.mark.parametrize("name", ["javascript:alert(1)", '" onclick="x', "a b%2F#?", "\udcff"])
def test_no_folders_name_makes_another_address(tmp_path: Path, name: str) -> None:
    run = read_runs([measured(tmp_path / name, questions(3))])[0]
    (folder, *_) = links(run, tmp_path / "report.html")
    assert folder[1].startswith("./") and not set('"<>#?: ') & set(folder[1])
    assert json.dumps(folder[1]).isascii()
