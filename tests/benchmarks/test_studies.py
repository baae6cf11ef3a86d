"""How the studies of many training runs pool their seeds, against hand computations."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path

import numpy as np
import pytest

from benchmarks.studies.feedback_modes import difference, episodes_until, evaluation_file, sooner
from benchmarks.studies.study import begin, two_way_interval


@pytest.mark.parametrize(("means", "quantile"), [([0.5, 0.58, 0.42, 0.55], 3.182), ([0.7, 0.6, 0.8], 4.303)])
def test_few_seeds_have_students_interval(means, quantile) -> None:
    """Where tasks do not differ, all that varies is the seeds: mean ± t · s / √n."""
    found = two_way_interval(np.repeat(np.array(means)[:, None], 50, axis=1))
    half = quantile * statistics.stdev(means) / math.sqrt(len(means))
    assert found["value"] == pytest.approx(statistics.fmean(means))
    # of three seeds a bootstrap has 27 draws: its quantiles are coarse
    assert (found["high"] - found["low"]) / 2 == pytest.approx(half, rel=0.15)


def test_one_seed_has_an_interval_over_tasks_alone() -> None:
    table = np.array([[1.0] * 60 + [0.0] * 40])
    found = two_way_interval(table)
    half = 1.96 * math.sqrt(0.6 * 0.4 / 100)
    assert found["value"] == 0.6 and (found["high"] - found["low"]) / 2 == pytest.approx(half, rel=0.1)


def test_episodes_until_a_success_lie_between_the_points() -> None:
    curve = {"episodes": [100.0, 200.0, 300.0], "success": [0.5, 0.5, 0.7]}
    assert episodes_until(curve, 0.4, 0.3) == pytest.approx(50)
    assert episodes_until(curve, 0.6, 0.3) == pytest.approx(250)
    assert episodes_until(curve, 0.5, 0.5) == 0
    assert episodes_until(curve, 0.8, 0.3) is None


def made(runs: Path, arm: str, seed: int, curve: list[float], right: list[int]) -> None:
    folder = runs / arm / f"seed{seed}"
    folder.mkdir(parents=True)
    by_task = {f"search-eval-0-{n}": float(r) for n, r in enumerate(right)}
    (folder / "evaluation.json").write_text(json.dumps({"by_task": by_task, "success_by_hops": {}}))
    points = [{"episodes": 100 * (n + 1), "success": {"value": v}} for n, v in enumerate(curve)]
    (folder / "eval.jsonl").write_text("".join(json.dumps(p) + "\n" for p in points))


def test_arms_are_compared_on_the_seeds_both_have(tmp_path: Path) -> None:
    made(tmp_path, "none", 0, [0.4, 0.6], [1, 0, 0, 0])
    made(tmp_path, "none", 1, [0.9, 0.9], [1, 1, 1, 1])
    made(tmp_path, "u", 0, [0.6, 0.6], [1, 1, 0, 0])
    found = difference(tmp_path, "u", "none", "first")
    assert found is not None and (found["value"], found["seeds"], found["each"]) == (0.25, 1, [0.25])
    soon = sooner(tmp_path, "u", 0.2)
    assert soon is not None and soon["seeds"] == 1
    assert soon["last"] == pytest.approx({"success": 0.6, "episodes": 100, "none": 200, "ratio": 0.5})
    same = sooner(tmp_path, "none", 0.2)
    assert (
        same is not None and same["last"]["ratio"] == 1
    )  # an arm is as soon as itself, wherever its curve first got there
    assert difference(tmp_path, "c", "none", "first") is None and sooner(tmp_path, "c", 0.2) is None


def test_a_folder_holds_one_study(tmp_path: Path) -> None:
    begin(tmp_path / "runs", overrides=[], policy="a")
    begin(tmp_path / "runs", overrides=[], policy="a")
    with pytest.raises(SystemExit, match=r"algorithm=ppo.*choose another --runs"):
        begin(tmp_path / "runs", overrides=["algorithm=ppo"], policy="a")


def test_second_attempts_are_compared_as_each_arm_trained_them(tmp_path: Path) -> None:
    for arm, kinds in {"placebo": {"c": [1, 1], "placebo": [1, 0]}, "retry": {"c": [0, 0], "retry": [1, 1]}}.items():
        made(tmp_path, arm, 0, [0.5], [0, 0])
        for kind, right in kinds.items():
            refined = {"refined": {"by_task": {f"search-eval-0-{n}": float(r) for n, r in enumerate(right)}}}
            path = evaluation_file(tmp_path / arm / "seed0", kind)
            path.write_text(json.dumps((json.loads(path.read_text()) if path.is_file() else {}) | refined))
    values = [difference(tmp_path, "placebo", "retry", stage) for stage in ("first", "refined", "own")]
    assert [v and v["value"] for v in values] == [0, 1, -0.5]
    made(tmp_path, "none", 0, [0.5], [0, 0])
    assert difference(tmp_path, "placebo", "none", "own") is None
