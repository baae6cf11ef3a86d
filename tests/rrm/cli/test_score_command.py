"""`rrm score` as a command: summaries, files of errors, outputs that cannot be written, inputs that are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chat_judge import ChatJudge, transcripts

from rrm.cli import reading, score_cmd
from rrm.data.trajectory import write_jsonl
from rrm.errors import ConfigError, ReadError, RRMError


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, invoke) -> Callable[..., tuple[int, dict[str, Any]]]:
    """`rrm score` with a scripted judge in the place of the weights."""
    judge = ChatJudge()
    monkeypatch.setattr(score_cmd, "load_judge", lambda *args, **options: judge)

    def run(*args: str | Path, judge_down: tuple[str, ...] = ()) -> tuple[int, dict[str, Any]]:
        judge.down = judge_down
        return invoke(score_cmd.command, *args)

    return run


def test_command(tmp_path: Path, cli: Callable[..., tuple[int, dict[str, Any]]]) -> None:
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    write_jsonl(source, transcripts(4))
    code, summary = cli(source, "--dry-run", "--mode", "score")
    assert (code, summary["rows"], summary["unreadable"]) == (0, 4, 0) and not output.exists()
    code, summary = cli(source, "-o", output, "--html", tmp_path / "report.html")
    assert (code, summary["rows"], summary["statuses"]) == (0, 4, {"scored": 4})
    assert "t3" in (tmp_path / "report.html").read_text()
    with open(source, "a") as more:
        more.write("{broken\n")
    code, summary = cli(source, "-o", output)
    assert (code, summary["resumed"], summary["unreadable"]) == (1, 4, 1)
    error = json.loads((tmp_path / "out.errors.jsonl").read_text())
    assert error["line"] == 5 and error["path"] == str(source) and error["reason"]
    with pytest.raises(ReadError, match=":5:"):
        cli(source, "-o", output, "--strict")
    write_jsonl(source, transcripts(5))
    code, summary = cli(source, "-o", output, judge_down=("t4",))
    assert (code, summary["judged"], summary["statuses"]) == (1, 1, {"judge_error": 1, "scored": 4})
    assert not (tmp_path / "out.errors.jsonl").exists()
    assert cli(source, "-o", output, "--retry-errors")[0] == 0


def test_an_output_that_cannot_be_written_is_said_before_anything_is_judged(
    tmp_path: Path, cli: Callable[..., tuple[int, dict[str, Any]]]
) -> None:
    """`--html` in a folder that is not there failed when all was judged."""
    source, output, page = tmp_path / "in.jsonl", tmp_path / "out.jsonl", tmp_path / "new" / "page.html"
    write_jsonl(source, transcripts(2))
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    for options, said in (
        (("-o", output, "--html", tmp_path / "folder"), "it is a folder; name a file in it"),
        (("-o", output, "--html", tmp_path / "file" / "page.html"), "cannot write .*page.html"),
        (("-o", tmp_path / "folder"), "it is a folder"),
    ):
        with pytest.raises(ConfigError, match=said):
            cli(source, *options)
        assert not output.exists()
    assert cli(source, "--dry-run", "-o", output, "--html", page)[0] == 0 and not page.parent.exists()
    assert cli(source, "-o", output, "--html", page)[0] == 0 and page.is_file()


def test_the_first_lines_of_each_kind_that_cannot_be_read_are_said(
    tmp_path: Path, cli: Callable[..., tuple[int, dict[str, Any]]], caplog: pytest.LogCaptureFixture
) -> None:
    """Why stood in OUT.errors.jsonl alone."""
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    write_jsonl(source, transcripts(2))
    with open(source, "a") as more:
        more.write('{"a": 1}\n{"a":\n{"ab":\n7\n"text"\n')
    code, summary = cli(source, "-o", output)
    assert code == 1 and summary["unreadable"] == 5
    (said,) = [m for m in caplog.messages if "could not be read" in m]
    lines = [json.loads(line) for line in (tmp_path / "out.errors.jsonl").read_text().splitlines()]
    assert said.startswith(f"5 lines could not be read: {source}:3: {lines[0]['reason'][:20]}")
    assert f"{source}:4: {lines[1]['reason']} (and 1 like it)" in said and f"{source}:5:" not in said
    assert said.endswith(f"see {tmp_path / 'out.errors.jsonl'}")


def test_command_refuses_what_would_hurt(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("")
    with pytest.raises(RRMError, match=r"absent\.jsonl: no such file or folder"):
        reading.check_paths([str(tmp_path / "absent.jsonl")], tmp_path / "out.jsonl", None)
    for inputs, output, html in (
        ([str(source)], source, None),
        ([str(tmp_path)], tmp_path / "out.jsonl", None),
        (["-"], None, tmp_path / "r.html"),
        ([str(source)], tmp_path / "out.jsonl", tmp_path / "." / "out.jsonl"),
    ):
        with pytest.raises(RRMError):
            reading.check_paths(inputs, output, html)
    reading.check_paths([str(source)], tmp_path / "out.jsonl", None)
    assert reading.mapping_of(["messages=log.turns", "task=b=c"]) == {"messages": "log.turns", "task": "b=c"}
    for pair in ("messages", "=x", "x="):
        with pytest.raises(ConfigError, match="field=path"):
            reading.mapping_of([pair])
