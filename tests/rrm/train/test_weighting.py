"""The loss of SFT through the real SFTTrainer: each mode has its share of the gradient."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from reagent.lab.model import build_lab_model, build_lab_tokenizer
from rrm.config import LossWeights, SFTSettings, TrainConfig
from rrm.prompt.prompter import Prompter
from rrm.train.data import TrainingRow
from rrm.train.sft import train_sft

PER_BATCH = 2


@pytest.fixture(scope="module")
def prompter() -> Prompter:
    return Prompter(build_lab_tokenizer(["step good bad score 0.5"], 300), transcript_tokens=60)


@pytest.fixture(scope="module")
def model(prompter: Prompter) -> Any:
    return build_lab_model(prompter.tokenizer, hidden=32, layers=1, heads=2, seed=0)


def rows() -> list[TrainingRow]:
    """Two micro-batches of scores (4 labels a row) about two of whole judgements (about 100 labels a row)."""
    generator = torch.Generator().manual_seed(0)

    def ids(n: int) -> list[int]:
        return torch.randint(5, 200, (n,), generator=generator).tolist()

    def some(mode: Any, length: int) -> list[TrainingRow]:
        return [TrainingRow(ids(12 + i), ids(length + 3 * i), mode, weight=1.0 + 2 * i) for i in range(PER_BATCH)]

    return [*some("score", 4), *some("full", 100), *some("full", 90), *some("score", 4)]


def expected(model: Any, batch: Sequence[TrainingRow], weights: LossWeights) -> dict[str, torch.Tensor]:
    """The gradient of one micro-batch from plain logits, row by row."""
    model = copy.deepcopy(model)
    total = torch.zeros(())
    for row in batch:
        logprobs = model(input_ids=torch.tensor([row.prompt + row.completion])).logits[0].log_softmax(-1)
        labels = torch.tensor(row.completion)
        nll = -logprobs[len(row.prompt) - 1 : -1].gather(1, labels[:, None]).sum()
        total = total + row.weight * getattr(weights, row.mode) * nll
    (total / sum(len(row.completion) for row in batch)).backward()
    return {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


def gradients(
    model: Any,
    prompter: Prompter,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    accumulation: int,
    weights: LossWeights,
) -> list[dict[str, torch.Tensor]]:
    """The gradient of each update, as the trainer's optimizer gets it (at rate 0)."""
    from trl.trainer.sft_trainer import SFTTrainer

    collected: list[dict[str, torch.Tensor]] = []
    step = SFTTrainer.training_step

    def watched(self: Any, model: Any, *rest: Any) -> Any:
        loss = step(self, model, *rest)
        collected.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
        return loss

    monkeypatch.setattr(SFTTrainer, "training_step", watched)
    settings = SFTSettings(
        learning_rate=0.0,
        batch_size=PER_BATCH,
        gradient_accumulation_steps=accumulation,
        lora=None,
        loss_weights=weights,
    )
    train_sft(copy.deepcopy(model), rows(), prompter, TrainConfig(cpu=True, sft=settings), folder)
    return collected[accumulation - 1 :: accumulation]


@pytest.mark.parametrize("accumulation", [1, 2, 4])
@pytest.mark.parametrize("weights", [LossWeights(), LossWeights(score=2.5, full=0.5)], ids=["even", "chosen"])
def test_a_mode_gets_its_share_of_the_gradient_whatever_accumulates_beside_it(
    model: Any, prompter: Prompter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accumulation: int, weights: Any
) -> None:
    """Score rows are half of these rows; divided by all label tokens they used to get 5 % of the loss."""
    batch_rows = rows()
    each = [expected(model, batch_rows[i : i + PER_BATCH], weights) for i in range(0, len(batch_rows), PER_BATCH)]
    updates = gradients(model, prompter, tmp_path, monkeypatch, accumulation, weights)
    assert len(updates) == len(each) // accumulation
    for update, gradient in enumerate(updates):
        parts = each[update * accumulation : (update + 1) * accumulation]
        for name, value in gradient.items():
            expected_mean = torch.stack([batch[name] for batch in parts]).mean(0)
            torch.testing.assert_close(value, expected_mean, rtol=1e-3, atol=1e-6, msg=f"{name}, update {update}")


def test_scores_and_texts_have_equal_shares_of_one_update(
    model: Any, prompter: Prompter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The update's gradient is a sum of the two modes' mean gradients: ½ each."""
    batch_rows = rows()
    each = [expected(model, batch_rows[i : i + PER_BATCH], LossWeights()) for i in range(0, len(batch_rows), PER_BATCH)]
    (gradient_by_name,) = gradients(model, prompter, tmp_path, monkeypatch, 4, LossWeights())
    scores, texts = (
        torch.cat([(each[a][n] + each[b][n]).flatten() / 2 for n in gradient_by_name]) for a, b in ((0, 3), (1, 2))
    )
    update = torch.cat([gradient.flatten() for gradient in gradient_by_name.values()])
    shares = torch.linalg.lstsq(torch.stack([scores, texts], 1), update[:, None]).solution.flatten()
    assert shares.tolist() == pytest.approx([0.5, 0.5], abs=1e-3)


def test_the_model_is_left_as_it_was(model: Any, prompter: Prompter, tmp_path: Path) -> None:
    settings = SFTSettings(batch_size=PER_BATCH, gradient_accumulation_steps=4, lora=None)
    trained = train_sft(copy.deepcopy(model), rows(), prompter, TrainConfig(cpu=True, sft=settings), tmp_path)
    assert not trained._forward_hooks and not trained._forward_pre_hooks
