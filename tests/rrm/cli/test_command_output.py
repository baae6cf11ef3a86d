"""What a person reads after a command: tables on a terminal, JSON in a pipe, default outputs, help, plain errors."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chat_judge import ChatJudge, transcripts
from typer.testing import CliRunner

from rrm import cli
from rrm.cli import score_cmd, tables
from rrm.cli.paths import beside, ready_outputs
from rrm.cli.reading import ErrorLog, read_inputs
from rrm.cli.score_table import score_lines
from rrm.data.output import RowFile
from rrm.data.trajectory import write_jsonl
from rrm.errors import ConfigError, RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.loading import LoadOptions, find_folder, load

Cli = Callable[..., str]


@pytest.fixture
def score(monkeypatch: pytest.MonkeyPatch) -> Cli:
    """`rrm score` with a scripted judge, as the command line registers it; returns standard output."""
    judge = ChatJudge()
    monkeypatch.setattr(score_cmd, "load_judge", lambda *args, **options: judge)
    cli.register(cli.app, "rrm.cli", ("score", "train"), ())

    def run(*words: str | Path, terminal: bool = False) -> str:
        monkeypatch.setattr(tables, "for_people", lambda *, err=False: terminal and not tables.json_asked)
        monkeypatch.setattr(score_cmd, "for_people", tables.for_people)
        result = CliRunner().invoke(cli.app, ["score", *map(str, words)])
        assert result.exit_code == 0, result.output
        return result.stdout

    return run


def test_a_terminal_gets_a_table_and_a_pipe_json(tmp_path: Path, score: Cli) -> None:
    write_jsonl(tmp_path / "in.jsonl", transcripts(4))
    table = score(tmp_path / "in.jsonl", "--mode", "full", terminal=True)
    assert "scored  4 of 4 transcripts" in table and "{" not in table and "in.scored.jsonl" in table
    for summary in (score(tmp_path / "in.jsonl"), score(tmp_path / "in.jsonl", "--json", terminal=True)):
        assert json.loads(summary)["resumed"] == 4


def test_rows_go_to_standard_output_by_a_dash(tmp_path: Path, score: Cli) -> None:
    write_jsonl(tmp_path / "in.jsonl", transcripts(3))
    rows = [json.loads(line) for line in score(tmp_path / "in.jsonl", "-o", "-").splitlines()]
    assert [row["id"] for row in rows] == ["t0", "t1", "t2"]
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_the_table_names_failures_unsure_steps_and_the_worst_runs(tmp_path: Path) -> None:
    runs = transcripts(6)
    rows: list[dict[str, Any]] = [
        {"id": f"t{n}", "score": n / 10, "findings": [{"step": 1, "verdict": "bad", "p_good": 0.1, "text": ""}]}
        for n in range(4)
    ]
    rows[1]["findings"] = [{"step": 1, "verdict": "unsure", "p_good": 0.4, "text": ""}]
    rows[2]["findings"][0]["text"] = "Asks for another year."
    rows += [{"id": "t4", "score": None, "findings": []}, {"id": "t5", "score": None, "findings": []}]
    out = tmp_path / "rows.jsonl"
    out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = {
        "output": str(out), "rows": 6, "statuses": {"scored": 4, "too_long": 2}, "first_failure": "too_long: 9 tokens",
        "unreadable": 0, "errors": None, "out_of_domain": {"outside": 1, "rows": 6}, "usage": None, "html": "page.html",
    }  # fmt: skip
    lines = dict(reversed(list(score_lines(summary, runs))))  # of several worst ones the first stays
    assert lines["failed"] == "2 too long; the first: too_long: 9 tokens"
    assert lines["score"] == "median 0.15, middle half 0.08 to 0.23, all 0.00 to 0.30"
    assert lines["steps"] == "3 bad, 1 unsure" and lines["page"] == "page.html"
    worst = [text for name, text in score_lines(summary, runs) if name in ("worst", "")]
    assert worst[0].startswith("0.00 t0: step 1, ") and worst[0].endswith("(good with probability 0.10)")
    assert worst[1] == "0.10 t1: unsure of all 1 step" and "step 1, Asks for another year." in worst[2]


@pytest.mark.parametrize(
    ("given", "name"), [("runs.jsonl", "runs.out"), ("a/v1.2.jsonl.gz", "a/v1.2.out"), ("logs/", "logs.out")]
)
def test_a_default_output_stands_beside_its_input(
    given: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    assert beside([given], ".out") == Path(name)
    with pytest.raises(ConfigError, match=r"-o NAME.out"):
        beside(["-"], ".out")


def test_no_folder_is_made_at_the_root() -> None:
    with pytest.raises(ConfigError, match="no folder /not-here: make it first"):
        ready_outputs(Path("/not-here/deep/out.jsonl"))
    assert not Path("/not-here").exists()


def test_help_is_whole_and_shows_rare_options_on_request() -> None:
    cli.register(cli.app, "rrm.cli", cli.COMMANDS, cli.GROUPS)
    run = lambda *words: CliRunner().invoke(cli.app, words, env={"COLUMNS": "80"}).stdout  # noqa: E731
    assert "..." not in run("--help").replace("ARGS]...", "")
    brief, whole = run("score", "--help"), run("score", "--help-all")
    assert "Judge on a server:" in brief and "--revision" not in brief and "--revision" in whole
    assert "--device" not in run("show", "--help-all") and "data.trajectories=" in run("train", "--help")


def test_a_model_that_is_none_is_said_plainly(tmp_path: Path) -> None:
    with pytest.raises(RRMError, match=r"openai:https://api.openai.com/v1#gpt-4o"):
        find_folder("gpt-4o", LoadOptions())
    with pytest.raises(RRMError, match=r"no judge in .*: it has no config.json"):
        load(str(tmp_path), LoadOptions())
    started = time.monotonic()
    with pytest.raises(RRMError, match=r"nobody answers at http://127.0.0.1:9 .*start rrm serve there"):
        AgentRRM.from_pretrained("http://127.0.0.1:9")
    assert time.monotonic() - started < 5


def test_another_judge_on_an_output_is_named_and_its_settings_are_not(tmp_path: Path) -> None:
    small = {"model": "small", "model_hash": "a", "rules": 3, "prompt_version": "2"}
    with RowFile.open(tmp_path / "out.jsonl", small) as output:
        output.append([{"id": "a"}])
    with (
        pytest.raises(RRMError, match=r"out.jsonl was made by small, now lab; choose another -o"),
        RowFile.open(tmp_path / "out.jsonl", {"model": "lab", "model_hash": "b"}),
    ):
        pass


def test_an_empty_file_is_no_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "in.jsonl").touch()
    (tmp_path / "empty").mkdir()
    for name in ("in.jsonl", "empty"):
        with ErrorLog(tmp_path / "out.jsonl") as errors:
            assert list(read_inputs([str(tmp_path / name)], errors, format="auto", mapping=None)) == []
    assert "1 file could not be read: " in caplog.text
    assert f"1 folder could not be read: {tmp_path / 'empty'}: this folder holds no transcripts (" in caplog.text
