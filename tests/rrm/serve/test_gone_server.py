"""A server of `rrm serve` that goes away for good while a run is on: said at once, waited for once, and the run goes on with the same command."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cut_server import OPEN_END, cutting, refused, row, whole
from serving import heard, run

from rrm.cli import main
from rrm.data.trajectory import Trajectory, write_jsonl
from rrm.errors import ConfigError, ServerGone
from rrm.judge.agent_rrm import AgentRRM
from rrm.scoring.run import score_file
from rrm.serve import address as address_module
from rrm.serve import calls as calls_module
from rrm.serve import client as client_module
from rrm.serve.address import TIMEOUT_S, ServerAddress
from rrm.serve.calls import PATIENCE_S, Backoff, Busy, Calls
from rrm.serve.client import RemoteJudge


def runs(n: int) -> list[Trajectory]:
    return [Trajectory.model_validate(run(f"t{at}", "score 0.5")) for at in range(n)]


def dead(connection: socket.socket, body: Any) -> None:
    """As a process that was killed: no word, whatever is asked."""


def rows_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_stops_after_one_patience_and_the_same_command_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output, how = tmp_path / "out.jsonl", {"mode": "score", "total": 40}
    with cutting([whole, dead]) as server:
        judge = RemoteJudge(ServerAddress(server.url, patience_s=0.4), concurrency=1)
        with pytest.raises(ServerGone) as gone:
            score_file(judge, runs(40), output, **how)
    said = str(gone.value)
    assert f"{server.url} broke off" in said and "asked for 0.4 s: start rrm serve there" in said
    assert said.endswith(
        f"8 of 40 rows are kept in {output} (8 of this run); once it answers, run the same command again to go on"
    )
    (warned,) = [message for message in caplog.messages if "asked again" in message]
    assert server.url in warned and "for 0.4 s" in warned
    asked = {one["id"] for path, body in server.asked if path == "/v1/score" for one in body["transcripts"]}
    assert asked == {f"t{at}" for at in range(16)}, "the others were not waited for one by one"
    assert [one["status"] for one in rows_in(output)] == ["scored"] * 8
    with cutting([whole]) as server:
        summary = score_file(RemoteJudge(ServerAddress(server.url)), runs(40), output, **how)
    assert (summary.resumed, summary.judged, summary.statuses) == (8, 32, {"scored": 40})


def test_rows_that_failed_before_are_told_apart(tmp_path: Path) -> None:
    with cutting([refused(500), refused(500), refused(500), *[whole] * 7, dead]) as server:
        judge = RemoteJudge(ServerAddress(server.url, patience_s=0.3), concurrency=1)
        with pytest.raises(ServerGone) as gone:  # eight together fail twice, then by themselves the first
            score_file(judge, runs(16), tmp_path / "out.jsonl", mode="score")
    assert "8 rows are kept" in str(gone.value)
    assert "(8 of this run, 1 of them judge_error, which --retry-errors judges again)" in str(gone.value)


def test_of_a_command_the_last_line_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--timeout` is how long such a judge is waited for."""
    source, output = tmp_path / "runs.jsonl", tmp_path / "out.jsonl"
    write_jsonl(source, runs(3))
    with cutting([dead]) as server:
        words = ["score", str(source), "--mode", "score", "--model", server.url, "--timeout", "1", "-o", str(output)]
        monkeypatch.setattr("sys.argv", ["rrm", *words])
        with pytest.raises(SystemExit) as ended:
            main()
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert ended.value.code == 2 and not output.exists()
    assert "asked for 1 s" in last and last.endswith("run the same command again to go on")


def test_others_get_failed_judgements_after_one_patience() -> None:
    with cutting([dead]) as server:
        found = RemoteJudge(ServerAddress(server.url, patience_s=0.3), concurrency=1).judge(runs(24), mode="score")
    asked = {one["id"] for path, body in server.asked if path == "/v1/score" for one in body["transcripts"]}
    assert [one.status for one in found] == ["judge_error"] * 24 and asked == {f"t{at}" for at in range(8)}


def test_what_alone_breaks_off_fails_alone(tmp_path: Path) -> None:
    """A server that answers others is not gone."""

    def picky(connection: socket.socket, body: Any) -> None:
        if body is None:  # whether it is there
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        elif all(one["id"] != "t3" for one in body["transcripts"]):
            whole(connection, body)

    with cutting([picky]) as server:
        judge = RemoteJudge(ServerAddress(server.url, patience_s=0.4), concurrency=2)
        summary = score_file(judge, runs(16), tmp_path / "out.jsonl", mode="score")
    assert summary.statuses == {"judge_error": 8, "scored": 8}


def test_of_a_server_that_is_full_for_longer_each_row_is_asked_for(tmp_path: Path) -> None:
    """What one request's patience was over for was given to all others unasked."""

    def full(connection: socket.socket, body: Any) -> None:
        if body is None:  # whether it is there
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        else:
            refused(429)(connection, body)

    with cutting([full]) as server:
        judge = RemoteJudge(ServerAddress(server.url, patience_s=0.2), concurrency=2)
        summary = score_file(judge, runs(32), tmp_path / "out.jsonl", mode="score")
    asked = {one["id"] for path, body in server.asked if path == "/v1/score" for one in body["transcripts"]}
    assert asked == {f"t{at}" for at in range(32)} and summary.statuses == {"judge_error": 32}


# ---- patience ----


def answers(there: bool) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return there

    return look


def test_patience_waits_for_an_answer_that_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(calls_module, "monotonic", lambda: now[0])
    calls = Calls(5.0, is_there=answers(False))
    with calls.accepted():
        assert asyncio.run(calls.left_s(Busy("x"), 0.0)) == 5.0
        now[0] = 60.0
        assert asyncio.run(calls.left_s(Busy("x"), 0.0)) > 0 and calls.over is None
    assert asyncio.run(calls.left_s(Busy("x"), 0.0)) == 0.0 and calls.over == "x; asked for 5 s"
    calls.answered()
    assert calls.over is None and asyncio.run(calls.left_s(Busy("x"), 60.0)) == 5.0


@pytest.mark.parametrize("there", [False, True])
def test_an_answer_that_comes_during_the_look_counts(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look came to nobody, and what was answered meanwhile was forgotten: nothing more was asked."""
    now = [0.0]
    monkeypatch.setattr(calls_module, "monotonic", lambda: now[0])

    async def look() -> bool:
        calls.answered()  # by another request
        return there

    calls = Calls(5.0, is_there=look)
    assert asyncio.run(calls.left_s(Busy("x"), 0.0)) == 5.0
    now[0] = 6.0
    assert asyncio.run(calls.left_s(Busy("x"), 0.0)) <= 0 and calls.over is None, (
        "its own patience is over, and no other's"
    )
    assert asyncio.run(calls.left_s(Busy("x"), 6.0)) == 5.0


def test_a_request_that_is_taken_during_the_look_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(calls_module, "monotonic", lambda: now[0])
    with ExitStack() as taken:

        async def look() -> bool:
            taken.enter_context(calls.accepted())
            return False

        calls = Calls(5.0, is_there=look)
        asyncio.run(calls.left_s(Busy("x"), 0.0))
        now[0] = 6.0
        assert asyncio.run(calls.left_s(Busy("x"), 0.0)) == 5.0 and calls.over is None


def test_a_server_that_is_only_busy_is_not_gone_and_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    calls = Calls(0.0, is_there=answers(True))
    assert not asyncio.run(Backoff(calls).wait(Busy("full", silent=False)))
    assert calls.over is None and not caplog.messages


def test_it_is_said_that_a_server_answers_again(caplog: pytest.LogCaptureFixture) -> None:
    def cut(connection: socket.socket, body: Any) -> None:
        connection.sendall(OPEN_END + row(0, "t0"))

    with cutting([cut, whole]) as server:
        found = RemoteJudge(ServerAddress(server.url, patience_s=20.0)).judge(runs(2), mode="score")
    assert [one.status for one in found] == ["scored"] * 2
    assert [m.partition(";")[0] for m in caplog.messages] == [
        f"{server.url}: the answer was cut off",
        f"{server.url} answers again",
    ]


def test_a_time_out_is_the_patience_and_shortens_no_row() -> None:
    with cutting([]) as server:
        for timeout_s, expected in ((None, (TIMEOUT_S, PATIENCE_S)), (5.0, (TIMEOUT_S, 5.0)), (900.0, (900.0, 900.0))):
            judge = AgentRRM.from_pretrained(server.url, timeout_s=timeout_s)
            assert isinstance(judge, RemoteJudge)
            assert (judge.address.timeout_s, judge.address.patience_s) == expected


@pytest.mark.parametrize(("scheme", "said"), [("http", "nothing came from http"), ("https", "no connection to https")])
def test_a_server_that_hangs_is_waited_for_no_longer_than_was_said(
    scheme: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes connections and says no word, at first or under TLS: a time-out of rows passed for each try."""
    for module, name, value in ((address_module, "LEAST_S", 0.1), (address_module, "LOOK_S", 0.1)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(client_module, "TIMEOUT_S", 2.0)  # stands for ten minutes
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ServerGone, match=f"{said}.* 0.2 s; asked for 0.2 s: start rrm serve there"):
            client_module.connect(url, timeout_s=0.2)


def test_a_row_has_its_time_on_a_connection_that_had_to_come_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, float]] = []
    sent = httpx2.AsyncClient.send

    async def note(self: httpx2.AsyncClient, request: httpx2.Request, **how: Any) -> httpx2.Response:
        seen.append(request.extensions["timeout"])
        return await sent(self, request, **how)

    monkeypatch.setattr(httpx2.AsyncClient, "send", note)
    with cutting([whole]) as server:
        address = ServerAddress(server.url, patience_s=5.0)
        assert len(heard(address, "/v1/score", {"transcripts": [{"id": "a"}]})) == 2
    assert (seen[0]["read"], seen[0]["connect"]) == (TIMEOUT_S, 5.0)


# ---- who it is, and what to do ----


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (None, "asks for a key, and the environment has no RRM_API_KEY: set it to the one that rrm serve"),
        ("s3cret", "refuses the key in RRM_API_KEY: set that to the one that rrm serve"),
    ],
)
def test_a_wrong_key_and_none_are_told_apart(key: str | None, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RRM_API_KEY", raising=False)
    with cutting([refused(401)]) as server, pytest.raises(ConfigError, match=said) as error:
        asyncio.run(ServerAddress(server.url, key=key).ask("/v1/rank"))
    assert "s3cret" not in str(error.value) and "401" in str(error.value)


def test_nobody_there_is_said_at_once(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ServerGone, match=r"nobody answers at http://127\.0\.0\.1:9 .*start rrm serve there"):
        RemoteJudge(ServerAddress("http://127.0.0.1:9", patience_s=0.1))
    assert caplog.messages[0].startswith("nobody answers at http://127.0.0.1:9")


@pytest.mark.parametrize("model", ["127.0.0.1:8000", "localhost:8000/v1", "judge.test:8000/v1#qwen", "[::1]:8000"])
def test_an_address_without_its_scheme_is_said(model: str) -> None:
    with pytest.raises(ConfigError, match="is an address without http:// in front: write http://") as error:
        AgentRRM.from_pretrained(model)
    assert f"openai:http://{model.split('/')[0].split('#')[0]}/v1#" in str(error.value)
    with pytest.raises(ConfigError, match="is no address of a judge"):
        AgentRRM.from_pretrained("grpc://host:1/x")
