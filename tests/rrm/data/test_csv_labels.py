"""Labels in a table: what is taken, and what is refused, with its line and its column."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from agent_runs import call, run

from rrm.cli import eval_cmd
from rrm.data.annotation import Annotation, match, read_annotations
from rrm.data.trajectory import write_jsonl
from rrm.errors import ReadError
from rrm.evaluation.calibrate import labelled_rows
from rrm.judge.judge_dir import JudgeSettings


def table(folder: Path, text: str | bytes, name: str = "labels.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read_table(folder: Path, text: str | bytes, name: str = "labels.csv") -> list[Annotation]:
    return read_annotations(table(folder, text, name))


def test_id_and_label_are_enough(tmp_path: Path) -> None:
    labels = read_table(tmp_path, "id,label\na,1\nb,0.25\n c,True\nd,FALSE\n")
    assert [(a.trajectory_id, a.score) for a in labels] == [("a", 1.0), ("b", 0.25), ("c", 1.0), ("d", 0.0)]
    assert {(a.annotator, a.kind, a.weight, a.digest) for a in labels} == {("labels.csv", "human", 1.0, None)}


def test_what_a_spreadsheet_writes_and_every_column(tmp_path: Path) -> None:
    text = (
        "\ufefftrajectory_id,score,critique,annotator,kind,weight,trace,digest\r\n"
        '001,,"Look first,\r\nthen ""answer"".",Ada,llm,2,,\r\n'
        "002,.5,,,,,,0123456789abcdef\r\n"
        ",,,,,,,\r\n"
        "003,,,Ada,,1,,\r\n"
    )
    first, second = read_table(tmp_path, text, "L.CSV")
    assert (first.trajectory_id, first.score, first.critique) == ("001", None, 'Look first,\r\nthen "answer".')
    assert (first.annotator, first.kind, first.weight) == ("Ada", "llm", 2.0)
    assert (second.score, second.digest, second.annotator) == (0.5, "0123456789abcdef", "L.CSV")


def test_spaces_around_a_cell_and_the_case_of_a_header_do_not_count(tmp_path: Path) -> None:
    text = "ID , Label,Kind,ANNOTATOR,digest,Critique\n run-1 ,1 ,human ,Ada ,0123456789abcdef , go on \n"
    (label,) = read_table(tmp_path, text)
    assert (label.trajectory_id, label.score, label.kind, label.annotator) == ("run-1", 1.0, "human", "Ada")
    # spaces behind a comma are never the cell's
    assert label.digest == "0123456789abcdef" and label.critique == "go on "


@pytest.mark.parametrize("name", ["labels.csv", "labels.TSV", "labels.txt", "labels"])
@pytest.mark.parametrize("by", [",", ";", "\t"])
@pytest.mark.parametrize("named", [False, True])
def test_a_table_is_one_by_its_header_too(tmp_path: Path, name: str, by: str, named: bool) -> None:
    text = '"id",Label,critique\r\na,1,"x; y"\r\nb,false,\r\n'.replace(",", by)
    labels = read_table(tmp_path, "\ufeff" + (f"sep={by}\r\n" if named else "") + text, name)
    assert [(a.trajectory_id, a.score, a.critique) for a in labels] == [("a", 1.0, "x; y"), ("b", 0.0, None)]
    with pytest.raises(ReadError, match=f":{4 if named else 3}: .*score 'no'"):
        read_table(tmp_path, (f"sep={by}\n" if named else "") + f"id{by}label\na{by}1\nb{by}no\n", name)


def test_what_is_no_table_stays_json_lines(tmp_path: Path) -> None:
    row = '{"trajectory_id": "a", "score": 1, "annotator": "x", "kind": "human"}\n'
    files = table(tmp_path, row, "labels"), table(tmp_path, "\n" + row, "l.txt")
    assert [a.score for a in read_annotations(*files)] == [1, 1]
    with pytest.raises(ReadError, match="not an annotation"):
        read_table(tmp_path, "what is this\n", "l.txt")
    with pytest.raises(ReadError, match="a spreadsheet"):
        read_table(tmp_path, b"PK\x03\x04xl", "labels.xlsx")


def test_two_people_may_differ_and_one_may_repeat_himself(tmp_path: Path) -> None:
    text = "id,label,annotator,kind\na,1,Ada,\na,0,Bob,\na,1,Ada,\nb,1,m,llm\nb,0,m,llm\n"
    assert len(read_table(tmp_path, text)) == 5


def test_a_text_may_be_as_long_as_it_is(tmp_path: Path) -> None:
    limit, long = csv.field_size_limit(), "x" * 140_000
    labels = read_table(tmp_path, f'id,label,trace\na,1,"{long}"\nb,0,short\n')
    assert [a.trace for a in labels] == [long, "short"] and csv.field_size_limit() == limit
    with pytest.raises(ReadError, match=r"labels.csv:2"):
        read_table(tmp_path, f'id,label,trace\na,1,"{long}\n')
    assert csv.field_size_limit() == limit


@pytest.mark.parametrize("weight", ["Infinity", "NaN", "1e400", "1" + "0" * 400, "-1"])
def test_a_weight_that_is_no_size_is_refused_with_its_line(tmp_path: Path, weight: str) -> None:
    row = f'{{"trajectory_id": "a", "score": 1, "annotator": "x", "kind": "human", "weight": {weight}}}\n'
    with pytest.raises(ReadError, match=r"labels.jsonl:1: .*weight"):
        read_table(tmp_path, row, "labels.jsonl")


def test_they_label_runs_without_an_outcome(tmp_path: Path) -> None:
    rows = [run(call({"q": str(i)}), f"It is {i}.", id=f"r{i}", task=f"Q{i}") for i in range(21)]
    labels = read_table(tmp_path, "id,label\n" + "".join(f"r{i},{i % 2}\n" for i in range(20)))
    usable = labelled_rows(rows, match(rows, labels).by_id, JudgeSettings(modes=["score"]), "score")
    assert [t.id for t in usable.rows] == [f"r{i}" for i in range(20)]
    assert usable.labels == [float(i % 2) for i in range(20)] and usable.sources[0] == "annotation:labels.csv"


@pytest.mark.parametrize(
    ("text", "place_and_reason"),
    [
        (
            "run,label\na,1\n",
            "1: .*no trajectory_id; columns found: run, label; wanted: trajectory_id .or id. and score .or label",
        ),
        ("id|label\na|1\n", "1: .*columns found: id.label; .*separated by commas, semicolons or tabs"),
        ("id;label\na;0,9\n", "2: .*score '0,9' is not a number in .0, 1., true or false, with a point"),
        (b"PK\x03\x04xl", "-: a spreadsheet, not text: save the table as CSV"),
        ("id,label\na,1\nb,1\na,0\n", "4: 'a' has the score 0 here and 1 in line 2: keep one .*annotator"),
        ("id,ok\na,1\n", "1: .*unknown columns ok: rename or drop them; columns found: id, ok; wanted"),
        ("id,weight\na,1\n", "1: .*no score; columns found"),
        ("id,label,score\na,1,1\n", "1: .*two columns for score"),
        ("", "1: .*columns found: none"),
        ("id,label\na,1\nb,good\n", "3: .*score 'good' is not a number in .0, 1., true or false"),
        ("id,label\na,yes\n", "2: .*'yes'"),
        ("id,label\na,1_0\n", "2: .*'1_0'"),
        ("id,label\na,nan\n", "2: .*'nan'"),
        ("id,label\na,٣\n", "2: .*is not a number"),
        ("id,label\na,50%\n", "2: .*50%"),
        ("id,label\na,5\n", "2: .*score: .*less than or equal to 1"),
        ("id,label,kind\na,1,robot\n", "2: .*kind: .*human"),
        ("id,label\na,1,x\n", "2: .*3 cells where the header has 2 columns"),
        ("id,label\n,1\n", "2: .*without a trajectory_id"),
        ('id,label\n"a,1\n', "2: not a table of labels"),
        (
            "id,label,\na,1,\n",
            r"1: .*unknown columns \(no name\): .*comma at the line's end.*index=False.*id, label, \(no name\)",
        ),
        (",id,label\n0,a,1\n", r"1: .*unknown columns \(no name\): .*index=False"),
        ("Unnamed: 0,id,label\n0,a,1\n", r"1: .*unknown columns Unnamed: 0: .*index=False"),
        ("id,OK\na,1\n", "1: .*unknown columns OK: rename or drop them; columns found: id, OK"),
        ("id,ID,label\na,b,1\n", "1: .*two columns for trajectory_id"),
        ("id,label,weight\na,1,1e400\n", "2: .*weight: .*finite"),
        ("id,label,weight\na,1,2e9\n", "2: .*weight: .*less than or equal to 1000000000"),
        (b"id,label\n\xff,1\n", "-: not UTF-8 .byte 10.: save the table as UTF-8"),
    ],
)
def test_what_is_no_label_is_refused_by_name(tmp_path: Path, text: str | bytes, place_and_reason: str) -> None:
    with pytest.raises(ReadError) as error:
        read_table(tmp_path, text)
    line, _, reason = place_and_reason.partition(": ")
    assert error.value.line == (int(line) if line.isdigit() else None)
    assert re.search(reason, error.value.reason), error.value.reason


@pytest.mark.parametrize(("row", "reason"), [
    ('{"id": "a", "label": 1}\n', r"unknown id \(write trajectory_id\), label \(write score\): the keys are"),
    ('{"trajectory_id": "a", "score": 1}\n', r"lacks annotator \(who wrote it\), kind \(human, llm, rules or self\)"),
])  # fmt: skip
def test_json_lines_of_other_names_say_what_to_write(tmp_path: Path, row: str, reason: str) -> None:
    with pytest.raises(ReadError, match=reason):
        read_table(tmp_path, row, "labels.jsonl")


def test_labels_of_nobody_say_what_the_transcripts_are_called(tmp_path: Path) -> None:
    complaint = match([run("x", id="runs:1")], read_table(tmp_path, "id,label\n1,1\n")).complaint()
    assert complaint == "1 of 1 annotations belong to no transcript, e.g. '1' (a transcript is called 'runs:1')"


def test_a_command_names_the_columns_before_it_judges(tmp_path: Path, invoke) -> None:
    runs, labels = tmp_path / "runs.jsonl", table(tmp_path, "id,l\na,1\n")
    write_jsonl(runs, [run("x", id="a")])
    with pytest.raises(ReadError, match=r"labels\.csv:1: .*unknown columns l.*wanted: trajectory_id"):
        invoke(eval_cmd.command, runs, "-o", tmp_path / "m.json", "--annotations", labels)
