"""Which rows an evaluation reads: both draws by hand, blind where they must be."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from benchmarks.default_judge.drawing import (
    Draw,
    counted,
    draw,
    drawn,
    groups_of,
    in_pairs,
    limit_of,
    limits_of,
    pairs_of,
    spread,
    to_read,
)
from benchmarks.default_judge.sources import Example
from rrm.data.trajectory import Message, Trajectory


def row(
    id: str, question: str, outcome: float | None, steps: int = 2, *, source: str = "a", said: str = "look"
) -> Example:
    turns = [Message(role="assistant", content=f"{said} {k}") for k in range(steps)]
    messages = [Message(role="user", content=question), *turns]
    t = Trajectory(id=id, task=question, question_id=question, messages=messages, outcome=outcome)
    return Example(t.model_copy(update={"meta": {"source": source}}), None, ())


def ids(rows: Sequence[Example]) -> set[str]:
    return {r.trajectory.id for r in rows}


ROWS = [
    row("a1", "q1", 0.0), row("a2", "q1", 0.0), row("a3", "q1", 0.0), row("a4", "q1", 1.0),
    row("b1", "q1", 0.0, 3), row("b2", "q1", 1.0, 3),
    row("c1", "q2", 0.0), row("c2", "q2", 1.0),
    row("d1", "q3", 1.0), row("e1", "q1", 1.0, 5), row("f1", "q2", None),
]  # fmt: skip
"""Question q1 has two groups with both outcomes, q2 one; d1 and e1 have no partner, f1 no outcome."""


# ---- in pairs --------------------------------------------------------------------------------------------------------


def test_pairs_are_of_one_question_and_number_of_steps() -> None:
    assert pairs_of(ROWS) == 3 + 1 + 1
    assert {q: sorted(of) for q, of in groups_of(ROWS).items()} == {"q1": [2, 3], "q2": [2]}
    assert counted(ROWS) == {
        "rows": 11, "graded": 10, "successes": 5, "questions": 3, "pairs": 5, "pair_questions": 2, "pair_groups": 3,
    }  # fmt: skip


def test_a_draw_in_pairs_by_hand() -> None:
    every = in_pairs(ROWS, 0, seed=0, side=9)
    assert ids(every) == {"a1", "a2", "a3", "a4", "b1", "b2", "c1", "c2"}
    assert [r.trajectory.id for r in every] == sorted(ids(every))  # in their order
    for seed in range(20):
        two = in_pairs(ROWS, 0, seed=seed, side=2)
        assert len(two) == 7 and len(ids(two) & {"a1", "a2", "a3"}) == 2 and pairs_of(two) == 4
        # one group a question first: q1's with most rows that are read anyway
        assert ids(in_pairs(ROWS, 4, seed=seed, first={"b1"})) == {"b1", "b2", "c1", "c2"}
        # rows read anyway come first inside a class too
        assert {"a2", "a4"} < ids(in_pairs(ROWS, 5, seed=seed, first={"a2"})) and "b1" not in ids(
            in_pairs(ROWS, 5, seed=seed, first={"a2"})
        )
        assert ids(in_pairs(ROWS, 6, seed=seed, side=1)) == ids(in_pairs(ROWS, 0, seed=seed, side=1))
    assert {tuple(sorted(ids(in_pairs(ROWS, 0, seed=s)))) for s in range(20)} == {
        tuple(sorted({"a4", "b1", "b2", "c1", "c2", *two})) for two in (("a1", "a2"), ("a1", "a3"), ("a2", "a3"))
    }


def test_a_cut_draw_in_pairs_has_many_questions_and_both_outcomes() -> None:
    rows = [row(f"{q}-{n}-{k}", f"q{q}", float(k % 2), n) for q in range(6) for n in (1, 2, 3) for k in range(4)]
    for seed in range(10):
        for most in (2, 7, 24, 25, 40):
            found = in_pairs(rows, most, seed=seed)
            groups = groups_of(found)
            assert most - 1 <= len(found) <= most
            assert sum(len(side) for of in groups.values() for two in of.values() for side in two) == len(found)
        one_each = in_pairs(rows, 24, seed=seed)
        assert {q: len(of) for q, of in groups_of(one_each).items()} == {f"q{q}": 1 for q in range(6)}
        assert pairs_of(one_each) == 24


def test_long_transcripts_may_be_left_out_of_pairs() -> None:
    rows = [*ROWS[:8], row("g1", "q4", 0.0, said="x" * 500), row("g2", "q4", 1.0)]
    assert pairs_of(in_pairs(rows, 0, seed=0, side=9)) == 6
    assert pairs_of(in_pairs(rows, 0, seed=0, side=9, longest=500)) == 5


# ---- by question -----------------------------------------------------------------------------------------------------


def test_calibration_rows_are_spread_over_questions_and_blind_to_outcomes() -> None:
    rows = [row(f"a{k}", "q1", float(k % 2)) for k in range(5)] + [row("b", "q2", 1.0), row("c", "q3", 0.0)]
    turned = [Example(r.trajectory.model_copy(update={"outcome": 1.0 - (r.trajectory.outcome or 0.0)}), None, ()) for r in rows]  # fmt: skip
    for seed in range(20):
        three, four = ids(spread(rows, 3, seed)), ids(spread(rows, 4, seed))
        assert {"b", "c"} < three and len(three) == 3
        assert three < four and len(four) == 4
        assert ids(spread(turned, 4, seed)) == four
        assert ids(drawn(turned, 3, 2, seed)) == ids(drawn(rows, 3, 2, seed))
    assert len(spread(rows, 0, 0)) == len(spread(rows, 9, 0)) == 7
    assert len({tuple(sorted(ids(spread(rows, 3, seed)))) for seed in range(20)}) == 5


def test_each_source_and_part_has_its_own_limits_and_a_row_of_both_draws_is_read_once() -> None:
    test = [
        row(f"{s}{q}-{k}", f"{s}{q}", float(k % 2), source=s) for s in ("m/x", "m/y", "z") for q in range(5) for k in range(4)
    ]  # fmt: skip
    later = [
        Example(r.trajectory.model_copy(update={"id": f"cal-{r.trajectory.id}", "question_id": f"c{r.trajectory.question_id}"}), None, ())
        for r in test
    ]  # fmt: skip
    parts = {
        "test": test,
        "calibration": later,
        "unseen": [row("u1", "u", 1.0, source="tau"), row("u2", "u", 0.0, source="tau")],
    }
    how = Draw(limits={"": 6, "m/": 4}, attempts={"": 2, "z": 0}, calibration={"m/y": 3}, pairs={"m/": 8, "m/y": 0})
    chosen, paired = draw(parts, how)

    def sizes(rows: Sequence[Example]) -> dict[str, int]:
        return {s: sum(r.source == s for r in rows) for s in sorted({r.source for r in rows})}

    assert sizes(chosen["test"]) == {"m/x": 4, "m/y": 4, "z": 6}
    assert sizes(chosen["calibration"]) == {"m/x": 4, "m/y": 3, "z": 6}
    assert sizes(chosen["unseen"]) == {"tau": 2}
    assert sizes(paired) == {"m/x": 8, "m/y": 20}  # none of z
    read = [r.trajectory.id for r in to_read(chosen, paired)["test"]]
    assert len(read) == len(set(read)) and set(read) == ids(chosen["test"]) | ids(paired)
    assert len(read) < len(chosen["test"]) + len(paired)
    json.dumps(how.told())


def test_limits_are_of_the_longest_beginning_that_fits() -> None:
    limits = limits_of(["20", "mint/=0", "mint/math=7"])
    assert [limit_of(s, limits) for s in ("fireact", "mint/gsm8k", "mint/math")] == [20, 0, 7]
    assert limit_of("a", {"b": 3}, -1) == -1
    with pytest.raises(ValueError, match="--pairs 'mint=many'"):
        limits_of(["mint=many"], "--pairs")
