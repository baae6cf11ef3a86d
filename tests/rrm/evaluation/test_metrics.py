"""Every metric against values worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score, matthews_corrcoef, roc_auc_score

from rrm.data import localisation
from rrm.data.annotation import Annotation, Finding
from rrm.data.feedback import Feedback, JudgeInfo
from rrm.data.trajectory import Message, Trajectory
from rrm.evaluation.bootstrap import Statistic, point
from rrm.evaluation.metrics import pairs, probability, text

A = np.array
SCORES, LABELS = A([0.9, 0.1, 0.9, 0.0, 0.2, 0.3]), A([1.0, 0.0, 0.0, 1.0, 1.0, 0.0])
QUESTIONS, TURNS = A([0, 0, 0, 0, 1, 1]), A([2, 2, 2, 3, 2, 2])


def of_one_question(n: int) -> np.ndarray:
    return np.zeros(n, dtype=np.int64)


def value(statistic: Statistic) -> float | None:
    found = point(statistic, 1)
    return None if math.isnan(found) else found


def auroc(scores: list[float], labels: list[float]) -> float | None:
    return value(probability.Auroc(A(scores), A(labels), of_one_question(len(scores))))


def brier(scores: list[float], labels: list[float]) -> float | None:
    return value(probability.brier_parts(A(scores), A(labels), of_one_question(len(scores)), 1))


def ece(scores: np.ndarray, labels: np.ndarray, n_bins: int = 10) -> float | None:
    return value(probability.CalibrationError(scores, labels, of_one_question(len(scores)), 1, n_bins))


def test_pair_accuracy_counts_wins_and_half_ties_inside_question_and_turns():
    # q a, 2 turns: success .9 beats failure .1, ties with failure .9 -> 1.5 of 2.  q a, 3 turns: success only -> no pair.
    # q b, 2 turns: success .2 loses to failure .3 -> 0 of 1.  Pooled 1.5 of 3.
    parts = pairs.pair_parts(SCORES, LABELS, QUESTIONS, 2, TURNS)
    assert parts.value == 0.5 and parts.denominator.tolist() == [2, 1]


def test_pair_accuracy_without_matching_turns_adds_the_pairs_of_other_lengths():
    # the success of 3 turns (score 0) loses to both failures of question a: 1.5 of 5
    parts = pairs.pair_parts(SCORES, LABELS, QUESTIONS, 2)
    assert parts.value == 0.3 and parts.denominator.tolist() == [4, 1]


def test_pair_accuracy_of_graded_labels_needs_a_difference():
    parts = pairs.pair_parts(A([0.1, 0.5, 0.9]), A([0.2, 0.6, 0.6]), of_one_question(3), 1, A([1, 1, 1]))
    assert parts.value == 1.0 and parts.denominator.tolist() == [2]  # the two rows labelled 0.6 make no pair


def test_pair_accuracy_without_pairs_is_undefined():
    parts = pairs.pair_parts(A([0.5]), A([1.0]), of_one_question(1), 1, A([1]))
    assert math.isnan(parts.value) and parts.denominator.tolist() == [0]


@pytest.mark.parametrize("missing", [None, math.nan])
def test_a_row_without_a_score_is_refused_not_given_a_number(missing):
    with pytest.raises(ValueError, match=r"scores\[1\].*leave rows without a score"):
        pairs.pair_parts(A([0.5, missing]), A([1.0, 0.0]), of_one_question(2), 1, A([1, 1]))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 4), st.integers(0, 1)), max_size=25))
def test_pair_parts_agree_with_the_definition(rows):
    q, turns, s, y = (A([r[i] for r in rows], dtype=np.int64) for i in range(4))
    parts = pairs.pair_parts(s.astype(float), y.astype(float), q, 4, turns)
    wins, total = np.zeros(4), np.zeros(4)
    for i in range(len(rows)):
        for j in range(len(rows)):
            if q[i] == q[j] and turns[i] == turns[j] and y[i] > y[j]:
                total[q[i]] += 1
                wins[q[i]] += 1.0 if s[i] > s[j] else 0.5 if s[i] == s[j] else 0.0
    np.testing.assert_array_equal(parts.numerator, wins)
    np.testing.assert_array_equal(parts.denominator, total)


def test_unscored_pairs_count_half_on_the_conservative_line():
    scored = pairs.pair_parts(A([0.9, 0.1]), A([1.0, 0.0]), A([0, 0]), 2)  # 1 of 1
    assert pairs.count_unscored_as_half(scored, A([3.0, 2.0])).value == (1 + 0.5 * 2 + 0.5 * 2) / 5


def test_best_of_n_gain_averages_ties_and_skips_single_attempts():
    # q a: best is the success (1) against mean 1/3 -> 2/3.  q b: tie of 1 and 0 -> 1/2 against 1/2 -> 0.  q c: one attempt.
    scores, labels = A([0.9, 0.2, 0.1, 0.4, 0.4, 0.7]), A([1.0, 0.0, 0.0, 1.0, 0.0, 1.0])
    parts = pairs.best_of_n_parts(scores, labels, A([0, 0, 0, 1, 1, 2]), 3)
    assert parts.denominator.tolist() == [1, 1, 0] and parts.value == pytest.approx(1 / 3)


def test_auroc_by_hand_and_with_one_class():
    # positives .8 .4, negatives .4 .2: wins 1, 1, 0.5, 1 of 4
    assert auroc([0.8, 0.4, 0.4, 0.2], [1, 0.5, 0.49, 0]) == 0.875
    assert auroc([0.8, 0.4], [1, 1]) is None


def test_over_no_rows_a_metric_is_undefined_not_zero():
    assert auroc([], []) is brier([], []) is ece(A([]), A([])) is None


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.integers(0, 2)), min_size=1, max_size=30), st.data())
def test_weighted_auroc_agrees_with_scikit_learn(rows, data):
    counts = A(data.draw(st.lists(st.integers(0, 3), min_size=3, max_size=3)), dtype=float)
    s, y, q = A([r[0] for r in rows], dtype=float), A([r[1] for r in rows], dtype=float), A([r[2] for r in rows])
    found = probability.Auroc(s, y, q)(counts[None])[0]
    weights = counts[q]
    if (weights * y).sum() == 0 or (weights * (1 - y)).sum() == 0:
        assert math.isnan(found)
    else:
        assert found == pytest.approx(roc_auc_score(y, s, sample_weight=weights))


def test_brier_by_hand():
    assert brier([0.8, 0.4], [1, 0]) == pytest.approx((0.04 + 0.16) / 2)


def test_ece_by_hand():
    # two bins of two: |0.15 − 0.5| and |0.85 − 1|, each of weight ½
    assert ece(A([0.1, 0.2, 0.8, 0.9]), A([0.0, 1.0, 1.0, 1.0]), n_bins=2) == pytest.approx(0.25)


def test_bins_have_equal_mass_and_never_split_a_tie():
    assert probability.equal_mass_bins(np.arange(20) / 20).tolist() == [b for b in range(10) for _ in range(2)]
    tied = probability.equal_mass_bins(A([0.0] * 6 + [0.5, 0.6, 0.7, 0.8]))
    assert len(set(tied[:6])) == 1
    assert tied[6:].tolist() == [6, 7, 8, 9]
    assert set(probability.equal_mass_bins(np.full(7, 0.3)).tolist()) == {5}


def test_ece_does_not_depend_on_the_order_of_rows():
    rng = np.random.default_rng(0)
    s, y = rng.integers(0, 11, 300) / 10, rng.integers(0, 2, 300).astype(float)
    order = rng.permutation(300)
    assert ece(s, y) == pytest.approx(ece(s[order], y[order]))


def test_reliability_bins_hold_every_row_once_and_explain_the_ece():
    rng = np.random.default_rng(1)
    s = rng.random(95)
    y = (rng.random(95) < s).astype(float)
    bins = probability.reliability(s, y)
    assert sum(b["count"] for b in bins) == 95
    assert {b["count"] for b in bins} <= {9, 10}
    assert sum(b["count"] / 95 * abs(b["score"] - b["label"]) for b in bins) == pytest.approx(ece(s, y))


def test_step_localisation_by_hand():
    # tp 2, fp 1, fn 1, tn 1: mcc = (2·1 − 1·1)/√(3·3·2·2) = 1/6; F1 bad 2/3, good 1/2
    said, bad = A([True, True, True, False, False]), A([True, True, False, True, False])
    counts = localisation.confusion(said, bad, of_one_question(5), 1)
    found = {name: value(localisation.OfConfusion(name, counts)) for name in ("mcc", "macro_f1", "f1_bad")}
    assert found == pytest.approx({"mcc": 1 / 6, "macro_f1": (2 / 3 + 1 / 2) / 2, "f1_bad": 2 / 3})


def test_saying_bad_everywhere_has_a_high_f1_and_no_correlation():
    counts = localisation.confusion(np.ones(100, bool), A([True] * 78 + [False] * 22), np.zeros(100, int), 1).sum(
        axis=0
    )
    assert localisation.f1_bad(counts) == pytest.approx(2 * 78 / 178)  # 0.88
    assert localisation.mcc(counts) == 0.0


@pytest.mark.filterwarnings("ignore:A single label was found")
@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_confusion_measures_agree_with_scikit_learn(rows):
    said, true = A([r[0] for r in rows]), A([r[1] for r in rows])
    counts = localisation.confusion(said, true, np.zeros(len(rows), dtype=np.int64), 1)[0]
    assert localisation.mcc(counts) == pytest.approx(matthews_corrcoef(true, said))
    wanted = f1_score(true, said, average="macro", labels=[True, False], zero_division=0.0)  # pyright: ignore
    assert localisation.macro_f1(counts) == pytest.approx(wanted)


def test_step_verdicts_take_the_majority_and_blame_on_a_tie():
    findings = [Finding(step=1, verdict="good"), Finding(step=1, verdict="bad"), Finding(step=3, verdict="good")]
    assert localisation.step_verdicts([*findings, Finding(step=9, verdict="bad")], 3) == ["bad", None, "good"]


def test_an_unclear_finding_is_no_verdict_neither_good_nor_bad():
    unclear = [Finding(step=k, verdict="unclear") for k in (1, 1, 2)]
    assert localisation.step_verdicts(unclear, 2) == [None, None]
    assert localisation.step_verdicts([*unclear, Finding(step=1, verdict="good")], 2) == ["good", None]
    label = Annotation(trajectory_id="t", findings=unclear[2:], annotator="x", kind="human")
    assert localisation.labels_from_annotations(_run(), [label]) is None


def _run(**meta) -> Trajectory:
    roles = ["user", "assistant", "tool", "assistant"]
    return Trajectory(id="t", messages=[Message(role=r, content=r) for r in roles], meta=meta)  # pyright: ignore


def test_step_labels_from_critiques_follow_message_indices_and_skip_what_is_no_step():
    critiques = [
        {"after_message": 1, "good": True},
        {"after_message": 2, "good": False},  # a tool result
        {"after_message": 9, "good": False},  # behind the cut
        {"after_message": 3, "good": None},
    ]
    assert localisation.labels_from_critiques(_run(critiques=critiques)) == ["good", None]
    assert localisation.labels_from_critiques(_run(critiques=critiques[1:])) is None
    assert localisation.labels_from_critiques(_run()) is None
    others = ["too slow", None, {"after_message": [1], "good": True}, {"after_message": True, "good": True}]
    assert localisation.labels_from_critiques(_run(critiques=[*others, critiques[0]])) == ["good", None]
    for odd in ("too slow", {"good": True}, 3, others):
        assert localisation.labels_from_critiques(_run(critiques=odd)) is None


def test_step_labels_from_annotations():
    mine = Annotation(trajectory_id="t", findings=[Finding(step=2, verdict="bad")], annotator="x", kind="human")
    assert localisation.labels_from_annotations(_run(), [mine]) == [None, "bad"]
    assert localisation.labels_from_annotations(_run(), []) is None


def test_donors_are_others_of_the_same_number_of_steps():
    n_steps = [2, 3, 2, 3, 2, 3, 3]
    donor = localisation.donors(n_steps, seed=0)
    assert sorted(donor.tolist()) == list(range(7))
    assert all(d != i for i, d in enumerate(donor.tolist()))
    assert sum(n_steps[d] != n_steps[i] for i, d in enumerate(donor.tolist())) == 2  # the two ends of the order


def _feedback(status="scored", mode="full", trace="t", critique="c", score: float | None = 0.5) -> Feedback:
    info = JudgeInfo(model="m", prompt_version="1", mode=mode)
    return Feedback(id="x", status=status, trace=trace, critique=critique, score=score, judge=info)


def test_format_validity_counts_what_the_judge_wrote():
    rows = [
        _feedback(),
        _feedback(critique=" "),
        _feedback("unparsable", score=None),
        _feedback(mode="critique", trace=None),
        _feedback("too_long", score=None),
        _feedback("judge_error", score=None),
    ]
    assert text.format_validity(rows) == 2 / 4  # the last two were never written
    assert len(text.replies(rows)) == 4
    assert text.format_validity(rows[-2:]) is None


@pytest.mark.parametrize(
    "about",
    [
        {"mode": "steps", "score_source": "expected"},
        {"mode": "full", "score_source": "expected", "threshold": 0.3},  # texts made of its slots
        {"mode": "score", "score_source": "expected"},  # one prefill
    ],
)
def test_a_judge_that_writes_nothing_has_no_format(about: dict[str, Any]):
    """It was 1.0: each row had all the parts that a mode without text asks for."""
    info = JudgeInfo.model_validate({"model": "m", "prompt_version": "2", **about})
    rows = [Feedback(id=str(i), status="scored", trace="t", critique="c", score=0.5, judge=info) for i in range(3)]
    empty = Feedback(id="none", status="unparsable", judge=info.model_copy(update={"threshold": None}))  # no step
    assert text.format_validity([*rows, empty]) is None
    assert text.replies([*rows, empty]) == []


def test_a_chat_judge_writes_its_score():
    info = JudgeInfo(model="m", prompt_version="1", mode="score", score_source="expected", temperature=0.0)
    rows = [Feedback(id="x", status="scored", score=0.5, judge=info), Feedback(id="y", status="unparsable", judge=info)]
    assert text.format_validity(rows) == 0.5


@pytest.mark.parametrize(
    ("judge", "reference", "transcript", "kind"),
    [
        ("It should be Paris.", "paris", "The agent said Lyon.", "leak"),
        ("It should be Paris.", "Paris", "Search says: PARIS is the capital.", "clean"),
        ("The Beatles were meant", "the beatles", "nothing", "leak"),
        ("comparisons", "paris", "nothing", "clean"),  # whole words only
        ("the total is 1,234.5!", 1234.5, "1234 apples", "leak"),
        ("the total is 12345", 1234.5, "nothing", "clean"),
        ("x = −24.0", "-24.0", "24.0", "leak"),
        ("x = -24", -24.0, "x", "leak"),
        ("yes", "Yes", "maybe", "short_leak"),
        ("the answer is 7", 7, "nothing", "short_leak"),
        ("option a", "A", "nothing", "short_leak"),
        ("New York City", ["NYC", "New York City"], "nothing", "leak"),
        ("New York City", ["NYC", "New York City"], "in nyc", "clean"),
        ("anything", "", "nothing", "no_reference"),
        ("anything", None, "nothing", "no_reference"),
    ],
)
def test_answer_leak(judge, reference, transcript, kind):
    assert text.answer_leak(judge, reference, transcript) == kind


def test_answer_leak_rates_keep_short_answers_apart():
    found = text.answer_leak_rates(["Paris", "fine", "yes", "no"], ["Paris", "Rome", "yes", "yes"], ["?"] * 4)
    assert found == {"rate": 0.5, "leaks": 1, "rows": 2, "short_rate": 0.5, "short_leaks": 1, "short_rows": 2}


def test_length_correlation_by_hand():
    # ranks 1 2 3 4 against 2 1 4 3: 1 − 6·4/(4·15) = 0.6
    assert text.length_correlation(A([0.1, 0.2, 0.3, 0.4]), A([20, 10, 400, 30])) == pytest.approx(0.6)
    assert text.length_correlation(A([0.5, 0.5]), A([1, 2])) is None


def test_rerun_variance_by_hand():
    # a: .4 .6 -> variance 0.02; b: .5 .5 .5 -> 0; c once
    found = text.rerun_variance(A([0.4, 0.6, 0.5, 0.5, 0.5, 0.9]), ["a", "a", "b", "b", "b", "c"])
    assert found["rows"] == 2
    assert found["variance"] == pytest.approx(0.01)
    assert found["std"] == pytest.approx(0.1)
    assert found["max_range"] == pytest.approx(0.2)
