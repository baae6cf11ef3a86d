"""`choice_logprobs`: the probabilities of a few tokens at many positions of a row, against plain forwards of one row."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from engine_models import RUBRIC, make_model, make_rows, naive_logprobs
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from rrm.engines.hf.engine import HFEngine
from rrm.engines.scripted import ScriptedEngine
from rrm.errors import EngineError

CHOICES = (66, 71)


def naive(model: Any, row: list[int], positions: list[int], choices: tuple[int, ...] = CHOICES) -> list[list[float]]:
    """From the whole vocabulary's log-probabilities of one plain forward."""
    logits = naive_logprobs(model, row)[:, list(choices)]
    return logits.log_softmax(-1)[positions].tolist()


def some_positions(rows: list[list[int]], start: int = 0) -> list[list[int]]:
    """Of unlike number and order: none, the first and last, all from `start` backwards."""
    made = [[n for n in range(start, len(row)) if n % 3 == i % 3][::-1] for i, row in enumerate(rows)]
    made[0], made[2] = [len(rows[0]) - 1], []
    return made


@pytest.mark.parametrize("shared", [[], RUBRIC], ids=["bare", "rubric"])
@pytest.mark.parametrize("budget", [60, 160, 32768])
def test_equals_a_plain_forward_of_each_row_in_float64(
    tokenizer: PreTrainedTokenizerFast, shared: list[int], budget: int
) -> None:
    model = make_model().double()
    rows = make_rows(shared=shared)
    positions = some_positions(rows, len(shared))
    engine = HFEngine(model, tokenizer, max_batch_tokens=budget, prefill_tokens=50)
    found = engine.choice_logprobs(rows, positions, CHOICES)
    for row, at, values in zip(rows, positions, found, strict=True):
        assert len(values) == len(at)
        torch.testing.assert_close(
            torch.tensor(values, dtype=torch.float64),
            torch.tensor(naive(model, row, at), dtype=torch.float64),
            rtol=0,
            atol=1e-9,
        )
        assert [math.fsum(map(math.exp, pair)) for pair in values] == pytest.approx([1.0] * len(at))


def test_a_rows_numbers_do_not_depend_on_its_batch_nor_on_what_comes_after(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast
) -> None:
    engine, rows = HFEngine(model, tokenizer), make_rows(shared=RUBRIC)
    positions = some_positions(rows, len(RUBRIC))
    together = engine.choice_logprobs(rows, positions, CHOICES)
    for row, at, values in zip(rows, positions, together, strict=True):
        (alone,) = engine.choice_logprobs([row], [at], CHOICES)
        assert len(alone) == len(values)
        for position, one, other in zip(at, alone, values, strict=True):
            assert one == pytest.approx(other, abs=1e-5)
            (prefix,) = engine.choice_logprobs([row[: position + 1]], [[position]], CHOICES)
            assert prefix[0] == pytest.approx(other, abs=1e-5)


def test_the_shared_rubric_is_run_once_and_the_head_meets_only_the_positions(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast
) -> None:
    engine, rows = HFEngine(model, tokenizer), [[*RUBRIC, i, i + 1, 9, 9] for i in range(5)]
    engine.choice_logprobs(rows, [[41, 42]] * 5, CHOICES)
    assert engine.counters.prefilled == len(RUBRIC) + 5 * 3  # what follows the last position is not run
    before = engine.counters.prefilled
    engine.choice_logprobs(rows, [[0, 42]] * 5, CHOICES)  # a position inside the rubric: nothing before it is shared
    assert engine.counters.prefilled - before == 5 * 43


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_head_with_bias_and_16_bit_weights(tokenizer: PreTrainedTokenizerFast, dtype: torch.dtype) -> None:
    """The choices' rows are computed in float32 whatever the weights are: two digits of bfloat16 would make ties."""
    model = make_model()
    biased = torch.nn.Linear(model.lm_head.in_features, model.lm_head.out_features)
    model.lm_head, rows = biased, make_rows()
    model.to(dtype)  # pyright: ignore[reportArgumentType]
    found = HFEngine(model, tokenizer).choice_logprobs(rows, [[len(row) - 1] for row in rows], CHOICES)
    for row, (values,) in zip(rows, found, strict=True):
        with torch.no_grad():
            state = model.model(torch.tensor([row]), use_cache=False).last_hidden_state[0, -1].float()
        logits = state @ biased.weight.float()[list(CHOICES)].T + biased.bias.float()[list(CHOICES)]
        assert values == pytest.approx(logits.log_softmax(-1).tolist(), abs=1e-5 if dtype == torch.float32 else 0.05)
    assert len({value for (pair,) in found for value in pair}) == 2 * len(rows)


@pytest.mark.parametrize("target", [["lm_head"], ["q_proj", "v_proj", "lm_head"]], ids=["head", "head and layers"])
def test_a_head_under_an_adapter_of_its_own(tokenizer: PreTrainedTokenizerFast, target: list[str]) -> None:
    from peft import LoraConfig, get_peft_model

    wrapped: Any = get_peft_model(make_model(), LoraConfig(r=4, target_modules=target, init_lora_weights=False))
    rows = make_rows()
    positions = some_positions(rows)
    found = HFEngine(wrapped, tokenizer).choice_logprobs(rows, positions, CHOICES)
    plain = HFEngine(make_model(), tokenizer).choice_logprobs(rows, positions, CHOICES)
    assert found[3] != plain[3]
    merged = wrapped.merge_and_unload()
    for row, at, values in zip(rows, positions, found, strict=True):
        for value, wanted in zip(values, naive(merged, row, at), strict=True):
            assert value == pytest.approx(wanted, abs=1e-4)


def test_what_cannot_be_chosen_from_is_said(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    scripted = ScriptedEngine([])
    for engine in (HFEngine(model, tokenizer), scripted):
        with pytest.raises(EngineError, match="row 1: position 2 lies outside its 2 tokens"):
            engine.choice_logprobs([[1], [2, 3]], [[0], [2]], CHOICES)
        with pytest.raises(EngineError, match="2 rows need as many lists"):
            engine.choice_logprobs([[1], [2, 3]], [[0]], CHOICES)
        with pytest.raises(EngineError, match="two different"):
            engine.choice_logprobs([[1]], [[0]], (5, 5))
        assert engine.choice_logprobs([], [], CHOICES) == []
        assert engine.choice_logprobs([[1, 2]], [[]], CHOICES) == [[]]
    with pytest.raises(EngineError, match="the model has 300 tokens"):
        HFEngine(model, tokenizer).choice_logprobs([[1]], [[0]], (5, 300))


def test_the_scripted_engine_says_its_scripts_numbers() -> None:
    engine = ScriptedEngine([], logprob=lambda row, t: float(row[t] - t))
    ((first, second),) = engine.choice_logprobs([[9, 9, 9]], [[0, 2]], (3, 4))
    wanted = [-math.log(1 + math.e), 1 - math.log(1 + math.e)]  # logits (2, 3) and (0, 1)
    assert first == pytest.approx(wanted) and second == pytest.approx(wanted)
