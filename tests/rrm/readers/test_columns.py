"""Rows of data sets whose columns hold JSON texts: labels and judgement go to meta, beside what the source says there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rrm.data.annotation import own_annotations
from rrm.data.trajectory import Trajectory
from rrm.readers import read

LABEL = {"score": 1.0, "annotator": "ann", "kind": "human", "weight": 1.0}
JUDGEMENT = {"status": "scored", "score": 0.5, "judge": {"model": "m", "prompt_version": "2", "mode": "score"}}


def back(folder: Path, meta: Any, **columns: Any) -> Trajectory:
    """The row that is read of these columns."""
    messages = [{"role": "user", "content": "How wide?"}, {"role": "assistant", "content": "90"}]
    nested = {"messages": messages, "meta": meta, "tools": None, **columns}
    row = {"schema_version": 1, "id": "r", "task": "How wide?", "file": "runs.jsonl", "line": 3, "format": "openai"}
    row |= {name: None if value is None else json.dumps(value) for name, value in nested.items()}
    (folder / "rows.jsonl").write_text(json.dumps(row) + "\n")
    (run,) = read(folder / "rows.jsonl")
    return run


def test_labels_judgement_and_source_come_back(tmp_path: Path) -> None:
    run = back(tmp_path, {"note": 1}, annotations=[LABEL], feedback=JUDGEMENT, tools=[{"name": "look"}])
    assert run.meta == {"note": 1, "annotations": [LABEL], "feedback": JUDGEMENT} and run.tools == [{"name": "look"}]
    assert run.source and (run.source.file, run.source.line, run.source.format) == ("runs.jsonl", 3, "openai")


@pytest.mark.parametrize("own", [{"stars": 5}, "great", ["up", "down"]])
def test_the_sources_own_feedback_stays_beside_a_judgement(tmp_path: Path, own: Any) -> None:
    run = back(tmp_path, {"feedback": own}, feedback=JUDGEMENT)
    assert run.meta == {"feedback": own, "agent_rrm": {"feedback": JUDGEMENT}}


@pytest.mark.parametrize("own", [{"topic": "x"}, "none", [{"score": 0.5, "by": "team"}, 3], []])
def test_annotations_that_are_no_labels_stay_beside_those_that_are(tmp_path: Path, own: Any) -> None:
    run = back(tmp_path, {"annotations": own}, annotations=[LABEL])
    labels, others = own_annotations(run)
    assert [(label.score, label.annotator) for label in labels] == [(1.0, "ann")]
    assert others == (len(own) if isinstance(own, list) else 0)
    assert run.meta["annotations"] == ([LABEL, *own] if isinstance(own, list) else own)


@pytest.mark.parametrize(("column", "value"), [("messages", "{"), ("meta", "[]"), ("messages", "3"), ("tools", "x")])
def test_a_broken_column_is_an_error_of_its_row(tmp_path: Path, column: str, value: str) -> None:
    row = {"schema_version": 1, "id": "r", "messages": "[]", "meta": "{}", column: value}
    path, errors = tmp_path / "rows.jsonl", list[Any]()
    path.write_text(json.dumps(row) + "\n")
    assert list(read(path, on_error=errors.append)) == [] and len(errors) == 1 and column in errors[0].reason
