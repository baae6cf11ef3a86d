"""Weights that are trained whole, over a server that has one version of them at a time."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from vllm_engines import engine_at
from vllm_server import VLLMServer, serve_vllm

from rrm.engines.base import SamplingParams
from rrm.errors import EngineError

PARAMS = SamplingParams(max_new_tokens=3, temperature=1.0)


class Model(torch.nn.Linear):
    """What is asked of a model."""

    def __init__(self) -> None:
        super().__init__(2, 2)

    def save_pretrained(self, folder: str, state_dict: dict[str, torch.Tensor], max_shard_size: str) -> None:
        Path(folder).mkdir(parents=True)
        save_file(state_dict, f"{folder}/model.safetensors")


def test_all_weights_take_the_place_of_those_before(server: VLLMServer, tmp_path: Path) -> None:
    engine, model = engine_at(server, adapters=tmp_path, whole=True), Model()
    for version in range(2):
        model.weight.data.fill_(version)
        engine.sync(model, version)
        assert server.version.endswith(f"-{version}") and server.whole == f"{tmp_path}/{server.version}"
        assert not server.paused
        (said,) = engine.generate([[3]], PARAMS)
        assert (said.version, said.ids) == (version, [7, 8, 2])
        assert {body["model"] for body in server.of("/v1/completions")} == {"base"}
        (folder,) = tmp_path.iterdir()  # each has all weights: one is kept
        assert load_file(folder / "model.safetensors")["weight"].unique().tolist() == [version]
    paths = [path for path, _ in server.asked]
    last = len(paths) - paths[::-1].index("/collective_rpc") - 1
    assert paths[last - 2 : last + 4] == [
        "/pause?mode=wait", "/update_weight_version", "/collective_rpc", "/reset_prefix_cache", "/update_weight_version", "/resume",
    ]  # fmt: skip
    engine.close()
    assert not list(tmp_path.iterdir())
    assert (server.version, server.whole, server.paused) == ("default", "/models/base", False)  # as it was found


def test_weights_are_sent_in_the_precision_they_compute_in(server: VLLMServer, tmp_path: Path) -> None:
    engine, model = engine_at(server, adapters=tmp_path, whole=True, dtype=torch.bfloat16), Model()
    engine.sync(model, 0)
    (folder,) = tmp_path.iterdir()
    sent = load_file(folder / "model.safetensors")["weight"]
    assert sent.dtype == torch.bfloat16 and torch.equal(sent, model.weight.data.bfloat16())
    assert model.weight.dtype == torch.float32
    shards = {"weight": torch.ones(2, 2), "bias": torch.ones(2)}
    engine.sync(model, 1, shards)  # of a model that is divided among processes
    assert load_file(f"{server.whole}/model.safetensors")["weight"].unique().tolist() == [1]
    engine.close()


def test_nothing_of_a_server_that_was_started_again_is_taken(
    server: VLLMServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = engine_at(server, adapters=tmp_path, whole=True)
    engine.sync(Model(), 0)
    sent = server.version
    server.restart()
    server.said = [9, 9, 2]  # the old weights', until it is given the new ones

    def fault(path: str, body: dict[str, Any]) -> None:
        server.said = [7, 8, 2] if server.version == sent else [9, 9, 2]

    server.fault = fault  # pyright: ignore[reportAttributeAccessIssue]
    with caplog.at_level(logging.WARNING):
        rows = engine.generate([[3], [4], [5]], PARAMS)
    assert [row.ids for row in rows] == [[7, 8, 2]] * 3 and server.version == sent
    assert sum(path == "/collective_rpc" for path, _ in server.asked) == 2  # once for all three rows
    assert "was it started again" in caplog.text
    engine.close()


def test_a_reply_from_before_the_weights_were_sent_again_is_not_taken(server: VLLMServer, tmp_path: Path) -> None:
    engine = engine_at(server, adapters=tmp_path, whole=True)
    engine.sync(Model(), 0)
    sent = server.version

    def fault(path: str, body: dict[str, Any]) -> None:
        if "stop_token_ids" in body and server.said == [7, 8, 2]:
            server.said = [6, 2]
            server.restart()  # as the reply is made; another row has the weights loaded before the version is asked for
            engine._servers.all[0].loads += 1
            server.version = sent
        elif "stop_token_ids" in body:
            server.said = [5, 2]

    server.fault = fault  # pyright: ignore[reportAttributeAccessIssue]
    (row,) = engine.generate([[3]], PARAMS)
    assert row.ids == [5, 2]
    engine.close()


def test_a_load_that_breaks_off_leaves_no_version(server: VLLMServer, tmp_path: Path) -> None:
    engine = engine_at(server, adapters=tmp_path, whole=True, patience_s=0.01)
    engine.sync(Model(), 0)
    server.fault = lambda path, body: (500, "out of memory") if path == "/collective_rpc" else None
    with pytest.raises(EngineError, match="out of memory"):
        engine.sync(Model(), 1)
    assert server.version == "being loaded" and not server.paused
    with pytest.raises(EngineError, match=r"out of memory|not those it was sent"):
        engine.generate([[3]], PARAMS)  # neither the old weights nor the new ones
    engine.close()


def test_a_first_load_that_breaks_off_leaves_servers_and_disk_as_they_were(tmp_path: Path) -> None:
    with serve_vllm() as took, serve_vllm() as broke:
        engine = engine_at(took, broke, adapters=tmp_path, whole=True, patience_s=0.01)
        broke.fault = lambda path, body: (400, "no such method") if path == "/collective_rpc" else None
        with pytest.raises(EngineError, match="no such method"):
            engine.sync(Model(), 0)
        assert broke.version == "being loaded" and not list(tmp_path.iterdir())
        with pytest.raises(EngineError, match="may have some of them"):
            engine.generate([[3]], PARAMS)  # they are not the weights it was started with any more
        broke.fault = lambda path, body: None
        engine.close()
        for server in (took, broke):
            assert (server.version, server.paused) == ("default", False)
            assert server.whole in (None, "/models/base")


def test_weights_are_sent_again_after_a_load_that_broke_off(server: VLLMServer, tmp_path: Path) -> None:
    engine = engine_at(server, adapters=tmp_path, whole=True, patience_s=0.01)
    server.fault = lambda path, body: (400, "no such method") if path == "/collective_rpc" else None
    with pytest.raises(EngineError, match="no such method"):
        engine.sync(Model(), 0)
    server.fault = lambda path, body: None
    engine.sync(Model(), 0)
    assert engine.generate([[3]], PARAMS)[0].version == 0
    (folder,) = tmp_path.iterdir()
    assert folder.name == server.version
    engine.close()
    assert server.version == "default"


def test_weights_that_cannot_be_written_leave_no_half_of_them(server: VLLMServer, tmp_path: Path) -> None:
    class Full(Model):
        def save_pretrained(self, folder: str, state_dict: dict[str, torch.Tensor], max_shard_size: str) -> None:
            super().save_pretrained(folder, state_dict, max_shard_size)
            raise OSError("no space left on device")

    engine = engine_at(server, adapters=tmp_path, whole=True)
    with pytest.raises(OSError, match="no space left"):
        engine.sync(Full(), 0)
    assert not list(tmp_path.iterdir())
    assert engine.generate([[3]], PARAMS)[0].version == -1  # nothing was sent
    engine.close()
    assert not server.of("/collective_rpc")


def test_a_server_is_given_back_what_a_run_left_it_without(server: VLLMServer, tmp_path: Path) -> None:
    for left in ("being loaded", "0123abcd-7"):
        server.version, server.whole, server.paused = left, "/runs/a", True
        engine = engine_at(server, adapters=tmp_path, whole=True)
        assert (server.version, server.whole, server.paused) == ("default", "/models/base", False)
        engine.close()
    server.version, server.whole = "somebody's own", None
    engine_at(server, adapters=tmp_path, whole=True).close()
    assert server.version == "somebody's own" and server.whole is None


def test_a_server_that_was_left_with_trained_weights_is_no_base(server: VLLMServer, tmp_path: Path) -> None:
    for left in ("being loaded", "0123abcd-7"):
        server.version = left
        with pytest.raises(EngineError, match=f"trained whole .{left}.*start it again"):
            engine_at(server, adapters=tmp_path, patience_s=0.01)  # an adapter would be stacked on them


def test_weights_that_are_there_are_not_loaded_again(server: VLLMServer, tmp_path: Path) -> None:
    one, other = (engine_at(server, adapters=tmp_path / name, whole=True) for name in "ab")  # two processes of a run
    one.sync(Model(), 0)
    other.weights = one.weights
    sent = server.version
    server.restart()
    assert [engine.generate([[3]], PARAMS)[0].version for engine in (one, other)] == [0, 0] and server.version == sent
    assert sum(path == "/collective_rpc" for path, _ in server.asked) == 2
    other.close()
    assert server.version == sent  # the process that sent them gives the server its own back
    one.close()
    assert server.version == "default"


def test_keys_and_values_that_stay_are_no_new_weights(server: VLLMServer, tmp_path: Path) -> None:
    engine = engine_at(server, adapters=tmp_path, whole=True, patience_s=0.01)
    server.fault = lambda path, body: (200, {"success": False}) if path == "/reset_prefix_cache" else None
    with pytest.raises(EngineError, match="keys and values of the weights before"):
        engine.sync(Model(), 0)
    assert server.version == "being loaded"
    engine.close()


def test_a_server_that_takes_no_whole_weights_is_refused(server: VLLMServer, tmp_path: Path) -> None:
    server.fault = lambda path, body: None if path.startswith("/v1/") else (404, {"detail": "Not Found"})
    with pytest.raises(EngineError, match="VLLM_SERVER_DEV_MODE=1"):
        engine_at(server, adapters=tmp_path, whole=True)
    engine_at(server, adapters=tmp_path).close()  # an adapter needs none of that
