"""The trainer of step judges: its loss by hand, a run that resumes, and the order of its rows."""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.gpu.train_steps import (
    OUTCOME,
    PAIRS,
    PROGRESS,
    RARE,
    Rows,
    class_weights,
    new_bias,
    order,
    parser,
    spans,
    terms,
    train,
    tree_attention,
)
from benchmarks.models.rows import Row, pack


def softplus(x: float) -> float:
    """−log σ(−x)."""
    return math.log1p(math.exp(x))


def test_the_loss_of_a_row_is_the_sum_of_its_terms() -> None:
    odds = torch.tensor(
        [[1.5, 0.3], [-0.7, -1.1], [0.2, 2.0], [0.9, 0.4], [-2.0, 0.0]], dtype=torch.float64, requires_grad=True
    )
    slots = np.array(
        [[3, 1, 1, 0, -1, 1], [7, 0, 0, 0, 4, 2], [9, -1, 1, 0, -1, 3], [12, 0, -1, 0, 2, 2], [15, 1, -1, 0, -1, 0]]
    )  # good; bad; unknown, with progress; a planted twin; the run's outcome
    loss, told = terms(odds, slots, np.array([[0, 3]]))
    verdicts = softplus(-1.5) + softplus(-0.7) + softplus(0.9) + OUTCOME * softplus(2.0)
    progress = PROGRESS * (softplus(-0.3) + softplus(-1.1) + softplus(-2.0))
    pair = PAIRS * softplus(-(1.5 - 0.9))
    assert loss.item() == pytest.approx(verdicts + progress + pair, abs=1e-12)
    assert told["nll"] == pytest.approx([softplus(-1.5), softplus(-0.7), softplus(0.9)])
    assert told["right"] == [1.0, 1.0, 0.0]
    assert told["odds"] == [1.5, -0.7, 0.9, -2.0] and told["y"] == [1, 0, 0, 1]
    shifted, _ = terms(odds, slots, np.array([[0, 3]]), bias=1.0)
    verdicts = softplus(-2.5) + softplus(0.3) + softplus(1.9) + OUTCOME * softplus(1.0)
    assert shifted.item() == pytest.approx(verdicts + progress + pair, abs=1e-12)
    loss.backward()
    assert odds.grad is not None
    sigmoid = lambda x: 1 / (1 + math.exp(-x))  # noqa: E731
    assert odds.grad[0, 0].item() == pytest.approx(sigmoid(1.5) - 1 - PAIRS * (1 - sigmoid(0.6)), abs=1e-12)
    assert odds.grad[2].tolist() == pytest.approx([0.0, PROGRESS * (sigmoid(2.0) - 1)], abs=1e-12)


def test_an_unknown_slot_alone_costs_nothing() -> None:
    loss, told = terms(torch.tensor([[5.0, 5.0]]), np.array([[3, -1, -1, 0, -1, 1]]), np.zeros((0, 2), dtype=int))
    assert loss.item() == 0.0 and told == {"nll": [], "right": [], "odds": [], "y": [], "weights": []}


def test_good_and_bad_labels_count_the_same_in_an_update() -> None:
    def slots(*labels: int) -> np.ndarray:
        return np.array([[i, y, -1, 0, -1, 1] for i, y in enumerate(labels)])

    assert class_weights([slots(1, 0, 1), slots(-1, 1)]) == (2.0, pytest.approx(2 / 3))
    assert class_weights([slots(*[1] * 19, 0)]) == (RARE, pytest.approx(RARE / 19))
    assert class_weights([slots(1, -1)]) == (1.0, 1.0)
    odds = torch.tensor([[1.5, 0.0], [0.5, 0.0]], dtype=torch.float64)
    loss, _ = terms(odds, slots(1, 0), np.zeros((0, 2), dtype=int), (2.0, 0.5))
    assert loss.item() == pytest.approx(0.5 * softplus(-1.5) + 2.0 * softplus(0.5), abs=1e-12)


@pytest.mark.parametrize("frequent", [1, 99])
def test_the_loss_moves_no_constant_once_it_was_found(frequent: int) -> None:
    part = np.array([[0, 0, -1, 0, -1, 1], *([i, 1, -1, 0, -1, i % 2] for i in range(frequent))])
    odds = torch.randn(len(part), 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    balance, none = class_weights([part]), np.zeros((0, 2), dtype=int)
    _, told = terms(odds, part, none, balance)
    bias = torch.tensor(
        new_bias(0.0, told["odds"], told["y"], told["weights"], steps=50), dtype=torch.float64
    ).requires_grad_()
    terms(odds, part, none, balance, bias)[0].backward()  # pyright: ignore[reportArgumentType]
    assert bias.grad is not None and abs(float(bias.grad)) < 1e-9


def test_the_constant_of_an_update_is_the_one_of_least_loss() -> None:
    odds, labels = [3.0, 2.0, 2.5, 1.0], [1, 1, 1, 0]
    bias = new_bias(0.0, odds, labels, [1 / 3] * 3 + [1.0], steps=30)

    def loss(b: float) -> float:
        return sum(softplus(-(d + b)) / 3 for d in odds[:3]) + softplus(odds[3] + b)

    assert loss(bias) < min(loss(bias - 0.01), loss(bias + 0.01))
    assert new_bias(0.3, odds[:3], labels[:3], [1.0] * 3) == 0.3


def test_a_branch_sees_the_prefix_it_leaves_at_and_itself() -> None:
    torch.manual_seed(0)
    parts = spans(np.array([[0, 0], [5, 3], [7, 2]]), 9)
    assert parts == [(0, 0, 5), (5, 3, 7), (7, 2, 9)]
    q, k, v = (torch.randn(1, heads, 9, 4) for heads in (4, 2, 2))
    found, _ = tree_attention(None, q, k, v, None, 0.5, parts)
    for at, seen in {0: [0], 4: [0, 1, 2, 3, 4], 6: [0, 1, 2, 5, 6], 8: [0, 1, 7, 8]}.items():
        for head in range(4):
            weights = torch.softmax(0.5 * k[0, head // 2, seen] @ q[0, head, at], dim=0)
            torch.testing.assert_close(found[0, at, head], weights @ v[0, head // 2, seen])


def test_every_row_is_read_once_an_epoch_and_each_epoch_has_its_own_order() -> None:
    places = [order(7, 3, place) for place in range(28)]
    epochs = [places[i : i + 7] for i in range(0, 28, 7)]
    assert all(Counter(epoch) == Counter(range(7)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1
    assert places != [order(7, 4, place) for place in range(28)]
    assert [order(7, 3, place) for place in (20, 3)] == [places[20], places[3]]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random base."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        initializer_range=0.2, max_position_embeddings=128,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("base")
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six rows of twenty ids, each with a branch and a pair."""
    rng, made = np.random.default_rng(0), []
    for i in range(6):
        source = int(i == 4)
        slots = [(5, 1, i % 2, source, -1, 1), (11, i % 2, -1, source, -1, 0), (19, 0, -1, source, 3, 1)]
        made.append(Row(rng.integers(0, 50, 20).tolist(), [(0, 0), (12, 4)], slots, [(0, 2)]))
    path = tmp_path_factory.mktemp("rows") / "rows.npz"
    np.savez(
        path, **pack(made, {"choices": [7, 8], "progress": [9, 10], "sources": ["a/x", "b"], "folds": {"f": ["b"]}})
    )  # pyright: ignore[reportArgumentType]
    return path


def trained(base: Path, rows: Path, out: Path, **changes: Any) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Train to 400 ids (ten updates, the first of which finds the constant alone); the state, and the weights that its files hold together."""
    options = "--run r --max-tokens 400 --batch 2 --device cpu --dtype float32 --rank 4 --first-layer 1 --lr 0.01"
    args = parser().parse_args(["--base", str(base), "--rows", str(rows), "--out", str(out), *options.split()])
    state = train(argparse.Namespace(**{**vars(args), **changes}))
    halves, moments = (load_file(out / f"r.{kind}.safetensors") for kind in ("adapter", "moments"))
    return state, {name: p.float() + moments[f"{name}/rest"].float() for name, p in halves.items()}


def test_a_run_that_resumes_ends_where_one_that_was_not_stopped_does(
    base: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.gpu import train_steps

    state, whole = trained(base, rows, tmp_path / "whole")
    assert (state["updates"], state["tokens"], state["finished"]) == (10, 400, True)
    real, updates = torch.optim.AdamW.step, []

    def stop(self: torch.optim.AdamW, *args: Any) -> Any:
        """Runs the clock out after the fourth step of the weights."""
        updates.append(real(self, *args))
        if len(updates) == 4:
            monkeypatch.setattr(train_steps.time, "monotonic", lambda: 1e12)

    with monkeypatch.context() as patched:
        patched.setattr(torch.optim.AdamW, "step", stop)
        state, half = trained(base, rows, tmp_path / "parts", minutes=1000.0)
    monkeypatch.undo()
    assert (state["updates"], state["finished"]) == (5, False)
    state, parts = trained(base, rows, tmp_path / "parts")
    assert (state["updates"], state["tokens"], state["finished"]) == (10, 400, True)
    assert set(parts) == set(whole) and all("layers.1." in name for name in whole)
    size = torch.cat([p.flatten() for p in whole.values()]).norm()
    apart = torch.cat([(parts[n] - whole[n]).flatten() for n in whole]).norm()
    moved = torch.cat([(half[n] - whole[n]).flatten() for n in whole]).norm()
    assert apart <= 2e-3 * moved and moved > 0.05 * size
    lines = [json.loads(line) for line in (tmp_path / "parts" / "r.log.jsonl").read_text().splitlines()]
    assert [line["updates"] for line in lines] == list(range(1, 11))


def test_the_saved_weights_are_those_of_training_to_sixteen_bits(
    base: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.gpu import train_steps

    exact: dict[str, torch.Tensor] = {}
    real = train_steps.save

    def kept(out: Path, run: str, model: Any, *rest: Any) -> None:
        exact.update({n: p.detach().clone() for n, p in train_steps.trained(model).items()})
        real(out, run, model, *rest)

    monkeypatch.setattr(train_steps, "save", kept)
    _, saved = trained(base, rows, tmp_path)
    for name, p in exact.items():
        torch.testing.assert_close(saved[name], p, rtol=2**-16, atol=1e-30)
    assert len(Rows(rows)) == 6


def test_kept_outputs_of_the_layers_below_change_a_training_by_their_rounding_alone(
    base: Path, rows: Path, tmp_path: Path
) -> None:
    _, plain = trained(base, rows, tmp_path / "plain")
    for again in ("filled", "read"):
        _, kept = trained(base, rows, tmp_path / again, lower=str(tmp_path / "lower"))
        apart = torch.cat([(kept[n] - plain[n]).flatten() for n in plain]).norm()
        assert 0 < apart < 0.02 * torch.cat([p.flatten() for p in plain.values()]).norm()
    assert len(list((tmp_path / "lower").iterdir())) == 2


def test_rows_of_a_fold_that_is_left_out_are_not_read(base: Path, rows: Path, tmp_path: Path) -> None:
    trained(base, rows, tmp_path, leave_out="f", lower=str(tmp_path / "lower"))
    (known,) = (tmp_path / "lower").glob("*.known")
    assert np.fromfile(known, np.uint8).tolist() == [1, 1, 1, 1, 0, 1]


def test_files_of_two_updates_are_not_gone_on_from(base: Path, rows: Path, tmp_path: Path) -> None:
    trained(base, rows, tmp_path)
    state = json.loads((tmp_path / "r.state.json").read_text())
    (tmp_path / "r.state.json").write_text(json.dumps({**state, "updates": 9}))
    with pytest.raises(SystemExit, match="of another update"):
        trained(base, rows, tmp_path)
