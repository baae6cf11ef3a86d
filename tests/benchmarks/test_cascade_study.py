"""The offline measure of a cascade, on made-up rows whose figures are known by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.studies import cascade
from rrm.data.annotation import Finding, Verdict
from rrm.data.feedback import Feedback, JudgeInfo, Status
from rrm.data.localisation import StepLabels
from rrm.data.usage import Usage
from rrm.errors import RRMError

LABELS: list[StepLabels] = [["bad" if i < 5 else "good"] for i in range(10)]
SMALL = [0.55, 0.52, 0.58, 0.05, 0.05, 0.95, 0.95, 0.95, 0.95, 0.95]
"""Wrong on the first three runs, which are unsure; right on the others: accuracy 0.7, F1 of bad steps 4/7, AUROC 1."""


def row(id: str, verdict: Verdict, p_good: float | None = None, **about: Any) -> Feedback:
    info = JudgeInfo(model="m", prompt_version="2", mode="steps")
    return Feedback(
        id=id,
        **{"status": "scored", "score": 0.5, **about},
        findings=[Finding(step=1, verdict=verdict, p_good=p_good)],
        judge=info,
    )


def small_rows() -> list[Feedback]:
    said: list[Verdict] = ["good" if p > 0.9 else "bad" if p < 0.1 else "unsure" for p in SMALL]
    return [row(f"t{i}", v, p) for i, (v, p) in enumerate(zip(said, SMALL, strict=True))]


def stronger_rows(costs: list[float] | None = None, failing: int | None = None) -> list[Feedback]:
    """Right on every run, but for one of which it gives no score."""
    rows = []
    for i, cost in enumerate(costs or [0.5] * 10):
        status: Status = "truncated" if i == failing else "scored"
        about = {"status": status, "score": None if i == failing else 0.5, "usage": Usage(requests=1, cost=cost)}
        rows.append(row(f"t{i}", "bad" if i < 5 else "good", **about))
    return rows


def test_the_unsure_rows_are_all_the_gain() -> None:
    unit, runs = cascade.recorded(LABELS, small_rows(), stronger_rows())
    found = cascade.study(runs)
    assert unit == "money" and runs.orders["least_sure"][:3].tolist() == [1, 0, 2]
    none, tenth, third, all = found["curve"]
    assert none["least_sure"] == {"rows": 0, "accuracy": 0.7, "error_f1": pytest.approx(4 / 7), "auroc": 1.0}
    assert (tenth["least_sure"]["rows"], tenth["least_sure"]["accuracy"]) == (1, 0.8)
    assert (third["least_sure"]["rows"], third["least_sure"]["accuracy"]) == (3, 1.0)
    assert all["least_sure"]["error_f1"] == all["random"]["error_f1"]["value"] == 1.0
    assert found["gain"] == {"accuracy": pytest.approx(0.3), "error_f1": pytest.approx(3 / 7), "auroc": 0.0}
    assert found["share_of_gain_at_30"] == pytest.approx(1.0)
    assert found["share_of_gain"]["least_sure"]["auroc"] is None, "there is no gain to have a share of"
    # three of ten rows drawn at random hold 0.9 of the three wrong ones
    by_chance = found["share_of_gain"]["random"]["accuracy"]
    assert by_chance["value"] == pytest.approx(0.3, abs=0.06) and by_chance["low"] == 0.0 and by_chance["high"] < 1.0
    assert cascade.study(runs) == found and cascade.study(runs, seed=1) != found


def test_rows_are_taken_as_far_as_the_money_goes() -> None:
    cost = np.array([3.0, 1.0, 6.0])
    assert [cascade.affordable(cost, share) for share in (0.0, 0.1, 0.3, 0.4, 0.99, 1.0)] == [0, 0, 1, 2, 2, 3]
    assert cascade.affordable(np.full(10, 0.1), 0.3) == 3, "whatever floats sum to"
    # the least sure run costs four tenths of all: at 30 % none goes on, by doubt over cost two do
    costs = [1.0, 4.0, 1.0, *[4 / 7] * 7]
    _, runs = cascade.recorded(LABELS, small_rows(), stronger_rows(costs))
    third = cascade.study(runs, draws=2)["curve"][2]
    assert (third["least_sure"]["rows"], third["least_sure"]["accuracy"]) == (0, 0.7)
    assert runs.orders["doubt_per_cost"][:3].tolist() == [0, 2, 1]
    assert (third["doubt_per_cost"]["rows"], third["doubt_per_cost"]["accuracy"]) == (2, 0.9)


def test_a_row_on_which_the_stronger_judge_failed_costs_and_changes_nothing() -> None:
    _, runs = cascade.recorded(LABELS, small_rows(), stronger_rows(failing=0))
    found = cascade.study(runs, draws=2)
    third, all = found["curve"][2:]
    assert third["least_sure"]["rows"] == 3 and third["least_sure"]["accuracy"] == all["least_sure"]["accuracy"] == 0.9


def test_costs_are_money_or_tokens_but_not_made_up() -> None:
    tokens = [
        row("a", "bad", usage=Usage(prompt_tokens=90, completion_tokens=10)),
        row("b", "bad", usage=Usage(prompt_tokens=1, cost=2.0)),
    ]
    unit, cost = cascade.costs_of(tokens)
    assert unit == "tokens" and cost.tolist() == [100.0, 1.0]
    with pytest.raises(RRMError, match="do not say what they used"):
        cascade.costs_of([row("a", "bad")])
