"""Rows that a step judge is measured on: each line says what its slot is; and what rivals learn from."""

from __future__ import annotations

import random
from typing import Any

import pytest

from benchmarks.models import evaluation_rows
from benchmarks.models.evaluation_rows import Rows, make
from benchmarks.models.rivals import Rivals, lessons, step_text
from benchmarks.models.sources import LabelledRun
from reagent.lab.model import build_lab_tokenizer
from rrm.data.trajectory import Trajectory
from rrm.prompt.prompter import Prompter

WORDS = "Task Tools call result refund order find customer status paid is good bad yes no done sorry [step earlier steps are not listed"
PEOPLE = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Fay")
TOOLS = [{"name": "find_order", "parameters": {}}, {"name": "refund", "parameters": {}}]


def make_run(i: int, *, success: bool, long: bool = False) -> LabelledRun:
    """A run that looks an order up and refunds it; one that failed refunds another one."""
    customer, order = PEOPLE[i % 6], f"{4100 + 7 * i}"
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Refund order {order} of {customer} Moore."}]

    def add(name: str, arguments: dict[str, Any], result: str) -> None:
        call = {"id": f"c{len(messages)}", "name": name, "arguments": arguments}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    for k in range(12 if long else 1):
        add(
            "find_order",
            {"order": f"{order}-{k}" if k else order},
            f"order {order} of {customer} Moore, paid {20 + i}.00",
        )
    add("refund", {"order": order if success else "9999"}, f"refunded {20 + i}.00 to {customer} Moore")
    messages.append({"role": "assistant", "content": f"Done: {20 + i}.00 has been refunded to {customer} Moore."})
    n = 14 if long else 3
    t = Trajectory.model_validate(
        {"id": f"r{i}", "task": messages[0]["content"], "messages": messages, "tools": TOOLS, "outcome": float(success)}
    )
    labels = tuple([1] * n if success else [None] * (n - 2) + [0, None])
    changes = frozenset({"refund"})
    return LabelledRun(t, "tau", f"tau/{i}", labels, int(success), {}, frozenset({n - 1}), changes)


RUNS = [make_run(i, success=i % 2 == 0, long=i % 8 < 2) for i in range(60)]


@pytest.fixture(scope="module")
def prompter() -> Prompter:
    texts = [WORDS, *(step_text(run.trajectory, k) for run in RUNS[:20] for k in (1, 2, 3))]
    return Prompter(build_lab_tokenizer(texts, 500), 400, "3")


@pytest.fixture(scope="module")
def made(prompter: Prompter) -> Rows:
    return make(prompter, RUNS, Rivals([]), 40_000, 0)


def test_there_is_one_line_a_slot_and_the_row_says_the_same(made: Rows) -> None:
    slots = [(i, slot) for i, row in enumerate(made.rows) for slot in row.slots]
    assert len(slots) == len(made.lines)
    for (i, (_, label, _, _, _, step)), line in zip(slots, made.lines, strict=True):
        assert (line["row"], line["step"]) == (i, step)
        assert line["label"] in (None if label < 0 else label, None)


def test_every_kind_of_row_is_there(made: Rows) -> None:
    steps = [x for x in made.lines if x["step"]]
    exact = [x["label"] for x in steps if x["exact"]]
    assert min(exact.count(0), exact.count(1)) >= 5
    outcomes = [x["label"] for x in made.lines if not x["step"] and x["planted"] is None and x["claims"]]
    assert min(outcomes.count(0), outcomes.count(1)) >= 5
    kinds = {x["kind"] for x in steps if x["planted"] and x["label"] == 0}
    assert {"wrong_argument", "broken_instruction", "wrong_answer"} <= kinds
    assert all(x["kind"] for x in steps if x["planted"] and x["label"] is not None)
    assert not any(x["exact"] for x in steps if x["planted"])


def test_later_windows_are_not_told_the_labels(prompter: Prompter) -> None:
    run = make_run(1, success=False, long=True)
    marked = LabelledRun(run.trajectory, run.source, run.key, (0,) * 14, 0)
    readings = Rows(prompter, [marked], ["tau"], Rivals([])).readings(marked)
    assert len(readings) > 1
    assert "(bad)" not in prompter.tokenizer.decode([i for p in readings for i in p.ids])


def test_rows_are_the_same_of_one_seed(prompter: Prompter, made: Rows) -> None:
    again = make(prompter, RUNS, Rivals([]), 40_000, 0)
    assert [row.ids for row in again.rows] == [row.ids for row in made.rows]
    assert again.lines == made.lines


def test_a_fold_has_no_question_that_another_source_is_trained_on() -> None:
    abroad = [LabelledRun(r.trajectory, "fireact", "tau/0", r.labels) for r in RUNS[:1]]
    trained = abroad[0].part == "train"
    keys = {run.key for run in evaluation_rows.chosen([*RUNS, *abroad], "tau_stepshield")}
    assert ("tau/0" in keys) is not trained
    assert len(keys) == len({run.key for run in RUNS}) - trained
    assert {run.part for run in evaluation_rows.chosen(RUNS, "home")} == {"test"}


def test_runs_of_a_pair_are_of_about_one_length() -> None:
    pairs = list(evaluation_rows._matched(RUNS, random.Random(0)))
    assert len(pairs) == 30
    assert all((good.outcome, bad.outcome) == (1, 0) for good, bad in pairs)
    assert sum(len(good.labels) == len(bad.labels) for good, bad in pairs) >= 28


def test_rivals_learn_words_and_places() -> None:
    rivals = Rivals([said for said in lessons(RUNS, 0).values()])
    right, wrong = (step_text(make_run(i, success=i == 2).trajectory, 2) for i in (2, 3))
    assert rivals.of(right, 2, 3)["tfidf"] > 0.5 > rivals.of(wrong, 2, 3)["tfidf"]
    assert rivals.position(1, 3) > 0.9  # the first step is never known to be bad
    assert rivals.position(2, 3) < 0.6
    assert rivals.position(9, 90) != rivals.position(1, 3)
    assert Rivals([]).of("", 1, 3) == {"tfidf": 0.5, "tfidf_planted": 0.5, "position": 0.5}
