"""Scoring runs over servers as they are: killed, failing, throttling, slow, talking garbage; money is counted, and limited."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from chat_judge import rows_of, transcripts
from openai_server import Answer, Server, completion, failure, serve

from rrm.data.output import RowFile
from rrm.data.stop_signals import STOPS
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.cost import Prices
from rrm.engines.openai import OpenAIEngine
from rrm.engines.server_options import ServerOptions
from rrm.errors import EngineError, RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings
from rrm.scoring.run import score_file

PRICES = Prices(1.0, 10.0, 0.5)
WHOLE = "<think>t</think><critique>[step 1] good: ok</critique><score>0.5</score>"
USED = {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 400}}
COST = (600 * 1.0 + 400 * 0.5 + 100 * 10.0) / 1e6
"""Of one reply."""


def judge_at(url: str, max_cost: float | None = None, **options: Any) -> AgentRRM:
    how = ServerOptions(prices=PRICES, max_cost=max_cost)
    engine = OpenAIEngine(url, "m", options=how, **{"concurrency": 64, "backoff_s": 0.001, **options})
    return AgentRRM(engine, model=f"openai:{url}#m")


def whole(n: int, body: dict[str, Any]) -> Answer:
    return completion(WHOLE, usage=USED)


def who(body: dict[str, Any]) -> str:
    """The task's name, which each prompt holds once."""
    return body["messages"][1]["content"].split("task ", 1)[1].split()[0]


def test_rows_and_summary_say_what_was_used(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    with serve(whole) as server:
        summary = score_file(judge_at(server.url), transcripts(5), output)
    expected = {
        "requests": 1, "prompt_tokens": 1000, "cached_tokens": 400, "completion_tokens": 100, "reasoning_tokens": 0,
        "unreported": 0, "cost": pytest.approx(COST),
    }  # fmt: skip
    assert [row["usage"] for row in rows_of(output)] == [expected] * 5
    total = {**{k: v * 5 for k, v in expected.items() if k != "cost"}, "cost": pytest.approx(5 * COST)}
    assert summary.usage == total == summary.usage_now
    with serve(whole) as server:
        again = score_file(judge_at(server.url), transcripts(7), output)
    assert again.usage_now is not None and again.usage_now["requests"] == 2
    assert again.usage is not None and again.usage["cost"] == pytest.approx(7 * COST)


def test_all_samples_and_all_readings_of_a_row_are_counted(tmp_path: Path) -> None:
    long = Trajectory(id="a", task="find it", messages=[Message(role="user", content="find it")])
    long.messages += [Message(role="assistant", content=f"look at number {k} " * 10) for k in range(60)]
    with serve(whole) as server:
        engine = OpenAIEngine(server.url, "m", options=ServerOptions(prices=PRICES))
        settings = JudgeSettings(opening=False, prompt_version="2", transcript_tokens=400)
        (found,) = AgentRRM(engine, settings=settings).judge([long], samples=2)
    assert found.usage is not None and found.usage.requests == len(server.requests) > 4
    assert found.usage.cost == pytest.approx(len(server.requests) * COST)


@pytest.mark.parametrize("wait", ["1", "date"])
def test_a_server_that_says_when_is_asked_then(tmp_path: Path, wait: str) -> None:
    first = threading.Semaphore(1)
    told: list[float] = []

    def answer(n: int, body: dict[str, Any]) -> Answer:
        if first.acquire(blocking=False):
            told.append(time.time())
            return failure(429, retry_after=wait if wait == "1" else formatdate(int(time.time()) + 1, usegmt=True))
        told.append(time.time())
        return completion(WHOLE, usage=USED)

    with serve(answer) as server:
        summary = score_file(judge_at(server.url, concurrency=1), transcripts(3), tmp_path / "o.jsonl")
    assert summary.statuses == {"scored": 3}
    # a date has whole seconds: one of them may be nearly over
    assert told[1] - told[0] >= (0.95 if wait == "1" else 0.0) and told[1] >= (int(told[0]) + 1 if wait != "1" else 0)


def test_a_slow_server_takes_its_rows_and_no_others(tmp_path: Path) -> None:
    def answer(n: int, body: dict[str, Any]) -> Answer:
        return Answer(hang=True) if who(body) in ("3", "12") else whole(n, body)

    with serve(answer) as server:
        judge = judge_at(server.url, timeout_s=3.0, max_retries=0)
        summary = score_file(judge, transcripts(16), tmp_path / "o.jsonl")
    assert summary.statuses == {"judge_error": 2, "scored": 14}
    (slow, _) = [row for row in rows_of(tmp_path / "o.jsonl") if row["status"] == "judge_error"]
    assert slow["usage"]["requests"] == slow["usage"]["unreported"] == 1 and slow["usage"]["cost"] == 0.0


def test_a_limit_counts_what_failed_too(tmp_path: Path) -> None:
    for name, answer in (("late", Answer(hang=True)), ("broken", failure(500))):
        with serve(lambda n, body, answer=answer: answer) as server:
            judge = judge_at(server.url, 0.002, concurrency=1, timeout_s=0.3, max_retries=0)
            summary = score_file(judge, transcripts(40), tmp_path / name)
        assert summary.stopped is not None and "--max-cost 0.002 is reached" in summary.stopped
        assert "at most by requests that failed" in summary.stopped
        assert 0 < summary.statuses["judge_error"] < 10 and len(server.requests) == summary.judged


@pytest.mark.parametrize(
    ("body", "status", "requests"),
    [
        ({"error": {"code": 400, "message": "no such model"}}, "judge_error", 2),
        ({"error": {"code": 502, "message": "the provider is down"}}, "judge_error", 3),
        ({"error": "overloaded"}, "judge_error", 3),
        ({"choices": [{"message": {"content": WHOLE}, "finish_reason": "error"}]}, "judge_error", 3),
        ({"choices": [{"message": {"content": None}, "error": {"code": 503, "message": "gone"}}]}, "judge_error", 3),
    ],
)
def test_an_error_inside_a_200_is_an_error(tmp_path: Path, body: dict[str, Any], status: str, requests: int) -> None:
    with serve(lambda n, sent: Answer(body=json.dumps(body).encode())) as server:
        score_file(judge_at(server.url, concurrency=1, max_retries=2), transcripts(1), tmp_path / "o.jsonl")
    (row,) = rows_of(tmp_path / "o.jsonl")
    assert (row["status"], row["score"], len(server.requests)) == (status, None, requests)
    assert "HTTP " in row["reason"] and "not a chat completion" not in row["reason"]


def test_a_refused_key_or_an_empty_account_inside_a_200_stops_the_run(tmp_path: Path) -> None:
    for code, message in ((401, "No auth credentials found"), (402, "Insufficient credits")):
        body = json.dumps({"error": {"code": code, "message": message}}).encode()
        said = f"HTTP {code}: {message}"
        refused = pytest.raises(EngineError, match=said, check=lambda error: error.kind == "refused")
        with serve(lambda n, sent, body=body: Answer(body=body)) as server, refused:
            score_file(judge_at(server.url, concurrency=1), transcripts(30), tmp_path / str(code))
        assert len(server.requests) == 1


def killed(
    output: Path, rows: int, answer: Callable[[int, dict[str, Any]], Answer], late: Callable[[], bool], **options: Any
) -> list[dict[str, Any]]:
    """A process that judges over a server, killed once `late()` holds and a row is written; the rows it left."""
    read, write = os.pipe()
    child = os.fork()  # before there are threads
    if child == 0:
        os.close(write)
        url = os.read(read, 200).decode()
        try:
            score_file(judge_at(url, **options), transcripts(rows), output, progress=False)
        finally:
            os._exit(0)
    os.close(read)
    with serve(answer) as server:
        os.write(write, server.url.encode())
        while not (late() and output.exists() and output.read_bytes().count(b"\n")):
            assert os.waitpid(child, os.WNOHANG) == (0, 0), "it ended before it could be killed"
            time.sleep(0.005)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    os.close(write)
    return [json.loads(line) for line in output.read_bytes().split(b"\n")[:-1]]


def test_a_limit_of_money_stops_cleanly_and_the_next_run_goes_on(tmp_path: Path) -> None:
    output, limit = tmp_path / "out.jsonl", 30.5 * COST
    with serve(whole) as server:
        first = score_file(judge_at(server.url, limit, concurrency=8), transcripts(100), output)
        asked = len(server.requests)
        assert asked == len(rows_of(output)) == first.rows == first.judged and 23 <= asked <= 38
        assert first.statuses == {"scored": asked} and f"--max-cost {limit:g} is reached" in str(first.stopped)
        assert "higher --max-cost" in str(first.stopped)
        same = score_file(judge_at(server.url, limit, concurrency=8), transcripts(100), output)
        assert same.stopped is not None and len(server.requests) <= 32 + 8
        asked = len(server.requests)
        last = score_file(judge_at(server.url, 1.0, concurrency=8), transcripts(100), output)
        assert last.stopped is None and (last.resumed, last.judged) == (asked, 100 - asked)
    assert len(server.requests) == 100 and last.usage is not None and last.usage["cost"] == pytest.approx(100 * COST)


def test_hundreds_at_once_do_not_begin_before_one_has_said_what_it_costs(tmp_path: Path) -> None:
    with serve(whole) as server:
        summary = score_file(judge_at(server.url, 5 * COST, concurrency=64), transcripts(300), tmp_path / "o.jsonl")
    assert summary.stopped is not None and summary.usage is not None
    assert 4 <= len(server.requests) <= 6 and summary.usage["cost"] <= 6 * COST


def test_what_a_long_transcript_costs_is_foreseen(tmp_path: Path) -> None:
    """Its windows are asked one after the other: a request that is under way is a small part of it."""
    said = [Message(role="assistant", content=f"look at number {k} " * 10) for k in range(60)]
    rows = [
        Trajectory(id=f"t{i}", task="find it", messages=[Message(role="user", content="q"), *said]) for i in range(40)
    ]
    with serve(whole) as server:
        limited = ServerOptions(prices=PRICES, max_cost=100 * COST)
        engine = OpenAIEngine(server.url, "m", concurrency=16, options=limited)
        settings = JudgeSettings(opening=False, prompt_version="2", transcript_tokens=400)
        summary = score_file(AgentRRM(engine, settings=settings), rows, tmp_path / "o.jsonl")
    one = len(server.requests) / summary.rows
    assert one > 5 and summary.stopped is not None and 100 <= len(server.requests) <= 100 + one


def test_samples_of_a_row_are_begun_together_or_not_at_all(tmp_path: Path) -> None:
    with serve(whole) as server:
        judge = judge_at(server.url, 6.5 * COST, concurrency=1)
        summary = score_file(judge, transcripts(20), tmp_path / "o.jsonl", samples=4)
    assert summary.judged == 2 and len(server.requests) == 8 and summary.stopped is not None


def test_a_server_that_does_not_count_cannot_be_limited(tmp_path: Path) -> None:
    with serve(lambda n, body: completion(WHOLE)) as server:
        summary = score_file(judge_at(server.url, 5.0, concurrency=2), transcripts(20), tmp_path / "o.jsonl")
        assert "does not say what its replies use" in str(summary.stopped) and len(server.requests) <= 3
        assert len(rows_of(tmp_path / "o.jsonl")) == len(server.requests)
        free = score_file(judge_at(server.url), transcripts(20), tmp_path / "o.jsonl")
    assert free.usage is not None and (free.usage["unreported"], free.usage["cost"]) == (20, 0.0)


def test_money_of_failed_rows_is_handed_on(tmp_path: Path) -> None:
    """Their tries were paid: the row that takes their place says so, also where the run that makes it is cut off."""
    output = tmp_path / "out.jsonl"

    def fails(n: int, body: dict[str, Any]) -> Answer:
        return completion("", usage=USED) if n == 0 else failure(500)

    with serve(fails) as server:
        failed = score_file(judge_at(server.url, max_retries=1, concurrency=1), transcripts(1), output)
    assert failed.statuses == {"judge_error": 1}
    assert failed.usage is not None and failed.usage["cost"] == pytest.approx(COST)
    with serve(whole) as server:
        done = score_file(judge_at(server.url), transcripts(1), output, retry_errors=True)
    (row,) = rows_of(output)
    assert (row["status"], row["usage"]["requests"]) == ("scored", 3) and row["usage"]["cost"] == pytest.approx(
        2 * COST
    )
    assert done.usage is not None and done.usage["cost"] == pytest.approx(2 * COST)
    assert done.usage_now is not None and done.usage_now["cost"] == pytest.approx(COST)


def test_a_failed_row_and_what_took_its_place_are_one_after_a_kill(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    with serve(lambda n, body: failure(500)) as server:
        score_file(judge_at(server.url, max_retries=0), transcripts(2), output)
    old = output.read_bytes()
    with serve(whole) as server:
        score_file(judge_at(server.url), transcripts(2), output, retry_errors=True)
        killed = old + output.read_bytes().splitlines(keepends=True)[0]  # before the failed rows were dropped
        output.write_bytes(killed)
        Path(f"{output}.run.json").write_text(json.dumps({"fingerprint": fingerprint_of(server)}))
        done = score_file(judge_at(server.url), transcripts(2), output, retry_errors=True)
    assert (done.resumed, done.judged) == (1, 1) and done.statuses == {"scored": 2} and len(rows_of(output)) == 2
    assert done.usage is not None and done.usage["cost"] == pytest.approx(2 * COST) and done.usage["requests"] == 4


def fingerprint_of(server: Server) -> dict[str, Any]:
    return {**judge_at(server.url).describe(), "mode": "full", "samples": 1, "seed": 0}


def test_attempts_at_one_question_are_asked_beside_each_other(tmp_path: Path) -> None:
    rows = [t.model_copy(update={"id": f"{k}-{t.id}", "question_id": t.id}) for k in range(3) for t in transcripts(4)]
    with serve(whole) as server:
        found = judge_at(server.url, concurrency=1).judge(rows)
        assert [f.id for f in found] == [t.id for t in rows]
        order = [who(body) for body in server.requests]
        assert order == [str(i) for i in range(4) for _ in range(3)]
        score_file(judge_at(server.url, concurrency=1), rows, tmp_path / "o.jsonl")
        assert [who(body) for body in server.requests[12:]] == order


def test_what_varies_the_answers_is_compared_and_the_way_there_is_not(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    with serve(whole) as server, serve(whole) as other:

        def run(n: int, urls: str, **options: Any) -> Any:
            engine = OpenAIEngine(urls, "m", concurrency=4, options=ServerOptions(**options))
            return score_file(AgentRRM(engine, model=f"openai:{urls}#m"), transcripts(n), output)

        run(2, server.url, reasoning_effort="low", headers={"X-A": "secret-a"}, prices=PRICES)
        run(4, f"{other.url},{server.url}", reasoning_effort="low", headers={"X-A": "secret-b"})
        for changed in ({"reasoning_effort": "high"}, {}, {"reasoning_effort": "low", "temperature": 0.5},
                        {"reasoning_effort": "low", "extra_body": {"top_k": 1}}):  # fmt: skip
            with pytest.raises(RRMError, match="made otherwise"):
                run(4, server.url, **changed)
    assert rows_of(output)[0]["judge"]["request"] == {"reasoning_effort": "low"} and len(rows_of(output)) == 4
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"secret" not in written


def test_an_unreadable_usage_is_named(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    with serve(whole) as server:
        score_file(judge_at(server.url), transcripts(1), output)
        row = {**rows_of(output)[0], "usage": {"requests": "many"}}
        output.write_text(json.dumps(row) + "\n")
        with pytest.raises(RRMError, match=r"out\.jsonl:1: its usage cannot be read"):
            score_file(judge_at(server.url), transcripts(1), output)
    with RowFile.open(output, {}, overwrite=True):
        pass  # and the lock was given back


def test_rows_of_a_server_that_was_down_are_not_thrown_away_for_its_context(tmp_path: Path) -> None:
    """A server that does not answer does not say its context either: the error names what may be done before anything is made again."""
    path = tmp_path / "rows.jsonl"
    served = {"model": "openai:http://127.0.0.1:1/v1#m", "transcript_tokens": 8192}
    with RowFile.open(path, served) as output:
        output.append({"id": "a"})
    longer = {**served, "transcript_tokens": 4428}
    why = r"transcript_tokens was 8192 and is 4428; a server that is down .*--retry-errors.*; else choose"
    with pytest.raises(RRMError, match=why), RowFile.open(path, longer):
        pass
    why = "seed was not set and is 1; choose another"
    with pytest.raises(RRMError, match=why), RowFile.open(path, {**served, "seed": 1}):
        pass
    assert path.read_text()


def test_what_was_under_way_at_a_stop_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    output, stopped = tmp_path / "out.jsonl", threading.Event()

    def answer(n: int, body: dict[str, Any]) -> Answer:
        while n == 3 and len(server.requests) < 6:
            time.sleep(0.001)
        if n > 3:
            stopped.wait(20)
        return whole(n, body)

    with serve(answer) as server:
        rows = iter(range(4))

        class Stops(AgentRRM):
            def judge_stream(self, *given: Any, on_feedback: Any, **more: Any) -> None:
                def heard(feedback: Any) -> None:
                    on_feedback(feedback)
                    if next(rows, None) == 3:  # and two are under way
                        os.kill(os.getpid(), signal.SIGTERM)

                super().judge_stream(*given, on_feedback=heard, **more)

        how = ServerOptions(prices=PRICES)
        judge = Stops(OpenAIEngine(server.url, "m", options=how, concurrency=3), model=f"openai:{server.url}#m")
        with STOPS, pytest.raises(KeyboardInterrupt):
            score_file(judge, transcripts(20), output)
        stopped.set()
    assert "never retrieved" not in caplog.text  # the loop's tasks were cancelled, and left no tracebacks
    kept = json.loads(Path(f"{output}.run.json").read_text())["unrowed"]
    assert len(rows_of(output)) == 4 and (kept["requests"], kept["unreported"]) == (2, 2)
    with serve(whole) as server:
        summary = score_file(judge_at(server.url), transcripts(20), output)
    assert summary.usage is not None and summary.usage_now is not None
    assert (summary.usage_now["requests"], summary.usage["requests"], summary.usage["unreported"]) == (16, 22, 2)
