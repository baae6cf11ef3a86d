"""Training rows of mode `steps`: what is read, what is learned, and what each label weighs."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from reagent.lab.model import build_lab_model, build_lab_tokenizer
from rrm.config import LossWeights, MixConfig, SFTSettings, TrainConfig
from rrm.data.annotation import Annotation, Finding, Verdict
from rrm.data.labels import JudgementTarget, StepTarget, step_targets_of
from rrm.data.trajectory import Message, Trajectory
from rrm.prompt.prompter import Prompter
from rrm.train.data import UNLABELLED, TrainingRow, balanced, batched, epoch_rows, step_rows
from rrm.train.sft import as_dataset, collate, schedule, train_sft
from rrm.train.weighting import KEY


@pytest.fixture(scope="module")
def prompter() -> Prompter:
    return Prompter(build_lab_tokenizer(["Task step agent result is good bad. The run is"] * 3, 400), 400)


@pytest.fixture(scope="module")
def model(prompter: Prompter) -> Any:
    return build_lab_model(prompter.tokenizer, hidden=32, layers=1, heads=2, seed=0)


def run(name: str, steps: int = 3, outcome: float | None = None, question: str = "q", text: str = "look") -> Trajectory:
    messages = [Message(role="user", content=question)]
    for k in range(steps):
        messages.append(Message(role="assistant", content=f"{text} {k}"))
        messages.append(Message(role="tool", content=f"found {k}"))
    return Trajectory(id=name, task=question, question_id=question, messages=messages, outcome=outcome)


def labelled(row: TrainingRow) -> list[tuple[int, int]]:
    return [(i, label) for i, label in enumerate(row.labels or ()) if label != UNLABELLED]


def test_the_input_after_a_slot_is_one_token_whatever_the_label(prompter: Prompter) -> None:
    good, bad = prompter.choices
    trajectory, rng = run("a"), random.Random(0)
    (likely,) = step_rows(prompter, trajectory, JudgementTarget(1.0, "outcome"), StepTarget(("good", None, "bad")), rng)
    (other,) = step_rows(
        prompter, trajectory, JudgementTarget(0.0, "outcome"), StepTarget(("bad", "good", "good")), rng
    )
    assert likely.prompt + likely.completion == other.prompt + other.completion
    assert [label for _, label in labelled(likely)] == [good, bad, good]
    assert [label for _, label in labelled(other)] == [bad, good, good, bad]
    plan = prompter.plan(trajectory, "steps")
    slots = [slot.at for slot in prompter.reading(plan, 0, "steps").slots]
    assert [i for i, _ in labelled(other)] == [index + 1 for index in slots]
    ids = other.prompt + other.completion
    assert {ids[i] for i, _ in labelled(other)} == {prompter.after_slot[0]}
    assert good not in {ids[i] for i, _ in labelled(other)} and len(other.labels or ()) == len(ids)


def test_what_is_not_known_is_not_learned(prompter: Prompter) -> None:
    rng = random.Random(0)
    (steps_only,) = step_rows(prompter, run("a"), None, StepTarget((None, "bad", None), weight=0.5), rng)
    assert [label for _, label in labelled(steps_only)] == [prompter.choices[1]]
    assert (steps_only.weight, steps_only.outcome_weight) == (0.5, None)
    (run_only,) = step_rows(prompter, run("a"), JudgementTarget(1.0, "outcome", weight=0.7), None, rng)
    assert [label for _, label in labelled(run_only)] == [prompter.choices[0]] and run_only.outcome_weight == 0.7
    assert step_rows(prompter, run("a"), None, None, rng) == []


def test_a_soft_outcome_is_drawn(prompter: Prompter) -> None:
    rng, drawn = random.Random(3), []
    for _ in range(400):
        (row,) = step_rows(prompter, run("a", 1), JudgementTarget(0.3, "annotation"), None, rng)
        drawn.append(labelled(row)[0][1] == prompter.choices[0])
    assert sum(drawn) / 400 == pytest.approx(0.3, abs=0.07)


def test_a_long_transcript_gives_one_row_a_reading_with_labels(prompter: Prompter) -> None:
    small = Prompter(prompter.tokenizer, 800)
    long = run("a", 12, text="a word of every kind and one more " * 6)
    plan = small.plan(long, "steps")
    assert len(plan) > 3
    everywhere = StepTarget(("good",) * 12)
    rows = step_rows(small, long, JudgementTarget(1.0, "outcome"), everywhere, random.Random(0))
    assert len(rows) == len(plan) and [row.outcome_weight for row in rows] == [None] * (len(plan) - 1) + [1.0]
    assert sum(len(labelled(row)) for row in rows) == 12 + 1
    nowhere: list[Verdict | None] = [None] * 12
    first_only = StepTarget(("bad", *nowhere[1:]))
    assert len(step_rows(small, long, None, first_only, random.Random(0))) == 1
    # what an earlier window found stands in a later one's digest, as it will when the judge reads
    marked = [
        step_rows(small, long, JudgementTarget(1.0, "outcome"), first_only, random.Random(seed))[-1].prompt
        for seed in range(40)
    ]
    assert 1 < len({tuple(ids) for ids in marked}) <= 2
    sure = {
        tuple(step_rows(small, long, JudgementTarget(1.0, "outcome"), first_only, random.Random(seed), 0.0)[-1].prompt)
        for seed in range(40)
    }
    last = small.reading(plan, len(plan) - 1, "steps", {1: True})
    assert sure == {tuple(last.ids)}


def test_a_batchs_loss_is_the_hand_computed_cross_entropy_at_the_slots(prompter: Prompter, model: Any) -> None:
    """Float64, row by row from plain logits: ½ · mean over the steps + ½ · the run, or all of one."""
    rows = [
        *step_rows(
            prompter, run("a", 5), JudgementTarget(1.0, "outcome"), StepTarget(("good", "bad", None, "bad", "bad")), RNG
        ),
        *step_rows(prompter, run("b", 2), JudgementTarget(0.0, "outcome", weight=0.5), None, RNG),
        *step_rows(prompter, run("c", 4), None, StepTarget(("bad", "good", None, None), weight=3.0), RNG),
    ]
    exact = copy.deepcopy(model).double().eval()
    expected_loss = torch.zeros((), dtype=torch.float64)
    for row, steps, outcome in ((rows[0], 4, 0.5), (rows[1], 0, 0.5), (rows[2], 2, 0.0)):
        logprobs = exact(input_ids=torch.tensor([row.prompt + row.completion])).logits[0].log_softmax(-1)
        nll = [-logprobs[i - 1, label] for i, label in labelled(row)]
        share = (1.0 if outcome == 0 else 0.5) * row.weight
        expected_loss = expected_loss + sum(nll[:steps]) * (share / max(steps, 1)) + sum(nll[steps:]) * outcome
    expected_loss = expected_loss / len(rows)

    dataset = as_dataset(rows)
    batch = collate([dataset[i] for i in range(len(rows))], pad_token_id=0)
    logits = exact(input_ids=batch["input_ids"]).logits[:, :-1]
    labels, weights = batch["labels"][:, 1:], batch[KEY][:, 1:].double()
    nll = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=UNLABELLED, reduction="none"
    )
    loss = (nll.view(labels.shape) * weights).sum() / (labels != UNLABELLED).sum()
    torch.testing.assert_close(loss, expected_loss, rtol=1e-7, atol=1e-9)


RNG = random.Random(0)


def test_the_trainers_gradient_is_that_losss(
    prompter: Prompter, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trl.trainer.sft_trainer import SFTTrainer

    rows = [
        *step_rows(prompter, run("a", 6), JudgementTarget(1.0, "outcome"), StepTarget(("good",) * 5 + ("bad",)), RNG),
        *step_rows(prompter, run("b", 2), JudgementTarget(0.0, "outcome"), StepTarget(("bad", None)), RNG),
    ]
    plain = copy.deepcopy(model)
    total = torch.zeros(())
    for row in rows:
        logprobs = plain(input_ids=torch.tensor([row.prompt + row.completion])).logits[0].log_softmax(-1)
        *steps, last = [-logprobs[i - 1, label] for i, label in labelled(row)]
        total = total + (torch.stack(steps).mean() + 3.0 * last) / 4.0  # loss_weights.outcome = 3
    (total / 2).backward()

    gradients: dict[str, torch.Tensor] = {}
    step = SFTTrainer.training_step

    def watched(self: Any, model: Any, *rest: Any) -> Any:
        loss = step(self, model, *rest)
        gradients.update({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
        return loss

    monkeypatch.setattr(SFTTrainer, "training_step", watched)
    weights = LossWeights(outcome=3.0)
    settings = SFTSettings(
        learning_rate=0.0, batch_size=2, gradient_accumulation_steps=1, lora=None, loss_weights=weights
    )
    train_sft(copy.deepcopy(model), rows, prompter, TrainConfig(cpu=True, sft=settings), tmp_path)
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-3, atol=1e-6, msg=name)


def test_many_steps_do_not_drown_the_outcome(prompter: Prompter) -> None:
    rows = [
        *step_rows(prompter, run("a", 9), JudgementTarget(1.0, "outcome"), StepTarget(("good",) * 9), RNG),
        *step_rows(prompter, run("b", 1), JudgementTarget(1.0, "outcome"), StepTarget(("good",)), RNG),
    ]
    for weight, share in ((1.0, 0.5), (3.0, 0.75), (0.0, 0.0)):
        dataset = as_dataset(rows, loss_weights=LossWeights(outcome=weight))
        batch = collate([dataset[0], dataset[1]], pad_token_id=0)
        shares = batch[KEY] * 2 / (batch["labels"] != UNLABELLED).sum()
        assert shares.sum(1).tolist() == pytest.approx([1.0, 1.0])
        ends = [max(i for i, _ in labelled(row)) for row in rows]
        assert [float(shares[i, end]) for i, end in enumerate(ends)] == pytest.approx([share, share])


def test_rows_without_an_outcome_are_drawn_and_balanced_by_their_last_labelled_step(prompter: Prompter) -> None:
    trajectories = [run(str(i)) for i in range(6)]
    steps = {str(i): StepTarget(("good", "good" if i < 2 else "bad", None)) for i in range(6)}
    drawn = balanced(trajectories, {}, 1.0, random.Random(0), steps)
    assert sorted(steps[t.id].last or "" for t in drawn) == ["bad", "bad", "good", "good"]
    rows = epoch_rows(
        prompter, trajectories, {}, {"steps": 1.0}, balance=None, injection=0.5, rng=random.Random(0), steps=steps
    )
    assert len(rows) == 6 and {row.mode for row in rows} == {"steps"}
    assert len(epoch_rows(prompter, trajectories, {}, {"score": 1.0}, balance=None, injection=0, rng=RNG)) == 0
    settings = SFTSettings(epochs=2, batch_size=4, mix=MixConfig(score=0, steps=1))
    ordered = schedule(prompter, trajectories, {}, settings, seed=1, steps=steps)
    assert len(ordered) == 2 * 8 and ordered == schedule(prompter, trajectories, {}, settings, seed=1, steps=steps)


def test_batches_hold_one_mode(prompter: Prompter) -> None:
    score = [TrainingRow([5] * n, [6, 7], "score") for n in (30, 40, 50)]
    steps = step_rows(prompter, run("a"), None, StepTarget(("good",) * 3), RNG) * 3
    ordered = batched([*score, *steps], 2, random.Random(0))
    assert all(ordered[i].mode == ordered[i + 1].mode for i in range(0, len(ordered), 2))


def test_step_labels_are_the_raters_majority() -> None:
    def said(*verdicts: Verdict, weight: float = 1.0) -> Annotation:
        findings = [Finding(step=k, verdict=v) for k, v in enumerate(verdicts, start=1)]
        return Annotation(trajectory_id="a", findings=findings, annotator="x", kind="human", weight=weight)

    raters = {"a": [said("good", "bad", "unclear", weight=0.5), said("good", "good"), said("bad", weight=0.0)]}
    targets = step_targets_of([run("a"), run("b")], raters)
    assert targets == {"a": StepTarget(("good", "bad", None), 1.0)}
    assert targets["a"].last == "bad"
