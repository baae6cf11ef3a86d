"""Labels and transcripts are joined by content, whatever the files are called and in whatever order they are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from agent_runs import call, run

from rrm.cli import annotate_cmd
from rrm.data.annotation import Annotation, match, read_annotations
from rrm.data.trajectory import Trajectory, write_jsonl
from rrm.errors import ReadError, RRMError
from rrm.readers import read
from rrm.train.prepare import load_annotations, merged_by_id


def two_files(folder: Path) -> tuple[Path, Path]:
    """Two files whose only rows have the id `0`: a run without a fault, and one that gives up."""
    good, bad = folder / "good.jsonl", folder / "bad.jsonl"
    write_jsonl(good, [run(call({"q": "gryphon"}), "by Ada", "Final Answer: Ada", id="0", outcome=1)])
    write_jsonl(bad, [run(call({"q": "gryphon"}), "by Ada", "I give up.", id="0", outcome=0)])
    return good, bad


def label(id: str, **fields) -> Annotation:
    return Annotation.model_validate({"trajectory_id": id, "annotator": "x", "kind": "human", **fields})


def test_labels_do_not_swap_when_the_files_are_named_in_another_order(tmp_path: Path, invoke) -> None:
    good, bad = two_files(tmp_path)
    labels = tmp_path / "labels.jsonl"
    assert invoke(annotate_cmd.command, good, bad, "-o", labels, "--annotator", "rules")[0] == 0
    for order in ((good, bad), (bad, good)):
        rows = list(read(order))
        assert [t.id for t in rows] == ["0", "0#2"]
        found = merged_by_id(load_annotations([str(labels)], rows))
        by_outcome = {t.outcome: found[t.id].score for t in rows}
        assert by_outcome[1.0] == 1.0 and by_outcome[0.0] == 0.2


def test_an_id_that_two_transcripts_share_is_an_error_that_names_both(tmp_path: Path) -> None:
    good, bad = two_files(tmp_path)
    rows = list(read([good, bad]))
    with pytest.raises(RRMError, match=r"id '0' and no digest.*good\.jsonl:1, .*bad\.jsonl:1.*rrm annotate"):
        match(rows, [label("0", score=1.0)])
    with pytest.raises(RRMError, match=r"only the order of reading gave .*bad\.jsonl:1 that id: its file says '0'"):
        match(rows, [label("0#2", score=1.0)])
    one = match(list(read([good])), [label("0", score=1.0)])
    assert [a.score for a in one.by_id["0"]] == [1.0] and one.complaint() is None


def test_an_id_of_its_own_that_looks_renamed_is_accepted(tmp_path: Path) -> None:
    converted = tmp_path / "converted.jsonl"
    write_jsonl(converted, read(two_files(tmp_path)))
    rows = list(read([converted]))
    assert [(t.id, t.own_id) for t in rows] == [("0", "0"), ("0#2", "0#2")]
    found = match(rows, [label("0", score=1.0), label("0#2", score=0.0)])
    assert {k: v[0].score for k, v in found.by_id.items()} == {"0": 1.0, "0#2": 0.0}


def test_the_digest_covers_content_only_and_survives_conversion(tmp_path: Path) -> None:
    t = run(call({"q": "é", "n": 1.0}), "x \ud800", "Final Answer: x", outcome=1, id="a", tools=[{"name": "search"}])
    same = t.model_copy(update={"id": "b", "outcome": 0.0, "meta": {"agent": "m"}, "source": None, "question_id": "q"})
    assert same.digest == t.digest and Trajectory.from_json(t.to_json()).digest == t.digest
    path = tmp_path / "rows.jsonl"
    write_jsonl(path, [t])
    assert [r.digest for r in read([path])] == [t.digest]
    for change in ({"task": "other"}, {"tools": None}, {"messages": t.messages[:-1]}):
        assert t.model_copy(update=change).digest != t.digest


def test_transcripts_of_the_same_content_take_the_labels_that_name_them_or_else_all() -> None:
    a, b, c = (run("x", id=name) for name in "abc")
    first, second, third = (
        label("a", digest=a.digest),
        label("a", digest=a.digest, weight=2),
        label("b", digest=a.digest),
    )
    found = match([a, b, c], [first, second, third])
    assert found.by_id == {"a": [first, second], "b": [third], "c": [first, second, third]}


def test_strays_are_counted_and_a_changed_transcript_keeps_no_label(tmp_path: Path) -> None:
    old = run("x", id="a")
    new = run("x, edited", id="a")
    found = match([new], [label("a", digest=old.digest), label("b"), label("c", digest="0" * 16)])
    assert found.by_id == {} and len(found.strays) == 3 and found.changed == 1
    said = found.complaint()
    assert said is not None and said.startswith("3 of 3 annotations belong to no transcript, e.g. 'a'; 1 name")
    with pytest.raises(RRMError, match="same id"):
        match([old, old], [])


def test_unknown_keys_of_an_annotation_are_errors_that_name_the_line(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    row = {"trajectory_id": "a", "annotator": "x", "kind": "human", "score": 1.0}
    path.write_text(f"{json.dumps(row)}\n{json.dumps({**row, 'wieght': 2})}\n")
    with pytest.raises(ReadError, match=r"labels\.jsonl:2: not an annotation: unknown wieght: .*weight"):
        read_annotations(path)
    finding = {"step": 1, "verdict": "good", "txt": "lost"}
    path.write_text(json.dumps({**row, "findings": [finding]}) + "\n")
    with pytest.raises(ReadError, match="txt"):
        read_annotations(path)
