"""Smoothed outcomes by hand, and several annotations merged into one label."""

from __future__ import annotations

import json

import pytest

from benchmarks import smoothed
from rrm.annotation import Annotation
from rrm.cli import annotate_cmd
from rrm.errors import ConfigError, RRMError
from rrm.train.run import load_annotations
from rrm.trajectory import Message, Trajectory, write_jsonl


def row(i: int, question: str, outcome: float | None, agent: str | None) -> Trajectory:
    meta = {} if agent is None else {"agent": agent}
    messages = [Message(role="user", content=question), Message(role="assistant", content="done")]
    return Trajectory(id=str(i), question_id=question, messages=messages, outcome=outcome, meta=meta)


ROWS = [
    row(0, "q1", 1.0, "strong"),
    row(1, "q2", 1.0, "strong"),
    row(2, "q1", 0.0, "weak"),
    row(3, "q2", 1.0, "weak"),
    row(4, "test", 1.0, "weak"),
    row(5, "q2", None, "weak"),
    row(6, "q2", 1.0, None),
]


def test_rates_are_shrunk_to_the_mean() -> None:
    # mean of the four rows that name an agent and have an outcome: 3/4; each agent has two rows and one of prior
    rates = smoothed.group_rates(ROWS[:4], "agent", prior_rows=1.0)
    assert rates == {"strong": pytest.approx((2 + 0.75) / 3), "weak": pytest.approx((1 + 0.75) / 3)}


def test_score_is_the_weighted_mean_of_outcome_and_relative_rate() -> None:
    found = {a.trajectory_id: a.score for a in smoothed.annotate(ROWS, {"q1", "q2"}, own_share=0.4)}
    strong, weak = (2 + 5 * 0.75) / 7, (1 + 5 * 0.75) / 7
    assert found == {
        "0": pytest.approx(1.0),
        "1": pytest.approx(1.0),
        "2": pytest.approx(0.6 * weak / strong, abs=1e-4),
        "3": pytest.approx(0.4 + 0.6 * weak / strong, abs=1e-4),
        "6": 1.0,  # no agent: its own outcome
    }


def test_outcomes_of_other_questions_change_nothing() -> None:
    changed = [t if t.question_id != "test" else t.model_copy(update={"outcome": 0.0}) for t in ROWS]
    assert list(smoothed.annotate(ROWS, {"q1", "q2"})) == list(smoothed.annotate(changed, {"q1", "q2"}))


def test_nobody_to_smooth_with_is_an_error() -> None:
    with pytest.raises(RRMError, match="meta\\['model'\\]"):
        list(smoothed.annotate(ROWS, {"q1", "q2"}, group="model"))
    with pytest.raises(RRMError, match="ever succeeds"):
        list(smoothed.annotate([row(0, "q1", 0.0, "weak")], {"q1"}))


def test_command_needs_the_split_and_keeps_test_questions_out(tmp_path, invoke) -> None:
    data, split, out = tmp_path / "runs.jsonl", tmp_path / "split.json", tmp_path / "labels.jsonl"
    write_jsonl(data, ROWS)
    split.write_text(json.dumps({"train": ["q1"], "calibration": ["q2"], "test": ["test"]}))
    arguments = [annotate_cmd.command, data, "-o", out, "--annotator", "smoothed"]
    with pytest.raises(ConfigError, match="--split"):
        invoke(*arguments)
    assert invoke(*arguments, "--split", split)[0] == 0
    assert [json.loads(line)["trajectory_id"] for line in out.read_text().splitlines()] == ["0", "2"]


def test_merged_parts_come_from_the_heaviest_that_has_them(tmp_path) -> None:
    labels = [
        Annotation(trajectory_id="1", score=0.2, annotator="a", kind="rules"),
        Annotation(trajectory_id="1", critique="[step 1] bad: x", trace="t", annotator="b", kind="llm"),
        Annotation(trajectory_id="1", score=0.9, critique="[step 1] good: y", annotator="c", kind="human", weight=2.0),
        Annotation(trajectory_id="1", trace="later", annotator="d", kind="llm"),
    ]
    path = tmp_path / "labels.jsonl"
    path.write_text("".join(json.dumps(a.model_dump(exclude_none=True)) + "\n" for a in labels))
    found = load_annotations([str(path)], [ROWS[1]])["1"]
    assert (found.score, found.critique, found.trace) == (0.9, "[step 1] good: y", "t")


def test_lone_surrogates_in_annotations_are_read(tmp_path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text('{"trajectory_id": "1", "critique": "bad \\ud800", "annotator": "x", "kind": "llm"}\n')
    assert load_annotations([str(path)], [ROWS[1]])["1"].critique == "bad \ud800"
