"""The int8 engine against plain float forwards of a tiny model (skipped where OpenVINO is not installed)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from engine_models import RUBRIC, make_model, make_rows, naive_logprobs
from transformers import (
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from rrm.engines.hf.engine import HFEngine
from rrm.errors import EngineError

pytest.importorskip("openvino", reason="int8 needs openvino: pip install 'agent-rrm[fast]'")

from rrm.engines import int8
from rrm.engines.int8 import Int8Engine, graph_file, multiplies_exactly

CHOICES = (66, 71)
pytestmark = pytest.mark.skipif(not multiplies_exactly(), reason="int8 products overflow on this processor")


def engine_of(model: Any, tokenizer: PreTrainedTokenizerFast, cache: Path) -> Int8Engine:
    graph = graph_file(cache, f"{id(model):x}", lambda: model)
    return Int8Engine(graph, 0, lambda: HFEngine(model, tokenizer))


def odds(values: list[list[list[float]]]) -> torch.Tensor:
    return torch.tensor([a - b for row in values for a, b in row])


def float_odds(model: Any, rows: list[list[int]], positions: list[list[int]]) -> torch.Tensor:
    found = []
    for row, at in zip(rows, positions, strict=True):
        logits = naive_logprobs(model, row)
        found.append(logits[at, CHOICES[0]] - logits[at, CHOICES[1]])
    return torch.cat(found)


def qwen2(**changes: Any) -> Qwen2ForCausalLM:
    """With biases, an output layer of its own, and norms that differ by channel."""
    torch.manual_seed(3)
    config = Qwen2Config(
        vocab_size=300, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.2, tie_word_embeddings=False, **changes,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config).eval()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if name.endswith(("bias", "norm.weight")):
                tensor.uniform_(0.5, 1.5)
    return model


@pytest.mark.parametrize("made", [make_model, qwen2], ids=["llama", "qwen2"])
def test_it_is_near_float32(tokenizer: PreTrainedTokenizerFast, tmp_path: Path, made: Any) -> None:
    model, rows = made(), make_rows(shared=RUBRIC)
    positions = [list(range(len(RUBRIC), len(row)))[::-1] for row in rows]
    found = odds(engine_of(model, tokenizer, tmp_path).choice_logprobs(rows, positions, CHOICES))
    wanted = float_odds(model, rows, positions)
    assert (found - wanted).abs().mean() < 0.1 * wanted.abs().mean()  # a random model magnifies each rounding


def test_prefixes_keys_and_other_rows_change_nothing_and_chunks_only_rounding(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, rows = engine_of(model, tokenizer, tmp_path), make_rows(shared=RUBRIC)
    positions = [[len(row) - 1, len(RUBRIC)] for row in rows]
    alone = odds([engine.choice_logprobs([row], [at], CHOICES)[0] for row, at in zip(rows, positions, strict=True)])
    before = engine.counters.prefilled
    together = odds(engine.choice_logprobs(rows, positions, CHOICES))
    assert engine.counters.prefilled - before == len(RUBRIC) + sum(len(row) - len(RUBRIC) for row in rows)
    assert torch.equal(together, alone)
    monkeypatch.setattr(int8, "CHUNK", 16)
    cut = odds(engine.choice_logprobs(rows, positions, CHOICES))
    assert (cut - alone).abs().max() < 0.05 * alone.abs().mean()

    row = rows[3]
    engine.choice_logprobs([row[:60]], [[59]], CHOICES, ["run"])
    before = engine.counters.prefilled
    kept = engine.choice_logprobs([row], [[len(row) - 1]], CHOICES, ["run"])
    assert engine.counters.prefilled - before == len(row) - 48  # whole forwards alone: the last one had fewer keys
    (plain,) = engine.choice_logprobs([row], [[len(row) - 1]], CHOICES)
    assert kept[0] == plain
    engine.release(["run", "unknown"])
    before = engine.counters.prefilled
    engine.choice_logprobs([row], [[len(row) - 1]], CHOICES, ["run"])
    assert engine.counters.prefilled - before == len(row)


def test_a_row_of_several_forwards_reads_the_same_among_others(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    deep = make_model(
        hidden_size=192, intermediate_size=256, num_attention_heads=3, num_key_value_heads=1, num_hidden_layers=12,
        initializer_range=0.1, max_position_embeddings=1024,
    )  # fmt: skip
    drawn = torch.Generator().manual_seed(1)
    rows = [list(range(20, 83)) + torch.randint(0, 300, (n,), generator=drawn).tolist() for n in (300, 333, 290, 350)]
    positions = [[100, 200, len(row) - 1] for row in rows]
    engine = engine_of(deep, tokenizer, tmp_path)
    alone = [engine.choice_logprobs([row], [at], CHOICES)[0] for row, at in zip(rows, positions, strict=True)]
    assert engine.choice_logprobs(rows, positions, CHOICES) == alone
    for row in rows:  # a run that grows
        engine.choice_logprobs([row[:310]], [[100]], CHOICES, ["run"])
        assert engine.choice_logprobs([row], [[len(row) - 1]], CHOICES, ["run"])[0] == [alone[rows.index(row)][-1]]
        engine.release(["run"])


def test_what_is_not_a_verdict_is_answered_in_float(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    engine, rows = engine_of(model, tokenizer, tmp_path), make_rows()[1:3]
    wanted = HFEngine(model, tokenizer).continuation_logprobs(rows, [[5, 6], [7]])
    assert engine.continuation_logprobs(rows, [[5, 6], [7]]) == wanted
    assert engine.model is model


def test_what_cannot_be_answered_is_refused(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    engine = engine_of(model, tokenizer, tmp_path)
    assert engine.choice_logprobs([], [], CHOICES) == []
    assert engine.choice_logprobs([[1, 2]], [[]], CHOICES) == [[]]
    for rows, positions, choices in (
        ([[1], [2]], [[0], [1]], CHOICES),
        ([[1]], [[0]], (5, 300)),
        ([[1] * 257], [[256]], CHOICES),
    ):
        with pytest.raises(EngineError):
            engine.choice_logprobs(rows, positions, choices)
    other = Qwen3ForCausalLM(
        Qwen3Config(vocab_size=300, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4)
    )
    with pytest.raises(EngineError, match="qwen3"):
        graph_file(tmp_path, "qwen3", lambda: other)
    assert not any((tmp_path / "int8").glob("*qwen3*/*"))
