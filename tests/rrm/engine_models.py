"""A tiny random Llama for engines, and what it must say, computed naively: one row at a time, full forwards, no cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from rrm.data.seeds import derive_seed
from rrm.engines.base import Completion, SamplingParams
from rrm.engines.hf.decoder import row_uniforms

VOCAB, EOS = 300, 0
RUBRIC = list(range(20, 60))


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Bytes as tokens 1..256, two merges that swallow what follows a tag's `>`, and a pad that equals eos."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {"<eos>": EOS} | {letter: i + 1 for i, letter in enumerate(alphabet)} | {">0": 257, "e>": 258}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[(">", "0"), ("e", ">")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<eos>")


def make_model(seed: int = 0, **changes: object) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    settings_ = dict(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.4, eos_token_id=EOS, pad_token_id=EOS,
        bos_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(LlamaConfig(**(settings_ | changes))).eval()  # pyright: ignore[reportArgumentType]


def make_rows(count: int = 7, shared: Sequence[int] = (), seed: int = 1) -> list[list[int]]:
    """Rows of unlike lengths, one of a single token where nothing is shared; eos (= pad) occurs inside them."""
    generator = torch.Generator().manual_seed(seed)
    lengths = [1, 17, 5, 40, 23, 41, 9, 12, 33][:count]
    rows = [torch.randint(0, VOCAB, (n,), generator=generator).tolist() for n in lengths]
    rows[1][:3] = [EOS, 7, EOS]
    return [[*shared, *row] for row in rows]


def naive_logprobs(model: Any, ids: Sequence[int]) -> torch.Tensor:
    """(T, V) log-probabilities after every position: one plain forward of one row."""
    with torch.no_grad():
        return model(torch.tensor([list(ids)]), use_cache=False).logits[0].log_softmax(-1)


def naive_generate(model: LlamaForCausalLM, row: list[int], params: SamplingParams, key: str | None) -> Completion:
    """One token at a time, the whole row forwarded anew each time."""
    uniforms = row_uniforms(
        derive_seed(params.seed, key if key is not None else derive_seed(*row), len(row)), params.max_new_tokens
    )
    new: list[int] = []
    logprobs: list[float] = []
    for t in range(params.max_new_tokens):
        logits = naive_logprobs(model, row + new)[-1] / (params.temperature or 1.0)
        logprob = logits.log_softmax(-1)
        if params.temperature == 0.0:
            token = int(logprob.argmax())
        else:
            token = int((logprob.double().exp().cumsum(0) <= uniforms[t]).sum())
        new.append(token)
        logprobs.append(float(logprob[token]))
        if token == EOS:
            return Completion(new, logprobs, "eos")
    return Completion(new, logprobs, "length")


def assert_same(found: Sequence[Completion], wanted: Sequence[Completion]) -> None:
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert a.ids == b.ids
        assert a.stop_reason == b.stop_reason
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)
