"""The engine `vllm` against vLLM itself, with the lab's policy; `make test-vllm` starts the server and names it in RRM_TEST_VLLM."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from reagent.train.config import AgentConfig, PolicyConfig
from reagent.train.engine import check_agrees
from reagent.train.policy import load_policy
from reagent.train.run import train
from rrm.config import LoraSettings
from rrm.engines.base import SamplingParams, Span
from rrm.engines.hf.engine import HFEngine, eos_ids_of
from rrm.engines.vllm import VLLMEngine
from rrm.errors import EngineError

SERVER, WHOLE = os.environ.get("RRM_TEST_VLLM", ""), os.environ.get("RRM_TEST_VLLM_WHOLE", "")

adapters = pytest.mark.skipif(not SERVER, reason="RRM_TEST_VLLM names no server: make test-vllm starts one")
GAP = 1e-3
"""Most that two float32 computations of a log-probability may differ."""
TEXTS = (
    "<|im_start|>user\nWhich river runs through it?<|im_end|>\n<|im_start|>assistant\n",
    "Ada was born in",
    "The mill's founder",
)
LORA: dict[str, Any] = {"r": 8, "alpha": 16, "dropout": 0.0}


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Any, Any, HFEngine, VLLMEngine]]:
    """(policy, tokenizer, the engine here, the server's), of the same weights."""
    policy, tokenizer = load_policy(PolicyConfig(base="lab", lora=LoraSettings(**LORA)), with_values=False)
    here = HFEngine(policy.model, tokenizer, exact_head=True)
    there = VLLMEngine(
        SERVER, eos_ids=eos_ids_of(policy.model, tokenizer), vocabulary=1536, adapters=tmp_path / "adapters"
    )
    yield policy, tokenizer, here, there
    there.close()


@adapters
def test_both_engines_say_the_same(both: tuple[Any, Any, HFEngine, VLLMEngine]) -> None:
    _, tokenizer, here, there = both
    rows = [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS]
    greedy = SamplingParams(max_new_tokens=24)
    for mine, theirs in zip(here.generate(rows, greedy), there.generate(rows, greedy), strict=True):
        assert (mine.ids, mine.stop_reason) == (theirs.ids, theirs.stop_reason)
        assert theirs.logprobs == pytest.approx(mine.logprobs, abs=GAP)
    warm = SamplingParams(max_new_tokens=24, temperature=0.6, seed=3)
    sampled = there.generate(rows, warm, keys=["a", "b", "c"])
    assert [c.ids for c in there.generate(rows[::-1], warm, keys=["c", "b", "a"])] == [c.ids for c in sampled[::-1]]
    for ids, new in zip(rows, sampled, strict=True):  # at temperature 0.6, of what was sampled
        logits = here.model(torch.tensor([ids + new.ids])).logits[0, len(ids) - 1 : -1].float() / 0.6
        mine = torch.log_softmax(logits, -1)[torch.arange(len(new.ids)), torch.tensor(new.ids)]
        assert new.logprobs == pytest.approx(mine.tolist(), abs=GAP)
    spans = [Span(1, len(ids)) for ids in rows]
    for mine, theirs in zip(here.logprobs(rows, spans), there.logprobs(rows, spans), strict=True):
        assert theirs == pytest.approx(mine, abs=GAP)
    places = [[0, len(ids) - 1] for ids in rows]
    mine, theirs = here.choice_logprobs(rows, places, [5, 70]), there.choice_logprobs(rows, places, [5, 70])
    for own, other in zip(mine, theirs, strict=True):
        assert [v for pair in other for v in pair] == pytest.approx([v for pair in own for v in pair], abs=GAP)


@adapters
def test_a_stop_text_ends_a_row_with_its_last_token(both: tuple[Any, Any, HFEngine, VLLMEngine]) -> None:
    _, tokenizer, here, there = both
    rows = [tokenizer.encode(TEXTS[1], add_special_tokens=False)]
    (free,) = here.generate(rows, SamplingParams(max_new_tokens=24))
    word = tokenizer.decode(free.ids[2:4])
    params = SamplingParams(max_new_tokens=24, stop=(word,))
    (mine,), (theirs,) = here.generate(rows, params), there.generate(rows, params)
    assert (mine.ids, mine.stop_reason) == (theirs.ids, theirs.stop_reason) and mine.stop_reason == "stop"


@adapters
def test_an_adapter_that_is_loaded_speaks(both: tuple[Any, Any, HFEngine, VLLMEngine]) -> None:
    policy, tokenizer, here, there = both
    rows = [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS]
    greedy, outputs = SamplingParams(max_new_tokens=24), []
    check_agrees(there, policy, tokenizer, GAP)
    torch.manual_seed(0)
    for version in range(3):
        for name, weight in policy.model.named_parameters():
            if "lora_B" in name:
                weight.data.normal_(0, 0.05)
        there.sync(policy.model, version)
        mine, theirs = here.generate(rows, greedy), there.generate(rows, greedy)
        assert [c.ids for c in theirs] == [c.ids for c in mine] and {c.version for c in theirs} == {version}
        outputs.append(tuple(tuple(c.ids) for c in theirs))
    assert len(set(outputs)) == 3  # the weights do change what is said


def three_updates(folder: Path, engine: str, policy: dict[str, Any], learning_rate: float) -> None:
    """Trains, and checks what was learned through the server."""
    config = AgentConfig.model_validate(
        {
            "output_dir": str(folder), "algorithm": "grpo", "max_updates": 3, "cpu": True, "save_every": 10, "policy": policy,
            "environment": {"name": "search", "train_tasks": 64, "eval_tasks": 4}, "optim": {"learning_rate": learning_rate},
            "rollout": {"tasks_per_update": 4, "group_size": 4, "max_turns": 3, "max_new_tokens": 32, "engine": engine},
        }
    )  # fmt: skip
    train(config)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["update"] for row in rows] == [0, 1, 2]
    # another version of the weights would be off by far more: updates at these rates change what is said
    assert all(row["logprob_gap"] < GAP and row["staleness"] == 0 for row in rows)
    assert any(row["grad_norm"] > 0 for row in rows[:-1])


@adapters
def test_three_updates_are_learned_through_the_server(tmp_path: Path) -> None:
    three_updates(tmp_path / "run", SERVER, {"base": "lab", "lora": LORA}, 3e-3)


@adapters
def test_a_server_with_other_weights_is_found_out(both: tuple[Any, Any, HFEngine, VLLMEngine]) -> None:
    _, tokenizer, _, there = both
    other, _ = load_policy(PolicyConfig(base="lab-reflective"), with_values=False, trained=False)
    with pytest.raises(EngineError, match=r"differ by .* nats a token .*the policy's own weights"):
        check_agrees(there, other, tokenizer, 0.5)


@pytest.mark.skipif(not WHOLE, reason="RRM_TEST_VLLM_WHOLE names no server whose weights can be loaded in place")
def test_weights_that_are_trained_whole_are_learned_through_the_server(tmp_path: Path) -> None:
    three_updates(tmp_path / "run", WHOLE, {"base": "lab"}, 1e-3)
    policy, tokenizer = load_policy(PolicyConfig(base="lab"), with_values=False)
    there = VLLMEngine(
        WHOLE, eos_ids=eos_ids_of(policy.model, tokenizer), vocabulary=1536, adapters=tmp_path / "a", whole=True
    )
    try:  # what the run left is gone, and weights that are loaded speak
        assert check_agrees(there, policy, tokenizer, GAP) < GAP
        torch.manual_seed(0)
        greedy, outputs = SamplingParams(max_new_tokens=24), []
        tokens = [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS]
        for version in range(2):
            for weight in policy.model.parameters():
                weight.data.add_(torch.randn_like(weight) * 0.03)
            there.sync(policy.model, version)
            mine = HFEngine(policy.model, tokenizer, exact_head=True).generate(tokens, greedy)
            theirs = there.generate(tokens, greedy)
            assert [c.ids for c in theirs] == [c.ids for c in mine]
            outputs.append([c.ids for c in theirs])
        assert outputs[0] != outputs[1]
    finally:
        there.close()
