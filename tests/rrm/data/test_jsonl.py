"""JSON lines: what is read is what was written, and an error names its line."""

from __future__ import annotations

import json

import pytest

from rrm.data.annotation import Annotation, read_annotations
from rrm.data.jsonl import read_lines
from rrm.data.output import write_lines
from rrm.errors import ReadError


def test_lines_come_back_and_blank_ones_are_passed_over(tmp_path) -> None:
    path = tmp_path / "numbers.jsonl"
    assert write_lines(path, map(str, range(3))) == 3
    write_lines(path, ["0", "1", "2", "", "3"])
    assert list(read_lines(path, json.loads, "a number")) == [0, 1, 2, 3]


def test_errors_name_file_and_line(tmp_path) -> None:
    path = tmp_path / "numbers.jsonl"
    path.write_text("1\n\n{broken\n")
    rows = read_lines(path, json.loads, "a number")
    assert next(rows) == 1
    with pytest.raises(ReadError, match=r"numbers\.jsonl:3: not a number: "):
        next(rows)
    path.write_bytes(b"1\n\xff\xfe\n")
    with pytest.raises(ReadError, match=r"numbers\.jsonl:2: not a number: .*utf-8"):
        list(read_lines(path, json.loads, "a number"))
    with pytest.raises(ReadError, match=r"absent\.jsonl: cannot be opened: No such file"):
        list(read_lines(tmp_path / "absent.jsonl", json.loads, "a number"))


def test_annotations_are_read_in_file_order(tmp_path) -> None:
    rows = [Annotation(trajectory_id=t, annotator=a, kind="llm", trace="\ud800") for t, a in ("xa", "yb", "xc")]
    path = tmp_path / "annotations.jsonl"
    write_lines(path, (json.dumps(a.model_dump(exclude_none=True)) for a in rows))
    assert read_annotations(path) == rows
