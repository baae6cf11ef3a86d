"""Question keys stand in judge.json and in split files: they are the same numbers for ever."""

from __future__ import annotations

import pytest

from rrm.data.questions import question_hash, question_key, question_of, seen_in_training, text_hash
from rrm.data.trajectory import Message, Trajectory

TEXT = "What is 6 × 7?"


def attempt(question_id: str | None, task: str = TEXT) -> Trajectory:
    return Trajectory(id="i", task=task, question_id=question_id, messages=[Message(role="assistant", content="42")])


def test_hashes_are_those_that_judges_and_splits_hold() -> None:
    assert question_hash(TEXT) == question_hash("what is\n6 × 7?") == "383a83bce706"
    assert text_hash(TEXT) == text_hash("what is 6 7") == "572a18222404fad7"
    assert text_hash("…") == "b4935894c8ce16bd" and question_hash("\ud800") == "91a681b99855"


@pytest.mark.parametrize("given", [None, TEXT, "383a83bce706"])
def test_an_id_made_of_the_text_is_no_id_of_its_own(given: str | None) -> None:
    assert question_key(attempt(given)) == "572a18222404fad7"


def test_a_given_id_is_part_of_the_key() -> None:
    assert question_key(attempt("q1")) == "572a18222404fad7:c75de8c1b7c3ae52"
    assert [question_of(a) for a in (attempt("q1"), attempt(None), attempt(None, ""))] == ["q1", TEXT, "i"]


def test_a_question_is_met_again_by_its_id_where_both_sides_have_one() -> None:
    keys = [question_key(attempt("q1"))]
    assert seen_in_training(keys, [attempt("q1", "In other words"), attempt("q2"), attempt(None)]) == ["i", "i"]
    assert seen_in_training([], [attempt("q1")]) == []
