"""Choosing among attempts: by hand, and against every draw there is."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rrm.data.trajectory import Message, Trajectory
from rrm.errors import RRMError
from rrm.evaluation.choosing import (
    STRATEGIES,
    UNSCORED,
    Attempts,
    answers_of,
    as_preference,
    expected_best,
    expected_distinct,
    expected_majority,
    expected_weighted,
    grouped,
    measure,
    strategies_of,
    success_of,
)


def attempt(
    id: str, question: str | None, outcome: float | None, *, said: str = "look", answer: str = "done"
) -> Trajectory:
    messages = [
        Message(role="user", content=f"do {question}"),
        Message(role="assistant", content=said),
        Message(role="tool", content="ok"),
        Message(role="assistant", content=answer),
    ]
    return Trajectory(id=id, task=f"do {question}", question_id=question, messages=messages, outcome=outcome)


def group(scores: list[float | None], outcomes: list[float], answers: list[str | None] | None = None) -> Attempts:
    n = len(outcomes)
    said = answers if answers is not None else [None] * n
    return Attempts(
        "q", range(n), np.arange(n, dtype=float), said, np.array(outcomes), {"judge": as_preference(scores)}
    )


# ---- the formulas, against every draw ----


def of_every_draw(choose, total: int, n: int) -> float:
    return float(np.mean([choose(draw) for draw in itertools.combinations(range(total), n)]))


values = st.lists(
    st.tuples(st.sampled_from([-np.inf, 0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.25, 1.0])), min_size=1, max_size=7
)


@settings(max_examples=60, deadline=None)
@given(values, st.data())
def test_the_best_of_n_is_what_every_draw_gives_on_average(rows, data) -> None:
    scores, outcomes = np.array([s for s, _ in rows]), np.array([y for _, y in rows])
    n = data.draw(st.integers(1, len(rows)))

    def choose(draw: tuple[int, ...]) -> float:
        at = np.array(draw)
        return float(outcomes[at][scores[at] == scores[at].max()].mean())

    assert expected_best(scores, outcomes, n) == pytest.approx(of_every_draw(choose, len(rows), n), abs=1e-12)


said = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", None]), st.sampled_from([0.0, 0.25, 1.0])), min_size=1, max_size=8
)


@settings(max_examples=80, deadline=None)
@given(said, st.data())
def test_the_majority_of_n_is_what_every_draw_gives_on_average(rows, data) -> None:
    answers, outcomes = [a for a, _ in rows], np.array([y for _, y in rows])
    n = data.draw(st.integers(1, len(rows)))

    def choose(draw: tuple[int, ...]) -> float:
        votes = Counter(answers[i] for i in draw if answers[i] is not None)
        top = max(votes.values(), default=0)
        return float(np.mean([outcomes[i] for i in draw if not top or votes.get(answers[i], 0) == top]))

    assert expected_majority(answers, outcomes, n) == pytest.approx(of_every_draw(choose, len(rows), n), abs=1e-12)


scored = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", None]),
        st.sampled_from([UNSCORED, 0.0, 0.25, 0.5, 1.0]),
        st.sampled_from([0.0, 0.25, 1.0]),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=80, deadline=None)
@given(scored, st.data())
def test_weighted_votes_are_what_every_draw_gives_on_average(rows, data) -> None:
    answers, scores, outcomes = (
        [a for a, _, _ in rows],
        np.array([s for _, s, _ in rows]),
        np.array([y for *_, y in rows]),
    )
    n = data.draw(st.integers(1, len(rows)))

    def choose(draw: tuple[int, ...]) -> float:
        sums: dict[str | None, float] = defaultdict(float)
        for i in draw:
            sums[answers[i]] += max(scores[i], 0.0)
        sums[None] = -1.0  # silence is taken where nobody speaks
        top = max(sums[answers[i]] for i in draw)
        held = [i for i in draw if sums[answers[i]] == top]
        best = max(scores[i] for i in held)
        return float(np.mean([outcomes[i] for i in held if scores[i] == best]))

    assert expected_weighted(answers, scores, outcomes, n) == pytest.approx(
        of_every_draw(choose, len(rows), n), abs=1e-12
    )


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=6))
def test_contents_read_of_n_are_what_every_draw_gives_on_average(contents) -> None:
    found = expected_distinct(Counter(contents).values(), len(contents))
    every = [
        of_every_draw(lambda draw: len({contents[i] for i in draw}), len(contents), n) for n in range(len(contents) + 1)
    ]
    assert found == pytest.approx(every)


def test_weighted_votes_by_hand() -> None:
    answers, outcomes = ["4", "4", "5", None], np.array([0.0, 1.0, 0.0, 0.0])
    # 4 has 0.3 + 0.4 against 0.6: the pair outvotes the best score, and the better of the two is taken
    scores = np.array([0.3, 0.4, 0.6, 0.9])
    assert expected_weighted(answers, scores, outcomes, 4) == 1.0
    # of six pairs: {0,1} → 1; {0,2} → 0.6 beats 0.3 → 0; {1,2} → 0; {0,3} → 0 is right to be 0; {1,3} → 1; {2,3} → 0
    assert expected_weighted(answers, scores, outcomes, 2) == pytest.approx(2 / 6)
    assert expected_weighted(answers, np.full(4, UNSCORED), outcomes, 4) == pytest.approx(
        1 / 3
    )  # no score: any that speaks
    assert expected_weighted([None, None], np.array([0.1, 0.2]), np.array([0.0, 1.0]), 2) == 1.0
    found = Attempts("q", range(4), np.zeros(4), answers, outcomes, {"judge": scores})
    assert found.expected("weighted") == 1.0 and found.choose("weighted", 0) == 1
    with pytest.raises(RRMError, match="'weighted' needs its scores"):
        Attempts("q", range(4), np.zeros(4), answers, outcomes).expected("weighted")


def test_weighted_votes_of_many_draws_are_a_mean_of_some() -> None:
    generator = np.random.default_rng(0)
    answers, outcomes = [str(a) for a in generator.integers(0, 4, 24)], generator.integers(0, 2, 24).astype(float)
    even = np.ones(24)  # equal scores: a majority
    found = expected_weighted(answers, even, outcomes, 8)  # 735,471 draws
    assert found == pytest.approx(expected_majority(answers, outcomes, 8), abs=0.015)
    assert found == expected_weighted(answers, even, outcomes, 8)


def test_by_hand() -> None:
    outcomes = np.array([1.0, 0.0, 1.0, 0.0])
    assert expected_best(np.array([0.1, 0.9, 0.2, 0.3]), outcomes, 4) == 0.0
    assert expected_best(np.array([0.1, 0.9, 0.9, 0.3]), outcomes, 4) == 0.5  # a tie of a failure and a success
    # of six pairs: {0,1} → 0, {0,2} → 1, {0,3} → 0, {1,2} → 0, {1,3} → 0, {2,3} → 0 where 3 stands above 2
    assert expected_best(np.array([0.1, 0.9, 0.2, 0.3]), outcomes, 2) == pytest.approx(1 / 6)
    assert expected_best(outcomes, outcomes, 2) == pytest.approx(5 / 6)  # pass@2 of 2 successes in 4: 1 − C(2,2)/C(4,2)
    assert expected_best(np.zeros(4), outcomes, 3) == 0.5
    votes = np.array([1.0, 1.0, 0.0, 0.0, 0.0])
    assert expected_majority(["4", "4", "5", None, None], votes, 5) == 1.0  # two of three votes; silence is none
    assert expected_majority(["4", "5"], np.array([1.0, 0.0]), 2) == 0.5
    assert expected_majority([None, None], np.array([1.0, 0.0]), 2) == 0.5
    # pairs of 4, 4, 5: {4, 4} → 1, and {4, 5} twice → 1/2
    assert expected_majority(["4", "4", "5"], np.array([1.0, 1.0, 0.0]), 2) == pytest.approx(2 / 3)
    for n in (0, 5):
        with pytest.raises(ValueError, match=f"n={n} of 4 attempts"):
            expected_best(outcomes, outcomes, n)


def test_many_attempts_are_no_harder() -> None:
    outcomes = np.zeros(200)
    outcomes[-1] = 1.0
    assert expected_best(np.arange(200), outcomes, 100) == pytest.approx(0.5)  # as often as the one success is drawn
    assert expected_majority(["x"] * 150 + [str(i) for i in range(50)], np.arange(200) < 150, 16) == pytest.approx(1.0)


def test_a_thousand_attempts_can_be_compared() -> None:
    outcomes = np.zeros(1100)
    outcomes[:275] = 1.0
    same, pairs = ["x"] * 1100, [str(i // 2) for i in range(1100)]
    for n in (4, 1100):  # C(1100, 550) is no float; of answers that are all alike each attempt is as good
        assert expected_majority(same, outcomes, n) == pytest.approx(0.25)
    assert expected_majority(pairs, outcomes, 1100) == pytest.approx(0.25)
    # of three drawn: both y, with each of 1098 others; or one of them beside two others, a tie of three
    assert expected_majority(["y", "y", *map(str, range(1098))], np.r_[1.0, 1.0, np.zeros(1098)], 3) == pytest.approx(
        (1098 + 2 * (1098 * 1097 / 2) / 3) / (1100 * 1099 * 1098 / 6)
    )


def test_the_majority_of_all_is_the_mean_over_the_most_frequent_answers() -> None:
    found = Attempts("q", range(12), np.ones(12), [*"aaabbbc", None, *"ddde"], np.arange(12) / 12)
    assert found.expected("majority") == pytest.approx(np.mean([0, 1, 2, 3, 4, 5, 8, 9, 10]) / 12)
    assert found.expected("majority", 12) == found.expected("majority")


# ---- one attempt ----


def test_an_attempt_without_a_score_is_chosen_only_where_none_has_one() -> None:
    assert group([None, 0.0, None], [1.0, 0.0, 1.0]).choose("judge", 0) == 1
    assert group([None, 0.0, None], [1.0, 0.0, 1.0]).expected("judge") == 0.0
    assert group([None, None], [1.0, 0.0]).expected("judge") == 0.5


def test_ties_are_broken_by_seed_and_alike_each_time() -> None:
    tied = group([0.5] * 4, [0.0] * 4)
    chosen = [tied.choose("judge", seed) for seed in range(40)]
    assert set(chosen) == {0, 1, 2, 3} and chosen == [tied.choose("judge", seed) for seed in range(40)]
    assert group([0.5, 0.7, 0.7], [0.0] * 3).choose("judge", 3) in (1, 2)


def test_each_strategy_chooses_what_it_says() -> None:
    found = group([0.9, 0.1, 0.1], [0.0, 0.0, 1.0], ["x", "y", "y"])
    assert [found.choose(name, 0) for name in ("judge", "longest", "shortest", "oracle")] == [0, 2, 0, 2]
    assert {found.choose("majority", seed) for seed in range(20)} == {1, 2}
    assert {found.choose("random", seed) for seed in range(40)} == {0, 1, 2}
    with pytest.raises(RRMError, match="needs its scores of the attempts"):
        Attempts("q", range(1), np.ones(1), ["x"], np.ones(1)).choose("judge", 0)


def test_strategies_as_a_command_line_names_them() -> None:
    assert strategies_of(["judge,longest", "judge"]) == ["judge", "longest"]
    assert strategies_of(["all"]) == list(STRATEGIES)
    with pytest.raises(RRMError, match="no strategy 'best' of choosing; there are judge, weighted, majority"):
        strategies_of(["best"])


# ---- questions ----


def test_answers_are_compared_in_their_normal_form() -> None:
    rows = [attempt("a", "q", 1.0, answer="The ANSWER is: Done!"), attempt("b", "q", 0.0, answer="the answer is done")]
    first, second = answers_of(rows)
    assert first == second
    assert answers_of([rows[0].model_copy(update={"messages": rows[0].messages[:-1]})]) == [None]


def test_a_letter_that_is_also_an_article_votes() -> None:
    rows = [attempt(str(i), "q", float(x == "A"), answer=f"The answer is {x}") for i, x in enumerate("AAABB")]
    (found,) = grouped(rows)
    assert found.expected("majority") == 1.0 and found.choose("majority", 0) in (0, 1, 2)


def test_transcripts_are_grouped_by_question_in_their_order() -> None:
    rows = [attempt("a", "q", 1.0), attempt("b", "r", None), attempt("c", "q", 0.0, said="look around")]
    first, second = grouped(rows, {"judge": [0.2, 0.3, None]})
    assert (first.question, first.rows, first.known) == ("q", [0, 2], True)
    assert (second.question, second.rows, second.known) == ("r", [1], False)
    assert first.scores["judge"].tolist() == [0.2, -np.inf] and first.choose("longest", 0) == 1


def test_figures_are_over_questions_and_paired() -> None:
    rows, judge = [], []
    for q in range(12):  # one success in four; the judge finds it in nine questions of twelve
        for k in range(4):
            rows.append(attempt(f"{q}-{k}", f"q{q}", float(k == 0), said="look " * (k + 1)))
            judge.append(1.0 if k == (0 if q < 9 else 1) else 0.0)
    groups = grouped(rows, {"judge": judge})
    found = measure(groups, STRATEGIES, resamples=200, seed=0)
    assert found is not None and (found["questions"], found["attempts"]) == (12, 48)
    assert {name: x["outcome"]["value"] for name, x in found["metrics"].items()} == {
        "judge": 0.75, "weighted": 0.75, "majority": 0.25, "longest": 0.0, "shortest": 1.0, "random": 0.25, "oracle": 1.0,
    }  # fmt: skip
    assert found["differences"]["random"]["outcome"]["low"] > 0
    assert found["differences"]["oracle"]["outcome"]["value"] == -0.25
    votes = success_of(found)["weighted_minus"]  # with no answers to vote on they are the judge's choice
    assert {name: one["value"] for name, one in votes.items()} == {
        "majority": 0.5, "longest": 0.75, "shortest": -0.25, "random": 0.5, "oracle": -0.25,
    }  # fmt: skip
    assert votes["majority"] == found["differences"]["majority"]["outcome"]
    of_two = measure(groups, ["judge", "random"], n=2, resamples=50, seed=0)
    assert of_two is not None and "weighted_minus" not in success_of(of_two)
    # of the six pairs three hold the success, which a right judge takes; a wrong one sees no difference in the two of them
    # that do not hold its choice
    assert of_two["metrics"]["judge"]["outcome"]["value"] == pytest.approx((9 * 3 / 6 + 3 * (2 / 2) / 6) / 12)
    assert measure(groups, ["random"], n=5) is None
    assert measure(grouped([attempt("a", "q", None)]), ["random"]) is None
