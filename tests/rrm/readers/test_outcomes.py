"""Outcomes are read from fields that say so, the field is recorded, and any other can be named."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from rrm.cli import check_cmd, eval_cmd
from rrm.config import TrainConfig
from rrm.data.trajectory import Trajectory, write_jsonl
from rrm.errors import ConfigError, ReadError, RRMError
from rrm.readers import read
from rrm.readers.check import check
from rrm.readers.outcomes import OTHERS, find_outcome, guessed_scale, refuse_other_scales
from rrm.train.prepare import load_data

MESSAGES = [{"role": "user", "content": "Is it so?"}, {"role": "assistant", "content": "No."}]


def one(folder: Path, record: dict[str, Any], **options: Any) -> Trajectory:
    path = folder / "run.jsonl"
    path.write_text(json.dumps({"messages": MESSAGES, **record}) + "\n")
    (found,) = read([path], **options)
    return found


@pytest.mark.parametrize(
    "record",
    [
        {"label": "yes"},
        {"label": 1},
        {"result": "no"},
        {"result": True},
        {"correct": "yes"},
        {"correct": 1, "choices": ["a", "b"]},
        {"correct": "correct", "options": ["a", "correct"]},
        {"reward": "no"},
        {"score": "1"},
        {"score": 7},
        {"reward": -1.0},
        {"answer": "no"},
        {"status": "success"},
    ],
)
def test_a_field_that_may_mean_something_else_is_no_outcome(tmp_path: Path, record: dict[str, Any]) -> None:
    found = one(tmp_path, record)
    assert found.outcome is None and found.source and found.source.outcome_field is None
    assert list(found.meta.values()) == list(record.values()), "nothing is lost"


@pytest.mark.parametrize(
    ("record", "value", "field"),
    [
        ({"outcome": False}, 0.0, "outcome"),
        ({"success": "yes"}, 1.0, "success"),
        ({"correct": True, "choices": ["a", "b"]}, 1.0, "correct"),
        ({"correct": "False", "reward": 0.5}, 0.0, "correct"),
        ({"is_correct": "no"}, 0.0, "is_correct"),
        ({"label": "yes", "reward": 0.25}, 0.25, "reward"),
        ({"em": 1, "score": 0.1}, 1.0, "em"),
        ({"score": 0.7}, 0.7, "score"),
        ({"gpt4o_output": "True", "answer": "no"}, 1.0, "gpt4o_output"),
    ],
)
def test_the_field_that_says_so_is_read_and_recorded(
    tmp_path: Path, record: dict[str, Any], value: float, field: str
) -> None:
    found = one(tmp_path, record)
    assert found.outcome == value and found.source and found.source.outcome_field == field
    write_jsonl(tmp_path / "again.jsonl", [found])
    (again,) = read([tmp_path / "again.jsonl"])
    assert again.source == found.source


def test_formats_whose_label_has_a_common_name_keep_it(tmp_path: Path) -> None:
    unpaired = {"prompt": MESSAGES[:1], "completion": MESSAGES[1:]}
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({**unpaired, "label": label}) + "\n" for label in (True, "yes", 1)))
    assert [t.outcome for t in read([path])] == [1.0, None, None]
    console = "You are in a room. Your task is to: look.\n> go to shelf 1\nOn the shelf 1, you see a pen.\n"
    path.write_text("".join(json.dumps({"traj": console, "result": r}) + "\n" for r in (True, 0, "no")))
    assert [t.outcome for t in read([path])] == [1.0, 0.0, None]
    assert find_outcome({"result": "yes"}, "result") is None


def test_any_field_can_be_named(tmp_path: Path) -> None:
    found = one(tmp_path, {"label": "yes", "outcome": 0, "info": [{"won": 0.5}]}, outcome="label")
    assert found.outcome == 1.0 and found.source and found.source.outcome_field == "label"
    assert found.meta["outcome"] == 0, "what the record calls its outcome is kept"
    assert one(tmp_path, {"info": [{"won": 0.5}]}, outcome="info[0].won").outcome == 0.5
    assert one(tmp_path, {"reward": 1}, outcome="won?").outcome is None
    assert one(tmp_path, {"won": None}, outcome="won").outcome is None
    with pytest.raises(ReadError, match=r"run\.jsonl:1: no outcome at 'won'; write 'won\?'"):
        one(tmp_path, {"reward": 1}, outcome="won")
    with pytest.raises(ReadError, match=r"outcome at 'won' is no label in .*'maybe'"):
        one(tmp_path, {"won": "maybe"}, outcome="won")
    with pytest.raises(ConfigError, match="named twice"):
        read(["x"], mapping={"messages": "m", "outcome": "o"}, outcome="o")


def test_naming_a_field_reaches_canonical_rows_and_spares_sessions_only_where_optional(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_jsonl(path, [one(tmp_path, {"outcome": 0, "first_outcome": 1})])
    (found,) = read([path], outcome="meta.first_outcome")
    assert found.outcome == 1.0 and found.meta["outcome"] == 0.0
    line = {"type": "user", "sessionId": "s", "uuid": "u", "message": {"role": "user", "content": "hi"}}
    path.write_text(json.dumps(line) + "\n")
    with pytest.raises(ReadError, match=r"rows.jsonl:1: no outcome at 'won'; write 'won\?'"):
        list(read([path], outcome="won"))
    assert [t.outcome for t in read([path], outcome="won?")] == [None]


def test_a_mapping_takes_no_outcome_that_is_not_mapped_and_loses_none(tmp_path: Path) -> None:
    found = one(tmp_path, {"outcome": 1, "won": 0}, mapping={"messages": "messages", "outcome": "won"})
    assert found.outcome == 0.0 and found.source and found.source.outcome_field == "won" and found.meta["outcome"] == 1
    found = one(tmp_path, {"outcome": 1}, mapping={"messages": "messages"})
    assert found.outcome is None and found.meta == {"outcome": 1}


def test_training_data_takes_the_field_too(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps({"messages": MESSAGES, "label": "yes"}) + "\n")
    for field, outcome in ((None, None), ("label", 1.0)):
        (found,), _ = load_data(TrainConfig.model_validate({"data": {"trajectories": [str(path)], "outcome": field}}))
        assert found.outcome == outcome


def test_check_counts_the_fields_and_tells_of_those_it_did_not_read(tmp_path: Path) -> None:
    rows = [
        one(tmp_path, r) for r in ({"reward": 1}, {"reward": 0}, {"success": True}, {"label": "no"}, {"label": "cat"})
    ]
    report = check(rows)
    assert report.outcome_fields == {"reward": 2, "success": 1}
    assert report.unread_outcomes == {"label": 1} and "label" in OTHERS and report.unlabelled == 2
    assert report.other_scales == {} and report.other_scale_complaint is None


def test_check_finds_flags_and_marks_that_may_be_outcomes(tmp_path: Path) -> None:
    """`is_ok` and `rating` were listed nowhere: "no labels"."""
    rows = [{"is_ok": i < 2, "rating": 1 + i, "tokens": i, "streamed": True, "info": {"won": i == 0}} for i in range(4)]
    report = check([one(tmp_path, row) for row in rows])
    assert report.unlabelled == 4 and report.unread_outcomes == {"is_ok": 4, "info.won": 4}
    assert report.ratings == {"rating": [4, 1, 4]}
    assert [guessed_scale(*r) for r in ((1, 4), (-1, 1), (0, 1), (3, 9), (0, 70), (0, 900))] == [
        *("1..5", "-1..1", None, "1..10", "0..100", None)
    ]


@pytest.mark.parametrize(("path", "outcomes"), [("rating:1..5", [0.0, 0.5, 1.0]), ("rating:5..1?", [1.0, 0.5, 0.0])])
def test_a_path_may_say_the_scale_of_its_marks(tmp_path: Path, path: str, outcomes: list[float]) -> None:
    file = marked(tmp_path, "rating", (1, 3, 5))
    assert [t.outcome for t in read([file], outcome=path)] == outcomes
    file.write_text(file.read_text() + json.dumps({"messages": MESSAGES}) + "\n")
    if path.endswith("?"):
        assert [t.outcome for t in read([file], outcome=path)] == [*outcomes, None]
    with pytest.raises(ReadError, match=r"not on the scale 2\.\.5: '1'"):
        list(read([file], outcome="rating:2..5"))
    with pytest.raises(ReadError, match=r"marks from 1 to 5 are read by 'rating:1\.\.5'"):
        list(read([file], outcome="rating"))


@pytest.mark.parametrize(("results", "missing"), [(True, 0), (False, 1)])
def test_check_tells_where_no_call_has_a_result(tmp_path: Path, results: bool, missing: int) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    messages += [{"role": "tool", "tool_call_id": "c", "content": "r"}] if results else []
    path = tmp_path / "calls.jsonl"
    path.write_text(json.dumps({"messages": [*messages, {"role": "assistant", "content": "done"}]}) + "\n")
    report = check(read([path]))
    assert (report.with_calls, report.without_results) == (1, missing)
    table = check_cmd.tables(report, 0, [])[0]
    notes = [cell for column in table.columns for cell in column.cells]
    assert any("every tool result is missing" in str(note) for note in notes) == bool(missing)


def marked(folder: Path, field: str, values: tuple[object, ...]) -> Path:
    path = folder / "marked.jsonl"
    path.write_text("".join(json.dumps({"messages": MESSAGES, field: value}) + "\n" for value in values))
    return path


@pytest.mark.parametrize(
    ("field", "values", "off", "taken"),
    [("score", (1, 2, 3, 4, 5), 4, 1), ("score", (10, 0, 7), 2, 1), ("reward", (-1, 0, 1, 0.5, 12), 2, 3)],
)
def test_a_mark_of_another_scale_is_refused_by_check_train_and_eval(
    tmp_path: Path, field: str, values: tuple[object, ...], off: int, taken: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = marked(tmp_path, field, values)
    said = rf"`{field}` is not on \[0, 1\] in {off} rows.*{taken} outcomes.*--outcome.*data\.outcome"
    rows = list(read([path]))
    assert [r.getMessage() for r in caplog.records if re.search(said, r.getMessage())], "every reading run hears of it"
    report = check(rows)
    assert report.other_scales == {field: off} and re.search(said, report.other_scale_complaint or "")
    with pytest.raises(RRMError, match=said):
        load_data(TrainConfig.model_validate({"data": {"trajectories": [str(path)]}}))
    write_jsonl(tmp_path / "converted.jsonl", rows)
    with pytest.raises(RRMError, match=said):
        load_data(TrainConfig.model_validate({"data": {"trajectories": [str(tmp_path / "converted.jsonl")]}}))
    runner, app = CliRunner(), typer.Typer()
    app.command("check")(check_cmd.command)
    app.command("eval")(eval_cmd.command)
    checked = runner.invoke(app, ["check", str(path)])
    assert checked.exit_code == 1 and "is not on [0, 1]" in " ".join(checked.stdout.split())
    measured = runner.invoke(app, ["eval", str(path), "-o", str(tmp_path / "m.json"), "--model", "no-such-judge"])
    assert measured.exit_code != 0 and re.search(said, str(measured.exception) + measured.output)


def test_a_mark_of_another_scale_harms_nothing_where_another_field_says_how_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"messages": MESSAGES, "success": s > 3, "score": s}) + "\n" for s in (1, 3, 5)))
    assert [t.outcome for t in read([path])] == [0.0, 0.0, 1.0]
    assert check(read([path])).other_scale_complaint is None
    assert len(load_data(TrainConfig.model_validate({"data": {"trajectories": [str(path)]}}))[0]) == 3
    marks = marked(tmp_path, "score", (2, 3, True, "1", None))
    assert check(read([marks])).other_scales == {"score": 2}
    (tmp_path / "marked.jsonl").write_text(json.dumps({"messages": MESSAGES, "score": 10**400, "won": True}) + "\n")
    assert [t.outcome for t in read([marks], outcome="won")] == [1.0]


def rows_of(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps({"messages": MESSAGES, **record}) + "\n" for record in records))
    return path


def test_a_free_number_in_one_file_says_nothing_of_that_field_in_another(tmp_path: Path) -> None:
    """`reward` of 0 and 1, and elsewhere `correct` beside a free `reward`: each was read alone, and refused together."""
    marks = rows_of(tmp_path / "marks.jsonl", *({"reward": i % 2} for i in range(4)))
    free = rows_of(tmp_path / "free.jsonl", *({"correct": bool(i % 2), "reward": i - 3.5} for i in range(4)))
    rows = list(read([marks, free]))
    refuse_other_scales(rows)
    assert check(rows).other_scale_complaint is None and [r.outcome for r in rows] == [0.0, 1.0] * 4


def test_a_mark_without_an_outcome_speaks_of_files_of_one_run_each(tmp_path: Path) -> None:
    files = [rows_of(tmp_path / f"{mark}.jsonl", {"score": mark}) for mark in (1, 4)]
    with pytest.raises(RRMError, match=r"`score` is not on \[0, 1\] in 1 rows, so the 1 outcomes"):
        refuse_other_scales(read(files))


@pytest.mark.parametrize(
    ("values", "off", "taken"),
    [
        ((0, 1, 2, 3), 2, 2),  # the right choice's number
        (("0", "1", "2", "3"), 2, 2),
        (("Paris", "1", "1984", "0"), 2, 2),  # the right answer's text
        ((0, 1, 1, -1), 1, 3),
        ((True, False, 1, "correct", "Paris"), 1, 1),  # the number alone is in doubt
        (("true", "Paris", "False"), 1, 2),  # of questions some of which are yes or no
    ],
)
def test_correct_that_is_no_label_in_some_rows_is_no_outcome_in_the_others(
    tmp_path: Path, values: tuple[object, ...], off: int, taken: int, caplog: pytest.LogCaptureFixture
) -> None:
    said = rf"`correct` is no label \(0, 1, true, false\) in {off} rows, so the {taken} outcomes .*--outcome FIELD"
    rows = list(read([marked(tmp_path, "correct", values)]))
    assert re.search(said, caplog.text)
    assert check(rows).other_scales == {"correct": off}
    with pytest.raises(RRMError, match=said):
        refuse_other_scales(rows)


@pytest.mark.parametrize(
    "values",
    [
        (0, 1, 1),
        (True, "false", "unknown", "", None, "N/A"),
        (0.5, 1),
        ("yes", "no", "Paris"),
        (True, False, "see the log", 7),
        ("correct", "Failed", "Paris"),
        (1, 0, "timeout", "Pending", "skipped", "-", "no answer", "NaN"),
    ],
)
def test_correct_that_is_a_label_wherever_it_speaks_is_one(tmp_path: Path, values: tuple[object, ...]) -> None:
    refuse_other_scales(read([marked(tmp_path, "correct", values)]))


def test_a_boolean_is_no_mark_of_another_scale(tmp_path: Path) -> None:
    rows = list(read([marked(tmp_path, "score", (True, False, 7, 3))]))
    refuse_other_scales(rows)
    assert [t.outcome for t in rows] == [1.0, 0.0, None, None] and check(rows).other_scales == {"score": 2}


def test_a_choice_or_an_answer_in_one_file_says_nothing_of_labels_in_another(tmp_path: Path) -> None:
    labels = rows_of(tmp_path / "labels.jsonl", {"correct": True}, {"correct": 0})
    choices = rows_of(
        tmp_path / "choices.jsonl", {"correct": 3, "choices": ["a", "b", "c", "d"]}, {"correct": 1, "options": []}
    )
    answers = rows_of(tmp_path / "answers.jsonl", {"correct": "yes"}, {"correct": "Paris"})
    rows = list(read([labels, choices, answers]))
    refuse_other_scales(rows)
    assert [t.outcome for t in rows] == [1.0, 0.0, None, None, None, None]


def test_correct_that_is_named_is_read_as_named(tmp_path: Path) -> None:
    rows = list(read([marked(tmp_path, "correct", ("yes", "no", 1))], outcome="correct"))
    refuse_other_scales(rows)
    assert [t.outcome for t in rows] == [1.0, 0.0, 1.0]
