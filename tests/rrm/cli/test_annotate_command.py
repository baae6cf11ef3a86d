"""`rrm annotate`: the file it writes, and the command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_runs import REPLY, call, run
from openai_server import Answer, completion, failure, serve

from rrm.annotation import Annotation
from rrm.annotators.output import append, read_done
from rrm.cli.annotate_cmd import command
from rrm.errors import ConfigError, RRMError
from rrm.trajectory import Trajectory, write_jsonl


def test_a_torn_last_line_is_cut_and_foreign_lines_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ann.jsonl"
    assert read_done(path, "rules") == set()
    rows = [Annotation(trajectory_id=i, annotator="rules", kind="rules", trace="\ud800") for i in "ab"]
    assert append(path, rows) == 2
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    assert read_done(path, "rules") == {"a", "b"} and path.read_bytes() == whole
    with pytest.raises(RRMError, match="written by 'rules', this run's annotator is 'm'"):
        read_done(path, "m")
    path.write_text("{}\n")
    with pytest.raises(RRMError, match="1: not an annotation"):
        read_done(path, None)


@pytest.fixture
def server() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """(model, requests) of a chat server that refuses a transcript with `poison` in it and judges every other."""

    def answer(number: int, body: dict[str, Any]) -> Answer:
        refused = "poison" in body["messages"][1]["content"]
        return failure(400, "refused") if refused else completion(REPLY)

    with serve(answer) as made:
        yield f"openai:{made.url}#tiny", made.requests


def rows_named(names: str) -> list[Trajectory]:
    return [run(call({"q": n}), "x", "Final Answer: x", outcome=0).model_copy(update={"id": n}) for n in names]


def test_command_annotates_by_rules_and_resumes(tmp_path: Path, invoke) -> None:
    data, out = tmp_path / "in.jsonl", tmp_path / "ann.jsonl"
    write_jsonl(data, rows_named("ab"))
    assert invoke(command, data, "-o", out, "--annotator", "rules")[0] == 0
    first = out.read_bytes()
    write_jsonl(data, rows_named("abc"))
    with open(data, "a") as more:
        more.write("not json\n")
    code, summary = invoke(command, data, "-o", out, "--annotator", "rules")
    assert code == 1 and summary["unreadable"] == 1
    assert (summary["transcripts"], summary["resumed"], summary["annotations"]) == (3, 2, 1)
    assert out.read_bytes().startswith(first)
    assert [json.loads(line)["trajectory_id"] for line in out.open()] == ["a", "b", "c"]
    with pytest.raises(ConfigError, match="--field 'grade=x'"):
        invoke(command, data, "-o", out, "--annotator", "given", "--field", "grade=x", "--overwrite")
    with pytest.raises(ConfigError, match="--annotator llm needs --model"):
        invoke(command, data, "-o", out, "--annotator", "llm")


def test_command_asks_a_server_and_asks_again_for_what_failed(tmp_path: Path, invoke, server) -> None:
    spec, asked = server
    data, out = tmp_path / "in.jsonl", tmp_path / "ann.jsonl"
    write_jsonl(data, [*rows_named("ab"), run("poison", "x", "y").model_copy(update={"id": "p"})])
    options = (data, "-o", out, "--annotator", "llm", "--model", spec)
    code, summary = invoke(command, *options)
    assert code == 1 and summary["annotations"] == 2 and summary["judge_error"] == 1
    assert len(asked) == 3
    code, summary = invoke(command, *options)
    assert code == 1 and summary["resumed"] == 2 and len(asked) == 4
    write_jsonl(data, rows_named("ab"))
    assert invoke(command, *options)[0] == 0 and len(asked) == 4
    assert {json.loads(line)["annotator"] for line in out.open()} == {spec}


def test_command_keeps_what_the_judge_and_the_outcome_agree_on(tmp_path: Path, invoke, server) -> None:
    spec, _ = server
    data, out = tmp_path / "in.jsonl", tmp_path / "ann.jsonl"
    right = rows_named("z")[0].model_copy(update={"outcome": 1.0})
    write_jsonl(data, [*rows_named("a"), right])
    code, summary = invoke(command, data, "-o", out, "--annotator", "self", "--model", spec, "--samples", 2)
    assert code == 0
    assert (summary["annotations"], summary["without_agreement"], summary["judgements"]) == (1, 1, 4)
    assert json.loads(out.read_text())["trajectory_id"] == "a"
