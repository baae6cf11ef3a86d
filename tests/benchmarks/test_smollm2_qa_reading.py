"""What attempts read, and what earns within a question, by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks.studies.smollm2_qa_data import task_of
from benchmarks.studies.smollm2_qa_reading import auroc_within, did, earns, reading, results
from rrm.data.trajectory import Message, ToolCall, Trajectory

TASKS = [task_of(f"Who directed film {n}?", f"Person {n}", "2wiki", [f"Film {n}"]) for n in range(40)]


def attempt(n: int, found: Sequence[str], said: str | None) -> Trajectory:
    """At question `n`: searches that found so much, then an answer; None: none was given."""
    messages = [Message(role="user", content=TASKS[n].question)]
    for k, text in enumerate(found):
        call = ToolCall(name="search", arguments={"query": f"{k}"}, id=f"call_{k}")
        messages.append(Message(role="assistant", content="", tool_calls=[call]))
        messages.append(Message(role="user", content=text, tool_call_id=f"call_{k}", name="search"))
    messages.append(Message(role="assistant", content="no" if said is None else f"Answer: {said}"))
    return Trajectory(id="a", task=TASKS[n].question, question_id=TASKS[n].question_id, messages=messages)


def right(one: Trajectory) -> float:
    return float(one.messages[-1].text().startswith("Answer: Person"))


@pytest.mark.parametrize(
    ("found", "said", "done"),
    [
        ([], "Person 0", (False, False, False, False)),
        (["Film 0 is by Person 0."], "Person 0", (False, False, True, True)),
        (["Film 0 is old.", "Film 0 is old."], "old", (True, False, False, True)),
        (["Film 0 is old.", "Person 0 made it."], None, (True, True, True, False)),
    ],
)
def test_what_an_attempt_did(found: list[str], said: str | None, done: tuple[bool, ...]) -> None:
    one = attempt(0, found, said)
    assert results(one) == found and tuple(did(one, TASKS[0]).values()) == done


def test_what_was_read_before_an_answer() -> None:
    played = [
        attempt(0, ["by Person 0"], "Person 0"),
        attempt(1, ["by Person 1", "by Person 1"], "nobody"),
        attempt(2, ["a film", "a director"], "Person 2"),
        attempt(3, [], "nobody"),
    ]
    assert reading(played, TASKS, right) == {
        "questions": 4, "read": 0.5, "f1_of_these": 0.5, "f1_of_others": 0.5, "twice": 2, "found_the_same": 0.5,
    }  # fmt: skip
    assert reading([], TASKS, right) == {} and earns([], TASKS, right) == {}
    nothing = reading(played[3:], TASKS, right)
    assert nothing["f1_of_these"] is None and nothing["found_the_same"] is None


def test_what_earns_is_compared_within_a_question() -> None:
    """Questions in which all read the answer are easy: across them reading seems to earn more than it does within."""
    played = []
    for n in range(20):
        text = [f"by Person {n}"]
        played += [attempt(n, text, f"Person {n}"), attempt(n, [], f"Person {n}")]  # no matter what was read
        played += [attempt(n + 20, [f"by Person {n + 20}"], "nobody"), attempt(n + 20, [], "nobody")]
        played += [attempt(n, [f"by Person {n}", "else"], f"Person {n}"), attempt(n, ["else"], "nobody")]
    found = earns(played, TASKS, right)
    # of a question's four attempts two read (1, 1) and two did not (1, 0): 1 − 0.5; of the others none is right
    assert found["read_the_answer"]["f1"]["value"] == pytest.approx(20 * 0.5 / (20 * 1 + 20 * 0.5), abs=1e-4)
    assert found["read_the_answer"]["f1"]["low"] > 0
    assert found["searched_twice"]["share"] == round(20 / 120, 4)
    alike = earns([attempt(0, [], "Person 0"), attempt(0, [], "nobody")], TASKS, right)
    assert alike["read_the_answer"] == {"share": 0, "f1": {"value": None, "low": None, "high": None}}


def test_scores_are_compared_within_a_question() -> None:
    easy, hard = [[0.1, 1.0, "a", 1.0], [0.3, 0.4, "b", 1.0], [None, 0.0, "c", 1.0]], [[0.1, 0.0, "a", 1.0]]
    found = auroc_within({"easy": easy, "hard": hard})  # "hard" has nothing to compare
    assert (found["value"], found["pairs"], found["questions"]) == (0.0, 1, 1)
    assert auroc_within({"hard": hard})["value"] is None
    level = auroc_within({f"q{n}": [[0.5, 1.0, "a", 1.0], [0.5 if n % 2 else 0.1, 0.0, "b", 1.0]] for n in range(40)})
    assert level["value"] == 0.75 and 0.5 < level["low"] < 0.75 < level["high"] < 1
