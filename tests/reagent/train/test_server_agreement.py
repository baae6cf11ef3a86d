"""Each of vLLM's servers is compared with the policy before the first row: one with other weights is found among good ones."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
import torch
from remote_policy import serve_policy

from reagent.lab.shipped import lab_policy_folder
from reagent.rollout.batch import Batch, gaps_by_server
from reagent.train.config import PolicyConfig
from reagent.train.engine import PROBES, check_agrees
from reagent.train.policy import load_policy
from rrm.engines.hf.engine import eos_ids_of
from rrm.engines.vllm import VLLMEngine
from rrm.errors import EngineError


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
        blank.long(),
        mask,
        turns,
        blank,
        -mask.float(),
        rest,
        rest,
        rest,
        torch.tensor([True, False]),
        torch.zeros(2, 0, dtype=torch.long),
        rest,
        rest,
    )
    said = torch.tensor([[0.0, -1.5, -1.0, -9.0, -3.0], [0.0, -7.0, -7.0, 0.0, 0.0]])
    assert gaps_by_server(said, batch, [["a", "b"], ["b"]]) == {"a": (0.5, 2), "b": (2.0, 1)}
