"""The low-rank part of a difference of weights: exact where it has that rank, the best there is otherwise."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.default_judge.low_rank import another, factors, low_rank
from rrm.judge.calibration import P_GOOD, Calibration, Platt
from rrm.judge.judge_dir import JudgeSettings


def tiny() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            tie_word_embeddings=True,
        )
    ).eval()


def test_the_largest_singular_values_are_kept() -> None:
    difference = torch.diag(torch.tensor([3.0, 2.0, 1.0]))
    b, a = factors(difference, 2)
    assert (b.shape, a.shape) == ((3, 2), (2, 3))
    torch.testing.assert_close(b @ a, torch.diag(torch.tensor([3.0, 2.0, 0.0])))
    torch.testing.assert_close(b.norm(dim=0), a.norm(dim=1))  # both halves learn at one pace


def test_a_difference_of_low_rank_is_kept_whole() -> None:
    base = tiny()
    tuned = copy.deepcopy(base)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weight in tuned.named_parameters():
            if "proj" in name:
                weight += torch.randn(weight.shape[0], 2) @ torch.randn(2, weight.shape[1]) * 0.1
    ids = torch.arange(20)[None]
    adapted, shares = low_rank(tuned, copy.deepcopy(base), 2)
    assert shares["linear"] == pytest.approx(1.0) and shares["linear_of_all"] == pytest.approx(1.0)
    with torch.no_grad():
        wanted, got, before = (m(input_ids=ids).logits for m in (tuned, adapted, base))
    torch.testing.assert_close(got, wanted, atol=1e-4, rtol=1e-4)
    assert (before - wanted).abs().max() > 0.01


def test_what_is_lost_is_said() -> None:
    base = tiny()
    tuned = copy.deepcopy(base)
    with torch.no_grad():
        tuned.model.layers[0].self_attn.q_proj.weight[:3, :3] += torch.diag(torch.tensor([0.3, 0.2, 0.1]))
        tuned.model.norm.weight[0] += 0.4
    _, shares = low_rank(tuned, base, 1)
    assert shares["q_proj"] == pytest.approx(9 / 14, abs=1e-3)
    assert shares["linear"] == pytest.approx(9 / 14, abs=1e-3)
    assert shares["linear_of_all"] == pytest.approx(0.14 / 0.30, abs=1e-3)
    assert "k_proj" not in shares


def test_the_adapter_keeps_what_was_learned_and_nothing_that_was_fitted() -> None:
    """Its threshold was a probability of a map that was gone."""
    maps = Calibration(modes={P_GOOD: Platt(a=1.0, b=3.0, rows=50)})
    kept = JudgeSettings(modes=["steps"], transcript_tokens=700, training_questions=["0123456789abcdef"])
    found = another(kept.model_copy(update={"calibration": maps, "threshold": 0.93}), "smollm2")
    assert found == kept.model_copy(update={"base": "smollm2"})
