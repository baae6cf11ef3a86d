"""The service where workers hang, do not start or come back as another judge, and where requests are small and cost much."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from serving import WORKER, Served, heard, run, serving, until

from rrm.data.trajectory import Trajectory
from rrm.serve import pool as pools
from rrm.serve.address import ServerAddress
from rrm.serve.client import RemoteJudge
from rrm.serve.metrics import Metrics
from rrm.serve.pool import WorkerPool


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as found:
        yield found


def metric(found: Served, name: str) -> float:
    _, told = found.ask("/metrics")
    return next((float(line.rsplit(" ", 1)[1]) for line in told.splitlines() if line.startswith(name)), 0.0)


# ---- workers ----


def test_a_worker_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pools, "FIRST_RETRY_S", 0.05)
    with serving() as found, ThreadPoolExecutor(1) as pool:
        found.pool.command, right = ["/no/such/program"], found.pool.command
        asked = pool.submit(
            found.ask, "/v1/score", {"transcripts": [run("x", f"KILL UNTIL {tmp_path / 'd'} score 0.4")]}
        )
        until(lambda: found.pool.load.failing)
        status, said = found.ask("/healthz")
        assert status == 503 and said["status"] == "failing"
        assert "/no/such/program" in found.ask("/v1/score", {"transcripts": [run("y", "x")]})[1]["error"]["message"]
        assert metric(found, "rrm_worker_failed_starts_total") >= 1
        found.pool.command = [sys.executable, "-c", "print([])"]  # a process that says something else
        until(lambda: "does not say what it should" in str(found.pool.load.failing))
        found.pool.command = right
        status, said = asked.result()
        assert status == 200 and said["rows"][0]["score"] == 0.4 and found.ask("/healthz")[0] == 200


def test_a_judge_that_comes_back_as_another_is_not_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pools, "FIRST_RETRY_S", 0.05)
    monkeypatch.setattr(pools, "LAST_RETRY_S", 0.1)
    with serving() as found:
        found.pool.options["model"] = "changed"
        rows = [run("x", f"KILL UNTIL {tmp_path / 'died'} score 0.4"), run("y", "score 0.3")]
        status, said = found.ask("/v1/score", {"transcripts": rows})
        assert status == 200 and [row["status"] for row in said["rows"]] == ["judge_error"] * 2
        assert "another one (model changed, and was scripted)" in said["rows"][1]["reason"]
        assert said["rows"][0]["judge"]["model"] == "scripted"


def test_a_worker_that_hangs_is_replaced(tmp_path: Path) -> None:
    with serving(job_s=3.0) as found:
        rows = [run("x", f"HANG UNTIL {tmp_path / 'hung'} score 0.4"), run("y", "score 0.5")]
        status, said = found.ask("/v1/score", {"transcripts": rows})
        assert status == 200 and [row["score"] for row in said["rows"]] == [0.4, 0.5]


def test_a_transcript_at_which_workers_hang_fails_alone_and_a_stop_ends(tmp_path: Path) -> None:
    with serving(job_s=3.0) as found, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(found.ask, "/v1/score", {"transcripts": [run("x", "HANG"), run("y", "score 0.5")]})
        until(lambda: found.pool.load.judging)
        found.stop()
        status, said = asked.result()
        assert status == 200 and [row["status"] for row in said["rows"]] == ["judge_error", "scored"]
        assert "said nothing for 3 s" in said["rows"][0]["reason"]


def test_a_pool_is_closed_although_its_worker_hangs() -> None:
    async def life() -> float:
        worker = [sys.executable, str(Path(__file__).with_name("scripted_worker.py"))]
        sizes = {"workers": 1, "batch": 1, "most_waiting": 9}
        pool = WorkerPool({}, **sizes, metrics=Metrics(), job_s=600.0, command=worker)
        await pool.start()
        how = {"mode": "full", "samples": 1, "seed": 0}
        asks = await pool.submit("score", how, [(json.dumps(run("x", "HANG")), ["x"])])
        while not pool.load.judging:
            await asyncio.sleep(0.01)
        await pool.cancel(asks)  # nobody waits for it
        begun = time.monotonic()
        await pool.close()
        return time.monotonic() - begun

    assert asyncio.run(life()) < 60


async def two_workers() -> WorkerPool:
    pool = WorkerPool({}, workers=2, batch=1, most_waiting=9, metrics=Metrics(), command=[sys.executable, str(WORKER)])
    await pool.start()
    while pool.load.ready < 2:
        await asyncio.sleep(0.01)
    return pool


async def submitted(pool: WorkerPool, **said: str) -> list[asyncio.Future[dict[str, Any]]]:
    how = {"mode": "full", "samples": 1, "seed": 0}
    asks = await pool.submit("score", how, [(json.dumps(run(id, text)), [id]) for id, text in said.items()])
    return [ask.done for ask in asks]


def test_no_item_waits_for_a_worker_that_is_busy_while_another_is_free() -> None:
    async def life() -> None:
        pool = await two_workers()
        slow, *quick = await submitted(pool, x="HANG", a="score 0.5", b="score 0.5", c="score 0.5")
        await asyncio.wait_for(asyncio.gather(*quick), 30)
        assert not slow.done()
        await pool.kill()

    asyncio.run(life())


def test_a_stop_waits_for_no_row_that_nobody_awaits() -> None:
    async def life() -> float:
        pool = await two_workers()
        (left,) = await submitted(pool, x="HANG")
        (awaited,) = await submitted(pool, y="WAIT 0.3 score 0.5")
        while pool.load.judging < 2:
            await asyncio.sleep(0.01)
        left.cancel()
        await asyncio.wait_for(pool.close(), 30)
        return awaited.result()["score"]

    assert asyncio.run(life()) == 0.5


# ---- clients ----


def test_clients_that_hang_up_are_counted_and_their_rows_taken_back(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with serving(batch=1, job_s=600.0) as found, caplog.at_level(logging.ERROR):
        for stream in (False, True):
            flag = tmp_path / str(stream)
            rows = [run(str(n), f"WAIT FOR {flag} score 0.5") for n in range(30)]
            with found.sent({"transcripts": rows, "stream": stream}) as raw:
                until(lambda: found.pool.load.judging)
                if stream:
                    raw.recv(15)
            until(lambda: not found.pool.load.waiting)
            flag.touch()
            until(lambda: not found.pool.load.judging)
        until(lambda: metric(found, 'rrm_requests_total{path="/v1/score",status="499"}') == 2)
        assert metric(found, 'rrm_requests_total{path="/v1/score",status="200"}') == 0
        assert metric(found, "rrm_rows_total") < 10  # of sixty
    assert "never retrieved" not in caplog.text


def test_rows_of_rankings_are_counted() -> None:
    with serving() as found:
        assert found.ask("/v1/rank", {"groups": [[run("a", "RANK one"), run("b", "RANK two")]]})[0] == 200
        assert metric(found, 'rrm_rows_total{status="scored"}') == 2


def test_spent_money_is_a_503_and_at_no_field(served: Served) -> None:
    asked = {"transcripts": [run("a", "SPENT")]}
    status, said = served.ask("/v1/score", asked)
    assert status == 503 and said["error"] == {"message": "--max-cost was reached"}
    assert heard(ServerAddress(served.url), "/v1/score", {**asked, "stream": True}) == [
        {"error": {"message": "--max-cost was reached", "status": 503}}
    ]
    (row,) = RemoteJudge(ServerAddress(served.url, patience_s=0.1)).judge(
        [Trajectory.model_validate(asked["transcripts"][0])]
    )
    assert row.status == "judge_error" and "--max-cost" in str(row.reason)


# ---- what costs much ----


def test_attachments_unfold_to_no_more_than_a_body() -> None:
    def sample(names: int) -> dict[str, Any]:
        messages = [{"role": "user", "content": "attachment://a"}] * names + [
            {"role": "assistant", "content": "score 0.5"}
        ]
        return {
            "id": names,
            "epoch": 1,
            "input": "q",
            "target": "t",
            "messages": messages,
            "attachments": {"a": "w " * 500},
        }

    with serving(body_bytes=20_000) as found:
        assert found.ask("/v1/score", {"transcripts": [sample(9), sample(8)]})[0] == 200
        for rows in ([sample(30)], [sample(11), sample(12)]):  # each, and together
            status, said = found.ask("/v1/score", {"transcripts": rows})
            assert status == 422 and "unfold to more than 20,000 characters" in said["error"]["message"]
            assert said["error"]["at"] == f"transcripts.{len(rows) - 1}"


def test_bytes_of_requests_are_bounded_together(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    with serving(batch=1, job_s=600.0, flight_bytes=1, body_bytes=50_000) as found, ThreadPoolExecutor(1) as pool:
        slow = run("slow", f"WAIT FOR {flag} score 0.5" + " " * 30_000)
        with found.sent({"transcripts": [slow]}) as raw:
            until(lambda: found.pool.load.judging)
            status, said = found.ask("/v1/score", {"transcripts": [run("a", "score 0.5" + " " * 30_000)]})
            assert status == 429 and "ask again later" in said["error"]["message"]
            small = pool.submit(found.ask, "/v1/score", {"transcripts": [run("a", "score 0.5")]})
            until(lambda: found.pool.load.judging + found.pool.load.waiting == 2)
            flag.touch()
            assert small.result()[0] == 200 and b" 200 " in raw.recv(100)
        status, _ = until(
            lambda: (got := found.ask("/v1/score", {"transcripts": [run("a", " " * 30_000)]}))[0] == 200 and got
        )
        assert status == 200


@pytest.mark.parametrize("depth", [300, 900, 50_000])
def test_what_is_nested_too_deeply_says_where(served: Served, depth: int) -> None:
    nested = "[" * depth + "]" * depth
    text = json.dumps({"transcripts": [run("a", "score 0.5"), run("b", "score 0.5") | {"meta": {"x": "NEST"}}]})
    status, said = served.ask("/v1/score", raw=text.replace('"NEST"', nested).encode())
    assert status == 422 and said["error"]["at"] == ("transcripts.1" if depth < 1000 else "body"), said


def test_half_a_surrogate_pair_and_nan_are_no_faults(served: Served) -> None:
    before = metric(served, "rrm_worker_restarts_total")
    asked = [run("a\ud800", "score 0.5 \ud800"), run("b", "score 0.25") | {"meta": {"x": float("nan")}}]
    status, said = served.ask("/v1/score", {"transcripts": asked})
    assert status == 200 and [row["score"] for row in said["rows"]] == [0.5, 0.25]
    rows = RemoteJudge(ServerAddress(served.url)).judge([Trajectory.model_validate(one) for one in asked])
    assert [(row.id, row.score) for row in rows] == [("a\ud800", 0.5), ("b", 0.25)]
    assert served.ask("/v1/score", {"transcripts": asked[:1] * 2})[0] == 422
    assert metric(served, "rrm_worker_restarts_total") == before


# ---- the worker ----


@pytest.mark.parametrize("end", ["input", "output"])
def test_a_worker_whose_server_was_killed_ends_without_a_word(end: str) -> None:
    """It judged on to the end of its job, and told of thirty lines in which telling failed."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, str(WORKER)], stdin=pipe, stdout=pipe, stderr=pipe) as worker:
        assert worker.stdin and worker.stdout and worker.stderr
        worker.stdin.write(b'{"options": {}}\n')
        worker.stdin.flush()
        assert b"about" in worker.stdout.readline()
        how = {"mode": "full", "samples": 1, "seed": 0}
        text = "WAIT 900 score 0.5" if end == "input" else "score 0.5"
        if end == "output":
            worker.stdout.close()
        job = {"job": 0, "what": "score", "how": how, "items": [run("a", text)]}
        worker.stdin.write(json.dumps(job).encode() + b"\n")
        worker.stdin.flush()
        if end == "input":
            worker.stdin.close()
        try:
            worker.wait(300)
        finally:
            worker.kill()
        assert worker.returncode == 0 and worker.stderr.read() == b""
