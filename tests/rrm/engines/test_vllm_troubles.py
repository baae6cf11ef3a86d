"""vLLM's servers that die, hang, come back or ask for a rest: rows go elsewhere or wait, and a run goes on."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from vllm_engines import Adapter, engine_at
from vllm_server import Fault, VLLMServer, serve_vllm

from rrm.engines import vllm_http, vllm_servers
from rrm.engines.base import SamplingParams, Span
from rrm.errors import EngineError

GREEDY = SamplingParams(max_new_tokens=8)


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which packets vanish, as at a machine that was switched off: its queue of connections is full."""
    with ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        yield f"http://127.0.0.1:{full.getsockname()[1]}"


def sampled(*servers: VLLMServer) -> list[int]:
    """How many rows each was asked for."""
    return [len(server.of("/v1/completions")) for server in servers]


def move(engine: Any, place: int, url: str) -> None:
    """Have one of an engine's servers answer elsewhere, and wait shortly for it."""
    server = engine._servers.all[place]
    server.url, server.connect_s = url, 0.2


def hanging(ended: threading.Event, where: str) -> Fault:
    """Has a path wait until something ended, for 20 s at most."""

    def wait(path: str, body: dict[str, Any]) -> None:
        if path == where:
            ended.wait(20)

    return wait


def test_a_server_that_dies_leaves_its_rows_to_another(tmp_path: Path) -> None:
    with serve_vllm() as one:
        with serve_vllm() as two:
            engine = engine_at(one, two, adapters=tmp_path)
            engine.sync(Adapter(), 1)
            assert len(one.adapters) == len(two.adapters) == 1
            engine.generate([[3], [4], [5], [6]], GREEDY, keys=list("abcd"))
            assert sampled(one, two) == [2, 2]
            engine.generate([[3, 7], [4, 7], [5, 7], [6, 7]], GREEDY, keys=list("abcd"))
            firsts = {body["prompt"][0] for body in one.of("/v1/completions")}
            assert len(firsts) == 2  # a row's turns go where its beginning is held
            port = int(two.url.rpartition(":")[2])
        found = engine.generate([[3, 8], [4, 8], [5, 8], [6, 8]], GREEDY, keys=list("abcd"))
        assert [c.ids for c in found] == [[7, 8, 2]] * 4 and sampled(one) == [8]
        engine.release(list("abcd"))
        engine.sync(Adapter(), 2)  # without the one that is gone
        failures = engine._servers.all[1].strikes
        found = engine.generate([[3], [4], [5], [6]], GREEDY, keys=list("efgh"))
        assert [c.version for c in found] == [2] * 4 and sampled(one) == [12]
        assert engine._servers.all[1].strikes == failures  # no row of theirs was tried there
        engine.release(list("efgh"))
        with serve_vllm(port) as again:  # started anew, it knows no adapter
            engine._servers.clock = lambda: time.monotonic() + vllm_servers.MAX_DOWN_S
            for key in "ijkl":
                assert engine.generate([[3]], GREEDY, keys=[key])[0].version == 2
            assert sampled(again)[0] >= 2 and list(again.adapters) == [engine.weights.name]
            engine.release(list("ijkl"))
            assert not engine._servers.home and all(server.rows == 0 for server in engine._servers.all)
            engine.sync(Adapter(), 3)
            assert engine.weights.name in one.adapters and engine.weights.name in again.adapters
            engine.close()
            assert not one.adapters and not again.adapters


def test_one_of_three_is_enough() -> None:
    with serve_vllm() as alive, ExitStack() as others:
        engine = engine_at(*(others.enter_context(serve_vllm()) for _ in range(2)), alive, patience_s=0.0)
        others.close()
        for i in range(6):
            assert engine.generate([[3, i + 3]], GREEDY, keys=[f"k{i}"])[0].ids == [7, 8, 2]
        assert sampled(alive) == [6]
        engine.close()


def test_where_all_are_gone_the_run_ends_when_its_patience_does(tmp_path: Path) -> None:
    with serve_vllm() as one, serve_vllm() as two:
        engine = engine_at(one, two, adapters=tmp_path)
        engine._servers.patience_s = 0.05
    with pytest.raises(EngineError, match=r"(cannot connect|broke off) .*tried \d+ times in \d+ s"):
        engine.generate([[3]], GREEDY)
    with pytest.raises(EngineError, match=r"cannot connect|broke off"):
        engine.sync(Adapter(), 1)
    assert engine.version == -1
    engine.close()


def test_a_server_that_is_started_again_is_waited_for(
    server: VLLMServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = engine_at(server, adapters=tmp_path)
    engine.sync(Adapter(), 1)
    server.adapters.clear()
    server.dropped = 12
    with caplog.at_level(logging.WARNING):
        assert [c.version for c in engine.generate([[3], [4]], GREEDY, keys=["a", "b"])] == [1, 1]
    assert len({(body["seed"], body["prompt"][0]) for body in server.of("/v1/completions")}) == 2
    said = [record.getMessage() for record in caplog.records if server.url in record.getMessage()]
    assert len(said) == 3 and "rows wait for it, each up to 5 s" in said[0], said  # then: loaded, and answers again
    assert len([path for path, _ in server.asked if "load_lora" in path]) == 2  # once for both rows
    server.dropped = 12
    engine.sync(Adapter(), 2)
    assert engine.weights.name in server.adapters
    engine.close()


def test_rows_that_a_server_gives_up_are_sampled_again(server: VLLMServer) -> None:
    engine, left = engine_at(server), [1, 1]

    def aborts(path: str, body: dict[str, Any]) -> tuple[int, Any] | None:
        if not left or "stop_token_ids" not in body:
            return None
        left.pop()
        status, said = server.reply(path, body)
        choice = {**said["choices"][0], "finish_reason": "abort", "token_ids": []}
        return status, {**said, "choices": [choice]}

    server.fault = aborts
    assert engine.generate([[3]], GREEDY)[0].ids == [7, 8, 2] and sampled(server) == [3]
    engine.close()


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_server_that_fails_leaves_its_rows_to_one_that_works(server: VLLMServer, status: int) -> None:
    with serve_vllm() as other:
        engine = engine_at(server, other, patience_s=0.0)
        server.fault = lambda path, body: (status, '{"error": {"message": "EngineCore encountered an issue"}}')
        found = engine.generate([[3], [4], [5], [6]], GREEDY, keys=list("abcd"))
        assert [c.ids for c in found] == [[7, 8, 2]] * 4 and sampled(other) == [4]
        engine.close()


def test_a_server_that_asks_for_a_rest_gets_it(server: VLLMServer) -> None:
    with serve_vllm() as other:
        engine = engine_at(server, other, patience_s=100.0)
        engine._servers.clock = lambda: 1000.0
        server.headers, server.fault = {"Retry-After": "30"}, lambda path, body: (429, "{}")
        assert engine.generate([[3]], GREEDY)[0].ids == [7, 8, 2]
        assert engine._servers.all[0].down_until == 1030.0
        engine.close()


def test_the_only_server_gets_its_rest(server: VLLMServer) -> None:
    engine, left = engine_at(server), [1]
    server.headers = {"Retry-After-Ms": "400"}
    server.fault = lambda path, body: (503, "{}") if left and left.pop() else None
    begun = time.monotonic()
    assert engine.generate([[3]], GREEDY)[0].ids == [7, 8, 2]
    assert time.monotonic() - begun >= 0.4
    engine.close()


def test_a_machine_that_vanished_is_left_for_another(server: VLLMServer, nobody: str) -> None:
    with serve_vllm() as gone:
        engine, alone = engine_at(gone, server, patience_s=0.0), engine_at(gone, patience_s=0.0)
        move(engine, 0, nobody)
        move(alone, 0, nobody)
        assert engine.generate([[3]], GREEDY)[0].ids == [7, 8, 2] and engine._servers.all[0].down_until > 0
        with pytest.raises(EngineError, match=r"cannot connect \(nothing answered within 0.2 s\).*machine is up"):
            alone.generate([[3]], GREEDY)
        engine.close()
        alone.close()


def test_a_reply_may_take_as_long_as_it_was_given(server: VLLMServer) -> None:
    patient = engine_at(server, timeout_s=3600.0)
    server_of_it = patient._servers.all[0]
    assert (server_of_it.timeout_s, server_of_it.connect_s) == (3600.0, vllm_http.CONNECT_S)
    patient.close()
    engine, ended = engine_at(server, patience_s=0.0), threading.Event()
    engine._servers.all[0].timeout_s = 0.3
    server.fault = hanging(ended, "/v1/completions")
    with pytest.raises(EngineError, match=r"no reply within 0.3 s"):
        engine.generate([[3]], GREEDY)
    ended.set()
    engine.close()


def test_closing_waits_for_no_server_that_hangs(
    server: VLLMServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_servers, "CLOSE_S", 0.3)
    engine, ended = engine_at(server, adapters=tmp_path), threading.Event()
    engine.sync(Adapter(), 1)
    engine.sync(Adapter(), 2)
    server.fault = hanging(ended, "/v1/unload_lora_adapter")
    engine.close()
    assert not ended.is_set() and list(server.adapters)  # it went on without an answer
    engine.close()  # nothing is left to do
    ended.set()
    with pytest.raises(RuntimeError, match="vllm was closed"):
        engine.generate([[3]], GREEDY)


def test_an_adapter_that_one_server_refused_stays_at_none(tmp_path: Path) -> None:
    with serve_vllm() as took, serve_vllm() as refused:
        engine, taken, usual = engine_at(took, refused, adapters=tmp_path), threading.Event(), took.reply

        def reply(path: str, body: dict[str, Any]) -> tuple[int, Any]:
            said = usual(path, body)
            if path == "/v1/load_lora_adapter":
                taken.set()
            return said

        def refuse(path: str, body: dict[str, Any]) -> tuple[int, Any] | None:
            return (400, "rank 64 is too high") if path == "/v1/load_lora_adapter" and taken.wait(10) else None

        took.reply, refused.fault = reply, refuse
        with pytest.raises(EngineError, match="rank 64 is too high"):
            engine.sync(Adapter(), 1)
        assert list(took.adapters) and not list(tmp_path.iterdir())
        assert engine.generate([[3]], GREEDY)[0].version == -1  # rows name the weights that they want
        engine.close()
        assert not took.adapters


def test_what_a_killed_process_of_the_run_left_is_cleared_up(server: VLLMServer, tmp_path: Path) -> None:
    killed = engine_at(server, adapters=tmp_path / "adapters")
    killed.sync(Adapter(), 1)
    killed.sync(Adapter(), 2)
    (tmp_path / "adapters" / "0123abcd-7.part").mkdir()
    (tmp_path / "adapters" / "notes").mkdir()
    left = set(server.adapters)
    server.adapters |= {"mine": str(tmp_path / "adapters" / "mine"), "0123abcd-9": "/another/run/adapters/0123abcd-9"}
    engine = engine_at(server, adapters=tmp_path / "adapters")
    assert left <= set(server.adapters)  # another process of the run may use them until the weights change
    engine.sync(Adapter(), 2)
    assert set(server.adapters) == {"mine", "0123abcd-9", engine.weights.name}
    assert {path.name for path in (tmp_path / "adapters").iterdir()} == {"notes", engine.weights.name}
    engine.close()
    assert set(server.adapters) == {"mine", "0123abcd-9"}
    killed._kept.clear()
    killed.close()


def test_a_server_started_again_with_other_weights_is_refused(server: VLLMServer, tmp_path: Path) -> None:
    engine = engine_at(server, adapters=tmp_path)
    engine.expect([[3, 4, 5]], [Span(1, 3)], [[-1.2, -1.0]], bound=0.5)
    engine.sync(Adapter(), 1)
    server.adapters.clear()
    assert engine.generate([[3], [4]], GREEDY)[0].version == 1
    scored = [body for path, body in server.asked if "logprob_token_ids" in body]
    asked = sorted((body["prompt"], body["logprob_token_ids"], body["model"]) for body in scored)
    assert asked == [([3], [4], "base"), ([3, 4], [5], "base")]
    server.adapters.clear()
    server.shift = -0.6
    with pytest.raises(EngineError, match=r"started again, and its base and the policy differ by 0.5\d\d nats a token"):
        engine.generate([[3]], GREEDY)
    assert not server.adapters  # no row of it was sampled there
    engine.close()
