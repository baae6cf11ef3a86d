"""Context distillation: token advantages against float64 by hand, and the prompts they compare."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from feedback_lab import TURNS, configured, scripted, trainer_of

from reagent.algorithms.context import context_differences
from reagent.feedback.base import Round
from reagent.train.batch import make_batch
from reagent.train.trainer import AgentTrainer

WEIGHT, CLIP = 0.5, 0.05


def made(base: Path, folder: Path, mode: str = "c", weight: float = WEIGHT, **changes) -> AgentTrainer:
    feedback = {"context": {"weight": weight, "clip": CLIP}, **changes.pop("feedback", {})}
    config = configured(
        base,
        folder,
        mode,
        environment=TURNS,
        feedback=feedback,
        algorithm="grpo",
        rollout={"temperature": 0.7},
        **changes,
    )
    return trainer_of(config, scripted())


def by_hand(trainer: AgentTrainer, prompt: list[int], episode) -> torch.Tensor:
    """log π of an episode's actions after a prompt, by one float64 forward at the rollout's temperature."""
    tail = [i for t in episode.turns for i in (*t.output_ids, *t.observation_ids)]
    actions = [x for t in episode.turns for x in [True] * len(t.output_ids) + [False] * len(t.observation_ids)]
    ids = torch.tensor([[*prompt, *tail]])
    model = trainer.policy.model
    try:
        with torch.no_grad():
            logits = model.double()(ids).logits[0] / 0.7
    finally:
        model.float()
    places = [len(prompt) + i for i, action in enumerate(actions) if action]
    return torch.stack([logits[t - 1].log_softmax(-1)[ids[0, t]] for t in places])


def test_token_advantages_are_the_clipped_difference_of_log_probabilities(base, tmp_path) -> None:
    trainer = made(base, tmp_path)
    round_ = trainer.round(0)
    batch = make_batch(round_.rows)
    plain = trainer.prepare(batch)
    found, figures = trainer.with_contexts(plain, round_.rows, round_.contexts)
    firsts = [i for i, e in enumerate(round_.rows) if e.stage == "initial"]
    assert len(firsts) == len(round_.contexts) == 8
    gaps: list[torch.Tensor] = []
    for i, row in enumerate(round_.rows):
        added = (found.advantages.advantages - plain.advantages.advantages)[i]
        if row.stage == "refined":
            assert not added.any()
            continue
        gap = by_hand(trainer, round_.contexts[row.key], row) - by_hand(trainer, row.prompt_ids, row)
        gaps.append(gap)
        wanted = (WEIGHT * gap.clamp(-CLIP, CLIP)).float()
        torch.testing.assert_close(added[batch.action_mask[i]], wanted, rtol=1e-3, atol=1e-5)
        assert not added[~batch.action_mask[i]].any()
    whole = torch.cat(gaps)
    assert float(whole.abs().max()) > CLIP and figures["context_tokens"] == len(whole)
    assert figures["context_gap"] == pytest.approx(float(whole.mean()), rel=1e-3, abs=1e-5)
    assert figures["context_clipped"] == pytest.approx(float((whole.abs() > CLIP).double().mean()), abs=2 / len(whole))
    assert not found.advantages.advantages.requires_grad


def test_a_context_is_the_prompt_with_the_critique_behind_the_question_and_no_attempt(base, tmp_path) -> None:
    trainer = made(base, tmp_path)
    round_ = trainer.round(0)
    for e in (e for e in round_.rows if e.stage == "initial"):
        context, plain = (trainer.tokenizer.decode(ids) for ids in (round_.contexts[e.key], e.prompt_ids))
        head, _, tail = plain.rpartition(e.task.question)
        said = context.removeprefix(head + e.task.question)
        assert said.startswith("\nCritique:\n[step 1] ") and said.endswith(tail) and "First attempt" not in context
    writer = trainer.feedback._writer
    assert writer is not None
    first = round_.rows[0]
    assert writer.with_critique(first, "[step 1] bad: x", 100)
    assert writer.with_critique(replace(first, prompt_ids=first.prompt_ids[:-1]), "x", 100) is None  # not its prompt
    writer.longest = len(first.prompt_ids)
    assert writer.with_critique(first, "[step 1] bad: x", 100) is None


def learned(trainer: AgentTrainer, round_: Round) -> dict[str, float]:
    return trainer.learn(round_.rows, round_.texts, round_.contexts)


def test_a_policy_steps_on_the_difference_and_on_nothing_where_the_weight_is_zero(base, tmp_path) -> None:
    """All rewards equal: the algorithm's own advantages are 0, and what moves the policy is the critique."""
    for weight in (0.0, WEIGHT):
        trainer = made(base, tmp_path / str(weight), weight=weight)
        round_ = trainer.round(0)
        for row in round_.rows:
            row.outcome_reward = 0.0
            for turn in row.turns:
                turn.reward = 0.0
        metrics = learned(trainer, round_)
        assert bool(round_.contexts) == ("context_gap" in metrics) == (weight > 0)
        assert (metrics["grad_norm"] > 0) == (weight > 0)


def test_u_without_second_attempts_asks_for_critiques_all_the_same(base, tmp_path) -> None:
    feedback = {"refinement": "none", "aux": {"trace": 0.0, "critique": 0.0}, "score_weight": 0.0}
    trainer = made(base, tmp_path, "u", feedback=feedback)
    round_ = trainer.round(0)
    assert len(round_.played) == len(round_.contexts) == 8 and not round_.texts
    assert learned(trainer, round_)["context_tokens"] == sum(len(t.output_ids) for e in round_.rows for t in e.turns)


def test_actions_must_be_the_same_after_both_prompts() -> None:
    plain = torch.tensor([[0.0, 0.0, -1.0, -2.0], [0.0, -3.0, 0.0, 0.0]])
    mask = torch.tensor([[False, False, True, True], [False, True, False, False]])
    told = torch.tensor([[9.0, 9.0, 9.0, -0.5, -2.5], [9.0, 9.0, -1.0, 9.0, 9.0]])
    told_mask = torch.tensor([[False, False, False, True, True], [False, False, True, False, False]])
    wanted = torch.tensor([[0.0, 0.0, 0.5, -0.5], [0.0, 2.0, 0.0, 0.0]])
    assert torch.equal(context_differences(plain, mask, told, told_mask), wanted)
    with pytest.raises(ValueError, match=r"\[2, 1\] and \[1, 1\]"):
        context_differences(plain, mask, told, told_mask & (told != -0.5))
