"""`rrm annotate`: the file it writes, and the command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_runs import REPLY, call, run
from openai_server import Answer, completion, failure, serve

from rrm.cli.annotate_cmd import command
from rrm.data.annotation import read_annotations
from rrm.data.output import RowFile
from rrm.data.trajectory import Trajectory, write_jsonl
from rrm.errors import ConfigError, RRMError
from rrm.prompt import rules


def test_a_torn_last_line_is_cut_and_foreign_lines_are_refused(tmp_path: Path, invoke) -> None:
    data, out = tmp_path / "in.jsonl", tmp_path / "ann.jsonl"
    write_jsonl(data, rows_named("ab"))
    options = (data, "-o", out, "--annotator", "rules")
    assert invoke(command, *options)[0] == 0
    whole = out.read_bytes()
    out.write_bytes(whole + whole[:20])
    assert invoke(command, *options)[1]["resumed"] == 2 and out.read_bytes() == whole
    for damage, said in ((b"{}\n", "3: not an annotation"), (b"[1]\n", "3: not a row")):
        out.write_bytes(whole + damage)
        with pytest.raises(RRMError, match=said):
            invoke(command, *options)
        assert out.read_bytes() == whole + damage
    old = json.loads(whole.splitlines()[0])
    del old["digest"]
    out.write_text(json.dumps(old) + "\n")
    with pytest.raises(RRMError, match="1: an annotation without a digest"):
        invoke(command, *options)


def test_lines_of_another_making_are_not_mixed_in_and_a_running_one_is_left_alone(tmp_path: Path, invoke) -> None:
    data, out = tmp_path / "in.jsonl", tmp_path / "ann.jsonl"
    write_jsonl(data, rows_named("ab"))
    options = (data, "-o", out, "--annotator", "given")
    assert invoke(command, *options)[1]["annotations"] == 2
    before = out.read_bytes()
    with pytest.raises(RRMError, match=r"max_words was 25 and is 30.*--overwrite"):
        invoke(command, *options, "--max-words", 30)
    with pytest.raises(RRMError, match="annotator was 'given' and is 'rules'"):
        invoke(command, data, "-o", out, "--annotator", "rules")
    assert out.read_bytes() == before
    assert invoke(command, *options, "--max-words", 30, "--overwrite")[1]["annotations"] == 2
    made_by = json.loads(Path(f"{out}.run.json").read_text())["fingerprint"]
    with RowFile.open(out, made_by), pytest.raises(RRMError, match=r"another run is writing .*ann\.jsonl"):
        invoke(command, *options, "--max-words", 30)


def test_transcripts_are_resumed_by_content_not_by_name_or_order(tmp_path: Path, invoke) -> None:
    one, two, out = tmp_path / "one.jsonl", tmp_path / "two.jsonl", tmp_path / "ann.jsonl"
    first, second = (t.model_copy(update={"id": "0"}) for t in rows_named("ab"))
    write_jsonl(one, [first])
    write_jsonl(two, [second, second])
    options = ("-o", out, "--annotator", "rules")
    summary = invoke(command, one, two, *options)[1]
    assert (summary["annotations"], summary["repeated"]) == (2, 1)
    summary = invoke(command, two, one, *options)[1]
    assert (summary["annotations"], summary["resumed"]) == (0, 2)
    write_jsonl(one, [first.model_copy(update={"id": "renamed"}), first.model_copy(update={"task": "another"})])
    summary = invoke(command, two, one, *options)[1]
    assert (summary["annotations"], summary["resumed"]) == (1, 2)
    labels = read_annotations(out)
    assert [(a.trajectory_id, a.digest) for a in labels[:2]] == [("0", first.digest), ("0", second.digest)]


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


def test_command_keeps_nothing_of_a_judge_that_gives_all_runs_one_score(tmp_path: Path, invoke, server) -> None:
    spec, _ = server
    data, out = tmp_path / "in.jsonl", tmp_path / "ann.jsonl"
    right = rows_named("z")[0].model_copy(update={"outcome": 1.0})
    write_jsonl(data, [*rows_named("a"), right])
    code, summary = invoke(command, data, "-o", out, "--annotator", "self", "--model", spec, "--samples", 2)
    assert code == 1, "one score for a success and a failure agrees with neither"
    assert (summary["annotations"], summary["without_agreement"], summary["judgements"]) == (0, 2, 4)


def test_labels_of_other_rules_are_not_mixed_in(tmp_path: Path, invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out = tmp_path / "in.jsonl", tmp_path / "ann.jsonl"
    write_jsonl(data, rows_named("ab"))
    options = (data, "-o", out, "--annotator", "rules")
    assert invoke(command, *options)[0] == invoke(command, *options)[0] == 0
    before = rules.VERSION
    monkeypatch.setattr(rules, "VERSION", 99)
    with pytest.raises(RRMError, match=rf"checks by program was {before} and is 99.*--overwrite"):
        invoke(command, *options)
