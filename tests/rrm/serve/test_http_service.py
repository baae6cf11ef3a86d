"""The service: batches, order, refusals, workers that die, slow and gone clients, a stop that answers what was taken."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from serving import PATIENCE_S, Served, heard, run, serving, until

from rrm.data.feedback import Feedback
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError, RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.serve.client import RemoteJudge, ServerAddress, dealt


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as found:
        yield found


def trajectories(n: int, text: str = "score 0.{}") -> list[Trajectory]:
    return [Trajectory.model_validate(run(f"r{i}", text.format(i % 10))) for i in range(n)]


# ---- what is answered ----


def test_a_row_a_transcript_in_the_requests_order(served: Served) -> None:
    asked = [run("b", "score 0.25"), run("a", "score 0.75"), run("c", "nothing to score")]
    status, said = served.ask("/v1/score", {"transcripts": asked})
    assert status == 200 and [row["id"] for row in said["rows"]] == ["b", "a", "c"]
    assert [row["score"] for row in said["rows"]] == [0.25, 0.75, None]
    assert said["rows"][2]["status"] == "unparsable"
    for row in said["rows"]:
        Feedback.model_validate(row)


def test_any_format_of_a_line_is_read(served: Served) -> None:
    chat = {"messages": [{"role": "user", "content": "Add."}, {"role": "assistant", "content": "score 0.5"}]}
    status, said = served.ask("/v1/score", {"transcripts": [chat, chat], "mode": "score"})
    assert status == 200 and [row["score"] for row in said["rows"]] == [0.5, 0.5]
    assert len({row["id"] for row in said["rows"]}) == 2


def test_a_stream_has_a_line_a_row_and_an_end(served: Served) -> None:
    body = {"transcripts": [run("slow", "WAIT 0.3 score 0.1"), run("quick", "score 0.2")], "stream": True}
    lines = heard(ServerAddress(served.url), "/v1/score", body)
    assert lines[-1] == {"done": 2} and {line["index"]: line["row"]["score"] for line in lines[:-1]} == {0: 0.1, 1: 0.2}


def test_attempts_are_compared(served: Served) -> None:
    groups = [[run("a", "RANK one"), run("b", "RANK two")]]
    status, said = served.ask("/v1/rank", {"groups": groups, "both_orders": True})
    (row,) = said["rankings"]
    # whoever is shown second wins both times: the order decided
    assert status == 200 and (row["decided"], row["turned"], row["agreed"]) == (2, 1, 0)
    assert [one["score"] for one in row["feedback"]] == [0.5, 0.5]


def test_health_metrics_and_the_judges_card(served: Served) -> None:
    served.ask("/v1/score", {"transcripts": [run("x", "score 0.5")]})
    assert served.ask("/healthz") == (200, {"status": "ok", "workers": 1, "waiting": 0, "judging": 0})
    _, told = served.ask("/metrics")
    values = dict(line.rsplit(" ", 1) for line in told.splitlines() if not line.startswith("#"))
    assert float(values['rrm_rows_total{status="scored"}']) >= 1 and float(values["rrm_workers_ready"]) == 1
    assert float(values['rrm_requests_total{path="/v1/score",status="200"}']) >= 1
    _, said = served.ask("/v1/judge")
    assert said["describe"]["model"] == "scripted" and said["ranks"] is True and "engine" not in said["settings"]
    _, api = served.ask("/openapi.json")
    assert {"/v1/score", "/v1/rank", "/v1/measure", "/v1/judge", "/healthz", "/metrics"} <= api["paths"].keys()


# ---- what is refused ----


@pytest.mark.parametrize(
    ("body", "at", "said"),
    [
        ({"transcripts": []}, "transcripts", "at least 1 item"),
        ({"transcripts": [run("a", "x")], "mod": "full"}, "mod", "not permitted"),
        ({"transcripts": [run("a", "x")], "samples": 0}, "samples", "greater than or equal to 1"),
        ({"transcripts": [run("a", "x"), {"what": 1}]}, "transcripts.1", "transcripts.1"),
        ({"transcripts": [run("a", "x"), run("a", "y")]}, "transcripts.1", "'a' occurs twice"),
        ({"transcripts": [run(str(n), "x") for n in range(65)]}, "transcripts", "a request may have 64"),
        ({"transcripts": [[run("a", "x"), run("b", "y")]]}, "transcripts.0", "holds 2 runs"),
        ({"transcripts": [run("a", "x")], "format": "opanai"}, "format", "did you mean 'openai'"),
        ({"transcripts": [run("a", "x")], "mode": "steps"}, "mode", "steps"),
    ],
)  # fmt: skip
def test_wrong_requests_say_where(served: Served, body: Any, at: str, said: str) -> None:
    status, found = served.ask("/v1/score", body)
    assert status == 422 and found["error"]["at"] == at and said in found["error"]["message"], found


def test_what_is_no_json_and_what_is_too_large(served: Served) -> None:
    status, said = served.ask("/v1/score", raw=b'{"transcripts": [')
    assert status == 422 and "not JSON" in said["error"]["message"]
    status, said = served.ask("/v1/score", raw=b"[" + b" " * 2**20 + b"]")
    assert status == 413 and "1,048,576 bytes" in said["error"]["message"]
    assert served.ask("/v1/scores", {})[0] == 404
    # nobody says beforehand how much will come
    with served.connect() as raw:
        raw.sendall(served.head("Transfer-Encoding: chunked"))
        raw.sendall((b"20000\r\n" + b" " * 0x20000 + b"\r\n") * 20 + b"0\r\n\r\n")
        assert b" 413 " in raw.recv(200)


def test_a_key_is_asked_of_all_but_the_watchman(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(key="s3cret") as found:
        asked = {"transcripts": [run("a", "score 0.5")]}
        assert found.ask("/v1/score", asked)[0] == 401 and found.ask("/metrics")[0] == 401
        assert found.ask("/v1/score", asked, Authorization="Bearer s3cre")[0] == 401
        assert found.ask("/v1/score", asked, Authorization="Bearer s3cret")[0] == 200
        assert found.ask("/healthz")[0] == 200
        with pytest.raises(ConfigError, match="RRM_API_KEY"):
            RemoteJudge(ServerAddress(found.url))
        monkeypatch.setenv("RRM_API_KEY", "s3cret")
        assert RemoteJudge(ServerAddress(found.url)).judge(trajectories(3))[2].score == 0.2


def test_a_body_that_drips_is_given_up() -> None:
    with serving(body_s=0.3) as found, found.connect() as raw:
        raw.sendall(found.head("Content-Length: 100") + b"{")
        assert b" 408 " in raw.recv(200)


def test_more_than_may_wait_is_told_to_come_again(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    with serving(most_waiting=4, batch=1, job_s=600.0) as found, ThreadPoolExecutor(1) as pool:
        rows = [run(str(n), f"WAIT FOR {flag} score 0.5") for n in range(4)]
        first = pool.submit(found.ask, "/v1/score", {"transcripts": rows})
        until(lambda: found.pool.load.judging)
        status, said = found.ask("/v1/score", {"transcripts": [run(str(n), "score 0.5") for n in range(4)]})
        assert status == 429 and "ask again later" in said["error"]["message"]
        flag.touch()
        assert first.result()[0] == 200
        rows = RemoteJudge(ServerAddress(found.url)).judge(trajectories(20))  # a client that sends fewer, and waits
        assert [row.score for row in rows] == [n % 10 / 10 for n in range(20)]


# ---- batches ----


def test_requests_share_batches_and_a_long_one_keeps_no_short_one_waiting(tmp_path: Path) -> None:
    begin, end = tmp_path / "begin", tmp_path / "end"
    with serving(batch=4, job_s=600.0) as found, ThreadPoolExecutor(2) as pool:
        orders = [f"WAIT FOR {begin} ", *[""] * 58, f"WAIT FOR {end} "]
        rows = [run(f"long{n}", f"{order}score 0.5") for n, order in enumerate(orders)]
        long = pool.submit(found.ask, "/v1/score", {"transcripts": rows})
        until(lambda: found.pool.load.judging)
        short = pool.submit(found.ask, "/v1/score", {"transcripts": [run(f"short{n}", "score 0.5") for n in range(2)]})
        until(lambda: found.pool.load.judging + found.pool.load.waiting == 62)
        begin.touch()
        assert short.result()[0] == 200 and not long.done()
        end.touch()
        assert long.result()[0] == 200


def test_one_id_twice_is_never_in_one_batch_and_scores_do_not_hang_on_batches(served: Served) -> None:
    with ThreadPoolExecutor(8) as pool:
        asked = [{"transcripts": [run("same", f"score 0.{n}")]} for n in range(1, 9)]
        found = list(pool.map(lambda body: served.ask("/v1/score", body)[1]["rows"][0]["score"], asked))
    assert found == [n / 10 for n in range(1, 9)]


# ---- what goes wrong ----


def test_a_worker_that_dies_loses_nothing(tmp_path: Path) -> None:
    with serving(batch=8) as found:
        once = f"KILL UNTIL {tmp_path / 'died'} score 0.4"
        rows = [run("x", once), *(run(str(n), "score 0.5") for n in range(12))]
        status, said = found.ask("/v1/score", {"transcripts": rows})
        assert status == 200 and [row["score"] for row in said["rows"]] == [0.4, *[0.5] * 12]
        assert "rrm_worker_restarts_total 1.0" in found.ask("/metrics")[1]


def test_a_transcript_that_always_kills_its_worker_fails_alone() -> None:
    with serving(batch=8, workers=2) as found:
        rows = [run("bad", "KILL"), *(run(str(n), "score 0.5") for n in range(5))]
        status, said = found.ask("/v1/score", {"transcripts": rows})
        assert status == 200 and [row["status"] for row in said["rows"]] == ["judge_error", *["scored"] * 5]
        assert "ended 2 times" in said["rows"][0]["reason"] and said["rows"][0]["score"] is None


def test_a_bug_in_the_judge_costs_the_transcript_that_shows_it(served: Served) -> None:
    rows = [run("bug", "RAISE"), *(run(str(n), "score 0.5") for n in range(3))]
    status, said = served.ask("/v1/score", {"transcripts": rows})
    assert status == 200 and [row["status"] for row in said["rows"]] == ["judge_error", *["scored"] * 3]
    assert "ZeroDivisionError" in said["rows"][0]["reason"]


def test_a_client_that_goes_takes_its_waiting_rows_along(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    with serving(batch=1, job_s=600.0) as found:
        with found.sent({"transcripts": [run(str(n), f"WAIT FOR {flag} score 0.5") for n in range(30)]}):
            until(lambda: found.pool.load.judging)
        until(lambda: not found.pool.load.waiting)
        flag.touch()
        assert found.ask("/v1/score", {"transcripts": [run("next", "score 0.5")]})[0] == 200


def test_a_stop_answers_what_was_taken() -> None:
    with serving(batch=2) as found, ThreadPoolExecutor(1) as pool:
        rows = [run(str(n), "WAIT 0.1 score 0.5") for n in range(10)]
        asked = pool.submit(found.ask, "/v1/score", {"transcripts": rows})
        until(lambda: found.pool.load.judging)
        found.stop()
        status, said = asked.result()
        assert status == 200 and [row["score"] for row in said["rows"]] == [0.5] * 10
        found.thread.join(PATIENCE_S)
        with pytest.raises(OSError):
            found.ask("/healthz")


def test_a_client_that_reads_nothing_holds_no_server() -> None:
    with serving(body_s=0.5) as found, found.connect() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.settimeout(0.2)
        with contextlib.suppress(OSError):  # more answers than the connection's buffers hold
            for _ in range(40):
                raw.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50)
        answered = -1
        while answered < (answered := found.pool.metrics.totals()["requests"]):  # until it can send no more
            time.sleep(0.1)
        found.stop()
        found.thread.join(PATIENCE_S)
        assert not found.thread.is_alive()


def test_a_worker_that_dies_takes_what_it_was_handed_ahead_along(tmp_path: Path) -> None:
    with serving(batch=4) as found, ThreadPoolExecutor(2) as pool:
        first = [run(f"a{n}", "WAIT 0.2 score 0.1") for n in range(3)] + [run("bad", "KILL")]
        one = pool.submit(found.ask, "/v1/score", {"transcripts": first})
        until(lambda: found.pool.load.judging)
        two = pool.submit(found.ask, "/v1/score", {"transcripts": [run(f"b{n}", f"score 0.{n}") for n in range(8)]})
        rows = one.result()[1]["rows"]
        assert [row["score"] for row in rows] == [0.1, 0.1, 0.1, None] and rows[3]["status"] == "judge_error"
        assert [row["score"] for row in two.result()[1]["rows"]] == [n / 10 for n in range(8)]
        assert found.pool.load.judging == found.pool.load.waiting == 0


def test_a_stop_ends_when_the_last_row_is_judged_for_nobody(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    with serving(batch=1, job_s=600.0) as found:
        with found.sent({"transcripts": [run("gone", f"WAIT FOR {flag} score 0.5")]}):
            until(lambda: found.pool.load.judging)
        found.stop()
        flag.touch()
        found.thread.join(PATIENCE_S)
        assert not found.thread.is_alive()


# ---- the client ----


def test_the_judge_at_an_address_judges_as_the_judge_itself(served: Served) -> None:
    from scripted_worker import say

    from rrm.engines.scripted import ScriptedChatEngine

    rows = trajectories(30)
    here = AgentRRM(ScriptedChatEngine(say), model="scripted")
    there = AgentRRM.from_pretrained(served.url)
    heard: list[str] = []
    found = there.judge(rows, mode="full", seed=3, on_feedback=lambda f: heard.append(f.id))
    assert found == here.judge(rows, mode="full", seed=3) and sorted(heard) == sorted(t.id for t in rows)
    assert there.describe() == here.describe() and there.measure(rows[:2], "full") == here.measure(rows[:2], "full")


def test_rows_of_a_server_that_is_gone_are_no_numbers(served: Served) -> None:
    judge = RemoteJudge(ServerAddress(served.url))
    judge.address = ServerAddress("http://127.0.0.1:9", patience_s=0.3)
    (row,) = judge.judge(trajectories(1))
    assert row.status == "judge_error" and row.score is None and "127.0.0.1:9" in str(row.reason)
    with pytest.raises(RRMError, match=r"asked for 0\.3 s"):
        RemoteJudge(judge.address)


def test_a_request_that_is_too_large_is_halved() -> None:
    with serving(body_bytes=9000) as found:
        rows = trajectories(8, "score 0.{} " + "x" * 1500)
        big = Trajectory.model_validate(run("big", "y" * 20000))
        scores = [row.score for row in RemoteJudge(ServerAddress(found.url)).judge([*rows, big])]
    assert scores == [n / 10 for n in range(8)] + [None]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://x", "no address"),
        ("http://", "no address"),
        ("http://me:pw@x:1", "RRM_API_KEY"),
        ("http://x:1#model", "openai:BASE_URL#model"),
    ],
)
def test_what_is_no_address(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        ServerAddress(url)
    assert "pw" not in str(error.value) or url not in str(error.value)


def test_options_of_the_server_are_refused_with_its_address(served: Served) -> None:
    with pytest.raises(ConfigError, match="dtype"):
        AgentRRM.from_pretrained(served.url, dtype="float32")


def test_transcripts_are_dealt_without_two_of_one_id() -> None:
    rows = [Trajectory.model_validate(run(id, "x")) for id in "aabbabcd"]
    chunks = dealt(rows, 3)
    assert sorted(at for chunk in chunks for at in chunk) == list(range(8))
    assert all(len(chunk) <= 3 and len({rows[at].id for at in chunk}) == len(chunk) for chunk in chunks)
