"""Rows that begin alike, read as one: the same numbers as row by row, dealt within the budget, and where it is refused."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from feedback_lab import configured, read
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    GPT2Config,
    GPTNeoConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    MptConfig,
    Qwen2Config,
    Qwen3Config,
)
from transformers.modeling_outputs import BaseModelOutput

from reagent.train import prefixes
from reagent.train.policy import Policy, switch_off_dropout
from reagent.train.prefixes import PackedRows, PackedTensors, PrefixSharing, ends, lay_out
from reagent.train.run import train
from rrm.errors import ConfigError

SIZES: dict[str, Any] = {
    "vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128,
}  # fmt: skip
FAMILIES = {
    "llama": LlamaConfig(**SIZES, tie_word_embeddings=True),
    "qwen2": Qwen2Config(**SIZES),
    "qwen3": Qwen3Config(**SIZES, head_dim=8),
    "gpt2": GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=4, n_positions=128),
}


def model_of(config: Any, attention: str = "sdpa") -> Any:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).double()
    switch_off_dropout(model)
    return model


def rows_of(*rows: Sequence[int]) -> tuple[Tensor, Tensor]:
    """(B, T) ids padded with 0, (B,) lengths."""
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
    for n, row in enumerate(rows):
        ids[n, : len(row)] = torch.tensor(row)
    return ids, lengths


def groups_of(seed: int, sizes: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """(ids, mask, group) of attempts at several tasks: all prompts begin alike, those of a task go on alike, and rows differ in length."""
    rng, rows, marks, group = random.Random(seed), [], [], []
    system = [rng.randrange(1, 50) for _ in range(4)]
    for g, size in enumerate(sizes):
        prompt = system + [rng.randrange(1, 50) for _ in range(rng.randrange(3, 9))]
        for _ in range(size):
            said = [rng.randrange(1, 50) for _ in range(rng.randrange(1, 12))]
            rows.append(prompt + said)
            marks.append([False] * len(prompt) + [rng.random() < 0.7 for _ in said])
            group.append(g)
    ids, _ = rows_of(*rows)
    mask = torch.zeros(ids.shape, dtype=torch.bool)
    for n, mark in enumerate(marks):
        mask[n, : len(mark)] = torch.tensor(mark)
    return ids, mask, torch.tensor(group)


# ---- the same numbers ----


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_log_probabilities_values_and_gradients_are_those_of_rows_read_whole(family: str, attention: str) -> None:
    model = model_of(FAMILIES[family], attention)
    policy = Policy(model, with_values=True, entropy_gradient=True)
    assert policy.value_head is not None
    torch.nn.init.normal_(policy.value_head.double().weight)
    ids, mask, _ = groups_of(1, (4, 1, 3))
    assert len(PrefixSharing.of(model, 1000).packs(ids, ends(mask), range(len(ids)))) < len(ids)
    results = []
    for sharing in (None, PrefixSharing.of(model, 1000)):
        policy.sharing = sharing
        policy.zero_grad()
        out = policy(ids, mask, 0.7)
        assert out.values is not None
        weights = torch.arange(1, int(mask.sum()) + 1).double()  # each token counts otherwise
        (
            (out.logprobs[mask] * weights).sum() + (out.values[mask] * weights.flip(0)).sum() + out.entropy[mask].sum()
        ).backward()
        gradients = {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}
        results.append((out, gradients))
    (whole, theirs), (shared, mine) = results
    for one, other in (
        (whole.logprobs, shared.logprobs),
        (whole.entropy, shared.entropy),
        (whole.values, shared.values),
    ):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)  # heads compute in float32
    assert theirs.keys() == mine.keys() and len(mine) > 10
    for name, gradient in theirs.items():
        torch.testing.assert_close(gradient, mine[name], rtol=1e-4, atol=1e-5 * float(gradient.abs().max()), msg=name)


@pytest.mark.parametrize("seed", range(20))
def test_hidden_states_are_those_of_rows_read_whole(seed: int) -> None:
    model = model_of(FAMILIES["llama"]).eval()
    rng = random.Random(seed)
    ids, mask, _ = groups_of(seed, [rng.randrange(1, 6) for _ in range(rng.randrange(1, 5))])
    with torch.no_grad():
        whole = model.get_decoder()(input_ids=ids).last_hidden_state
        shared = PrefixSharing.of(model, rng.choice((20, 60, 1000))).hidden(model.get_decoder(), ids, mask)
    for row, end in enumerate(ends(mask).tolist()):
        torch.testing.assert_close(shared[row, :end], whole[row, :end], rtol=0, atol=1e-12)


def test_garbage_behind_a_rows_last_token_changes_nothing() -> None:
    model = model_of(FAMILIES["llama"]).eval()
    ids, mask, _ = groups_of(3, (4, 3))
    other, last = ids.clone(), ends(mask)
    for row, end in enumerate(last.tolist()):
        other[row, end:] = 49
    policy = Policy(model, with_values=False)
    policy.sharing = PrefixSharing.of(model, 1000)
    with torch.no_grad():
        assert torch.equal(policy(ids, mask).logprobs, policy(other, mask).logprobs)


def test_rows_that_are_alike_to_the_last_token() -> None:
    model = model_of(FAMILIES["llama"]).eval()
    ids, _ = rows_of([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [1, 2, 3])
    mask = ids > 2
    sharing = PrefixSharing.of(model, 1000)
    assert sharing.packs(ids, ends(mask), range(3)) == [PackedRows((0, 1, 2), 3, 7)]
    with torch.no_grad():
        shared, whole = sharing.hidden(model.get_decoder(), ids, mask), model.get_decoder()(input_ids=ids)[0]
    torch.testing.assert_close(shared[:2], whole[:2])
    torch.testing.assert_close(shared[2, :3], whole[2, :3])


# ---- packs ----


def test_a_pack_by_hand() -> None:
    ids, lengths = rows_of([7, 8, 1, 2], [7, 8, 3], [9])
    packs = PrefixSharing(pairs=1e9, budget=100).packs(ids, lengths, [0, 1, 2])
    assert packs == [
        PackedRows((0, 1), 2, 5),
        PackedRows((2,), 1, 1),
    ]  # nothing is saved by a row that begins otherwise
    made = lay_out(packs, ids, lengths)
    assert made.input_ids.tolist() == [[7, 8, 1, 2, 3, 0, 0, 0], [9] + [0] * 7]  # up to a multiple of 8
    assert made.position_ids.tolist() == [[0, 1, 2, 3, 2, 0, 0, 0], [0] * 8]
    assert made.index_of.tolist() == [[0, 1, 2, 3], [0, 1, 4, 0], [8, 0, 0, 0]]
    assert made.sees[0, :5].int().tolist() == [
        [1, 0, 0, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 1, 0, 0, 0],
    ]  # fmt: skip
    assert made.sees.diagonal(dim1=1, dim2=2).all()  # padding sees itself


def test_a_row_joins_while_it_saves_more_than_attention_costs_within_the_budget() -> None:
    ids, lengths = rows_of([1, 2, 3, 4], [1, 2, 5, 6], [1, 2, 7, 8], [1, 9])
    order = range(4)
    assert [p.rows for p in PrefixSharing(1e9, 100).packs(ids, lengths, order)] == [
        (0, 1, 2),
        (3,),
    ]  # a prefix of 1 saves less
    assert [p.rows for p in PrefixSharing(1e9, 8).packs(ids, lengths, order)] == [(0, 1, 2), (3,)]  # of 8 tokens
    assert [p.rows for p in PrefixSharing(1e9, 7).packs(ids, lengths, order)] == [
        (0,),
        (1,),
        (2,),
        (3,),
    ]  # laid out as 8
    # of 4 and 4 tokens, 2 of them alike: 6 together, 36 − 16 − 8 = 12 pairs more, for 2 tokens less
    assert [p.rows for p in PrefixSharing(6.1, 100).packs(ids, lengths, [0, 1])] == [(0, 1)]
    assert [p.rows for p in PrefixSharing(6.0, 100).packs(ids, lengths, [0, 1])] == [(0,), (1,)]
    assert PrefixSharing(1e9, 100).packs(ids, lengths, []) == []


def test_what_a_token_costs() -> None:
    """Two layers of 4 × 8 heads: q 32·32, k and v 32·16 each, o 32·32, three of 32·48, two norms; and the last norm."""
    layer = 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48 + 2 * 32
    assert PrefixSharing.of(model_of(FAMILIES["llama"]), 9) == PrefixSharing((2 * layer + 32) / (2 * 2 * 32), 9)


def test_of_experts_a_token_is_multiplied_by_those_it_is_sent_to() -> None:
    model = model_of(MixtralConfig(**SIZES, num_local_experts=8, num_experts_per_tok=2), "eager").float()
    layer = 2 * 32 * 32 + 2 * 32 * 16 + 2 * 3 * 32 * 48 + 8 * 32 + 2 * 32  # two experts of eight, the router, two norms
    assert PrefixSharing.of(model, 9).pairs == pytest.approx((2 * layer + 32) / (2 * 2 * 32))


class Counted(torch.nn.Module):
    """A decoder that remembers the shape of what it reads."""

    def __init__(self, decoder: Any) -> None:
        super().__init__()
        self.decoder, self.read = decoder, list[tuple[int, ...]]()

    def forward(self, input_ids: Tensor, **more: Any) -> Any:
        self.read.append(tuple(input_ids.shape))
        return self.decoder(input_ids=input_ids, **more)


def test_what_stands_behind_a_rows_last_token_is_not_read() -> None:
    """One row ends in a long observation, and no row begins as another does."""
    model = model_of(FAMILIES["llama"]).eval()
    ids, _ = rows_of(*([n] * 10 for n in range(1, 6)), [9] * 60)
    mask = torch.zeros(ids.shape, dtype=torch.bool)
    mask[:, 5:10] = True
    sharing, decoder = PrefixSharing.of(model, 40), Counted(model.get_decoder())
    dealt = sharing.split_minibatches(ids, mask, torch.arange(6), range(6))
    for rows in dealt:
        hidden = sharing.hidden(decoder, ids[rows], mask[rows])
        assert hidden.shape == (len(rows), 60, 32) and not hidden[:, 10:].any()
    assert decoder.read == [(4, 10), (2, 10)]


def test_the_mask_is_kept_once_and_not_by_each_layer() -> None:
    model = model_of(LlamaConfig(**{**SIZES, "num_hidden_layers": 4}))
    policy = Policy(model, with_values=False)
    policy.sharing = PrefixSharing.of(model, 1000)
    ids, mask, _ = groups_of(2, (6,))
    (pack,) = policy.sharing.packs(ids, ends(mask), range(6))
    kept = dict[int, tuple[int, ...]]()

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tuple(tensor.shape)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        out = policy(ids, mask)
    length = -(-pack.tokens // 8) * 8
    assert [shape[-2:] for shape in kept.values() if len(shape) == 4].count((length, length)) == 1
    assert out.logprobs.requires_grad


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_dealt_within_the_budget_and_packed_as_they_were_counted(seed: int) -> None:
    rng = random.Random(seed)
    ids, mask, group = groups_of(seed, [rng.randrange(1, 7) for _ in range(5)])
    index = sorted(rng.sample(range(len(ids)), rng.randrange(1, len(ids) + 1)))
    sharing = PrefixSharing(pairs=rng.choice((20.0, 1e9)), budget=rng.choice((8, 40, 90)))
    dealt = sharing.split_minibatches(ids, mask, group, index)
    assert sorted(row for rows in dealt for row in rows) == index
    decoder = Counted(lambda input_ids, **_: BaseModelOutput(torch.zeros(*input_ids.shape, 1)))
    decoder.register_parameter("weight", torch.nn.Parameter(torch.zeros(1)))
    for rows in dealt:
        sharing.hidden(decoder, ids[rows], mask[rows])
        packs, tokens = decoder.read[-1]
        assert packs * tokens <= sharing.budget or packs == 1 == len(rows)
    assert sharing.split_minibatches(ids, mask, group, []) == []


# ---- in a training ----


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": "grpo", "loss": {"kl_coef": 0.01}},
        {"algorithm": "ppo", "loss": {"bootstrap": True, "gae_lambda": 0.9}, "environment": {"rewards": {"unanswered": 0}}},
        {"algorithm": "rloo", "policy": {"lora": {"r": 4}, "gradient_checkpointing": True}, "loss": {"kl_coef": 0.01}},
    ],
    ids=["reference", "values", "adapter"],
)  # fmt: skip
def test_a_training_learns_the_same(base, tmp_path, monkeypatch, changes: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    runs, packed = [], list[int]()

    def counted(packs: Sequence[PackedRows], ids: Tensor, ends: Tensor) -> PackedTensors:
        packed.append(int(ends.sum()) - sum(pack.tokens for pack in packs))
        return lay_out(packs, ids, ends)

    monkeypatch.setattr(prefixes, "lay_out", counted)
    for share in (False, True):
        optim = {"share_prefixes": share, "minibatches": 2, "microbatch_tokens": 600}
        train(configured(base, tmp_path / str(share), "none", optim=optim, **changes))
        runs.append(read(tmp_path / str(share) / "metrics.jsonl"))
        assert (sum(packed) > 1000) == share  # tokens that were not computed
    for whole, shared in zip(*runs, strict=True):
        assert whole.keys() == shared.keys()
        for key, value in whole.items():
            assert (shared[key] is None) == (value is None), key
            assert value is None or shared[key] == pytest.approx(value, rel=1e-3, abs=1e-5), key


# ---- where it is refused ----


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (MistralConfig(**SIZES, sliding_window=16), "mistral has layers without full attention"),
        (GPTNeoConfig(vocab_size=50, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]]), "window_size"),
        (Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=16, max_window_layers=1), "sliding_attention"),
    ],
)  # fmt: skip
def test_a_model_that_sees_otherwise_is_refused(config: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"optim\.share_prefixes: .*{message}.*set it to false"):
        PrefixSharing.of(model_of(config, "eager"), 100)


def test_attention_without_masks_is_refused() -> None:
    model = model_of(FAMILIES["llama"])
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(ConfigError, match=r"flash_attention_2 takes no mask .*policy\.attn_implementation"):
        PrefixSharing.of(model, 100)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (MptConfig(vocab_size=50, d_model=32, n_layers=2, n_heads=4, max_seq_len=128), "mpt computes of rows"),  # ALiBi
        (BloomConfig(vocab_size=50, hidden_size=32, n_layer=2, n_head=4), "bloom takes no mask of our own"),
    ],
)
def test_a_model_with_positions_of_its_own_is_found_by_asking_it(config: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"optim\.share_prefixes: {message}"):
        PrefixSharing.of(model_of(config, "eager"), 100)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rounding_is_no_reason_to_refuse(dtype: torch.dtype) -> None:
    for config in FAMILIES.values():
        assert PrefixSharing.of(model_of(config).to(dtype), 100)
