"""The client of `rrm serve` where the server breaks off, fails, moves, changes its judge, or is slow when Ctrl-C comes."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from typing import Any

import pytest
from cut_server import CHUNKED, OPEN_END, chunk, cutting, refused, row, whole
from serving import run, serving

from rrm.data.feedback import Feedback
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError, RRMError, ServerGone
from rrm.judge.agent_rrm import AgentRRM
from rrm.serve import calls as calls_module
from rrm.serve.address import ServerAddress
from rrm.serve.calls import Backoff, Busy, Calls
from rrm.serve.client import RemoteJudge


def runs(*ids: str) -> list[Trajectory]:
    return [Trajectory.model_validate(run(id, "score 0.5")) for id in ids]


def judged(answers: list[Any], rows: list[Trajectory], patience_s: float = 5.0) -> tuple[list[Feedback], list[Any]]:
    """Rows, and what was asked for."""
    with cutting(answers) as server:
        judge = RemoteJudge(ServerAddress(server.url, patience_s=patience_s))
        found = judge.judge(rows, mode="score")
    return found, [[one["id"] for one in body["transcripts"]] for _, body in server.asked]


# ---- cut off ----


@pytest.mark.parametrize("tail", [b'{"index": 1, "ro', b""])
@pytest.mark.parametrize("head", [OPEN_END, CHUNKED])
def test_a_stream_that_is_cut_is_asked_for_the_rest(head: bytes, tail: bytes) -> None:
    def cut(connection: socket.socket, body: Any) -> None:
        said = row(0, "a") + tail
        connection.sendall(head + (said if head == OPEN_END else chunk(said)))

    found, asked = judged([cut, whole], runs("a", "b"))
    assert [row.status for row in found] == ["scored"] * 2 and asked == [["a", "b"], ["b"]]


def test_a_first_line_that_is_cut_is_asked_for_again_and_what_is_no_row_is_not() -> None:
    def cut(connection: socket.socket, body: Any) -> None:
        connection.sendall(OPEN_END + row(0, "a")[:20])

    found, asked = judged([cut, whole], runs("a"))
    assert found[0].status == "scored" and asked == [["a"], ["a"]]
    for said in (b"<html>", b"[]\n", b'{"index": 5, "row": {}}\n', row(0, "a") + row(0, "a")):

        def other(connection: socket.socket, body: Any, said: bytes = said) -> None:
            connection.sendall(OPEN_END + said)

        with pytest.raises(RRMError, match="does not answer as rrm serve does"):
            judged([other], runs("a", "b"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"id": "b"}, "a row of 'b' in the place of 'a'"),
        ({"findings": [{"step": 1, "verdict": "good"}, {"step": 2, "verdict": "bad"}]}, "step 2 of 'a', which has 1"),
        ({"criteria": {"safe": {"value": 1.0, "steps": [0, 1]}}}, "step 0 of 'a', which has 1"),
    ],
)
def test_rows_of_other_transcripts_and_steps_are_refused(change: dict[str, Any], why: str) -> None:
    """They were taken, scored, and findings stood on steps that nobody took."""
    said = json.loads(row(0, "a"))
    said["row"] |= change

    def other(connection: socket.socket, body: Any) -> None:
        connection.sendall(OPEN_END + json.dumps(said).encode() + b'\n{"done": 1}\n')

    with pytest.raises(RRMError, match=f"does not answer as rrm serve does: .*{why}"):
        judged([other], runs("a", "b"))


def test_a_ranking_of_other_attempts_is_refused() -> None:
    def other(connection: socket.socket, body: Any) -> None:
        rows = [json.loads(row(at, one))["row"] for at, one in enumerate("ac")]
        connection.sendall(OPEN_END + json.dumps({"rankings": [{"feedback": rows}]}).encode())

    with cutting([other]) as server, pytest.raises(RRMError, match="a row of 'c' in the place of 'b'"):
        RemoteJudge(ServerAddress(server.url)).rank_groups([runs("a", "b")])


@pytest.mark.parametrize("said", [[], 3, "up", {}, {"status": "ok"}, {"model": "x", "settings": {}}])
def test_json_of_another_service_is_no_version_of_this_one(said: Any) -> None:
    with cutting([], judge=said) as server, pytest.raises(RRMError) as error:
        RemoteJudge(ServerAddress(server.url))
    assert str(error.value) == (
        f"{server.url} does not answer as rrm serve does: its /v1/judge describes no judge; "
        "a chat server is openai:BASE_URL#model"
    )


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({"settings": None}, "settings: "),
        ({"settings": {"unheard": 1}}, "unheard: "),
        ({"describe": {}}, "its judge has no name"),
    ],
)
def test_a_judge_that_is_described_otherwise_is_of_another_version(about: dict[str, Any], why: str) -> None:
    with cutting([], **about) as server, pytest.raises(RRMError, match=f"is of another version of rrm serve: {why}"):
        RemoteJudge(ServerAddress(server.url))


def test_patience_is_counted_from_the_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(calls_module, "monotonic", lambda: now[0])

    def slow(connection: socket.socket, body: Any) -> None:
        now[0] += 100.0  # the row took longer than any patience
        connection.sendall(OPEN_END + row(0, "a"))

    found, _ = judged([slow, whole], runs("a", "b"), patience_s=5.0)
    assert [row.status for row in found] == ["scored"] * 2
    pauses = Backoff(Calls(5.0))
    assert asyncio.run(pauses.wait(Busy("x")))
    now[0] += 6.0
    assert not asyncio.run(pauses.wait(Busy("x")))
    pauses.answered()
    assert asyncio.run(pauses.wait(Busy("x")))


def test_a_server_that_asks_for_longer_than_the_patience_is_asked_once_more() -> None:
    """It was given up at its first answer."""

    def full(connection: socket.socket, body: Any) -> None:
        connection.sendall(b"HTTP/1.1 429 No\r\nRetry-After: 100\r\nContent-Length: 0\r\n\r\n")

    found, asked = judged([full, whole], runs("a"), patience_s=0.2)
    assert [row.status for row in found] == ["scored"] and asked == [["a"]] * 2
    with cutting([full]) as server:
        (failed,) = RemoteJudge(ServerAddress(server.url, patience_s=0.2)).judge(runs("a"), mode="score")
    assert failed.status == "judge_error" and [path for path, _ in server.asked].count("/v1/score") == 2


# ---- a server that fails ----


def test_a_server_that_fails_once_is_asked_once_more() -> None:
    found, asked = judged([refused(500), whole], runs("a", "b"))
    assert [row.status for row in found] == ["scored"] * 2 and asked == [["a", "b"]] * 2


def test_a_transcript_at_which_the_server_fails_fails_alone() -> None:
    def picky(connection: socket.socket, body: Any) -> None:
        bad = any(one["id"] == "b" for one in body["transcripts"])
        (refused(500) if bad else whole)(connection, body)

    found, asked = judged([picky], runs("a", "b", "c"))
    assert [row.status for row in found] == ["scored", "judge_error", "scored"] and "500" in str(found[1].reason)
    assert asked == [["a", "b", "c"], ["a", "b", "c"], ["a"], ["b"], ["c"]]


def test_a_transcript_that_cannot_be_sent_fails_alone() -> None:
    rows = runs("a", "deep")
    nested: list[Any] = []
    for _ in range(600):
        nested = [nested]
    rows[1].meta["x"] = nested
    found, asked = judged([whole], rows)
    assert [row.status for row in found] == ["scored", "judge_error"] and asked == [["a"]]


def test_groups_of_a_server_that_is_gone_are_failed_judgements() -> None:
    with cutting([refused(503)]) as server:
        judge = RemoteJudge(ServerAddress(server.url, patience_s=0.3))
        heard: list[int] = []
        found = judge.rank_groups([runs("a", "b"), runs("c")], on_ranking=lambda at, _: heard.append(at))
    assert [[one.id for one in ranking.feedback] for ranking in found] == [["a", "b"], ["c"]]
    assert {one.status for ranking in found for one in ranking.feedback} == {"judge_error"} and sorted(heard) == [0, 1]


# ---- another judge, another server ----


def test_rows_of_another_judge_are_refused() -> None:
    def other(connection: socket.socket, body: Any) -> None:
        connection.sendall(OPEN_END + row(0, "a", model="n", model_hash="i") + b'{"done": 1}\n')

    with pytest.raises(ConfigError, match=r"now serves another judge: n \(i\), and this run began with m \(h\)"):
        judged([other], runs("a"))


def test_a_key_is_sent_without_its_line_break_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RRM_API_KEY", " s3cret\n")
    with cutting([whole]) as server:
        RemoteJudge(ServerAddress(server.url))
    assert b"Authorization: Bearer s3cret\r\n" in server.headers[0]
    for bad in ("s3\ncret", "s3cret\N{SNOWMAN}"):
        with pytest.raises(ConfigError, match="RRM_API_KEY") as error:
            ServerAddress("http://127.0.0.1:9", key=bad)
        assert "s3" not in str(error.value)


def test_a_server_that_sends_its_clients_on_does_not_get_the_key_there() -> None:
    with cutting([whole]) as there, cutting([]) as here:

        def moved(connection: socket.socket, body: Any) -> None:
            connection.sendall(
                b"HTTP/1.1 302 Found\r\nLocation: %s/v1/judge?token=t0ken\r\nContent-Length: 0\r\n\r\n"
                % there.url.encode()
            )

        judge = RemoteJudge(ServerAddress(here.url))
        with cutting([moved]) as moving:
            judge.address = ServerAddress(moving.url, key="s3cret")
            with pytest.raises(ConfigError, match="sends its clients on to http://127") as error:
                judge.measure(runs("a"), "score")
        assert not there.headers and "t0ken" not in str(error.value)


@pytest.mark.parametrize(("asked", "decides"), [(None, "unsure"), ("unsure", "unsure"), ("keep", None)])
def test_what_lies_outside_the_judges_domain_is_said_with_each_request(asked: Any, decides: str | None) -> None:
    describe = {"model": "m", "model_hash": "h", "out_of_domain": "unsure"}
    with cutting([], describe=describe, knows_domain=True) as server:
        judge = AgentRRM.from_pretrained(server.url, out_of_domain=asked)
        judge.judge(runs("a"), mode="score")
        assert judge.describe().get("out_of_domain") == decides
    assert server.asked[0][1]["out_of_domain"] == asked


# ---- measuring ----


def test_measures_stand_in_the_order_of_the_transcripts_and_a_large_request_is_halved() -> None:
    with serving(body_bytes=6000) as found:
        judge = RemoteJudge(ServerAddress(found.url))
        texts = ["x", "xx " * 400, "xxx " * 50, "x " * 100, "x " * 200]
        rows = [Trajectory.model_validate(run(id, text)) for id, text in zip("aabbc", texts, strict=True)]
        one_by_one = [judge.measure([row], "full")[0] for row in rows]
        assert judge.measure(rows, "full") == one_by_one and len({reads.tokens for reads in one_by_one}) >= 4
        assert judge.measure([], "full") == []


def test_tokens_are_estimated_without_asking() -> None:
    with cutting([]) as server:
        judge = RemoteJudge(ServerAddress(server.url))
    (tokens,) = judge.count_tokens([Trajectory.model_validate(run("a", "word " * 400))], "score")
    assert 500 <= tokens <= 520 and len(server.asked) == 0


# ---- Ctrl-C ----


def test_an_end_does_not_wait_for_a_slow_row() -> None:
    over = threading.Event()

    def stuck(connection: socket.socket, body: Any) -> None:
        connection.sendall(OPEN_END + row(0, "a"))
        over.wait(60)

    def stop(_: Feedback) -> None:
        raise KeyboardInterrupt

    with cutting([stuck]) as server:
        with pytest.raises(KeyboardInterrupt):
            RemoteJudge(ServerAddress(server.url)).judge(runs("a", "b"), mode="score", on_feedback=stop)
        assert not over.is_set()
        over.set()


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_that_drips_ends_with_the_time_that_is_left(streamed: bool) -> None:
    """Each byte began the time anew: a hook's agent waited for as long as bytes came."""
    over = threading.Event()

    def drips(connection: socket.socket, _: Any) -> None:
        connection.sendall(OPEN_END + b"{")
        while not over.wait(0.05):
            connection.sendall(b" ")

    async def all_lines(address: ServerAddress) -> list[Any]:
        return [line async for line in address.lines("/v1/score", {"transcripts": []})]

    with cutting([drips]) as server:
        begun = time.monotonic()
        address = ServerAddress(server.url, until=begun + 0.5)
        try:
            with pytest.raises(Busy if streamed else ServerGone, match="in full in time"):
                asyncio.run(all_lines(address) if streamed else address.ask("/v1/measure", {"transcripts": []}))
            assert time.monotonic() - begun < 5
        finally:
            over.set()
