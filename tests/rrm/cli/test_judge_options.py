"""One set of options for every command that has a judge; they reach it, and a run without one score says why."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from chat_judge import rows_of, transcripts
from openai_server import completion, serve
from typer.testing import CliRunner

from rrm.annotate import llm
from rrm.cli import annotate_cmd, calibrate_cmd, choose_cmd, eval_cmd, rank_cmd, score_cmd
from rrm.data.questions import question_keys
from rrm.data.trajectory import Trajectory, write_jsonl
from rrm.engines.base import SamplingParams
from rrm.engines.scripted import ScriptedChatEngine
from rrm.errors import ConfigError, EngineError, ReadError, RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings, save_settings

COMMANDS = {
    "score": score_cmd.command,
    "choose": choose_cmd.command,
    "eval": eval_cmd.command,
    "annotate": annotate_cmd.command,
}
WHOLE = "<think>t</think><critique>[step 1] good: ok</critique><score>0.5</score>"


def written(folder: Path, rows: list[Trajectory]) -> Path:
    path = folder / "in.jsonl"
    write_jsonl(path, rows)
    return path


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_with_a_judge_has_its_options(name: str) -> None:
    app = typer.Typer()
    app.command()(COMMANDS[name])
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).stdout
    options = "model settings revision token device dtype attn-implementation batch-tokens transcript-tokens"
    for option in (*options.split(), "max-new-tokens", "timeout", "concurrency", "trust-remote-code"):
        assert f"--{option} " in shown, option
    assert "--max-tokens" not in shown


def test_options_reach_a_server(tmp_path: Path, invoke: Any) -> None:
    source = written(tmp_path, transcripts(3, said="word " * 2000))
    options = ("--max-new-tokens", "64", "--transcript-tokens", "100", "--timeout", "7", "--concurrency", "2")
    for command, more in (
        (score_cmd.command, ("-o", tmp_path / "s.jsonl")),
        (annotate_cmd.command, ("-o", tmp_path / "a.jsonl", "--annotator", "llm")),
    ):
        with serve(lambda n, body: completion(WHOLE)) as server:
            code, _ = invoke(command, source, "--model", f"openai:{server.url}#m", *options, *more)
        assert code == 0 and server.most_at_once <= 2
        for request in server.requests:
            assert request["max_tokens"] == 64 and len(request["messages"][1]["content"]) < 600
    (row, *_) = rows_of(tmp_path / "s.jsonl")
    assert (row["judge"]["transcript_tokens"], row["judge"]["max_new_tokens"]) == (100, 64)


def test_an_annotator_waits_as_long_as_its_engine() -> None:
    engine = ScriptedChatEngine([WHOLE])
    engine.timeout_s = 300.0  # pyright: ignore[reportAttributeAccessIssue]
    list(llm.annotate(transcripts(1), engine, model="m"))
    params: SamplingParams = engine.calls[0][1]
    assert params.timeout_s == 300.0


def test_dtype_reaches_a_local_judge(tmp_path: Path, invoke: Any) -> None:
    source = written(tmp_path, transcripts(1))
    out = tmp_path / "out.jsonl"
    local = ("--model", "lab", "--device", "cpu", "--dtype", "bfloat16", "--attn-implementation", "eager")
    assert invoke(score_cmd.command, source, "-o", out, "--mode", "score", *local)[0] == 0
    assert rows_of(out)[0]["judge"]["dtype"] == "bfloat16"
    with pytest.raises(ConfigError, match="revision"):
        invoke(score_cmd.command, source, "-o", tmp_path / "x.jsonl", "--model", "lab", "--revision", "main")


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (completion("I like it."), "3 unparsable; the first: unparsable: no <score> block; asked once more"),
        (completion("<think>well", "length"), "3 truncated; .*raise --max-new-tokens"),
    ],
)
def test_output_without_one_usable_score_exits_nonzero_and_says_why(
    reply: Any, said: str, tmp_path: Path, invoke: Any, caplog: pytest.LogCaptureFixture
) -> None:
    source = written(tmp_path, [t.model_copy(update={"outcome": 1.0}) for t in transcripts(3)])
    with serve(lambda n, body: reply) as server:
        spec = ("--model", f"openai:{server.url}#m")
        code, summary = invoke(score_cmd.command, source, "-o", tmp_path / "s.jsonl", *spec)
        assert code == 1 and sum(summary["statuses"].values()) == 3
        code, _ = invoke(eval_cmd.command, source, "-o", tmp_path / "m.json", *spec)
        assert code == 1
        code, _ = invoke(annotate_cmd.command, source, "-o", tmp_path / "a.jsonl", "--annotator", "llm", *spec)
        assert code == 1
    text = " ".join(r.getMessage() for r in caplog.records if r.levelno == logging.ERROR)
    assert re.search(f"no transcript has a usable score: {said}", text)
    assert "so nothing was measured; the first: " in text and "there is no annotation: 3 " in text


def test_an_empty_input_is_no_success(tmp_path: Path, invoke: Any, caplog: pytest.LogCaptureFixture) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("")
    code, _ = invoke(score_cmd.command, source, "-o", tmp_path / "o.jsonl", "--model", "openai:http://127.0.0.1:9/v1#m")
    assert code == 1 and "no transcript has a usable score: none was read" in caplog.text


@pytest.mark.parametrize(
    ("command", "options", "said"),
    [
        (score_cmd.command, (), "no transcript has a usable score: none was read"),
        (rank_cmd.command, (), "no attempt could be placed"),
        (annotate_cmd.command, ("--annotator", "self"), "there is no annotation"),
    ],
    ids=["score", "rank", "annotate"],
)
def test_an_empty_input_is_noticed_before_a_model_is_loaded(
    command: Any, options: tuple[str, ...], said: str, tmp_path: Path, invoke: Any, caplog: pytest.LogCaptureFixture
) -> None:
    source, weights = tmp_path / "in.jsonl", tmp_path / "weights"
    source.write_text("")
    weights.mkdir()  # which holds none: to load it is an error
    code, summary = invoke(command, source, "-o", tmp_path / "o.jsonl", "--model", weights, *options)
    assert code == 1 and summary["unreadable"] == 1 and said in caplog.text
    write_jsonl(source, transcripts(1))
    with pytest.raises(RRMError, match="weights"):
        invoke(command, source, "-o", tmp_path / "o.jsonl", "--model", weights, *options)


def test_too_few_labels_are_noticed_before_a_model_is_loaded(tmp_path: Path, invoke: Any) -> None:
    source = written(tmp_path, transcripts(3))
    with pytest.raises(RRMError, match=r"at least 20 rows .*3 transcripts have no label"):
        invoke(calibrate_cmd.command, source, "-o", tmp_path / "judge", "--model", tmp_path / "nothing")


def test_a_refused_key_is_one_line(tmp_path: Path, invoke: Any) -> None:
    from openai_server import failure

    source = written(tmp_path, transcripts(20))
    with serve(lambda n, body: failure(401, "bad key")) as server:
        spec = ("--model", f"openai:{server.url}#m", "--concurrency", "1")
        for command, more in ((score_cmd.command, ()), (annotate_cmd.command, ("--annotator", "llm"))):
            with pytest.raises(EngineError, check=lambda error: error.kind == "refused") as caught:
                invoke(command, source, "-o", tmp_path / f"{command.__module__}.jsonl", *spec, *more)
            assert "\n" not in str(caught.value)
    assert len(server.requests) == 2


# ---- eval ----


def labelled(n: int) -> list[Trajectory]:
    return [
        t.model_copy(update={"outcome": float(i % 2), "question_id": f"q{i // 2}"})
        for i, t in enumerate(transcripts(n))
    ]


def test_eval_goes_on_where_it_was_killed(tmp_path: Path, invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source, output = written(tmp_path, labelled(6)), tmp_path / "metrics.json"
    replies = lambda n, body: completion(WHOLE)  # noqa: E731
    with serve(replies) as server:
        judge = AgentRRM.from_pretrained(f"openai:{server.url}#m", concurrency=1)
        monkeypatch.setattr(eval_cmd, "load_judge", lambda options: judge)
        eval_cmd.judge_rows(judge, labelled(6)[:4], output, 0, mode="score", samples=1, seed=0, overwrite=False)
        assert len(server.requests) == 4  # killed here
        assert invoke(eval_cmd.command, source, "-o", output, "--resamples", "100")[0] == 0
        assert len(server.requests) == 6
    assert json.loads(output.read_text())["rows"] == len(rows_of(tmp_path / "metrics.rows.jsonl")) == 6


def test_eval_warns_of_questions_that_the_judge_was_calibrated_on(
    tmp_path: Path, invoke: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rows, judge = labelled(6), tmp_path / "judge"
    save_settings(judge, JudgeSettings(opening=False))
    used = "".join(json.dumps({"id": t.id, "question": question_keys([t])[0]}) + "\n" for t in rows[:2])
    (judge / "calibration.jsonl").write_text(used)
    source = written(tmp_path, rows)
    with serve(lambda n, body: completion(WHOLE)) as server:
        spec = ("--model", f"openai:{server.url}#m", "--settings", judge)
        asked = ("-o", tmp_path / "m.json", "--resamples", "100", *spec)
        assert invoke(eval_cmd.command, source, *asked)[0] == 0
        assert "2 of 6 transcripts are of questions this judge was calibrated on (e.g. t0)" in caplog.text
        assert json.loads((tmp_path / "m.json").read_text())["seen_in_calibration"] == 2
        (judge / "calibration.jsonl").write_text('{"id": "t0"}\n')
        with pytest.raises(ReadError, match=r"calibration\.jsonl.*1.*it names no question"):
            invoke(eval_cmd.command, source, *asked)


def test_eval_warns_of_training_questions(tmp_path: Path, invoke: Any, caplog: pytest.LogCaptureFixture) -> None:
    rows = labelled(6)
    save_settings(tmp_path / "judge", JudgeSettings(opening=False, training_questions=question_keys(rows[:2])))
    source = written(tmp_path, rows)
    with serve(lambda n, body: completion(WHOLE)) as server:
        spec = ("--model", f"openai:{server.url}#m", "--settings", tmp_path / "judge")
        assert invoke(eval_cmd.command, source, "-o", tmp_path / "m.json", "--resamples", "100", *spec)[0] == 0
    assert "2 of 6 transcripts are of questions this judge was trained on (e.g. t0)" in caplog.text
    assert json.loads((tmp_path / "m.json").read_text())["seen_in_training"] == 2
    with pytest.raises(ConfigError, match="leave out --model, --dtype"):
        invoke(
            eval_cmd.command, source, "-o", tmp_path / "m.json", "--feedback", tmp_path / "m.rows.jsonl",
            "--model", "lab", "--dtype", "float32",
        )  # fmt: skip
