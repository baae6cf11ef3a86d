"""Speed-ups on a CPU change nothing: no padding mask, labelled positions only, compiled layers."""

from __future__ import annotations

import os
import subprocess
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from trl.trainer.utils import add_fused_lm_head

from rrm.train.sft import collate, compile_layers, labelled_positions_only

ROWS = [
    {"input_ids": [1, 5, 9, 7, 3], "labels": [-100, -100, -100, 7, 3]},
    {"input_ids": [1, 8, 3], "labels": [-100, 8, -100]},
]


def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=16, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def summed_nll(m: LlamaForCausalLM) -> torch.Tensor:
    """Row by row, without padding or batch: the sum of −log p over labelled tokens."""
    total = torch.zeros(())
    for row in ROWS:
        logprobs = m(input_ids=torch.tensor([row["input_ids"]])).logits[0].log_softmax(-1)
        for t, label in enumerate(row["labels"]):
            if label != -100:
                total = total - logprobs[t - 1, label]
    return total


def fused_nll(m: LlamaForCausalLM) -> torch.Tensor:
    batch = collate(ROWS, pad_token_id=3)
    return -m(**batch, fused_lm_head=True).log_probs.sum()


def test_padded_batch_without_mask_equals_rows_alone() -> None:
    reference, fast = model(), model()
    add_fused_lm_head(fast)
    summed_nll(reference).backward()
    with labelled_positions_only():
        loss = fused_nll(fast)
    loss.backward()
    torch.testing.assert_close(loss, summed_nll(reference))
    for (name, a), (_, b) in zip(reference.named_parameters(), fast.named_parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, msg=name)


def test_only_labelled_positions_are_projected(monkeypatch) -> None:
    from trl.trainer import utils

    fast, lengths = model(), []
    add_fused_lm_head(fast)
    original = utils._ChunkedLogProbFunction.apply
    monkeypatch.setattr(utils._ChunkedLogProbFunction, "apply", lambda h, *a: lengths.append(len(h)) or original(h, *a))
    with labelled_positions_only():
        fused_nll(fast)
    fused_nll(fast)
    assert lengths == [3, 8]  # three labels; without the context all 2 x 4 positions


def compiled_keeps_names_and_loss() -> None:
    plain, compiled = model(), model()
    names = [name for name, _ in compiled.named_parameters()]
    compile_layers(compiled)
    assert [name for name, _ in compiled.named_parameters()] == names
    torch.testing.assert_close(summed_nll(plain), summed_nll(compiled))


def test_compiled_layers_keep_the_names_of_weights_and_the_loss() -> None:
    # in a process of its own: inductor's import of setuptools fails where a test has loaded the old distutils. It compiles there itself:
    # its helpers would import torch first
    env = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    done = subprocess.run([sys.executable, __file__], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


if __name__ == "__main__":
    compiled_keeps_names_and_loss()
