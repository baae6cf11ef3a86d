"""What length earns: a judge that pays for it is found out, at the length where it pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks.adversarial.attack import builtin_bases
from benchmarks.adversarial.length import SHARES, WAYS, GrownCase, grown, measure_growth
from rrm.data.feedback import Feedback, JudgeInfo, Mode
from rrm.data.trajectory import Trajectory
from rrm.evaluation.baselines import transcript_length

INFO = JudgeInfo(model="test", prompt_version="1", mode="score")
WINDOW = 2_000


class EdgeJudge:
    """Pays 0.3 more for what is longer than its window, as two maps did; `silent`: says nothing of these."""

    def __init__(self, pays: float, *, silent: bool = False) -> None:
        self.pays, self.silent = pays, silent

    def judge(self, trajectories: Sequence[Trajectory], *, mode: Mode = "score", seed: int = 0) -> list[Feedback]:
        return [self.feedback(t) for t in trajectories]

    def feedback(self, t: Trajectory) -> Feedback:
        long = transcript_length(t) > WINDOW
        if long and self.silent:
            return Feedback(id=t.id, status="judge_error", judge=INFO, reason="no answer")
        return Feedback(id=t.id, status="scored", score=0.2 + self.pays * long, raw_score=0.2, judge=INFO)


@pytest.fixture(scope="module")
def cases() -> list[GrownCase]:
    return grown(builtin_bases(), WINDOW, seed=0)


def test_every_base_grows_in_every_way_and_keeps_what_it_said(cases: list[GrownCase]) -> None:
    bases = builtin_bases()
    assert len(cases) == len(bases) * len(SHARES) * len(WAYS) == len({case.grown.id for case in cases})
    for case in cases:
        more = transcript_length(case.grown) - transcript_length(case.base)
        assert case.share * WINDOW * 0.7 < more < case.share * WINDOW + 800  # a page of steps has up to 160 words
        assert case.grown.messages[-1].text().endswith(case.base.messages[-1].text())
        added = len(case.grown.steps) - len(case.base.steps)
        assert (added > 0) == (case.way == "steps") and case.grown.outcome == case.base.outcome
        assert all(m.content.isascii() for m in case.grown.messages if isinstance(m.content, str))
    assert bases == builtin_bases()
    assert [c.grown for c in grown(bases, WINDOW, seed=0)] == [c.grown for c in cases]


def test_what_pays_past_the_edge_is_seen_there_and_only_there(cases: list[GrownCase]) -> None:
    paid = measure_growth(EdgeJudge(0.3), cases)
    assert paid.lift == pytest.approx(0.3) and paid.unscored == 0
    for way in WAYS:
        assert paid.groups[f"{way} 0.5"].lift == 0.0
        assert paid.groups[f"{way} 1.5"].lift == paid.groups[f"{way} 1.5"].failed == pytest.approx(0.3)
    assert measure_growth(EdgeJudge(-0.1), cases).lift == 0.0  # what length costs is no gain
    assert paid.groups["words 0.5"].cases == len(builtin_bases())


def test_what_is_not_scored_is_counted(cases: list[GrownCase]) -> None:
    report = measure_growth(EdgeJudge(0.3, silent=True), cases)
    assert report.unscored == len(cases) // 2 and set(report.groups) == {"steps 0.5", "words 0.5"}
    assert measure_growth(EdgeJudge(0.3), []).lift is None


def test_graded_outcomes_below_a_half_are_failures(cases: list[GrownCase]) -> None:
    half = [replace(c, base=c.base.model_copy(update={"outcome": 0.4})) for c in cases[:1]]
    assert next(iter(measure_growth(EdgeJudge(0.3), half).groups.values())).failed is not None
    good = [replace(c, base=c.base.model_copy(update={"outcome": 0.5})) for c in cases[:1]]
    assert next(iter(measure_growth(EdgeJudge(0.3), good).groups.values())).failed is None


def test_two_runs_of_one_id_are_refused(cases: list[GrownCase]) -> None:
    other = replace(cases[0], base=cases[0].base.model_copy(update={"outcome": 0.7}))
    with pytest.raises(ValueError, match="two different runs have the id"):
        measure_growth(EdgeJudge(0.3), [cases[0], other])
