"""A server judge on the command line: its options reach it, money is said and limited, secrets are written nowhere."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import typer
from chat_judge import rows_of, transcripts
from openai_server import Answer, completion, serve
from typer.testing import CliRunner

from rrm.cli import annotate_cmd, choose_cmd, eval_cmd, score_cmd
from rrm.data.trajectory import write_jsonl
from rrm.errors import ConfigError, SpendingLimit

WHOLE = "<think>t</think><critique>[step 1] good: ok</critique><score>0.5</score>"
USED = {"prompt_tokens": 1000, "completion_tokens": 100}
COMMANDS = (score_cmd.command, choose_cmd.command, eval_cmd.command, annotate_cmd.command)
PRICE = ("--price", "1,10")
COST = 0.002
"""Of one reply."""


def whole(n: int, body: dict[str, Any]) -> Answer:
    return completion(WHOLE, usage=USED)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "in.jsonl"
    path.parent.mkdir()
    write_jsonl(
        path,
        [t.model_copy(update={"outcome": i % 2, "question_id": f"q{i // 2}"}) for i, t in enumerate(transcripts(12))],
    )
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_with_a_judge_has_the_options_of_servers(command: Any) -> None:
    app = typer.Typer()
    app.command()(command)
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).stdout
    for name in ["temperature", "reasoning-effort", "thinking-tokens", "extra-body", "header", "price", "max-cost"]:
        assert f"--{name} " in shown, name


@pytest.mark.parametrize("command", [score_cmd.command, annotate_cmd.command])
def test_what_is_said_is_sent_and_secrets_are_written_nowhere(
    command: Any,
    source: Path,
    tmp_path: Path,
    invoke: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("TEAM_TOKEN", "tok-1-secret")
    out = tmp_path / "out" / "rows.jsonl"
    more = ("--annotator", "llm") if command is annotate_cmd.command else ()
    with serve(whole) as server:
        code, summary = invoke(
            command, source, "-o", out, "--model", f"openai:http://me:pw-secret@{server.url[7:]}#m", *more, *PRICE,
            "--temperature", "0.4", "--reasoning-effort", "low", "--extra-body", '{"top_k": 5}', "--thinking-tokens", "64",
            "--header", "X-Team=$TEAM_TOKEN", "--header", "X-Trace=on", "--concurrency", "200",
        )  # fmt: skip
    assert code == 0 and len(server.requests) == 12 and summary["usage"]["cost"] == pytest.approx(12 * COST)
    for body, headers in zip(server.requests, server.headers, strict=True):
        assert (body["temperature"], body["reasoning_effort"], body["top_k"]) == (0.4, "low", 5)
        assert (headers["x-team"], headers["x-trace"]) == ("tok-1-secret", "on")
    written = b"".join(path.read_bytes() for path in out.parent.iterdir())
    made_by = json.loads(Path(f"{out}.run.json").read_text())["fingerprint"]
    assert (made_by["reasoning_effort"], made_by["extra_body"], made_by["temperature"]) == ("low", {"top_k": 5}, 0.4)
    for text in (written.decode(), json.dumps(summary), caplog.text):
        assert "tok-1-secret" not in text and "pw-secret" not in text


def test_a_limit_of_money_ends_with_a_code_of_its_own_and_a_higher_one_goes_on(
    source: Path, tmp_path: Path, invoke: Any, caplog: pytest.LogCaptureFixture
) -> None:
    out, page = tmp_path / "rows.jsonl", tmp_path / "page.html"
    with serve(whole) as server:
        spec = ("--model", f"openai:{server.url}#m", "--concurrency", "2", *PRICE)
        code, summary = invoke(score_cmd.command, source, "-o", out, *spec, "--max-cost", 4 * COST, "--html", page)
        assert code == 4 and summary["rows"] == summary["judged"] == len(rows_of(out)) == 4 and not page.exists()
        assert "run the same command with a higher --max-cost" in caplog.text and summary["stopped"]
        code, summary = invoke(score_cmd.command, source, "-o", out, *spec, "--max-cost", 1, "--html", page)
        assert code == 0 and (summary["resumed"], summary["judged"], summary["stopped"]) == (4, 8, None)
    assert summary["usage"]["cost"] == pytest.approx(12 * COST) and len(server.requests) == 12 and page.is_file()


def test_an_annotator_keeps_what_was_answered_before_its_limit(source: Path, tmp_path: Path, invoke: Any) -> None:
    out = tmp_path / "ann.jsonl"
    with serve(whole) as server:
        spec = ("--annotator", "llm", "--model", f"openai:{server.url}#m", "--concurrency", "2", *PRICE)
        code, summary = invoke(annotate_cmd.command, source, "-o", out, *spec, "--max-cost", 5 * COST)
        asked = len(server.requests)
        assert code == 4 and summary["annotations"] == len(rows_of(out)) == asked < 12
        assert summary["usage"]["cost"] == pytest.approx(asked * COST)
        code, summary = invoke(annotate_cmd.command, source, "-o", out, *spec)
        assert code == 0 and summary["resumed"] == asked and len(rows_of(out)) == len(server.requests) == 12
        with pytest.raises(ConfigError, match="--max-cost is for --annotator llm"):
            invoke(
                annotate_cmd.command,
                source,
                "-o",
                tmp_path / "s.jsonl",
                *spec[2:],
                "--annotator",
                "self",
                "--max-cost",
                1,
            )


def test_eval_is_stopped_with_its_rows_kept_and_choosing_has_nothing_to_keep(
    source: Path, tmp_path: Path, invoke: Any
) -> None:
    with serve(whole) as server:
        spec = ("--model", f"openai:{server.url}#m", "--concurrency", "1", *PRICE, "--max-cost", 3 * COST)
        with pytest.raises(SpendingLimit, match=r"m\.rows\.jsonl: --max-cost"):
            invoke(eval_cmd.command, source, "-o", tmp_path / "m.json", *spec)
        assert len(rows_of(tmp_path / "m.rows.jsonl")) == 3
        with pytest.raises(ConfigError, match="score with `rrm score` first"):
            invoke(choose_cmd.command, source, "-o", tmp_path / "c.jsonl", *spec)


def test_a_limit_is_of_all_that_a_command_asks(source: Path, tmp_path: Path, invoke: Any) -> None:
    """Each file of rows had the whole limit to itself."""
    with serve(whole) as server:
        spec = ("--model", f"openai:{server.url}#m", "--concurrency", "1", *PRICE, "--reruns", 2, "--max-cost")
        with pytest.raises(SpendingLimit, match=r"m\.rows2\.jsonl: --max-cost 0\.029 is reached \(0\.03 spent\)"):
            invoke(eval_cmd.command, source, "-o", tmp_path / "m.json", *spec, 14.5 * COST)
        assert len(server.requests) == 15 and len(rows_of(tmp_path / "m.rows2.jsonl")) == 3
        invoke(eval_cmd.command, source, "-o", tmp_path / "m.json", *spec, 36.5 * COST, "--resamples", 100)
        assert len(server.requests) == 36


def test_an_estimate_says_the_money_and_asks_nobody(source: Path, invoke: Any) -> None:
    with serve(whole) as server:
        spec = ("--model", f"openai:{server.url}#m", "--dry-run", "--price", "2,8")
        code, plain = invoke(score_cmd.command, source, *spec)
        _, thinking = invoke(score_cmd.command, source, *spec, "--thinking-tokens", "1000")
        _, longer = invoke(score_cmd.command, source, *spec, "--max-new-tokens", "4096", "--mode", "score")
        assert code == 0 and not server.requests
    assert plain["cost_of_prompts"] == pytest.approx(plain["prompt_tokens"] * 2 / 1e6, abs=1e-6)
    assert plain["cost"] == pytest.approx(plain["cost_of_prompts"] + 12 * 512 * 8 / 1e6, abs=1e-5)
    assert longer["max_output_tokens"] == 12 * 4096  # what is asked for, whatever the mode
    assert thinking["cost"] == pytest.approx(plain["cost"] + 12 * 1000 * 8 / 1e6, abs=1e-5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--max-cost", "1"), "--max-cost needs the price"),
        (("--price", "cheap"), "write IN,OUT"),
        (("--extra-body", "{"), "--extra-body is not JSON"),
        (("--extra-body", '{"seed": 1}'), "may not hold seed"),
        (("--header", "X-A=$NOT_SET_ANYWHERE"), "the environment has no NOT_SET_ANYWHERE"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_asked(
    options: tuple[str, ...], said: str, source: Path, tmp_path: Path, invoke: Any
) -> None:
    for model in ("openai:http://127.0.0.1:9/v1#m", "lab"):
        with pytest.raises(ConfigError, match=said):
            invoke(score_cmd.command, source, "-o", tmp_path / "o.jsonl", "--model", model, *options)


def test_options_of_servers_are_none_of_a_local_judge(source: Path, tmp_path: Path, invoke: Any) -> None:
    with pytest.raises(ConfigError, match="are a server's; lab runs in this process"):
        invoke(score_cmd.command, source, "-o", tmp_path / "o.jsonl", "--model", "lab", "--reasoning-effort", "low")


def test_a_time_out_of_a_judge_in_this_process_is_refused_by_its_name(
    source: Path, tmp_path: Path, invoke: Any
) -> None:
    said = r"timeout: such options are a server's; lab runs in this process: leave that out, or name a server"
    with pytest.raises(ConfigError, match=said):
        invoke(score_cmd.command, source, "-o", tmp_path / "o.jsonl", "--model", "lab", "--timeout", "9")
    with pytest.raises(ConfigError, match="reasoning_effort: how a judge is loaded, and how a chat model is asked"):
        invoke(
            score_cmd.command,
            source,
            "-o",
            tmp_path / "o.jsonl",
            "--model",
            "http://127.0.0.1:9",
            "--reasoning-effort",
            "low",
        )
