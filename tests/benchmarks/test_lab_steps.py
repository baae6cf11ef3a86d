"""First planted faults named by probabilities of steps: thresholds and shares by hand."""

from __future__ import annotations

import pytest

from benchmarks.lab_steps import ARMS, first_below, first_faults, lowest, p_good_of, threshold_within
from reagent.lab.transcripts import make_transcripts
from rrm.config import load_config
from rrm.data.feedback import Feedback, JudgeInfo
from rrm.errors import RRMError


def test_the_first_step_below_a_cut() -> None:
    assert first_below([0.9, 0.4, 0.1], 0.5) == 2 and first_below([0.9, 0.5], 0.5) is None


def test_the_threshold_names_most_faults_within_the_alarms_that_are_allowed() -> None:
    faulty, truth = [[0.9, 0.2, 0.1], [0.3, 0.8], [0.9, 0.7]], [2, 1, 2]
    clean: list[list[float]] = [[0.95, 0.6], [0.99]]
    everything = [*faulty, *clean]
    known = [*truth, None, None]
    # no alarm: cuts up to 0.6 name the first two; the lowest of them that does lies between 0.3 and 0.6
    assert threshold_within(everything, known, 0.0) == pytest.approx(0.45)
    # one clean run in two may be called bad: above 0.7 the third is named too
    assert threshold_within(everything, known, 0.5) == pytest.approx(0.75)
    assert threshold_within([[0.5], [0.5]], [1, None], 0.0) == 0.0  # what cannot tell calls nothing bad
    assert threshold_within([[0.5, 0.5]], [1]) > 0.5  # without a clean run nothing forbids calling all bad


def test_the_lowest_step_counts_where_it_is_the_first_fault() -> None:
    rows = make_transcripts(40, seed=3)
    truth = first_faults(rows)
    assert None in truth and any(bad is not None for bad in truth)
    sure = [
        [0.1 if k == bad else 0.9 for k in range(1, len(t.steps) + 1)] for (t, _), bad in zip(rows, truth, strict=True)
    ]
    first = [[0.5] * len(t.steps) for t, _ in rows]  # of equal ones the earliest
    found = lowest(rows, {"judge": sure, "position": first}, 200, 0)
    share = sum(bad == 1 for bad in truth) / sum(bad is not None for bad in truth)
    assert found["metrics"]["judge"]["lowest"]["value"] == 1.0
    assert found["metrics"]["position"]["lowest"]["value"] == pytest.approx(share)
    assert found["differences"]["position"]["lowest"]["value"] == pytest.approx(1.0 - share)


def test_a_run_that_was_not_read_is_named() -> None:
    with pytest.raises(RRMError, match="1 of 1 runs were not read"):
        p_good_of([Feedback(id="a", status="too_long", judge=JudgeInfo(model="m", prompt_version="2", mode="steps"))])


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_is_a_config_in_prompt_version_2(arm: str) -> None:
    config = load_config("lab", list(ARMS[arm]))
    assert config.prompt_version == "2" and config.sft.mix.steps == 1.0 and config.sft.mix.score == 0.0
    assert config.drills.rows == 0 and not config.rl.enabled and config.calibration.modes == ["steps"]
