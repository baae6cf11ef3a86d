"""Outcomes are read from fields that say so, the field is recorded, and any other can be named."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from log_rows import talk
from typer.testing import CliRunner

from rrm.cli import annotate_cmd, check_cmd, convert_cmd, eval_cmd, score_cmd
from rrm.config import TrainConfig
from rrm.data.trajectory import Trajectory, write_jsonl
from rrm.errors import ConfigError, ReadError, RRMError
from rrm.readers import read
from rrm.readers.check import check
from rrm.readers.leaks import cut_verdicts
from rrm.readers.outcomes import OTHERS, find_outcome, guessed_scale, refuse_other_scales
from rrm.train.prepare import load_data

MESSAGES = talk("Is it so?", "No.")


def rows_of(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps({"messages": MESSAGES, **record}) + "\n" for record in records))
    return path


def one(folder: Path, record: dict[str, Any], **options: Any) -> Trajectory:
    (run,) = read(rows_of(folder / "run.jsonl", record), **options)
    return run


@pytest.mark.parametrize("record", [
    {"label": "yes"}, {"label": 1}, {"result": "no"}, {"result": True}, {"correct": "yes"},
    {"correct": 1, "choices": ["a", "b"]}, {"correct": "correct", "options": ["a", "correct"]}, {"reward": "no"},
    {"score": "1"}, {"score": 7}, {"reward": -1.0}, {"answer": "no"}, {"status": "success"},
])  # fmt: skip
def test_a_field_that_may_mean_something_else_is_no_outcome(tmp_path: Path, record: dict[str, Any]) -> None:
    trajectory = one(tmp_path, record)
    assert trajectory.outcome is None and trajectory.source and trajectory.source.outcome_field is None
    assert list(trajectory.meta.values()) == list(record.values()), "nothing is lost"


@pytest.mark.parametrize(("record", "value", "field"), [
    ({"outcome": False}, 0.0, "outcome"), ({"success": "yes"}, 1.0, "success"),
    ({"correct": True, "choices": ["a", "b"]}, 1.0, "correct"), ({"correct": "False", "reward": 0.5}, 0.0, "correct"),
    ({"is_correct": "no"}, 0.0, "is_correct"), ({"label": "yes", "reward": 0.25}, 0.25, "reward"),
    ({"em": 1, "score": 0.1}, 1.0, "em"), ({"score": 0.7}, 0.7, "score"),
    ({"gpt4o_output": "True", "answer": "no"}, 1.0, "gpt4o_output"),
])  # fmt: skip
def test_the_field_that_says_so_is_read_and_recorded(
    tmp_path: Path, record: dict[str, Any], value: float, field: str
) -> None:
    trajectory = one(tmp_path, record)
    assert trajectory.outcome == value and trajectory.source and trajectory.source.outcome_field == field
    write_jsonl(tmp_path / "again.jsonl", [trajectory])
    (again,) = read([tmp_path / "again.jsonl"])
    assert again.source == trajectory.source


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
    trajectory = one(tmp_path, {"label": "yes", "outcome": 0, "info": [{"won": 0.5}]}, outcome="label")
    assert trajectory.outcome == 1.0 and trajectory.source and trajectory.source.outcome_field == "label"
    assert trajectory.meta["outcome"] == 0, "what the record calls its outcome is kept"
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
    (trajectory,) = read([path], outcome="meta.first_outcome")
    assert trajectory.outcome == 1.0 and trajectory.meta["outcome"] == 0.0
    line = {"type": "user", "sessionId": "s", "uuid": "u", "message": {"role": "user", "content": "hi"}}
    path.write_text(json.dumps(line) + "\n")
    with pytest.raises(ReadError, match=r"rows.jsonl:1: no outcome at 'won'; write 'won\?'"):
        list(read([path], outcome="won"))
    assert [t.outcome for t in read([path], outcome="won?")] == [None]


def test_a_mapping_takes_no_outcome_that_is_not_mapped_and_loses_none(tmp_path: Path) -> None:
    trajectory = one(tmp_path, {"outcome": 1, "won": 0}, mapping={"messages": "messages", "outcome": "won"})
    assert (
        trajectory.outcome == 0.0
        and trajectory.source
        and trajectory.source.outcome_field == "won"
        and trajectory.meta["outcome"] == 1
    )
    trajectory = one(tmp_path, {"outcome": 1}, mapping={"messages": "messages"})
    assert trajectory.outcome is None and trajectory.meta == {"outcome": 1}


def test_training_data_takes_the_field_too(tmp_path: Path) -> None:
    path = rows_of(tmp_path / "runs.jsonl", {"label": "yes"})
    for field, outcome in ((None, None), ("label", 1.0)):
        (trajectory,), _ = load_data(
            TrainConfig.model_validate({"data": {"trajectories": [str(path)], "outcome": field}})
        )
        assert trajectory.outcome == outcome


def test_check_counts_the_fields_and_tells_of_those_it_did_not_read(tmp_path: Path) -> None:
    records = ({"reward": 1}, {"reward": 0}, {"success": True}, {"label": "no"}, {"label": "cat"})
    report = check([one(tmp_path, record) for record in records])
    assert report.outcome_fields == {"reward": 2, "success": 1}
    assert report.unread_outcomes == {"label": 1} and "label" in OTHERS and report.unlabelled == 2
    assert report.other_scales == {} and report.other_scale_complaint is None


def test_check_finds_flags_and_marks_that_may_be_outcomes(tmp_path: Path) -> None:
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


def test_a_falling_scale_turns_booleans_and_words_round(tmp_path: Path) -> None:
    file = marked(tmp_path, "failed", (True, False, 1, 0, "yes", "false"))
    assert [t.outcome for t in read([file], outcome="failed:1..0")] == [0.0, 1.0, 0.0, 1.0, 0.0, 1.0]
    assert [t.outcome for t in read([file], outcome="failed:0..1")] == [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]


def test_check_proposes_flags_of_failure_turned_round(tmp_path: Path) -> None:
    names = ("failed", "is_truncated", "timed_out", "info.max_steps_exceeded", "is_ok")
    flags = [name for name in names if "." not in name]
    rows = [dict.fromkeys(flags, is_so) | {"info": {"max_steps_exceeded": is_so}} for is_so in (True, False)]
    report = check(read([rows_of(tmp_path / "rows.jsonl", *rows)]))
    assert set(report.unread_outcomes) == {*(f"{name}:1..0" for name in names[:-1]), "is_ok"}
    cells = [str(cell) for column in check_cmd.tables(report, 0, [])[0].columns for cell in column.cells]
    assert sum("as a failure" in cell for cell in cells) == 4
    assert any("--outcome 'failed:1..0?' reads it, true as a failure, as its name says" in cell for cell in cells)


@pytest.mark.parametrize("record", [
    {"meta": {"is_ok": True}}, {"run.ok": True}, {"attributes": {"run.ok": True}}, {"meta": {"info": {"is_ok": True}}},
])  # fmt: skip
def test_what_check_proposes_is_found(tmp_path: Path, record: dict[str, Any]) -> None:
    path = rows_of(tmp_path / "rows.jsonl", record, json.loads(json.dumps(record).replace("true", "false")))
    (proposed,) = check(read([path])).unread_outcomes
    assert [t.outcome for t in read([path], outcome=proposed)] == [1.0, 0.0]
    write_jsonl(tmp_path / "canonical.jsonl", read([path]))
    assert [t.outcome for t in read([tmp_path / "canonical.jsonl"], outcome=proposed)] == [1.0, 0.0]


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
    return rows_of(folder / "marked.jsonl", *({field: value} for value in values))


@pytest.mark.parametrize(
    ("field", "values", "off", "taken"),
    [("score", (1, 2, 3, 4, 5), 4, 1), ("score", (10, 0, 7), 2, 1), ("reward", (-1, 0, 1, 0.5, 12), 2, 3)],
)
def test_a_mark_of_another_scale_is_refused_by_check_train_and_eval(
    tmp_path: Path,
    field: str,
    values: tuple[object, ...],
    off: int,
    taken: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = marked(tmp_path, field, values)
    message = rf"`{field}` is not on \[0, 1\] in {off} rows.*{taken} outcomes.*--outcome.*data\.outcome"
    rows = list(read([path]))
    assert any(re.search(message, r.getMessage()) for r in caplog.records), "every reading run hears of it"
    report = check(rows)
    assert report.other_scales == {field: off} and re.search(message, report.other_scale_complaint or "")
    write_jsonl(tmp_path / "converted.jsonl", rows)
    for file in (path, tmp_path / "converted.jsonl"):
        with pytest.raises(RRMError, match=message):
            load_data(TrainConfig.model_validate({"data": {"trajectories": [str(file)]}}))
    runner, app = CliRunner(), typer.Typer()
    app.command("check")(check_cmd.command)
    app.command("eval")(eval_cmd.command)
    monkeypatch.setattr(check_cmd, "for_people", lambda: True)
    checked = runner.invoke(app, ["check", str(path)])
    assert checked.exit_code == 1 and "is not on [0, 1]" in " ".join(checked.stdout.split())
    measured = runner.invoke(app, ["eval", str(path), "-o", str(tmp_path / "m.json"), "--model", "no-such-judge"])
    assert measured.exit_code != 0 and re.search(message, str(measured.exception) + measured.output)


def test_a_mark_of_another_scale_harms_nothing_where_another_field_says_how_it_ended(tmp_path: Path) -> None:
    path = rows_of(tmp_path / "rows.jsonl", *({"success": s > 3, "score": s} for s in (1, 3, 5)))
    assert [t.outcome for t in read([path])] == [0.0, 0.0, 1.0]
    assert check(read([path])).other_scale_complaint is None
    assert len(load_data(TrainConfig.model_validate({"data": {"trajectories": [str(path)]}}))[0]) == 3
    marks = marked(tmp_path, "score", (2, 3, True, "1", None))
    assert check(read([marks])).other_scales == {"score": 2}
    rows_of(marks, {"score": 10**400, "won": True})
    assert [t.outcome for t in read([marks], outcome="won")] == [1.0]


def test_a_free_number_in_one_file_says_nothing_of_that_field_in_another(tmp_path: Path) -> None:
    marks = rows_of(tmp_path / "marks.jsonl", *({"reward": i % 2} for i in range(4)))
    free = rows_of(tmp_path / "free.jsonl", *({"correct": bool(i % 2), "reward": i - 3.5} for i in range(4)))
    rows = list(read([marks, free]))
    refuse_other_scales(rows)
    assert check(rows).other_scale_complaint is None and [r.outcome for r in rows] == [0.0, 1.0] * 4


def test_a_mark_without_an_outcome_speaks_of_files_of_one_run_each(tmp_path: Path) -> None:
    files = [rows_of(tmp_path / f"{mark}.jsonl", {"score": mark}) for mark in (1, 4)]
    with pytest.raises(RRMError, match=r"`score` is not on \[0, 1\] in 1 rows, so the 1 outcomes"):
        refuse_other_scales(read(files))


@pytest.mark.parametrize(("values", "off", "taken"), [
    ((0, 1, 2, 3), 2, 2),  # the right choice's number
    (("0", "1", "2", "3"), 2, 2), (("Paris", "1", "1984", "0"), 2, 2),  # the right answer's text
    ((0, 1, 1, -1), 1, 3), ((True, False, 1, "correct", "Paris"), 1, 1),  # the number alone is in doubt
    (("true", "Paris", "False"), 1, 2),  # of questions some of which are yes or no
])  # fmt: skip
def test_correct_that_is_no_label_in_some_rows_is_no_outcome_in_the_others(
    tmp_path: Path, values: tuple[object, ...], off: int, taken: int, caplog: pytest.LogCaptureFixture
) -> None:
    message = rf"`correct` is no label \(0, 1, true, false\) in {off} rows, so the {taken} outcomes .*--outcome FIELD"
    rows = list(read([marked(tmp_path, "correct", values)]))
    assert re.search(message, caplog.text)
    assert check(rows).other_scales == {"correct": off}
    with pytest.raises(RRMError, match=message):
        refuse_other_scales(rows)


@pytest.mark.parametrize("values", [
    (0, 1, 1), (True, "false", "unknown", "", None, "N/A"), (0.5, 1), ("yes", "no", "Paris"),
    (True, False, "see the log", 7), ("correct", "Failed", "Paris"),
    (1, 0, "timeout", "Pending", "skipped", "-", "no answer", "NaN"),
])  # fmt: skip
def test_correct_that_is_a_label_wherever_it_speaks_is_one(tmp_path: Path, values: tuple[object, ...]) -> None:
    refuse_other_scales(read([marked(tmp_path, "correct", values)]))


def test_a_boolean_is_no_mark_of_another_scale(tmp_path: Path) -> None:
    rows = list(read([marked(tmp_path, "score", (True, False, 7, 3))]))
    refuse_other_scales(rows)
    assert [t.outcome for t in rows] == [1.0, 0.0, None, None] and check(rows).other_scales == {"score": 2}


def test_a_choice_or_an_answer_in_one_file_says_nothing_of_labels_in_another(tmp_path: Path) -> None:
    labels = rows_of(tmp_path / "labels.jsonl", {"correct": True}, {"correct": 0})
    of_choices = ({"correct": 3, "choices": ["a", "b", "c", "d"]}, {"correct": 1, "options": []})
    choices = rows_of(tmp_path / "choices.jsonl", *of_choices)
    answers = rows_of(tmp_path / "answers.jsonl", {"correct": "yes"}, {"correct": "Paris"})
    rows = list(read([labels, choices, answers]))
    refuse_other_scales(rows)
    assert [t.outcome for t in rows] == [1.0, 0.0, None, None, None, None]


def test_correct_that_is_named_is_read_as_named(tmp_path: Path) -> None:
    rows = list(read([marked(tmp_path, "correct", ("yes", "no", 1))], outcome="correct"))
    refuse_other_scales(rows)
    assert [t.outcome for t in rows] == [1.0, 0.0, 1.0]


def verdict_run(*turns: str, outcome: float | None = 1.0, role: str = "tool") -> Trajectory:
    """A task, then agent and environment in turn."""
    roles = ["user"] + ["assistant", role] * len(turns)
    texts = ("Your answer is wrong. Why?", *turns)
    messages = [{"role": r, "content": text} for r, text in zip(roles, texts, strict=False)]
    meta = {"outcome_leaks": [2], "agent": "a"}
    return Trajectory.model_validate({"id": "t", "messages": messages, "outcome": outcome, "meta": meta})


def later_texts(trajectory: Trajectory) -> list[str]:
    return [m.text() for m in trajectory.messages[1:]]


def test_a_run_without_a_verdict_is_left_as_it_is() -> None:
    uncut = verdict_run("search", "nothing about grades", "done")
    assert cut_verdicts(uncut) is uncut
    assert cut_verdicts(uncut.model_copy(update={"messages": []})).messages == []


def test_the_verdict_and_all_after_it_go_and_what_stood_before_it_stays() -> None:
    verdict = "Observation:\nYour answer is wrong."
    cut = cut_verdicts(verdict_run("<solution>4</solution>", verdict, "sorry", outcome=0.0))
    assert later_texts(cut) == ["<solution>4</solution>"] and cut.meta == {"agent": "a", "cut_at": 2}
    verdict = "Out: 7\nOnce more. Now: your answer is wrong.\nTry again"
    cut = cut_verdicts(verdict_run("run", verdict, "sorry", outcome=0.0))
    assert later_texts(cut) == ["run", "Out: 7\nOnce more."]
    assert check([cut]).verdicts == 0


@pytest.mark.parametrize(("verdict", "more", "outcome", "kept"), [
    ("Your answer is wrong.", ("again",), 0.0, 0.0),
    ("Your answer is wrong.", ("again", "Your answer is correct."), 1.0, None),  # it succeeded later
    ("Your answer is wrong.", (), 1.0, 1.0),  # nothing came later: the verdict_run is the same
    ("Your answer is correct.", ("thanks",), 1.0, 1.0), ("Episode finished, reward = True", ("thanks",), 1.0, 1.0),
    ("reward: 0.5", ("again",), 1.0, None), ("reward: 0.0", ("again",), 0.0, 0.0),
    ("reward = 1.0", ("again",), 1.0, 1.0), ("your score is 7 of 10", ("again",), 1.0, None),
    ("Your answer is wrong.", ("again",), None, None),
])  # fmt: skip
def test_the_outcome_stays_where_it_is_still_the_runs(
    verdict: str, more: tuple[str, ...], outcome: float | None, kept: float | None
) -> None:
    cut = cut_verdicts(verdict_run("act", verdict, *more, outcome=outcome))
    assert cut.outcome == kept and later_texts(cut) == ["act"]
    assert cut.meta.get("whole_outcome") == (outcome if kept is None else None)


def test_convert_cuts_on_demand_and_counts(tmp_path: Path, invoke) -> None:
    data, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    later = verdict_run("a", "Your answer is wrong.", "b", "Your answer is correct.")
    write_jsonl(data, [verdict_run("a", "ok", "b"), later])
    summary = invoke(convert_cmd.command, data, "-o", out, "--cut-verdicts")[1]
    assert (summary["converted"], summary["cut"], summary["outcomes_unknown_after_cut"]) == (2, 1, 1)
    assert [later_texts(t) for t in read([out])] == [["a", "ok", "b"], ["a"]]
    assert "cut" not in invoke(convert_cmd.command, data, "-o", out)[1]
    assert check(read([out])).verdicts == 2 and check(read([out])).outcome_leak_rows == 1


def test_commands_read_the_outcome_from_a_named_field(tmp_path: Path, invoke) -> None:
    data, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    row = {"messages": talk("q", "a"), "label": "yes"}
    data.write_text(json.dumps(row) + "\n")
    assert invoke(convert_cmd.command, data, "-o", out, "--outcome", "label")[0] == 0
    assert [t.outcome for t in read([out])] == [1.0]
    labels = tmp_path / "labels.jsonl"
    summary = invoke(annotate_cmd.command, data, "-o", labels, "--annotator", "given", "--outcome", "label")[1]
    assert summary["annotations"] == 1
    labelling = (annotate_cmd.command, data, "-o", labels, "--annotator", "given", "--overwrite")
    scoring = (score_cmd.command, data, "--model", "openai:http://127.0.0.1:9#m", "--dry-run")
    for command in (labelling, scoring):
        code, summary = invoke(*command, "--outcome", "won")
        assert code == 1 and summary["unreadable"] == 1
