"""Apple's `mps` has no float64: where it is refused, sampling and scoring still work, and say the same."""

from __future__ import annotations

import pytest
import torch
from engine_models import make_rows
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from rrm.engines.base import SamplingParams
from rrm.engines.hf import decoder as sampling
from rrm.engines.hf.base_model import widest_float
from rrm.engines.hf.engine import HFEngine


class RefusesFloat64(TorchDispatchMode):
    """Raises as an mps tensor would. A row's own uniform numbers (one dimension, on the CPU) may be float64."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor) and found.dtype == torch.float64 and found.dim() > 1:
            raise TypeError(f"{func}: Cannot convert a MPS Tensor to float64 dtype")
        return found


def test_the_widest_float_is_the_devices_own() -> None:
    wanted = {"cpu": torch.float64, "cuda:1": torch.float64, "mps": torch.float32, "mps:0": torch.float32}
    assert {device: widest_float(device) for device in wanted} == wanted
    assert widest_float(torch.device("mps")) == torch.float32


def test_no_float64_reaches_a_device_without_it(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, rows = HFEngine(model, tokenizer), make_rows()
    params = SamplingParams(max_new_tokens=12, temperature=0.8, top_p=0.9, seed=3)
    wanted = engine.generate(rows, params), engine.continuation_logprobs(rows, [[1, 2], [1, 3], [4]])
    monkeypatch.setattr(sampling, "widest_float", lambda device: widest_float("mps"))
    with RefusesFloat64():
        found = engine.generate(rows, params), engine.continuation_logprobs(rows, [[1, 2], [1, 3], [4]])
    assert [c.ids for c in found[0]] == [c.ids for c in wanted[0]]
    assert found[1] == wanted[1]


def test_a_token_without_mass_is_not_chosen_in_float32_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "widest_float", lambda device: torch.float32)
    logits = torch.tensor([[0.3, 1.7, -torch.inf], [5.0, -torch.inf, -torch.inf]])
    edge = torch.tensor([1 - 2**-53] * 2, dtype=torch.float64)  # 1.0 once it is a float32
    ids, _ = sampling.choose(logits, 1.0, 1.0, edge)
    assert ids.tolist() == [1, 0]
