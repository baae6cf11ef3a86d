"""`rrm criteria list`, `rrm criteria init`, and `rrm score --criteria`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from chat_judge import transcripts
from openai_server import completion, serve
from typer.testing import CliRunner, Result

from rrm.cli import criteria_cmd, score_cmd
from rrm.data.trajectory import write_jsonl
from rrm.errors import ConfigError
from rrm.prompt.criteria import load_criteria


def invoke(*args: str) -> Result:
    app = typer.Typer()
    app.command("score")(score_cmd.command)
    app.add_typer(criteria_cmd.app, name="criteria")
    return CliRunner().invoke(app, [str(a) for a in args])


def last(result: Result) -> dict:
    return json.loads(result.stdout.splitlines()[-1])


def test_list_names_the_shipped_ones_with_their_questions() -> None:
    found = invoke("criteria", "list")
    assert last(found) == {"criteria": ["support-policy", "task-success", "tool-use"]}
    assert "  right_tools (weight 2): Did the agent call the tools" in found.stdout


@pytest.mark.parametrize("name", [(), ("tool-use",), ("support-policy",)])
def test_init_writes_a_commented_file_that_is_valid(tmp_path: Path, name: tuple[str, ...]) -> None:
    path = tmp_path / "new" / "mine.yaml"
    assert invoke("criteria", "init", *name, "-o", str(path)).exit_code == 0
    assert "# " in path.read_text() and load_criteria(path).questions
    again = invoke("criteria", "init", "-o", str(path))
    assert isinstance(again.exception, ConfigError) and "is there already" in str(again.exception)


def test_init_of_an_unknown_name() -> None:
    error = invoke("criteria", "init", "tool_use", "-o", "x.yaml").exception
    assert isinstance(error, ConfigError) and "did you mean 'tool-use'" in str(error) and not Path("x.yaml").exists()


def test_score_answers_a_file_s_questions(tmp_path: Path) -> None:
    source, out, file = tmp_path / "in.jsonl", tmp_path / "o.jsonl", tmp_path / "c.yaml"
    write_jsonl(source, transcripts(2))
    file.write_text('questions:\n  done: {ask: "Done?", labels: {yes: 0.2, no: 0}}\n')
    reply = json.dumps({"answers": {"done": {"why": "so", "steps": [], "answer": "yes"}}})
    with serve(lambda n, body: completion(reply)) as server:
        found = invoke(
            "score", str(source), "--model", f"openai:{server.url}#m", "--criteria", str(file), "-o", str(out),
            "--html", str(tmp_path / "r.html"),
        )  # fmt: skip
    assert found.exit_code == 0, found.output
    assert last(found)["criteria"] == {"done": {"mean": 0.2, "rows": 2}}
    row = json.loads(out.read_text().splitlines()[0])
    assert row["score"] == 0.2 and row["judge"]["mode"] == "score"
    assert row["criteria"] == {"done": {"value": 0.2, "label": "yes", "why": "so", "steps": []}}


def test_the_default_judge_refuses_criteria(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", transcripts(1))
    found = invoke("score", str(tmp_path / "in.jsonl"), "--criteria", "tool-use", "-o", str(tmp_path / "o.jsonl"))
    assert isinstance(found.exception, ConfigError) and "fixed rubric" in str(found.exception)
