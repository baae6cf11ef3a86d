"""Of a step that was read in parts the worst part decides, in words and in probabilities."""

from __future__ import annotations

import pytest

from rrm.data.annotation import Finding, Verdict
from rrm.evaluation.step_scores import step_probabilities
from rrm.judge.abstention import findings_of_parts, is_bad_of_parts, p_good_of_parts
from rrm.judge.steps import SlotReadings
from rrm.prompt.prompter import Prompt
from rrm.prompt.windows import Slot


def said(*verdicts: Verdict) -> list[Finding]:
    return [Finding(step=3, verdict=verdict, text=str(i)) for i, verdict in enumerate(verdicts)]


def test_one_bad_part_makes_a_step_bad() -> None:
    assert is_bad_of_parts(["good", "bad", "unclear"]) is True and is_bad_of_parts(["good", "unclear"]) is False
    assert is_bad_of_parts(["unclear"]) is None and is_bad_of_parts([]) is None
    assert [f.text for f in findings_of_parts(said("good", "bad", "good", "bad"))] == ["1", "3"]
    assert [f.text for f in findings_of_parts(said("good", "unclear"))] == ["0", "1"]


def test_p_good_of_a_step_is_its_lowest_parts_whoever_asks() -> None:
    parts = [0.5, 0.25, 0.75]
    assert p_good_of_parts(parts) == 0.25
    findings = [Finding(step=2, verdict="good", p_good=p) for p in parts]
    assert step_probabilities([*findings, Finding(step=9, verdict="bad", p_good=0.1)], 3) == [None, 0.25, None]
    readings = SlotReadings()
    for index, p in enumerate(parts):
        readings.take(Prompt([0] * 9, 0, (Slot(index, 2),)), [p])
    assert readings.p_good == {2: pytest.approx(0.25)}
