"""Labels: joined to transcripts by content whatever the order of reading; which one is the target, and what it weighs."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from agent_runs import call, run

from reagent.lab.model import build_lab_tokenizer
from rrm.cli import annotate_cmd
from rrm.data.annotation import MAX_WEIGHT, Annotation, Finding, match, read_annotations
from rrm.data.labels import MergedAnnotation, mean_score, merged, target_of, targets_of, truth_of
from rrm.data.trajectory import Trajectory, write_jsonl
from rrm.errors import ReadError, RRMError
from rrm.prompt.prompter import Prompter
from rrm.readers import read
from rrm.train.data import make_row
from rrm.train.prepare import data_digest, load_annotations, merged_by_id


def label(score: float | None = None, annotator: str = "a", weight: float = 1.0, **parts: Any) -> Annotation:
    fields = {"trajectory_id": "1", "score": score, "annotator": annotator, "kind": "rules", "weight": weight}
    return Annotation.model_validate(fields | parts)


def of(id: str, **fields: Any) -> Annotation:
    return label(trajectory_id=id, **fields)


def row(name: str, outcome: float | None) -> Trajectory:
    return run("answer", task=name, id=name, outcome=outcome)


def together(*labels: Annotation) -> MergedAnnotation:
    merged_label = merged(labels)
    assert merged_label is not None
    return merged_label


@pytest.fixture
def two_files(tmp_path: Path) -> tuple[Path, Path]:
    """Two files whose only rows have the id `0`: a run without a fault, and one that gives up."""
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    write_jsonl(good, [run(call({"q": "gryphon"}), "by Ada", "Final Answer: Ada", id="0", outcome=1)])
    write_jsonl(bad, [run(call({"q": "gryphon"}), "by Ada", "I give up.", id="0", outcome=0)])
    return good, bad


def test_labels_do_not_swap_when_the_files_are_named_in_another_order(
    tmp_path: Path, two_files: tuple[Path, Path], invoke
) -> None:
    labels = tmp_path / "labels.jsonl"
    assert invoke(annotate_cmd.command, *two_files, "-o", labels, "--annotator", "rules")[0] == 0
    for order in (two_files, two_files[::-1]):
        rows = list(read(order))
        assert [t.id for t in rows] == ["0", "0#2"]
        by_id = merged_by_id(load_annotations([str(labels)], rows))
        by_outcome = {t.outcome: by_id[t.id].score for t in rows}
        assert by_outcome[1.0] == 1.0 and by_outcome[0.0] == 0.2


def test_an_id_that_two_transcripts_share_is_an_error_that_names_both(two_files: tuple[Path, Path]) -> None:
    rows = list(read(two_files))
    with pytest.raises(RRMError, match=r"id '0' and no digest.*good\.jsonl:1, .*bad\.jsonl:1.*rrm annotate"):
        match(rows, [of("0", score=1.0)])
    with pytest.raises(RRMError, match=r"only the order of reading gave .*bad\.jsonl:1 that id: its file says '0'"):
        match(rows, [of("0#2", score=1.0)])
    alone = match(list(read(two_files[:1])), [of("0", score=1.0)])
    assert [a.score for a in alone.by_id["0"]] == [1.0] and alone.complaint() is None


def test_an_id_of_its_own_that_looks_renamed_is_accepted(tmp_path: Path, two_files: tuple[Path, Path]) -> None:
    write_jsonl(tmp_path / "converted.jsonl", read(two_files))
    rows = list(read([tmp_path / "converted.jsonl"]))
    assert [(t.id, t.own_id) for t in rows] == [("0", "0"), ("0#2", "0#2")]
    by_id = match(rows, [of("0", score=1.0), of("0#2", score=0.0)]).by_id
    assert {k: v[0].score for k, v in by_id.items()} == {"0": 1.0, "0#2": 0.0}


def test_the_digest_covers_content_only_and_survives_conversion(tmp_path: Path) -> None:
    t = run(call({"q": "é", "n": 1.0}), "x \ud800", "Final Answer: x", outcome=1, id="a", tools=[{"name": "search"}])
    same = t.model_copy(update={"id": "b", "outcome": 0.0, "meta": {"agent": "m"}, "source": None, "question_id": "q"})
    assert same.digest == t.digest and Trajectory.from_json(t.to_json()).digest == t.digest
    write_jsonl(tmp_path / "rows.jsonl", [t])
    assert [r.digest for r in read([tmp_path / "rows.jsonl"])] == [t.digest]
    for change in ({"task": "other"}, {"tools": None}, {"messages": t.messages[:-1]}):
        assert t.model_copy(update=change).digest != t.digest


def test_transcripts_of_the_same_content_take_the_labels_that_name_them_or_else_all() -> None:
    a, b, c = (run("x", id=name) for name in "abc")
    first, second, third = (of(id, digest=a.digest, weight=weight) for id, weight in (("a", 1), ("a", 2), ("b", 1)))
    assert match([a, b, c], [first, second, third]).by_id == {
        "a": [first, second], "b": [third], "c": [first, second, third]
    }  # fmt: skip


def test_strays_are_counted_and_a_changed_transcript_keeps_no_label() -> None:
    old, new = run("x", id="a"), run("x, edited", id="a")
    matched = match([new], [of("a", digest=old.digest), of("b"), of("c", digest="0" * 16)])
    assert matched.by_id == {} and len(matched.strays) == 3 and matched.changed == 1
    assert str(matched.complaint()).startswith("3 of 3 annotations belong to no transcript, e.g. 'a'; 1 name")
    with pytest.raises(RRMError, match="same id"):
        match([old, old], [])


@pytest.mark.parametrize(("more", "reason"), [
    ({"wieght": 2}, r"labels\.jsonl:2: not an annotation: unknown wieght: .*weight"),
    ({"findings": [{"step": 1, "verdict": "good", "txt": "lost"}]}, "txt"),
])  # fmt: skip
def test_unknown_keys_of_an_annotation_are_errors_that_name_the_line(tmp_path: Path, more: Any, reason: str) -> None:
    good = {"trajectory_id": "a", "annotator": "x", "kind": "human", "score": 1.0}
    (tmp_path / "labels.jsonl").write_text(f"{json.dumps(good)}\n{json.dumps(good | more)}\n")
    with pytest.raises(ReadError, match=reason):
        read_annotations(tmp_path / "labels.jsonl")


@pytest.mark.parametrize(("rated", "mean"), [
    ([(1.0, 1.0), (0.0, 1.0), (0.0, 1.0)], 1 / 3), ([(1.0, 3.0), (0.0, 1.0)], 0.75), ([(0.2, 0.5), (0.8, 1.5)], 0.65),
    ([(0.9, 0.0), (0.4, 1.0)], 0.4), ([(None, 5.0), (0.4, 1.0)], 0.4), ([(0.9, 0.0)], None), ([], None),
])  # fmt: skip
def test_raters_are_averaged_with_their_weights(rated, mean) -> None:
    labels = [label(score, weight=weight) for score, weight in rated]
    merged_label = merged(labels)
    for score in (mean_score(labels), merged_label.score if merged_label else None):
        assert score == (None if mean is None else pytest.approx(mean))


def test_the_heaviest_labels_there_may_be_have_a_mean() -> None:
    heavy = together(*[label(score, weight=MAX_WEIGHT) for score in (0.0, 1.0)] * 1000)
    assert heavy.score == pytest.approx(0.5) and heavy.score_weight == MAX_WEIGHT
    with pytest.raises(ValueError, match="weight"):
        label(1.0, weight=math.inf)


def test_merged_text_comes_from_the_heaviest_that_has_it_and_weight_0_says_nothing() -> None:
    bad = [Finding(step=1, verdict="bad", text="x")]
    merged_label = together(
        label(0.2, "a"),
        label(None, "b", critique="[step 1] bad: x", findings=bad, trace="t"),
        label(0.8, "c", weight=2.0, critique="[step 1] good: y"),
        label(None, "d", trace="later"),
        label(None, "e", weight=0.0, trace="never"),
    )
    texts = (merged_label.critique, merged_label.trace, merged_label.findings)
    assert texts == ("[step 1] good: y", "t", None)
    # the trace is b's
    assert (merged_label.score, merged_label.weight, merged_label.annotator) == (pytest.approx(0.6), 1.0, "a+c")
    assert merged([label(1.0, weight=0.0)]) is None


@pytest.mark.parametrize(
    "single",
    [label(None, findings=[Finding(step=1, verdict="bad", text="x")]), label(0.5, "a", critique="c", weight=3.0)],
)
def test_a_single_annotation_is_merged_as_it_is(single: Annotation) -> None:
    assert Annotation(**{k: getattr(together(single), k) for k in Annotation.model_fields}) == single


def test_a_text_weighs_what_its_own_annotation_does_and_a_score_what_its_raters_do() -> None:
    for of_score, of_text in ((5.0, 0.1), (0.1, 5.0)):
        writer = label(None, "writer", weight=of_text, critique="c", trace="t")
        merged_label = together(label(0.2, "scorer", weight=of_score), writer)
        assert (merged_label.weight, merged_label.score_weight) == (of_text, of_score)
        target = target_of(row("1", None), merged_label)
        assert target is not None and (target.weight, target.annotation) == (of_score, merged_label)


def test_a_critique_does_not_weigh_what_anothers_trace_does() -> None:
    merged_label = together(
        label(None, "critic", weight=5.0, critique="c"), label(None, "tracer", weight=0.1, trace="t")
    )
    assert (merged_label.critique_weight, merged_label.trace_weight) == (5.0, 0.1)
    trained = row("1", 1.0)
    prompter = Prompter(build_lab_tokenizer([trained.task, "critique think score 0.1"], 400), 300)
    target = target_of(trained, merged_label)
    assert target is not None
    modes = ("score", "critique", "full")
    rows = {mode: make_row(prompter, trained, mode, target, random.Random(0)) for mode in modes}
    assert {mode: made.weight for mode, made in rows.items() if made} == {"score": 1.0, "critique": 5.0, "full": 0.1}


def test_the_record_of_a_runs_data_knows_what_a_score_weighs() -> None:
    trained, writer, single = row("1", None), label(None, "b", weight=0.5, critique="c"), label(1.0, critique="c")

    def digest(merged_label: Annotation) -> Any:
        return data_digest([trained], {trained.id: merged_label})

    first, second = (digest(together(label(1.0, "a", weight=weight), writer))["sha256"] for weight in (3.0, 9.0))
    assert first != second
    assert digest(single) == digest(together(single))  # a run that was begun before this was told apart goes on


def test_trace_and_critique_are_of_one_annotation_where_weights_allow_it() -> None:
    """The trace of one and the critique of another, side by side, can say the opposite of a step."""
    merged_label = together(label(0.1, "a", critique="a's"), label(0.1, "b", critique="b's", trace="b's"))
    assert (merged_label.trace, merged_label.critique) == ("b's", "b's")


@pytest.mark.parametrize(("outcome", "score", "rule", "expected"), [
    (0.0, 0.9, "outcome", (0.0, "outcome", 1.0)), (None, 0.9, "outcome", (0.9, "annotation", 3.0)),
    (0.0, 0.9, "annotation", (0.9, "annotation", 3.0)), (0.0, None, "annotation", (0.0, "outcome", 1.0)),
    (0.0, 0.8, "blend", (0.6, "blend", 2.5)), (1.0, None, "blend", (1.0, "outcome", 1.0)),
    (None, 0.8, "blend", (0.8, "annotation", 3.0)), (None, None, "blend", None),
])  # fmt: skip
def test_the_target_is_said_not_guessed(outcome, score, rule, expected) -> None:
    target = target_of(row("1", outcome), label(score, weight=3.0), rule, blend=0.25)
    assert expected == (target and (pytest.approx(target.score), target.rule, pytest.approx(target.weight)))


def test_rules_replace_no_true_outcome_and_the_run_says_how_often_they_would() -> None:
    rows = [row(str(i), 0.0) for i in range(40)] + [row(str(i), None) for i in range(40, 45)]
    labels = {t.id: label(1.0 if int(t.id) < 9 else 0.1, "rules") for t in rows}
    targets, counts = targets_of(rows, labels)
    assert [targets[str(i)].score for i in range(40)] == [0.0] * 40
    assert (counts.rows, counts.outcome, counts.annotation, counts.none) == (45, 40, {"rules": 5}, 0)
    assert (counts.both, counts.disagree) == (40, 9)
    assert str(counts) == (
        "targets of 45 rows: 40 by their outcome, 5 by annotation (rules), 0 without a label; where both are known, "
        "annotation and outcome disagree on 9 of 40 rows (22%)"
    )
    targets, counts = targets_of(rows, labels, "annotation")
    assert sum(t.score == 1.0 for t in targets.values()) == 9 and counts.annotation == {"rules": 45}
    assert json.loads(json.dumps(counts.as_dict()))["annotation"] == {"rules": 45}


def test_rows_without_any_label_are_counted() -> None:
    targets, counts = targets_of([row("1", None), row("2", 1.0)], {"1": label(None, critique="[step 1] bad: x")})
    assert targets.keys() == {"2"} and counts.none == 1 and "1 without a label" in str(counts)


@pytest.mark.parametrize(("outcome", "score", "truth"), [(0.0, 0.9, 0.0), (None, 0.9, 0.9), (None, None, None)])
def test_what_is_measured_against_is_the_outcome_where_it_is_known(outcome, score, truth) -> None:
    assert truth_of(row("1", outcome), label(score) if score else None) == truth


def test_annotations_are_read_and_merged_by_transcript(tmp_path) -> None:
    lines = [label(0.0, "a"), label(1.0, "b", weight=3.0), label(None, "c", critique="bad \ud800")]
    (tmp_path / "labels.jsonl").write_text("".join(a.to_json() + "\n" for a in lines))
    annotations = load_annotations([str(tmp_path / "labels.jsonl")], [row("1", None)])
    (merged_label,) = merged_by_id(annotations).values()
    assert (merged_label.score, merged_label.critique) == (0.75, "bad \ud800")
