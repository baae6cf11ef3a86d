"""Published files to rows: every container a benchmark is published in, and errors that name the line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from reagent.tasks.source_rows import GivenPassage, SourceRow, read_rows, titled, write_passages
from rrm.errors import ReadError

ROWS: list[dict[str, Any]] = [
    {"question": "Who built the Oltava bridge?", "answer": "Ana Büki", "n": 1},
    {"question": "When?", "answer": "1904", "n": 2},
]


def written(folder: Path, form: str) -> Path:
    path = folder / f"rows.{form}"
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
    if form == "parquet":
        parquet.write_table(pa.Table.from_pylist(ROWS), path)
    elif form.endswith(".gz"):
        path.write_bytes(gzip.compress((lines if form.startswith("jsonl") else json.dumps(ROWS)).encode()))
    else:
        path.write_text(lines if form == "jsonl" else json.dumps(ROWS, indent=1), encoding="utf-8")
    return path


@pytest.mark.parametrize("form", ["json", "jsonl", "json.gz", "jsonl.gz", "parquet"])
def test_rows_of_every_container(tmp_path: Path, form: str) -> None:
    rows = list(read_rows(written(tmp_path, form)))
    assert [dict(row.data) for row in rows] == ROWS
    assert [row.line for row in rows] == [1, 2] and rows[0].path.endswith(f"rows.{form}")


def test_a_data_set_is_read_as_from_the_hub(tmp_path: Path) -> None:
    """A local folder of data files is named as a data set on the hub is, and read by the same code."""
    pytest.importorskip("datasets", reason="datasets (the extra `hub`) is not installed")
    (tmp_path / "set").mkdir()
    written(tmp_path / "set", "jsonl").rename(tmp_path / "set" / "train.jsonl")
    rows = list(read_rows(f"hf:{tmp_path}/set:train"))
    assert [dict(row.data) for row in rows] == ROWS
    with pytest.raises(ReadError, match="write a data set as hf:owner/name:split"):
        list(read_rows("hf:owner"))


@pytest.mark.parametrize("packed", [False, True])
def test_csv(tmp_path: Path, packed: bool) -> None:
    """With a byte order mark, a line break and a comma in a cell, an empty cell, and a cell longer than Python's default allows."""
    text = '\ufeffQuestion,Answer,Note\n"Where, and\nwhen?","Büki, 1904",\nLong,' + "x" * 200_000 + ",n\n"
    path = tmp_path / ("sheet.csv.gz" if packed else "sheet.csv")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    first, second = read_rows(path)
    assert first.data == {"Question": "Where, and\nwhen?", "Answer": "Büki, 1904", "Note": None}
    assert len(second.text("Answer")) == 200_000 and second.line == 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"q,a\nx,y,z\n", r"a\.csv:1: row 1 has other columns than the header"),
        ("a.csv", b"q,a\nx\n", "row 1 has other columns"),
        ("a.csv", b"q,a\n\xff,y\n", "not a CSV file in UTF-8"),
        ("a.csv.gz", b"no gzip", "cannot be unpacked: the gzip data is damaged"),
        ("a.jsonl", b'{"q": 1}\n{"q": \n', r"a\.jsonl:2: "),
        ("a.json", b'[{"q": 1}, 7]', r"a\.json:2: a record must be an object, this is a int"),
        ("a.json", b"", "the file is empty"),
        ("gone.json", None, "cannot be read"),
        ("gone.csv", None, "cannot be read"),
    ],
)
def test_what_is_no_rows_says_where(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ReadError, match=message):
        list(read_rows(tmp_path / name))


def test_fields_of_a_row() -> None:
    row = SourceRow(
        {"Question": "why?", "Info": {"Hop": "two"}, "n": 7, "none": None, "list": ["a", 1], "flag": True}, "f", 3
    )
    assert row.text("question", "Question") == "why?" and row.text("n") == "7"
    assert row.get("none", "n") == 7 and row.get("none") is None
    assert row.lowered().get("info") == {"hop": "two"}
    assert row.texts("none") == []
    for name in ("none", "flag", "absent"):
        with pytest.raises(
            ReadError, match=rf"f:3: no text under '{name}'; the row's fields are: Info, Question, flag"
        ):
            row.text(name)
    with pytest.raises(ReadError, match="'list' must be a list of texts"):
        row.texts("list")


def test_pairs_in_both_forms() -> None:
    row = SourceRow({}, "f", 1)
    expected = [("A", ["a."]), ("B", ["b."])]
    assert titled(row, [["A", ["a."]], ["B", ["b."]]], "context") == expected
    assert titled(row, {"title": ["A", "B"], "sentences": [["a."], ["b."]]}, "context") == expected
    for wrong in ("text", [["A"]], [[1, "a"]], {"title": ["A"]}):
        with pytest.raises(ReadError, match="'context' must be a list of pairs"):
            titled(row, wrong, "context")


def test_passages_are_written_for_an_index(tmp_path: Path) -> None:
    path = tmp_path / "passages.jsonl"
    assert write_passages(path, [GivenPassage("Büki", "An engineer."), GivenPassage("Oltava", "A river.")]) == 2
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"id": "0", "title": "Büki", "text": "An engineer."},
        {"id": "1", "title": "Oltava", "text": "A river."},
    ]
