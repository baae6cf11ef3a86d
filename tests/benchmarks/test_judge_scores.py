"""Scores of a step judge go on where they stopped, and are never mixed with those of another adapter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.gpu import train_steps
from benchmarks.models import scores
from benchmarks.models.rows import Row, pack


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    shape: dict[str, Any] = dict.fromkeys(("hidden_size", "intermediate_size"), 16)
    shape |= {"num_attention_heads": 2, "num_key_value_heads": 1}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=40, num_hidden_layers=2, **shape))
    model.save_pretrained(folder := tmp_path_factory.mktemp("base"))
    return str(folder)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = [Row([1 + i, 2, 3, 4, 5], slots=[(2, 1, -1, i % 2, -1, 1), (4, 0, -1, i % 2, -1, 0)]) for i in range(4)]
    path = tmp_path_factory.mktemp("rows") / "tau_stepshield.npz"
    about = {"fold": "tau_stepshield", "sources": ["fireact", "tau"], "choices": [7, 8], "progress": [9, 10]}
    np.savez_compressed(path, **pack(made, about))  # pyright: ignore[reportArgumentType]
    lines = [{"run": f"r{i}", "step": k, "planted": None, "whole": False} for i in range(4) for k in (1, 0)]
    path.with_suffix(".jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def run(rows: Path, out: Path, base: str, adapter: str = "none", *, leave_out: str | None = None, minutes: float = 9):
    return scores.score(rows, out, base, adapter, "cpu", "float32", leave_out, minutes)


def test_scoring_goes_on_where_it_stopped(rows: Path, base: str, tmp_path: Path) -> None:
    assert run(rows, tmp_path / "a.npz", base, minutes=0)["scored"] == 1
    with pytest.raises(SystemExit, match="3 rows are not scored yet"):
        scores.read_scores(tmp_path / "a.npz")
    assert run(rows, tmp_path / "a.npz", base)["scored"] == 4
    run(rows, tmp_path / "b.npz", base)
    first, second = (scores.read_scores(tmp_path / f"{name}.npz")[0] for name in "ab")
    assert first.odds.tolist() == second.odds.tolist()
    assert len(first) == 8


def test_sources_of_a_fold_can_be_left_out(rows: Path, base: str, tmp_path: Path) -> None:
    run(rows, tmp_path / "a.npz", base, leave_out="tau_stepshield")
    assert {line["run"] for line in scores.read_scores(tmp_path / "a.npz")[0].lines} == {"r0", "r2"}


def test_an_adapter_and_weights_of_its_own_are_loaded(rows: Path, base: str, tmp_path: Path) -> None:
    model = train_steps.adapter(base, 2, "cpu", torch.float32, 0, 1)
    weights = {name: torch.full_like(p, 0.1) for name, p in train_steps.trained(model).items()}
    save_file(weights, tmp_path / "lora.safetensors")
    plain = dict(LlamaForCausalLM.from_pretrained(base).named_parameters())
    changed = {}
    for name, weight in plain.items():
        stem = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{stem}.lora_A.weight" in weights:
            changed[name] = weight.detach() + 2 * weights[f"{stem}.lora_B.weight"] @ weights[f"{stem}.lora_A.weight"]
    save_file(changed, tmp_path / "whole.safetensors")
    for name in ("lora", "whole"):
        run(rows, tmp_path / f"{name}.npz", base, str(tmp_path / f"{name}.safetensors"))
    run(rows, tmp_path / "none.npz", base)
    lora, whole, none = (scores.read_scores(tmp_path / f"{name}.npz")[0].odds for name in ("lora", "whole", "none"))
    np.testing.assert_allclose(lora, whole, atol=1e-5)
    assert np.abs(lora - none).max() > 1e-3
    with pytest.raises(SystemExit, match="move it away"):
        run(rows, tmp_path / "none.npz", base, str(tmp_path / "lora.safetensors"))
