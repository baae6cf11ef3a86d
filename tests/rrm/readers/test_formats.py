"""What is said about formats: the nearest to what nobody knows, and which one each file is in."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from log_rows import SAMPLES as SAMPLE_FILES
from log_rows import read_lines, talk
from test_readers_garbage import SAMPLES, anything
from typer.testing import CliRunner

from rrm.cli import check_cmd
from rrm.data.trajectory import Trajectory
from rrm.readers import FORMATS, READERS, read
from rrm.readers.formats import FILES, FileFormats, holds, unknown

CHAT = talk("q", "a")


@pytest.mark.parametrize(("value", "words"), [
    ({"messages": [{"content": "x"}]}, "nearest: openai (it has `messages`; lacks `messages[].role`);"),
    ({"object": "response", "id": 1}, "nearest: responses (it has `object=response`; lacks `output[].type`);"),
    ({"task_id": 3, "traj": "x"}, "nearest: tau_bench (it has `task_id`; lacks `traj[].role`);"),
    ({"custom_id": "x", "body": {}}, "nearest: calls (it has `custom_id`; lacks `body.messages`, `response`);"),
    ({"mesages": CHAT}, "nearest: openai (`mesages` may be its `messages`);"),
    ({"sesionId": "s"}, "nearest: claude_code (`sesionId` may be its `sessionId`);"),
    ({"lc": 1, "id": ["x", "AIMessage"], "kwargs": {}}, "nearest: langchain (it has `lc`; lacks `messages[].data`);"),
    ([{"type": "human"}], "nearest: langchain (it has `[].type`; lacks `[].data`);"),
])  # fmt: skip
def test_the_nearest_format_and_what_it_lacks(value: Any, words: str) -> None:
    assert words in unknown(value, READERS)


@pytest.mark.parametrize("value", [{"foo": 1}, {"id": "x", "foo": 1}, {}, [1], "text", 3, None])
def test_where_nothing_is_near_all_are_named(value: Any) -> None:
    message = unknown(value, READERS)
    assert "nearest" not in message and all(name in message for name in FORMATS) and "--map messages=PATH" in message


def test_an_error_of_reading_says_it(tmp_path: Path) -> None:
    _, (error,) = read_lines(tmp_path / "a.jsonl", {"mesages": []})
    assert "`mesages` may be its `messages`" in error.reason


@settings(max_examples=60, deadline=None, derandomize=True)
@given(anything)
def test_any_json_has_its_error(value: Any) -> None:
    assert unknown(value, READERS).startswith("no known transcript format: ")


def test_every_format_that_is_no_text_has_marks_and_its_sample_bears_them() -> None:
    for name, reader in FORMATS.items():
        marks = getattr(reader, "MARKS", ())
        assert isinstance(marks, tuple) and (marks or name in ("react", "search_tags", "mapping")), name
        assert any(holds(SAMPLES[name], mark) for mark in marks) or not marks, name


def test_marks() -> None:
    value = {"a": [{"b": {"c": "x"}}, {"d": None}], "e": "word"}
    assert holds(value, "a[].b.c") and holds(value, "e=word") and holds(value, "z|e") and holds([value], "[].e")
    assert not any(holds(value, mark) for mark in ("a[].d", "e=other", "e[]", "[]"))


def row(file: str, format: str) -> Trajectory:
    record = {"id": "x", "messages": CHAT, "source": {"file": file, "format": format}}
    return Trajectory.model_validate(record)


def test_formats_by_file() -> None:
    found = FileFormats()
    rows = [row("a", "openai"), row("a", "react"), row("a", "react"), row("b", "calls"), row("c", "calls")]
    assert list(found.counted(rows)) == rows
    assert found.files == {"a": {"openai": 1, "react": 2}, "b": {"calls": 1}, "c": {"calls": 1}}
    assert list(found.lines(2)) == [("a: openai 1, react 2", 3), ("b: calls", 1), ("(in other files)", 1)]
    for number in range(FILES):
        found.add(row(str(number), "openai"))
    assert len(found.files) == FILES and found.rows_of_other_files == 3
    single = FileFormats()
    single.add(rows[0])
    assert list(single.lines(9)) == []


def test_what_a_file_holds_decides_not_its_name(tmp_path: Path) -> None:
    for suffix, format in ((".csv", "calls"), (".txt", "langchain"), (".traj", "responses"), ("", "anthropic")):
        (tmp_path / f"{format}{suffix}").write_text(json.dumps(SAMPLES[format]))
    found = FileFormats()
    assert len(list(found.counted(read(tmp_path)))) == 4
    assert {Path(file).stem: counts for file, counts in found.files.items()} == {
        name: {name: 1} for name in ("calls", "langchain", "responses", "anthropic")
    }


def test_check_names_the_format_of_each_file(tmp_path: Path) -> None:
    (tmp_path / "a.dat").write_text(json.dumps(SAMPLES["calls"]))
    (tmp_path / "b.jsonl").write_text(json.dumps(SAMPLES["openai"]))
    app = typer.Typer()
    app.command()(check_cmd.command)
    done = CliRunner().invoke(app, [str(tmp_path)])
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["files"] == {str(tmp_path / "a.dat"): {"calls": 1}, str(tmp_path / "b.jsonl"): {"openai": 1}}
    assert summary["rows_of_other_files"] == 0


def test_every_sample_names_the_packages_that_made_it_and_their_versions() -> None:
    rows = [line.split("|")[1:4] for line in (SAMPLE_FILES / "README.md").read_text().splitlines() if "==" in line]
    assert all(re.fullmatch(r"( [\w-]+==\d+(\.\d+)+)+ (\(.*\) )?", made_with) for _, _, made_with in rows)
    files = sorted(name.strip() for names, *_ in rows for name in names.split(","))
    assert files == sorted(path.name for path in SAMPLE_FILES.iterdir() if path.is_file() and path.suffix != ".md")
