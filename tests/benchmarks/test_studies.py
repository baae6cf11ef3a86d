"""How the studies of many training runs pool their seeds, against hand computations."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import numpy as np
import pytest

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


def test_a_folder_holds_one_study(tmp_path: Path) -> None:
    begin(tmp_path / "runs", overrides=[], policy="a")
    begin(tmp_path / "runs", overrides=[], policy="a")
    with pytest.raises(SystemExit, match=r"algorithm=ppo.*choose another --runs"):
        begin(tmp_path / "runs", overrides=["algorithm=ppo"], policy="a")
