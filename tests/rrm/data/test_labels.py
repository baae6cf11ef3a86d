"""Which label is the target: raters averaged, outcomes kept, every rule counted."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest

from reagent.lab.model import build_lab_tokenizer
from rrm.data.annotation import MAX_WEIGHT, Annotation, Finding
from rrm.data.labels import mean_score, merged, target_of, targets_of, truth_of
from rrm.data.trajectory import Message, Trajectory
from rrm.prompt.prompter import Prompter
from rrm.train.data import make_row
from rrm.train.prepare import data_digest, load_annotations, merged_by_id


def row(name: str, outcome: float | None) -> Trajectory:
    messages = [Message(role="user", content=name), Message(role="assistant", content="answer")]
    return Trajectory(id=name, task=name, messages=messages, outcome=outcome)


def label(score: float | None = None, annotator: str = "a", weight: float = 1.0, **parts: Any) -> Annotation:
    return Annotation(trajectory_id="1", score=score, annotator=annotator, kind="rules", weight=weight, **parts)


@pytest.mark.parametrize(
    ("rated", "mean"),
    [
        ([(1.0, 1.0), (0.0, 1.0), (0.0, 1.0)], 1 / 3),
        ([(1.0, 3.0), (0.0, 1.0)], 0.75),
        ([(0.2, 0.5), (0.8, 1.5)], 0.65),
        ([(0.9, 0.0), (0.4, 1.0)], 0.4),
        ([(None, 5.0), (0.4, 1.0)], 0.4),
        ([(0.9, 0.0)], None),
        ([], None),
    ],
)
def test_raters_are_averaged_with_their_weights(rated, mean) -> None:
    """1, 0, 0 used to train as 1.0: the first rater's score, the others' unread."""
    labels = [label(score, weight=weight) for score, weight in rated]
    assert mean_score(labels) == (None if mean is None else pytest.approx(mean))
    together = merged(labels)
    assert (together.score if together else None) == (None if mean is None else pytest.approx(mean))


def test_the_heaviest_labels_there_may_be_have_a_mean() -> None:
    together = merged([label(score, weight=MAX_WEIGHT) for score in (0.0, 1.0)] * 1000)
    assert together and together.score == pytest.approx(0.5) and together.score_weight == MAX_WEIGHT
    with pytest.raises(ValueError, match="weight"):
        label(1.0, weight=math.inf)


def test_merged_text_comes_from_the_heaviest_that_has_it_and_weight_0_says_nothing() -> None:
    bad = [Finding(step=1, verdict="bad", text="x")]
    together = merged(
        [
            label(0.2, "a"),
            label(None, "b", critique="[step 1] bad: x", findings=bad, trace="t"),
            label(0.8, "c", weight=2.0, critique="[step 1] good: y"),
            label(None, "d", trace="later"),
            label(None, "e", weight=0.0, trace="never"),
        ]
    )
    assert together is not None
    assert (together.critique, together.trace, together.findings) == ("[step 1] good: y", "t", None)
    assert (together.score, together.weight, together.annotator) == (pytest.approx(0.6), 1.0, "a+c")  # the trace is b's
    assert alone(label(None, findings=bad))
    assert merged([label(1.0, weight=0.0)]) is None


def alone(one: Annotation) -> bool:
    """Whether merging nothing else with it leaves an annotation as it is."""
    together = merged([one])
    return together is not None and Annotation(**{k: getattr(together, k) for k in Annotation.model_fields}) == one


def test_a_text_weighs_what_its_own_annotation_does_and_a_score_what_its_raters_do() -> None:
    """A text of weight 0.1 was trained with the weight 5 of another rater, who had only scored."""
    together = merged([label(0.2, "scorer", weight=5.0), label(None, "writer", weight=0.1, critique="c", trace="t")])
    assert together is not None and (together.weight, together.score_weight) == (0.1, 5.0)
    target = target_of(row("1", None), together)
    assert target is not None and (target.weight, target.annotation) == (5.0, together)
    flipped = merged([label(0.2, "scorer", weight=0.1), label(None, "writer", weight=5.0, critique="c", trace="t")])
    assert flipped is not None and (flipped.weight, flipped.score_weight) == (5.0, 0.1)


def test_a_critique_does_not_weigh_what_anothers_trace_does() -> None:
    """Rows of mode `critique`, which hold no trace, were trained with the trace's weight of 0.1."""
    together = merged([label(None, "critic", weight=5.0, critique="c"), label(None, "tracer", weight=0.1, trace="t")])
    assert together is not None and (together.critique_weight, together.trace_weight) == (5.0, 0.1)
    trained = row("1", 1.0)
    tokenizer = build_lab_tokenizer([trained.task, "critique think score 0.1"], 400)
    target = target_of(trained, together)
    assert target is not None
    made = {
        mode: make_row(Prompter(tokenizer, 300), trained, mode, target, random.Random(0))
        for mode in ("score", "critique", "full")
    }
    assert {mode: found.weight for mode, found in made.items() if found} == {"score": 1.0, "critique": 5.0, "full": 0.1}


def test_the_record_of_a_runs_data_knows_what_a_score_weighs() -> None:
    """Score weights of 3 and 9 beside a critique gave one digest, and a run went on with other labels."""
    trained = row("1", None)
    found = []
    for weight in (3.0, 9.0):
        together = merged([label(1.0, "a", weight=weight), label(None, "b", weight=0.5, critique="c")])
        assert together is not None
        found.append(data_digest([trained], {trained.id: together})["sha256"])
    assert found[0] != found[1]
    one = label(1.0, critique="c")
    together = merged([one])  # a run that was begun before this was told apart goes on
    assert together is not None
    assert data_digest([trained], {trained.id: one}) == data_digest([trained], {trained.id: together})


def test_trace_and_critique_are_of_one_annotation_where_weights_allow_it() -> None:
    """The trace of one and the critique of another, side by side, can say the opposite of a step."""
    together = merged([label(0.1, "a", critique="a's"), label(0.1, "b", critique="b's", trace="b's")])
    assert together is not None and (together.trace, together.critique) == ("b's", "b's")
    one = label(0.5, "a", critique="c", weight=3.0)
    assert alone(one)


@pytest.mark.parametrize(
    ("outcome", "score", "rule", "expected"),
    [
        (0.0, 0.9, "outcome", (0.0, "outcome", 1.0)),
        (None, 0.9, "outcome", (0.9, "annotation", 3.0)),
        (0.0, 0.9, "annotation", (0.9, "annotation", 3.0)),
        (0.0, None, "annotation", (0.0, "outcome", 1.0)),
        (0.0, 0.8, "blend", (0.6, "blend", 2.5)),
        (1.0, None, "blend", (1.0, "outcome", 1.0)),
        (None, 0.8, "blend", (0.8, "annotation", 3.0)),
        (None, None, "blend", None),
    ],
)
def test_the_target_is_said_not_guessed(outcome, score, rule, expected) -> None:
    found = target_of(row("1", outcome), label(score, weight=3.0), rule, blend=0.25)
    assert expected == (found and (pytest.approx(found.score), found.rule, pytest.approx(found.weight)))


def test_rules_replace_no_true_outcome_and_the_run_says_how_often_they_would() -> None:
    """After `rrm annotate --annotator rules`, 9 of 40 failures used to train as 1.0, silently."""
    rows = [row(str(i), 0.0) for i in range(40)] + [row(str(i), None) for i in range(40, 45)]
    said = {t.id: label(1.0 if int(t.id) < 9 else 0.1, "rules") for t in rows}
    targets, counts = targets_of(rows, said)
    assert [targets[str(i)].score for i in range(40)] == [0.0] * 40
    assert (counts.rows, counts.outcome, counts.annotation, counts.none) == (45, 40, {"rules": 5}, 0)
    assert (counts.both, counts.disagree) == (40, 9)
    assert str(counts) == (
        "targets of 45 rows: 40 by their outcome, 5 by annotation (rules), 0 without a label; where both are known, "
        "annotation and outcome disagree on 9 of 40 rows (22%)"
    )
    asked, counts = targets_of(rows, said, "annotation")
    assert sum(t.score == 1.0 for t in asked.values()) == 9 and counts.annotation == {"rules": 45}
    assert json.loads(json.dumps(counts.as_dict()))["annotation"] == {"rules": 45}


def test_rows_without_any_label_are_counted() -> None:
    targets, counts = targets_of([row("1", None), row("2", 1.0)], {"1": label(None, critique="[step 1] bad: x")})
    assert targets.keys() == {"2"} and counts.none == 1 and "1 without a label" in str(counts)


def test_what_is_measured_against_is_the_outcome_where_it_is_known() -> None:
    assert truth_of(row("1", 0.0), label(0.9)) == 0.0
    assert truth_of(row("1", None), label(0.9)) == 0.9
    assert truth_of(row("1", None), None) is None


def test_annotations_are_read_and_merged_by_transcript(tmp_path) -> None:
    path = tmp_path / "labels.jsonl"
    lines = [label(0.0, "a"), label(1.0, "b", weight=3.0), label(None, "c", critique="bad \ud800")]
    path.write_text("".join(a.to_json() + "\n" for a in lines))
    (found,) = merged_by_id(load_annotations([str(path)], [row("1", None)])).values()
    assert (found.score, found.critique) == (0.75, "bad \ud800")
