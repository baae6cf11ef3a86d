"""Whole runs whose episodes come from a server: what it is left with, what a run's folder says of it, and what ends a run."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from feedback_lab import configured, scripted
from peft import PeftModel
from trainer_setup import make_trainer
from transformers import AutoModelForCausalLM, AutoTokenizer

from reagent.lab.shipped import lab_policy_folder
from reagent.rollout.batch import Batch, gaps_by_server
from reagent.train.choosing import evaluate_chosen
from reagent.train.config import AgentConfig, PolicyConfig, load_agent_config
from reagent.train.engine import PROBES, check_agrees
from reagent.train.evaluate import evaluate_config
from reagent.train.policy import load_policy
from reagent.train.run import train
from rrm.engines.base import SamplingParams
from rrm.engines.hf.engine import HFEngine, eos_ids_of
from rrm.engines.vllm import VLLMEngine
from rrm.errors import EngineError, RRMError

LORA = {"r": 2, "alpha": 4, "target_modules": ["q_proj", "v_proj"]}


def remote(base: Path, folder: Path, engine: Any, **changes: Any) -> AgentConfig:
    """Judged episodes of an untrained policy with an adapter."""
    policy = {"base": str(base), "lora": LORA}
    usual = {"algorithm": "grpo", "max_updates": 3, "save_every": 50, "eval": {"every": 0}, "policy": policy}
    config = configured(base, folder, "r", **usual | changes)
    tree = config.model_dump(mode="json", exclude_unset=True)
    tree["rollout"] |= {"engine": engine, "tasks_per_update": 2}
    return AgentConfig.model_validate(tree)


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_server_speaks_with_what_was_trained_and_is_left_as_it_was(base, tmp_path) -> None:
    with serve_policy(base) as server:
        summary = train(remote(base, tmp_path, f"vllm:{server.url}"), judge=scripted())
        spoke = list(dict.fromkeys(body["model"].rpartition("-")[2] for body in server.of("/v1/completions")))
        assert spoke == ["base", "0", "1", "2", "3"]  # the probes, three updates, and the evaluation at the end
        assert server.adapters == {} and not list((tmp_path / "adapters").iterdir())
    assert summary["updates"] == 3
    for row in rows(tmp_path):
        # float32 on both sides: another adapter than the policy's, or none, would be 10⁻³ off and more
        assert row["logprob_gap"] < 1e-4 and row["importance_mean"] == pytest.approx(1.0, abs=1e-4)
        assert row["staleness"] == 0.0 and row["grad_norm"] > 0


def test_a_server_speaks_with_what_was_trained_whole(base, tmp_path) -> None:
    with serve_policy(base) as server:
        config = remote(base, tmp_path, f"vllm:{server.url}", policy={"base": str(base)})
        summary = train(config, judge=scripted())
        assert (server.version, server.whole) == ("default", str(base)) and not list((tmp_path / "adapters").iterdir())
        sent = [body["kwargs"]["weights_path"] for path, body in server.asked if path == "/collective_rpc"]
        assert [Path(folder).name.rpartition("-")[2] for folder in sent[:-1]] == ["0", "1", "2", "3"]
        assert sent[-1] == str(base)
        changes = {"max_updates": 4, "policy": {"base": str(base)}}
        train(remote(base, tmp_path, f"vllm:{server.url}", **changes), judge=scripted())  # goes on
    assert summary["updates"] == 3
    assert [row["update"] for row in rows(tmp_path)] == [0, 1, 2, 3]
    for row in rows(tmp_path):
        assert row["logprob_gap"] < 1e-4 and row["staleness"] == 0.0 and row["grad_norm"] > 0


def test_a_run_goes_on_here_or_there(base, tmp_path) -> None:
    with serve_policy(base) as server:
        there = f"vllm:http://ann:s3cret@{server.url.removeprefix('http://')}"
        train(remote(base, tmp_path, "hf", max_updates=1), judge=scripted())
        train(remote(base, tmp_path, there, max_updates=2), judge=scripted())
        text = (tmp_path / "config.yaml").read_text()
        assert "s3cret" not in text and server.url.removeprefix("http://") in text
        assert load_agent_config(str(tmp_path / "config.yaml")).importance_cap == 2.0
        train(remote(base, tmp_path, {"server": there, "max_gap": 0.4}, max_updates=3), judge=scripted())
        train(remote(base, tmp_path, "hf", max_updates=4), judge=scripted())
    assert [row["update"] for row in rows(tmp_path)] == [0, 1, 2, 3]
    assert ["importance_mean" in row for row in rows(tmp_path)] == [False, True, True, False]


def test_an_update_that_is_not_learned_from_loses_none_before_it(base, tmp_path) -> None:
    with serve_policy(base, shift=lambda name: -1.0 if name.endswith("-2") else 0.0) as server:
        config = remote(base, tmp_path, f"vllm:{server.url}")
        with pytest.raises(EngineError, match=r"update 2: http://127.*differ by 1\.00"):
            train(config, judge=scripted())
        assert (tmp_path / "checkpoints" / "checkpoint-000002").is_dir() and server.adapters == {}


def test_one_update_ahead_of_a_server(base, tmp_path) -> None:
    with serve_policy(base) as server:
        config = remote(base, tmp_path, f"vllm:{server.url}", max_updates=4)
        config.rollout.max_lag = 1
        train(config, judge=scripted())
        spoke = list(dict.fromkeys(body["model"].rpartition("-")[2] for body in server.of("/v1/completions")))
    assert [row["staleness"] for row in rows(tmp_path)] == [0.0, 1.0, 1.0, 1.0]
    assert spoke == ["base", "0", "1", "2", "4"] and server.adapters == {}


def test_evaluations_and_failures_leave_no_connection(base, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[VLLMEngine] = []
    close = VLLMEngine.close
    monkeypatch.setattr(VLLMEngine, "close", lambda self: (closed.append(self), close(self))[1])
    with serve_policy(base) as server:
        config = remote(base, tmp_path, f"vllm:{server.url}")
        figures, episodes = evaluate_config(config.model_copy(update={"feedback": AgentConfig().feedback}))
        assert len(episodes) == 4 and figures["success"] is not None and len(closed) == 1
        config.eval.samples = 2
        evaluate_chosen(config, ["random", "longest"])
        assert len(closed) == 2
        config.feedback.judge = str(tmp_path / "absent")
        with pytest.raises(RRMError, match="absent"):
            make_trainer(config)
        assert len(closed) == 3


def test_a_context_shorter_than_an_episode_is_said(base, tmp_path, caplog: pytest.LogCaptureFixture) -> None:
    with serve_policy(base) as server:
        config = remote(base, tmp_path, f"vllm:{server.url}")
        config.rollout.max_episode_tokens = CONTEXT
        make_trainer(config, scripted()).engine.close()  # pyright: ignore[reportAttributeAccessIssue]
        assert "context" not in caplog.text
        config.rollout.max_episode_tokens = CONTEXT + 1
        with caplog.at_level(logging.WARNING):
            make_trainer(config, scripted()).engine.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert f"has a context of {CONTEXT} tokens: episodes end there" in caplog.text


def test_each_server_must_agree_with_the_policy() -> None:
    policy, tokenizer = load_policy(PolicyConfig(base="lab"), with_values=False, trained=False)
    lab = lab_policy_folder("lab")

    def engine_at(*servers: Any) -> VLLMEngine:
        spec = "vllm:" + ",".join(server.url for server in servers)
        return VLLMEngine(spec, eos_ids=eos_ids_of(policy.model, tokenizer), vocabulary=1536, patience_s=5.0)

    with ExitStack() as stack:
        good = [stack.enter_context(serve_policy(lab)) for _ in range(3)]
        shifted = stack.enter_context(serve_policy(lab, shift=lambda name: -0.9))
        engine = engine_at(*good)
        assert check_agrees(engine, policy, tokenizer, 0.5) < 1e-3
        assert [len(server.of("/v1/completions")) for server in good] == [len(PROBES)] * 3
        engine.close()
        engine = engine_at(*good, shifted)  # on average 0.225
        with pytest.raises(EngineError, match=rf"at {shifted.url} and the policy differ by 0\.90"):
            check_agrees(engine, policy, tokenizer, 0.5)
        assert check_agrees(engine, policy, tokenizer, None) == pytest.approx(0.9, abs=1e-3)
        engine.close()


def test_gaps_are_those_of_the_server_that_sampled() -> None:
    """Two rows; the first one's turns are of two servers, and a token of the second row is of an unknown reward."""
    mask = torch.tensor([[0, 1, 1, 0, 1], [0, 1, 1, 0, 0]], dtype=torch.bool)
    turns = torch.tensor([[-1, 0, 0, 0, 1], [-1, 0, 0, -1, -1]])
    blank = torch.zeros(2, 5)
    rest = torch.zeros(2, dtype=torch.long)
    batch = Batch(
        blank.long(), mask, turns, blank, -mask.float(), rest, rest, rest, torch.tensor([True, False]),
        torch.zeros(2, 0, dtype=torch.long), rest, rest,
    )  # fmt: skip
    said = torch.tensor([[0.0, -1.5, -1.0, -9.0, -3.0], [0.0, -7.0, -7.0, 0.0, 0.0]])
    assert gaps_by_server(said, batch, [["a", "b"], ["b"]]) == {"a": (0.5, 2), "b": (2.0, 1)}


sys.path.append(str(Path(__file__).parents[2] / "rrm"))  # vllm_server

CONTEXT = 1024


class _Policy:
    """Samples as the server's weights of a name would."""

    def __init__(self, base: Path) -> None:
        self.base, self.tokenizer = base, AutoTokenizer.from_pretrained(base)
        self.engines: dict[str, HFEngine] = {}

    def engine(self, folder: str | None, whole: str | None) -> HFEngine:
        """With an adapter's folder, or all weights of one in place of the model's."""
        name = folder or whole or ""
        if name not in self.engines:
            model: Any = AutoModelForCausalLM.from_pretrained(whole or self.base, dtype=torch.float32)
            model = model if folder is None else PeftModel.from_pretrained(model, folder)
            self.engines[name] = HFEngine(model.eval(), self.tokenizer, exact_head=True)
        return self.engines[name]


@contextmanager
def serve_policy(base: Path, shift: Callable[[str], float] = lambda name: 0.0) -> Iterator[Any]:
    """A server that was started with the policy in a folder.

    Args:
        shift: by the weights' name, what its log-probabilities are off by.
    """
    from vllm_server import serve_vllm

    policy, lock = _Policy(base), threading.Lock()
    with serve_vllm() as server:
        inner = server.reply

        def reply(path: str, body: dict[str, Any]) -> tuple[int, Any]:
            status, answer = inner(path, body)
            if path == "/v1/models":
                answer["data"][0] |= {"max_model_len": CONTEXT, "root": str(base)}
            if "stop_token_ids" in body and status == 200:
                name = body["model"]
                params = SamplingParams(body["max_tokens"], body["temperature"], seed=body.get("seed") or 0)
                with lock:
                    (new,) = policy.engine(server.adapters.get(name), server.whole).generate([body["prompt"]], params)
                answer["choices"][0] |= {
                    "token_ids": new.ids,
                    "logprobs": {"token_logprobs": [value + shift(name) for value in new.logprobs]},
                    "finish_reason": "length" if new.stop_reason == "length" else "stop",
                }
            return status, answer

        server.reply = reply
        yield server
