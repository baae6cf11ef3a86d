"""HFEngine against independent naive computations on a tiny random Llama: one row at a time, full forwards, no cache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from engine_models import RUBRIC, VOCAB, assert_same, make_model, make_rows, naive_generate, naive_logprobs
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaForCausalLM, MistralConfig, MistralForCausalLM, PreTrainedTokenizerFast

from rrm.data.seeds import derive_seed
from rrm.engines.base import Completion, SamplingParams, Span
from rrm.engines.hf import head as heads
from rrm.engines.hf.batching import common_prefix, micro_batches
from rrm.engines.hf.decoder import choose, row_uniforms
from rrm.engines.hf.engine import HFEngine
from rrm.engines.hf.head import widened
from rrm.engines.hf.trie import build_trie, off_grid_mass
from rrm.errors import EngineError


@pytest.fixture()
def engine(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> HFEngine:
    return HFEngine(model, tokenizer)


@pytest.mark.parametrize("shared", [[], RUBRIC], ids=["bare", "rubric"])
@pytest.mark.parametrize("budget", [60, 160, 32768])
@pytest.mark.parametrize("temperature", [0.0, 1.3])
def test_generate_equals_one_row_at_a_time(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, shared: list[int], budget: int, temperature: float
) -> None:
    engine = HFEngine(model, tokenizer, max_batch_tokens=budget, prefill_tokens=50)
    rows, params = make_rows(shared=shared), SamplingParams(max_new_tokens=15, temperature=temperature, seed=3)
    keys = [f"row-{i}" for i in range(len(rows))]
    wanted = [naive_generate(model, row, params, key) for row, key in zip(rows, keys, strict=True)]
    assert_same(engine.generate(rows, params, keys), wanted)
    assert len({tuple(c.ids) for c in wanted}) > 3  # a collapsed toy model would test nothing


def test_rows_that_end_early_leave_and_others_take_their_slots(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast
) -> None:
    """Hot sampling over 300 tokens ends rows at different times; three slots serve all of them."""
    rows = [[*RUBRIC[:20], i, i + 1] for i in range(24)]
    params = SamplingParams(max_new_tokens=60, temperature=8.0, seed=5)
    engine = HFEngine(model, tokenizer, max_batch_tokens=3 * 82)
    found = engine.generate(rows, params)
    assert_same(found, [naive_generate(model, row, params, None) for row in rows])
    assert {c.stop_reason for c in found} == {"eos", "length"}


def test_a_sample_depends_on_its_seed_and_key_alone(engine: HFEngine) -> None:
    rows, params = make_rows(), SamplingParams(max_new_tokens=8, temperature=1.5, seed=11)
    keys = [f"k{i}" for i in range(len(rows))]
    together = engine.generate(rows, params, keys)
    engine.release(keys)
    backwards = engine.generate(rows[::-1], params, keys[::-1])[::-1]
    engine.release(keys)
    assert_same(backwards, together)
    assert_same([engine.generate([rows[3]], params, [keys[3]])[0]], [together[3]])
    other_seed = engine.generate(rows, SamplingParams(max_new_tokens=8, temperature=1.5, seed=12), keys)
    assert [c.ids for c in other_seed] != [c.ids for c in together]
    copies = engine.generate([rows[3]] * 4, params, ["a", "b", "c", "d"])
    assert len({tuple(c.ids) for c in copies}) > 1


def test_the_same_row_in_a_later_turn_draws_new_numbers(engine: HFEngine) -> None:
    """A key keeps its stream per length: turn two must not repeat turn one's uniform numbers."""
    assert derive_seed(0, "key", 10) != derive_seed(0, "key", 20)
    first = row_uniforms(derive_seed(0, "key", 10), 4)
    assert not torch.equal(first, row_uniforms(derive_seed(0, "key", 20), 4))


@pytest.mark.parametrize("shared", [[], RUBRIC], ids=["bare", "rubric"])
def test_logprobs_of_spans(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, shared: list[int]) -> None:
    engine = HFEngine(model, tokenizer, max_batch_tokens=150, prefill_tokens=64)
    rows = [[*row, 5] for row in make_rows(shared=shared)]
    spans = [Span(len(r) - 1, len(r)) for r in rows]
    spans[3], spans[4], spans[5] = Span(1, len(rows[3])), Span(6, 6), Span(4, 9)
    for row, span, found in zip(rows, spans, engine.logprobs(rows, spans), strict=True):
        naive = naive_logprobs(model, row)
        assert found == pytest.approx([float(naive[t - 1, row[t]]) for t in range(span.start, span.stop)], abs=1e-5)
    with pytest.raises(EngineError, match="row 0: span"):
        engine.logprobs([rows[3]], [Span(0, 2)])


def _grid() -> list[list[int]]:
    """0.0 … 1.0 with digits 10..19 and a point 9, plus a one-token continuation and one of another length."""
    return [[10, 9, 10 + d] for d in range(10)] + [[11, 9, 10], [77], [60, 61, 62, 63]]


@pytest.mark.parametrize("shared", [[], RUBRIC], ids=["bare", "rubric"])
def test_trie_logprobs_equal_brute_force(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, shared: list[int]
) -> None:
    engine = HFEngine(model, tokenizer, max_batch_tokens=120, prefill_tokens=64)
    rows = make_rows(shared=shared)
    found = engine.continuation_logprobs(rows, _grid())
    for row, values in zip(rows, found, strict=True):
        for continuation, value in zip(_grid(), values, strict=True):
            naive = naive_logprobs(model, row + continuation)
            wanted = sum(float(naive[len(row) + j - 1, t]) for j, t in enumerate(continuation))
            assert value == pytest.approx(wanted, abs=1e-4)
        assert 0.0 <= off_grid_mass(values) <= 1.0
    single = engine.continuation_logprobs(rows[:2], [[5], [6]])
    assert single[1] == pytest.approx(naive_logprobs(model, rows[1])[-1, [5, 6]].tolist(), abs=1e-5)


def test_all_single_tokens_leave_no_mass(engine: HFEngine) -> None:
    values = engine.continuation_logprobs([[3, 4]], [[t] for t in range(VOCAB)])[0]
    assert off_grid_mass(values) == pytest.approx(0.0, abs=1e-5)
    assert off_grid_mass(values[:1]) == pytest.approx(1 - math.exp(values[0]))


def test_keys_reuse_the_cache_and_change_nothing(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Full-mode judging: generate, then score (row + generated + forced tokens) under the same keys."""
    engine, fresh = HFEngine(model, tokenizer), HFEngine(model, tokenizer)
    rows, keys = make_rows(shared=RUBRIC), [f"k{i}" for i in range(7)]
    done = engine.generate(rows, SamplingParams(max_new_tokens=6), keys)
    longer = [row + c.ids + [8, 9] for row, c in zip(rows, done, strict=True)]
    wanted = fresh.continuation_logprobs(longer, _grid())
    widths: list[int] = []
    forward = engine.forward

    def counted(cache, low, tokens, starts, trie=None):  # type: ignore[no-untyped-def]
        widths.append(max(len(t) for t in tokens))
        return forward(cache, low, tokens, starts, trie)

    monkeypatch.setattr(engine, "forward", counted)
    for values, expected in zip(engine.continuation_logprobs(longer, _grid(), keys), wanted, strict=True):
        assert values == pytest.approx(expected, abs=1e-4)
    assert max(widths) <= 7  # the last generated token, two forced ones; then the trie's nodes: no prompt again
    assert_same(
        engine.generate(longer, SamplingParams(max_new_tokens=4), keys),
        fresh.generate(longer, SamplingParams(max_new_tokens=4)),
    )
    # A row that departs from what was kept uses only the part that agrees.
    changed = [[*row[:-1], 99] for row in longer]
    for values, expected in zip(
        engine.continuation_logprobs(changed, _grid(), keys), fresh.continuation_logprobs(changed, _grid()), strict=True
    ):
        assert values == pytest.approx(expected, abs=1e-4)
    engine.release([*keys, "never seen"])
    assert not engine._kept


def test_kept_rows_stay_within_memory(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    """4 tokens × 2 layers × 2 × 2 heads × 8 × 4 bytes = 1,024 bytes a row of 4; room for two of them."""
    engine = HFEngine(model, tokenizer, kept_bytes=2048)
    engine.generate([[1, 2, 3, 4]] * 5, SamplingParams(max_new_tokens=1), list("abcde"))
    assert len(engine._kept) == 2


def test_the_shared_prefix_runs_once(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    engine = HFEngine(model, tokenizer)
    tokens: list[int] = []
    handle = model.model.layers[0].register_forward_hook(lambda _m, _a, out: tokens.append(out.shape[0] * out.shape[1]))
    engine.continuation_logprobs([[*RUBRIC, i] for i in range(10)], [[5]])
    handle.remove()
    assert sum(tokens) == len(RUBRIC) + 10


class _Scripted(torch.nn.Module):
    """An output head that makes the model say a fixed text, whatever its input: token t of it after t new tokens."""

    def __init__(self, inner: torch.nn.Linear, text: Sequence[int]) -> None:
        super().__init__()
        self.weight, self.text, self.calls = inner.weight, text, 0

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        logits = torch.full((*states.shape[:-1], VOCAB), -20.0)
        logits[..., self.text[min(self.calls, len(self.text) - 1)]] = 20.0
        self.calls += 1
        return logits


@pytest.mark.parametrize("text", ["no tag yet <score>0.7</score>", "é ü <score>", "a<score>\n"])
def test_a_stop_text_ends_a_row_even_where_bpe_merges_its_end(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, text: str
) -> None:
    engine = HFEngine(model, tokenizer)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    engine.head.layer = _Scripted(model.lm_head, ids)
    done = engine.generate([[1, 2]], SamplingParams(max_new_tokens=40, stop=("</never>", "<score>")))[0]
    said = tokenizer.decode(done.ids)
    assert done.stop_reason == "stop"
    assert "<score>" in said and "<score>" not in tokenizer.decode(done.ids[:-1])
    engine.head.layer = _Scripted(model.lm_head, ids)
    assert engine.generate([[1, 2]], SamplingParams(max_new_tokens=3, stop=("<score>",)))[0].stop_reason == "length"


def test_a_stop_text_in_the_prompt_does_not_count(engine: HFEngine, tokenizer: PreTrainedTokenizerFast) -> None:
    row = tokenizer("<score", add_special_tokens=False)["input_ids"]
    engine.head.layer = _Scripted(engine.model.lm_head, tokenizer(">", add_special_tokens=False)["input_ids"])
    assert engine.generate([row], SamplingParams(max_new_tokens=3, stop=("<score>",)))[0].stop_reason == "length"


def test_bfloat16_and_eager_attention_agree(tokenizer: PreTrainedTokenizerFast) -> None:
    rows = make_rows(shared=RUBRIC)
    sdpa, eager = make_model(), make_model()
    eager.set_attn_implementation("eager")
    reference = HFEngine(sdpa, tokenizer).continuation_logprobs(rows, _grid())
    assert torch.allclose(
        torch.tensor(HFEngine(eager, tokenizer).continuation_logprobs(rows, _grid())),
        torch.tensor(reference),
        atol=1e-4,
    )
    soft = make_model(initializer_range=0.05)
    wanted = torch.tensor(HFEngine(soft, tokenizer).continuation_logprobs(rows, _grid()))
    half = HFEngine(soft.bfloat16(), tokenizer).continuation_logprobs(rows, _grid())
    assert torch.allclose(torch.tensor(half), wanted, atol=0.05)


def test_the_head_is_widened_once_a_call_and_follows_its_weights(
    tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(initializer_range=0.05).bfloat16()
    head: Any = model.get_output_embeddings()
    head.weight.requires_grad_(False)
    engine = HFEngine(model, tokenizer, exact_head=True)
    made: list[int] = []
    monkeypatch.setattr(heads, "widened", lambda layer: made.append(1) or widened(layer))
    row = [5, 6, 7, 8, 9]
    params = SamplingParams(max_new_tokens=6, temperature=1.0, seed=1)
    assert sum(len(c.ids) for c in engine.generate([row, row[:3]], params, ["a", "b"])) > 6
    assert len(made) == 1
    found = []
    for factor in (1.0, 8.0, -1.0):
        head.weight.data.mul_(factor)  # through .data: no version counter says so
        with torch.inference_mode():
            states = model.model(input_ids=torch.tensor([row[:-1]])).last_hidden_state[0, -1]
        expected = (head.weight.double() @ states.double()).log_softmax(-1)[row[-1]]
        ((logprob,),) = engine.logprobs([row], [Span(4, 5)])
        assert logprob == pytest.approx(float(expected), abs=1e-3)
        found.append(logprob)
    assert engine.head.wide is None and abs(found[0] - found[1]) > 0.1 and abs(found[1] - found[2]) > 0.1


def test_training_mode_and_gradients_are_untouched(tokenizer: PreTrainedTokenizerFast) -> None:
    """Dropout is off inside the engine; afterwards every module is as it was, a frozen one in eval mode too."""
    model = make_model(attention_dropout=0.5).train()
    model.model.layers[1].eval()
    engine = HFEngine(model, tokenizer)
    first = engine.continuation_logprobs([[1, 2, 3]], [[4]])
    assert first == engine.continuation_logprobs([[1, 2, 3]], [[4]])
    assert model.training and not model.model.layers[1].training and torch.is_grad_enabled()
    model(torch.tensor([[1, 2, 3]])).logits.sum().backward()


def test_a_peft_model_is_judged_with_its_adapter(tokenizer: PreTrainedTokenizerFast) -> None:
    from peft import LoraConfig, get_peft_model

    wrapped = get_peft_model(
        make_model(), LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    )
    found = HFEngine(wrapped, tokenizer).continuation_logprobs([[1, 2, 3]], [[4], [5]])  # pyright: ignore[reportArgumentType]
    merged: Any = wrapped.merge_and_unload()  # pyright: ignore[reportCallIssue]
    assert found[0] == pytest.approx(naive_logprobs(merged, [1, 2, 3])[-1, [4, 5]].tolist(), abs=1e-4)
    assert found[0] != pytest.approx(naive_logprobs(make_model(), [1, 2, 3])[-1, [4, 5]].tolist(), abs=1e-3)


def test_what_cannot_be_run_is_said(engine: HFEngine, tokenizer: PreTrainedTokenizerFast) -> None:
    params = SamplingParams(max_new_tokens=6)
    with pytest.raises(EngineError, match="row 1 is empty"):
        engine.generate([[1], []], params)
    with pytest.raises(EngineError, match=r"row 0: 251 tokens and 6 more exceed the model's 256 positions"):
        engine.generate([[1] * 251], params)
    with pytest.raises(EngineError, match="2 rows need as many distinct keys, got 1"):
        engine.generate([[1], [2]], params, ["only"])
    with pytest.raises(ValueError, match="continuation 1 is empty"):
        engine.continuation_logprobs([[1]], [[1], []])
    assert engine.generate([], params) == [] and engine.continuation_logprobs([], [[1]]) == []
    assert engine.generate([[1]], SamplingParams(max_new_tokens=0)) == [Completion([], [], "length")]
    sliding = MistralConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, sliding_window=8,
    )  # fmt: skip
    with pytest.raises(EngineError, match="full attention"):
        HFEngine(MistralForCausalLM(sliding), tokenizer)


# ---- the pure parts ----


def test_trie_of_the_grid_by_hand() -> None:
    trie = build_trie([[0, 5, 0], [0, 5, 7], [1, 5, 0]])
    assert (trie.tokens, trie.parents, trie.depths()) == ([0, 5, 1, 5], [0, 1, 0, 3], [1, 2, 1, 2])
    assert trie.paths[1] == [(0, 0), (1, 5), (2, 7)] and trie.paths[2] == [(0, 1), (3, 5), (4, 0)]
    assert trie.sees() == [
        [True, False, False, False],
        [True, True, False, False],
        [False, False, True, False],
        [False, False, True, True],
    ]


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), max_size=6), max_size=6))
def test_common_prefix_property(rows: list[list[int]]) -> None:
    count = common_prefix(rows)
    assert all(row[:count] == rows[0][:count] for row in rows)
    if rows and all(len(row) > count for row in rows):
        assert len({row[count] for row in rows}) > 1


@settings(deadline=None)
@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 200))
def test_micro_batches_cover_in_order_and_fit(lengths: list[int], budget: int) -> None:
    ordered = sorted(lengths)
    batches = micro_batches(ordered, budget)
    assert [i for batch in batches for i in batch] == list(range(len(lengths)))
    for batch in batches:
        padded, real = max(ordered[i] for i in batch) * len(batch), sum(ordered[i] for i in batch)
        assert len(batch) == 1 or (padded <= budget and padded - real <= 0.1 * padded)


@settings(deadline=None)
@given(st.floats(0.3, 3.0), st.floats(0.05, 1.0), st.integers(0, 2**31))
def test_choose_stays_in_the_nucleus(temperature: float, top_p: float, seed: int) -> None:
    logits = torch.randn(5, 30, generator=torch.Generator().manual_seed(seed)) * 3
    uniforms = torch.rand(5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 1))
    ids, logprobs = choose(logits, temperature, top_p, uniforms)
    wanted = (logits / temperature).log_softmax(-1)
    assert torch.allclose(logprobs, wanted.gather(1, ids[:, None])[:, 0])
    probs = wanted.double().exp()
    for row, token in zip(probs, ids.tolist(), strict=True):
        assert row[row > row[token]].sum() < top_p + 1e-9


def test_choose_samples_the_distribution() -> None:
    """10,000 evenly spread uniforms give each token its probability, whatever its place in the vocabulary."""
    logits = torch.tensor([0.1, 0.2, 0.0, 0.7]).log()
    uniforms = (torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000
    ids, _ = choose(logits.expand(10_000, 4), 1.0, 1.0, uniforms)
    assert (torch.bincount(ids, minlength=4) / 10_000).tolist() == pytest.approx([0.1, 0.2, 0.0, 0.7], abs=1e-3)
    assert choose(logits[None], 0.0, 1.0, uniforms[:1])[0].tolist() == [3]
