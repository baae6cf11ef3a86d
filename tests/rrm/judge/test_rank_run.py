"""A run of `rrm rank`: resume, spending, and the rows' facts."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from openai_server import Answer, completion, failure, serve
from ranked_attempts import attempt, honest, judge_of, prompts
from typer.testing import CliRunner

from rrm.cli import rank_cmd
from rrm.data.pictures import ImageBudget
from rrm.data.trajectory import Message, Trajectory, write_jsonl
from rrm.engines.cost import Prices
from rrm.engines.openai import OpenAIEngine
from rrm.engines.scripted import ScriptedChatEngine
from rrm.engines.server_options import ServerOptions
from rrm.errors import ConfigError, EngineError, RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings
from rrm.judge.rank import rank_groups
from rrm.scoring.ranking import rank_file


def ranked(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(judge: AgentRRM, rows: list[Trajectory], out: Path, **how: Any) -> dict[str, Any]:
    return rank_file(judge, rows, out, size=6, both_orders=False, seed=0, **how)


def test_a_run_goes_on_question_by_question(tmp_path: Path) -> None:
    out, rows = tmp_path / "o.jsonl", [attempt(f"{q}{k}", k, question=q) for q in "pqr" for k in range(2)]
    first = run(judge_of(honest), rows[:4], out)
    assert (first["statuses"], first["resumed"], first["questions"]) == ({"scored": 4}, 0, 2)
    out.write_text("".join(out.read_text().splitlines(keepends=True)[:3]))  # killed inside a question
    judge = judge_of(honest)
    again = run(judge, rows, out)
    assert (again["resumed"], len(prompts(judge)), again["statuses"]) == (2, 2, {"scored": 6})
    assert sorted(r["id"] for r in ranked(out)) == sorted(t.id for t in rows)
    assert {r["id"]: r["score"] for r in ranked(out)} == {t.id: float(t.id[1]) for t in rows}
    with pytest.raises(RRMError, match="the attempts at 'p' are others than those that were ranked"):
        run(judge, [*rows, attempt("p2", 2, question="p")], out)
    with pytest.raises(RRMError, match="heat was 6 and is 2"):
        rank_file(judge, rows, out, size=2, both_orders=False, seed=0)


def test_a_question_is_kept_as_soon_as_it_is_compared(tmp_path: Path) -> None:
    out, rows = tmp_path / "o.jsonl", [attempt(f"{q}{k}", k, question=q) for q in "pqr" for k in range(2)]
    replies = iter((honest, honest))

    def twice(messages: list[dict[str, str]], params: Any, key: str) -> str:
        reply = next(replies, None)
        if reply is None:
            raise EngineError("no credit left", "refused")
        return reply(messages, params, key)

    refusing = judge_of(twice)
    with pytest.raises(EngineError, match="no credit left", check=lambda error: error.kind == "refused"):
        run(refusing, rows, out)
    assert len(ranked(out)) == 4  # two questions were paid for
    judge = judge_of(honest)
    assert run(judge, rows, out)["statuses"] == {"scored": 6} and len(prompts(judge)) == 1


def test_errors_are_ranked_again_only_when_asked(tmp_path: Path) -> None:
    out, rows = tmp_path / "o.jsonl", [attempt("a", 1), attempt("b", 2)]
    assert run(judge_of([EngineError("gone")]), rows, out)["first_failure"] == "judge_error: gone"
    again = run(judge_of([]), rows, out)
    assert again["statuses"] == {"judge_error": 2} and again["first_failure"] == "judge_error: gone"
    assert run(judge_of(honest), rows, out, retry_errors=True)["statuses"] == {"scored": 2}
    assert len(ranked(out)) == 2


USED = {"prompt_tokens": 1000, "completion_tokens": 100}
COST = (1000 * 1.0 + 100 * 10.0) / 1e6
"""Of one reply."""


def judge_at(url: str, max_cost: float | None = None, **options: Any) -> AgentRRM:
    how = ServerOptions(prices=Prices(1.0, 10.0), max_cost=max_cost)
    engine = OpenAIEngine(url, "m", options=how, **{"concurrency": 2, "backoff_s": 0.001, "max_retries": 0, **options})
    return AgentRRM(engine, model=f"openai:{url}#m")


def over_http(n: int, body: dict[str, Any]) -> Answer:
    return completion(honest(body["messages"], None, ""), usage=USED)


def spent(rows: list[dict[str, Any]]) -> float:
    return sum(row["usage"]["cost"] for row in rows if row["usage"] is not None)


def questions(names: str) -> list[Trajectory]:
    return [attempt(f"{q}{k}", k, question=q) for q in names for k in range(3)]


def test_a_questions_requests_stand_in_its_first_row_and_the_summary_has_all(tmp_path: Path) -> None:
    out = tmp_path / "o.jsonl"
    with serve(over_http) as server:
        first = rank_file(judge_at(server.url), questions("pq"), out, size=6, both_orders=True, seed=0)
        assert len(server.requests) == 4 and first["usage"] == first["usage_now"]
        again = rank_file(judge_at(server.url), questions("pqr"), out, size=6, both_orders=True, seed=0)
    rows = {row["id"]: row["usage"] for row in ranked(out)}
    assert [rows[id] and rows[id]["requests"] for id in ("p0", "p1", "p2", "r0")] == [2, None, None, 2]
    assert (again["usage"]["requests"], again["usage_now"]["requests"]) == (6, 2) == (len(server.requests), 2)
    assert again["usage"]["cost"] == pytest.approx(6 * COST) == pytest.approx(spent(ranked(out)))


def test_a_limit_of_money_leaves_whole_questions_out_and_the_next_run_goes_on(tmp_path: Path) -> None:
    out, rows = tmp_path / "o.jsonl", questions("pqrstuvwxy")
    with serve(over_http) as server:
        first = rank_file(judge_at(server.url, 5 * COST), rows, out, size=6, both_orders=True, seed=0)
        requests = len(server.requests)
        assert "--max-cost 0.01 is reached" in first["stopped"] and 5 <= requests <= 7
        done = ranked(out)
        assert len(done) == 3 * requests / 2 and first["statuses"] == {"scored": len(done)}
        assert spent(done) == pytest.approx(requests * COST) == pytest.approx(first["usage"]["cost"])
        same = rank_file(judge_at(server.url, 5 * COST), rows, out, size=6, both_orders=True, seed=0)
        assert same["stopped"] and len(server.requests) == requests
        last = rank_file(judge_at(server.url, 1.0), rows, out, size=6, both_orders=True, seed=0)
    assert last["stopped"] is None and last["statuses"] == {"scored": 30} and len(server.requests) == 20
    assert last["usage"]["cost"] == pytest.approx(20 * COST) == pytest.approx(spent(ranked(out)))


def test_money_of_a_ranking_that_failed_is_handed_on_also_after_a_kill(tmp_path: Path) -> None:
    out, rows = tmp_path / "o.jsonl", questions("p")
    with serve(lambda n, body: failure(500) if n else over_http(n, body)) as server:
        # one of two heats fails: its attempts keep no place, and the other was paid
        failed = rank_file(judge_at(server.url, concurrency=1), rows, out, size=2, both_orders=False, seed=0)
    assert failed["statuses"]["judge_error"] and failed["usage"]["cost"] == pytest.approx(COST)
    old = out.read_bytes()
    with serve(over_http) as server:
        how: dict[str, Any] = {"size": 2, "both_orders": False, "seed": 0, "retry_errors": True}
        done = rank_file(judge_at(server.url), rows, out, **how)
        cost = COST * (1 + len(server.requests))
        assert done["statuses"] == {"scored": 3} and done["usage"]["cost"] == pytest.approx(cost)
        assert len(ranked(out)) == 3 and spent(ranked(out)) == pytest.approx(cost)
        out.write_bytes(old + out.read_bytes().splitlines(keepends=True)[0])  # killed between two of its rows
        requests = len(server.requests)
        again = rank_file(judge_at(server.url), rows, out, **how)
    assert len(server.requests) == 2 * requests and again["statuses"] == {"scored": 3} and len(ranked(out)) == 3
    assert again["usage"]["cost"] == pytest.approx(COST * (1 + 2 * requests)) == pytest.approx(spent(ranked(out)))


def test_an_unreadable_usage_is_named(tmp_path: Path) -> None:
    out, rows = tmp_path / "o.jsonl", [attempt("a", 1), attempt("b", 2)]
    run(judge_of(honest), rows, out)
    broken = [{**row, "usage": {"requests": -1}} for row in ranked(out)]
    out.write_text("".join(json.dumps(row) + "\n" for row in broken))
    with pytest.raises(RRMError, match=r"o\.jsonl:1: its usage cannot be read"):
        run(judge_of(honest), rows, out)


def test_nothing_to_compare_and_two_of_one_id_are_errors(tmp_path: Path) -> None:
    with pytest.raises(RRMError, match="nothing is to be compared"):
        run(judge_of([]), [attempt("a", 1), attempt("b", 1, question="p")], tmp_path / "o.jsonl")
    with pytest.raises(RRMError, match="two transcripts have the id 'a'"):
        run(judge_of([]), [attempt("a", 1), attempt("a", 2)], tmp_path / "o.jsonl")


def invoke(answer: Callable[[int, dict[str, Any]], Answer], tmp_path: Path, *more: str) -> Any:
    app = typer.Typer()
    app.command()(rank_cmd.command)
    write_jsonl(tmp_path / "in.jsonl", [attempt("a", 1), attempt("b", 2)])
    with serve(answer) as server:
        args = [str(tmp_path / "in.jsonl"), "--model", f"openai:{server.url}#m", "-o", str(tmp_path / "o.jsonl")]
        return CliRunner().invoke(app, [*args, "--both-orders", *more])


def test_the_command_over_a_server(tmp_path: Path) -> None:
    from rrm.scoring.choose import read_scores

    result = invoke(lambda n, body: completion(honest(body["messages"], None, "")), tmp_path)
    summary = json.loads(result.stdout.splitlines()[-1])
    assert result.exit_code == 0 and summary["statuses"] == {"scored": 2}
    fair = {"first_won": 0.5, "pairs": 2, "tied": 0, "orders_agree": 1.0, "order_decided": 0.0}
    assert summary["position_bias"] == fair
    assert read_scores(tmp_path / "o.jsonl", [attempt("a", 1), attempt("b", 2)]) == [0.0, 1.0]


def test_the_command_warns_of_a_judge_that_takes_the_first_whatever_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    invoke(lambda n, body: completion(honest(body["messages"], None, "")), tmp_path)
    assert "the order in which" not in caplog.text
    result = invoke(lambda n, body: completion("<ranking>A > B</ranking>"), tmp_path, "--overwrite")
    assert result.exit_code == 0 and json.loads(result.stdout.splitlines()[-1])["position_bias"]["order_decided"] == 1.0
    assert "decided 100% of the pairs" in caplog.text and "the one shown first won 100% of all decisions" in caplog.text


def test_the_command_fails_where_nobody_could_be_placed(tmp_path: Path) -> None:
    result = invoke(lambda n, body: failure(400, "no"), tmp_path)
    assert result.exit_code == 1 and json.loads(result.stdout.splitlines()[-1])["statuses"] == {"judge_error": 2}


def test_the_command_stops_at_a_limit_of_money_with_its_own_exit_code(tmp_path: Path) -> None:
    result = invoke(over_http, tmp_path, "--price", "1,10", "--max-cost", "0")
    summary = json.loads(result.stdout.splitlines()[-1])
    assert result.exit_code == 4 and "--max-cost 0 is reached" in summary["stopped"]
    result = invoke(over_http, tmp_path, "--price", "1,10", "--max-cost", "1")
    summary = json.loads(result.stdout.splitlines()[-1])
    assert result.exit_code == 0 and summary["usage"]["cost"] == pytest.approx(2 * COST) and summary["stopped"] is None


PICTURE = {
    "type": "image_url",
    "image_url": {"url": f"data:image/gif;base64,{base64.b64encode(b'GIF89a' + bytes([1, 0] * 2)).decode()}"},
}


def test_pictures_are_words_and_rows_say_so_also_of_a_judge_that_sees(tmp_path: Path) -> None:
    def looked(t: Trajectory) -> Trajectory:
        return t.model_copy(update={"messages": [*t.messages, Message(role="tool", content=[PICTURE, PICTURE])]})

    silent = looked(attempt("s", 0))
    silent.messages = [m for m in silent.messages if m.role != "assistant"]
    group = [looked(attempt("a", 1)), looked(attempt("b", 3)), attempt("c", 2), silent]
    judge = AgentRRM(ScriptedChatEngine(honest), settings=JudgeSettings(opening=False), images=ImageBudget())
    (ranking,) = rank_groups(judge, [group])
    ((_, user),) = prompts(judge)
    assert isinstance(user["content"], str) and user["content"].count("[image]") == 4
    none = {"shown": 0, "of": 2, "left_out": {"attempts are compared in words": 2}}
    assert [f.images and f.images.model_dump() for f in ranking.feedback] == [none, none, None, none]
    assert [f.score for f in ranking.feedback] == [0.0, 1.0, 0.5, None]

    write_jsonl(tmp_path / "runs.jsonl", group)
    with serve(lambda n, body: completion(honest(body["messages"], None, ""))) as server:
        arguments = [tmp_path / "runs.jsonl", "--model", f"openai:{server.url}#m", "-o", tmp_path / "out.jsonl"]
        app = typer.Typer()
        app.command()(rank_cmd.command)
        refused = CliRunner().invoke(app, [str(argument) for argument in (*arguments, "--images", 2)])
        assert isinstance(refused.exception, ConfigError) and "no picture is sent" in str(refused.exception)
        assert not server.requests
        assert CliRunner().invoke(app, [str(argument) for argument in (*arguments, "--images", 0)]).exit_code == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row.get("images") for row in rows] == [none, none, None, none]
