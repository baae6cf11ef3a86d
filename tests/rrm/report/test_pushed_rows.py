"""Rows of a published set: what their source says stays, beside what this package put there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from published_runs import JUDGE, TOKEN, messages

from rrm.data.annotation import Annotation, own_annotations
from rrm.data.feedback import Feedback
from rrm.data.trajectory import Trajectory
from rrm.readers import read
from rrm.report.dataset import shown_model, write_rows


def run_of(meta: dict[str, Any], **fields: Any) -> Trajectory:
    return Trajectory.model_validate(
        {"id": "r", "task": "How wide?", "messages": messages("90"), "meta": meta, **fields}
    )


def pushed(folder: Path, *runs: Trajectory, **options: Any) -> list[Trajectory]:
    folder.mkdir()
    write_rows(folder, runs, **options)
    return list(read(folder / "data"))


def said_of(score: float) -> Any:
    return lambda t: Feedback(id=t.id, status="scored", score=score, judge=JUDGE)


LABEL = {"score": 1.0, "annotator": "ann", "kind": "human", "weight": 1.0}


@pytest.mark.parametrize("own", [{"stars": 5}, "great", ["up", "down"]])
def test_the_sources_own_feedback_stays_beside_a_judgement(tmp_path: Path, own: Any) -> None:
    (back,) = pushed(tmp_path / "one", run_of({"feedback": own}), feedback=said_of(0.5))
    assert back.meta["feedback"] == own and back.meta["agent_rrm"]["feedback"]["score"] == 0.5
    (again,) = pushed(tmp_path / "two", back)
    assert again.meta == back.meta
    (later,) = pushed(tmp_path / "three", back, feedback=said_of(0.25))
    assert later.meta["feedback"] == own and later.meta["agent_rrm"]["feedback"]["score"] == 0.25


def test_a_judgement_that_a_row_carries_goes_again_and_a_later_one_takes_its_place(tmp_path: Path) -> None:
    (back,) = pushed(tmp_path / "one", run_of({"note": 1}), feedback=said_of(0.5))
    (tmp_path / "two").mkdir()
    contents = write_rows(tmp_path / "two", [back])
    (again,) = read(tmp_path / "two" / "data")
    assert again.meta == back.meta and contents.statuses == {"scored": 1}
    (later,) = pushed(tmp_path / "three", back, feedback=said_of(0.25))
    assert later.meta["feedback"]["score"] == 0.25 and set(later.meta) == {"note", "feedback"}


@pytest.mark.parametrize("own", [{"topic": "x"}, "none", [{"score": 0.5, "by": "team"}, 3], []])
@pytest.mark.parametrize("carries", [False, True])
def test_annotations_that_are_no_labels_stay_beside_those_that_are(tmp_path: Path, own: Any, carries: bool) -> None:
    if carries and not isinstance(own, list):
        own = [own]
    run = run_of({"annotations": [LABEL, *own] if carries else own})
    given = {} if carries else {"r": [Annotation(trajectory_id="r", score=1.0, annotator="ann", kind="human")]}
    (back,) = pushed(tmp_path / "one", run, annotations=given)
    labels, others = own_annotations(back)
    assert [(label.score, label.annotator) for label in labels] == [(1.0, "ann")]
    assert others == (len(own) if isinstance(own, list) else 0)
    left = back.meta["annotations"]
    assert left == ([LABEL, *own] if isinstance(own, list) else own)
    (again,) = pushed(tmp_path / "two", back)
    assert again.meta == back.meta


def test_what_a_judge_left_in_a_transcript_names_neither_its_server_nor_the_file(tmp_path: Path) -> None:
    from rrm.readers.exports import to_atif

    source = {"file": str(tmp_path / "home" / "ann" / "runs.jsonl"), "line": 1, "format": "openai"}
    run = run_of({"final_metrics": {"total_steps": 2}, "note": 1}, source=source)
    usage = {"prompt_tokens": 9, "cost": 0.125, "requests": 1}
    row = {"id": "r", "status": "scored", "score": 0.5, "usage": usage, "judge": JUDGE.model_dump()}
    (tmp_path / "run.json").write_text(json.dumps(to_atif(run, Feedback.model_validate(row))))
    (atif,) = read(tmp_path / "run.json")
    atif.meta |= {
        "scores": {"agent_rrm.asked": {"judge": JUDGE.model}, "match": 1},
        "seen": [{"agent_rrm#2": JUDGE.model}],
    }
    assert "10.1.2.3" in atif.to_json() and "0.125" in atif.to_json()
    (back,) = pushed(tmp_path / "set", atif)
    said = json.dumps(back.meta)
    assert "10.1.2.3" not in said and "0.125" not in said and "home" not in said and "agent_rrm" not in said
    assert back.meta["note"] == 1 and back.meta["final_metrics"]["total_steps"] == 2
    assert back.meta["scores"] == {"match": 1} and back.digest == atif.digest


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("judges/mine/v2", "v2"),
        ("file:///home/ann/j", "j"),
        ("http://h/v1#m", "m"),
        ("https://ann:pw@h/v1", "a served model"),
        ("llm:openai:http://10.0.0.5/v1#org/m", "org/m"),
        ("runs\\judge", "judge"),
        ("~/j", "j"),
        ("org/judge", "org/judge"),
        ("hf:org/judge", "hf:org/judge"),
        ("rules", "rules"),
    ],
)
def test_a_judges_name_says_neither_path_nor_server(name: str, shown: str) -> None:
    assert shown_model(name) == shown
    assert shown_model(shown) == shown


def test_the_format_and_the_line_of_a_source_are_anyones_words(tmp_path: Path) -> None:
    from rrm.report.dataset_card import card

    bad = f"`x` | y\n\n## Licence\n\n`mit`\n\n<img src=http://evil/x> {TOKEN}"
    sources = [
        {"file": "x", "line": 1, "format": bad},
        {"file": "x\ud800", "line": 2**70, "format": "\ud800"},
        {"file": "x", "line": -(2**63)},
    ]
    runs = [run_of({}, source=source) for source in sources]
    contents = write_rows(tmp_path, runs, redact=True)
    assert contents.found.counts == {"Hugging Face token": 1} and "row 'r'.format" in contents.found.places[0]
    text = card(contents, "o/n", None)
    assert TOKEN not in text and "<img" not in text and text.count("\n## Licence") == 1
    assert text.count("- read from: ") == 1 and "`x y ## Licence mit img src=http://evil/x removed` 1" in text
    back = list(read(tmp_path / "data"))
    assert [t.source and t.source.line for t in back] == [1, None, None]
    assert [t.source and t.source.file for t in back] == ["x", "x?", "x"]


def test_of_many_formats_the_card_names_the_most_frequent(tmp_path: Path) -> None:
    from rrm.report.dataset_card import card

    runs = [run_of({}, source={"file": "x", "format": f"f{k}"}) for k in range(25)]
    text = card(write_rows(tmp_path, runs), "o/n", None)
    assert ", others 5\n" in text and len(re.findall(r"`f\d+` 1", text)) == 20


def test_ids_stay_unique_and_questions_apart(tmp_path: Path) -> None:
    names = ["a\ud800", "a\udfff", "ghp_" + "Ab1" * 12, "ghp_" + "Ab2" * 12, "a"]
    runs = [run_of({}, id=name, question_id=f"q {name}") for name in names]
    write_rows(tmp_path, runs, redact=True)
    back = list(read(tmp_path / "data"))
    assert [t.id for t in back] == ["a\\ud800", "a\\udfff", "[removed]", "[removed]#2", "a"]
    assert [t.question_id for t in back] == ["q a\\ud800", "q a\\udfff", "q [removed]", "q [removed]", "q a"]
