"""The vllm engine against a server with faults: typed, loaded again, asked elsewhere, and never learned from."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from vllm_engines import Adapter, engine_at
from vllm_server import VLLMServer, serve_vllm

from rrm.engines.base import SamplingParams, Span, SyncedEngine
from rrm.engines.http import UnreadableAnswer
from rrm.engines.sessions import ContinuousEngine
from rrm.engines.vllm import VLLMEngine
from rrm.engines.vllm_http import completion_of, normalised, servers_of
from rrm.errors import ConfigError, EngineError

GREEDY = SamplingParams(max_new_tokens=8)


def test_a_turn_is_sent_and_taken_as_it_was_sampled(server: VLLMServer) -> None:
    engine = engine_at(server)
    assert isinstance(engine, ContinuousEngine) and isinstance(engine, SyncedEngine)
    assert (engine.model, engine.max_positions, engine.version) == ("base", 512, -1)
    (found,) = engine.generate([[3, 4]], SamplingParams(max_new_tokens=8, temperature=0.7, stop=("x",)), keys=["row"])
    assert (found.ids, found.logprobs, found.stop_reason) == ([7, 8, 2], [-0.5] * 3, "eos")
    (sent,) = server.of("/v1/completions")
    assert sent["prompt"] == [3, 4] and sent["stop"] == ["x"] and sent["stop_token_ids"] == [2]
    assert (sent["temperature"], sent["max_tokens"], sent["skip_special_tokens"]) == (0.7, 8, False)
    server.said = [7, 8]
    assert engine.generate([[3]], GREEDY)[0].stop_reason == "stop"
    assert engine.generate([[3]], SamplingParams(max_new_tokens=1))[0].stop_reason == "length"
    engine.close()


@pytest.mark.parametrize(
    "default",
    [{"top_k": 20}, {"top_p": 0.8}, {"min_p": 0.1}, {"repetition_penalty": 1.05}, {"presence_penalty": 1.5},
     {"frequency_penalty": 0.2}, {"temperature": 0.7}],
)  # fmt: skip
def test_a_servers_defaults_sample_nothing(server: VLLMServer, default: dict[str, float]) -> None:
    server.defaults = default
    engine = engine_at(server)
    assert engine.generate([[3]], SamplingParams(max_new_tokens=8, temperature=1.0))[0].logprobs == [-0.5] * 3
    assert engine.logprobs([[3, 4]], [Span(1, 2)]) == [[-1.0]]
    assert engine.choice_logprobs([[3, 4]], [[0]], [8, 9])[0] == [normalised([-1.0, -2.0])]
    completions = [body for path, body in server.asked if path == "/v1/completions"]
    assert len(completions) == 5 and all(not default.keys() - body.keys() for body in completions)
    engine.close()


def test_a_turn_that_a_servers_default_cuts_is_no_turn(server: VLLMServer) -> None:
    engine = engine_at(server)
    server.defaults = {"max_tokens": 2}
    with pytest.raises(EngineError, match=r"cut at 2 of 8 tokens .*--generation-config vllm"):
        engine.generate([[3]], GREEDY)
    server.said = [7, 8]
    assert engine.generate([[3]], SamplingParams(max_new_tokens=2))[0].ids == [7, 8]
    server.said = [7, 8, 2]
    assert engine.generate([[3] * 510], GREEDY)[0].stop_reason == "length"  # the context is full
    engine.close()


def test_seeds_follow_from_run_key_and_length_alone(server: VLLMServer) -> None:
    engine, params = engine_at(server), SamplingParams(temperature=1.0, seed=5)
    engine.generate([[3], [3, 4], [3]], params, keys=["a", "b", "a"])
    engine.generate([[9]], params, keys=["a"])
    by_prompt = {tuple(body["prompt"]): body["seed"] for body in server.of("/v1/completions")}
    assert by_prompt[(3,)] == by_prompt[(9,)] != by_prompt[(3, 4)]
    engine.close()


def test_a_row_that_fails_ends_those_beside_it(server: VLLMServer) -> None:
    engine = engine_at(server, concurrency=1)
    server.fault = lambda path, body: (400, {"error": {"message": "no"}}) if body.get("prompt") == [9] else None
    with pytest.raises(EngineError, match=r"HTTP 400.*no"):
        engine.generate([[3], [9], *([4, i] for i in range(9))], GREEDY)
    assert engine.generate([[5]], GREEDY)[0].ids == [7, 8, 2]
    assert [body["prompt"][0] for body in server.of("/v1/completions")] == [3, 9, 5]
    assert not engine._servers.home and engine._servers.all[0].rows == 0  # nobody else would release these rows
    engine.close()


def test_a_session_hands_over_each_row_as_it_ends(server: VLLMServer) -> None:
    engine, found = engine_at(server), {}
    with engine.session(GREEDY) as session:
        assert session.idle and session.step() == []
        for i in range(20):
            session.submit(f"r{i}", [3 + i], 2)
        with pytest.raises(EngineError, match=r"'r0'.*another turn"):
            session.submit("r0", [3])
        while not session.idle:
            found |= dict(session.step())
    assert {key: c.ids for key, c in found.items()} == {f"r{i}": [7, 8] for i in range(20)}
    with pytest.raises(EngineError, match="top_p"), engine.session(SamplingParams(temperature=1.0, top_p=0.9)):
        pass
    engine.close()


def test_weights_are_asked_for_by_the_name_of_their_version(server: VLLMServer, tmp_path: Path) -> None:
    engine = engine_at(server, adapters=tmp_path / "adapters")
    for version in range(4):
        engine.sync(Adapter(), version)
        (found,) = engine.generate([[3]], GREEDY)
        assert found.version == engine.version == version
    names = [body["model"] for body in server.of("/v1/completions")]
    assert len(set(names)) == 4 and all(name.endswith(f"-{i}") for i, name in enumerate(names))
    assert list(server.adapters) == names[-2:]  # the one before may still be at work
    assert sorted(path.name for path in (tmp_path / "adapters").iterdir()) == sorted(names[-2:])
    assert server.adapters[names[-1]] == str((tmp_path / "adapters" / names[-1]).resolve())
    other = engine_at(server, adapters=tmp_path / "adapters", seen_as="/shared/run/")
    other.sync(Adapter(), 3)
    (mine,) = set(server.adapters) - set(names)
    assert server.adapters[mine] == f"/shared/run/{mine}" and mine not in names
    other.close()
    assert list(server.adapters) == names[-2:]
    engine.close()
    assert not server.adapters


def test_a_server_started_again_is_given_the_weights_again(server: VLLMServer, tmp_path: Path) -> None:
    engine = engine_at(server, adapters=tmp_path)
    engine.sync(Adapter(), 5)
    server.adapters.clear()
    found = engine.generate([[3], [4], [5]], GREEDY)
    assert [c.version for c in found] == [5, 5, 5] and len(server.adapters) == 1
    engine.close()


def test_what_a_server_refuses_to_load_stops_the_run(server: VLLMServer, tmp_path: Path) -> None:
    engine = engine_at(server, adapters=tmp_path)
    server.fault = lambda path, body: (404, {"detail": "Not Found"}) if "load" in path else None
    with pytest.raises(EngineError, match=r"was not loaded.*Not Found.*--enable-lora"):
        engine.sync(Adapter(), 0)
    assert engine.version == -1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"token_ids": [7, 100]}, "100 is no token id"),
        ({"token_ids": [7, True]}, "True is no token id"),
        ({"token_ids": []}, "no 1 to 8 `token_ids`"),
        ({"token_ids": None}, "no 1 to 8 `token_ids`"),
        ({"prompt_token_ids": [3, 5]}, "not the ids that were sent"),
        ({"logprobs": {"token_logprobs": [-0.5]}}, "no log-probability for each"),
        ({"logprobs": {"token_logprobs": [-0.5, None, -0.5]}}, "None is no log-probability"),
        ({"logprobs": {"token_logprobs": [-0.5, -9999.0, -0.5]}}, "-9999.0 is no log-probability"),
        ({"logprobs": {"token_logprobs": [-0.5, float("nan"), -0.5]}}, "nan is no log-probability"),
        ({"finish_reason": "content_filter"}, "ended by 'content_filter'"),
    ],
)
def test_a_reply_that_cannot_be_one_is_an_error(server: VLLMServer, change: dict[str, Any], why: str) -> None:
    engine = engine_at(server)

    def wrong(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        status, said = server.reply(path, body)
        return status, {**said, "choices": [said["choices"][0] | change]}

    server.fault = wrong
    with pytest.raises(EngineError, match=f"cannot be one to what was asked: .*{why}.*nothing may be learned"):
        engine.generate([[3, 4]], GREEDY)
    assert len(server.of("/v1/completions")) == 1  # asked again it would be as wrong
    engine.close()


@pytest.mark.parametrize("said", ["{not json", [], {"choices": []}, {"model": "other", "choices": [{}]}, None])
def test_garbage_is_an_error(server: VLLMServer, said: Any) -> None:
    engine = engine_at(server)
    server.fault = lambda path, body: (200, said)
    with pytest.raises(EngineError, match="cannot be one to what was asked"):
        engine.generate([[3, 4]], GREEDY)
    engine.close()


def test_troubles_that_pass_are_waited_for(server: VLLMServer) -> None:
    engine, left = engine_at(server), [(500, "{}"), (429, "{}"), (503, "down")]
    server.fault = lambda path, body: left.pop() if left else None
    assert engine.generate([[3]], GREEDY)[0].ids == [7, 8, 2]
    seeds = {body["seed"] for body in server.of("/v1/completions")}
    assert len(seeds) == 1  # the same row, sampled the same way
    server.fault = lambda path, body: (500, "{}")
    engine._servers.patience_s = 0.05
    with pytest.raises(EngineError, match=r"HTTP 500.*tried \d+ times in 0 s"):
        engine.generate([[3]], GREEDY)
    server.fault = lambda path, body: (400, {"error": {"message": "This model's maximum context length is 512 tokens"}})
    with pytest.raises(EngineError, match="max_episode_tokens"):
        engine.generate([[3]], GREEDY)
    engine.close()


def test_raw_log_probabilities_are_refused(server: VLLMServer) -> None:
    server.raw_logprobs = True
    with pytest.raises(EngineError, match=r"do not change with the temperature.*--logprobs-mode processed_logprobs"):
        engine_at(server)


def test_a_server_without_the_model_is_refused(server: VLLMServer) -> None:
    with pytest.raises(EngineError, match="it has base, not qwen"):
        VLLMEngine(f"vllm:{server.url}/v1#qwen", eos_ids={2})
    with pytest.raises(EngineError, match=r"cannot connect.*tried 1 times"):
        VLLMEngine("vllm:http://127.0.0.1:9", eos_ids={2}, patience_s=0.0)
    for spec in ("vllm:", "vllm:ftp://a", "http://a", "vllm:http://"):
        with pytest.raises(ConfigError, match="write vllm:URL#model"):
            servers_of(spec)
    assert servers_of("vllm:http://a:1/v1/, http://b:2#m") == (["http://a:1", "http://b:2"], "m")


def test_each_address_can_be_asked_by_itself(server: VLLMServer) -> None:
    with serve_vllm() as other:
        engine = engine_at(server, other)
        assert engine.addresses == [server.url, other.url]
        found = engine.generate([[3], [4], [5]], GREEDY, at=other.url)
        assert {c.server for c in found} == {other.url} and not server.of("/v1/completions")
        assert {c.server for c in engine.generate([[3], [4]], GREEDY)} == {server.url, other.url}
        engine.close()


def test_an_adapter_has_the_context_of_what_it_is_over(server: VLLMServer) -> None:
    server.adapters["mine"] = "/adapters/mine"
    engine = VLLMEngine(f"vllm:{server.url}#mine", eos_ids={2}, vocabulary=100)
    assert (engine.model, engine.max_positions) == ("mine", 512)
    engine.close()


def test_log_probabilities_are_asked_for_token_by_token(server: VLLMServer) -> None:
    engine = engine_at(server)
    assert engine.logprobs([[3, 4, 5], [6, 7]], [Span(1, 3), Span(2, 2)]) == [[-1.0, -1.0], []]
    asked = [(b["prompt"], b["logprob_token_ids"]) for _, b in server.asked if "logprob_token_ids" in b]
    assert sorted(asked) == [([3], [4]), ([3, 4], [5])]
    (row,) = engine.choice_logprobs([[3, 4]], [[0]], [8, 9])
    assert row[0] == pytest.approx(normalised([-1.0, -2.0])) and sum(map(math.exp, row[0])) == pytest.approx(1)
    assert engine.continuation_logprobs([[3]], [[4, 5], [6]]) == [[-2.0, -1.0]]
    assert not engine._servers.home and engine._servers.all[0].rows == 0
    with pytest.raises(EngineError, match="span"):
        engine.logprobs([[3]], [Span(0, 1)])
    engine.close()


def test_a_reply_is_read_without_a_server() -> None:
    choice = {"prompt_token_ids": [1], "token_ids": [4], "finish_reason": "length"}
    said: Any = {"model": "m", "choices": [choice | {"logprobs": {"token_logprobs": [-0.1]}}]}
    assert completion_of(said, "m", [1], 1, {2}, None).ids == [4]
    with pytest.raises(UnreadableAnswer, match="answers as 'm'"):
        completion_of(said, "policy-3", [1], 1, {2}, None)
    with pytest.raises(UnreadableAnswer, match="none of the choices"):
        normalised([float("-inf")] * 2)
