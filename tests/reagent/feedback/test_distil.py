"""Second attempts learned as first ones: which, token for token, after what prompt, and with which gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from feedback_lab import TURNS, configured, make_episode, score_of, scripted, trainer_of
from test_feedback import judged_text

from reagent.feedback.base import Judged, Round
from reagent.feedback.build import MODES
from reagent.feedback.distil import drawn, lost, worth_learning
from reagent.feedback.settings import DistilConfig, FeedbackConfig
from reagent.feedback.texts import TextRow, attempt_row
from reagent.rollout.episode import Episode, Turn
from reagent.rollout.rollout import Attempt
from reagent.rollout.templates import TurnTemplate
from reagent.train.trainer import AgentTrainer
from rrm.feedback import Feedback, JudgeInfo

SETTINGS = DistilConfig(weight=0.5, below=0.4, above=0.6)


def judged(success: bool | None, score: float | None = None, ungraded: bool = False) -> Judged:
    episode = make_episode([0.0])
    episode.success, episode.ungraded = success, ungraded
    status = "unparsable" if score is None else "scored"
    said = Feedback(id="t", status=status, score=score, judge=JudgeInfo(model="m", prompt_version="2", mode="score"))
    return Judged(episode, said)


def open_(*scores: float | None) -> list[Judged]:
    return [judged(None, score, ungraded=True) for score in scores]


# ---- which ----


def test_a_task_is_lost_where_every_first_attempt_failed() -> None:
    no, yes, unknown = judged(False, 0.9), judged(True, 0.1), judged(None)
    assert lost([no, no], SETTINGS) and lost([no, unknown], SETTINGS)
    assert not lost([no, yes], SETTINGS) and not lost([unknown, unknown], SETTINGS) and not lost([], SETTINGS)
    assert lost(open_(0.1, 0.39, None), SETTINGS)
    assert not lost(open_(0.1, 0.4), SETTINGS) and not lost(open_(None, None), SETTINGS)


def test_successes_are_learned_and_of_ungraded_attempts_the_best() -> None:
    no, yes = judged(False, 0.99), judged(True, 0.0)
    assert worth_learning([no, yes, no, yes], SETTINGS) == [1, 3]
    assert worth_learning(open_(0.7, 0.9, 0.9, None), SETTINGS) == [1]
    assert worth_learning(open_(0.59, None), SETTINGS) == [] and worth_learning([], SETTINGS) == []


def test_most_are_drawn_alike_on_every_process() -> None:
    names = [f"t{i}/refined/0" for i in range(9)]
    some = drawn(names, 4, 0, 3)
    assert len(some) == 4 and some == drawn(names[::-1], 4, 0, 3) and some <= set(names)
    assert len({frozenset(drawn(names, 4, 0, update)) for update in range(8)}) > 1
    assert drawn(names, 9, 0, 0) == set(names)


# ---- token for token ----


def test_a_row_is_the_prompt_and_the_turns_as_sampled_and_only_actions_are_learned() -> None:
    episode = make_episode([0.0])
    episode.turns = [Turn([11, 12], [-1.0, -1.0], [20, 21, 22]), Turn([13, 14, 15], [-1.0] * 3, [])]
    row = attempt_row(episode, [1, 2, 3, 4], 0.5)
    assert row.ids == [1, 2, 3, 4, 11, 12, 20, 21, 22, 13, 14, 15]
    assert (row.start, row.kind, row.weight, row.tokens) == (4, "attempt", 0.5, 5)
    assert row.learned == [True, True, False, False, False, True, True, True]
    with pytest.raises(ValueError, match="at least one token"):
        attempt_row(episode, [], 0.5)


def test_the_loss_is_the_weighted_mean_nll_of_actions_and_so_is_its_gradient(base, tmp_path) -> None:
    """Observation tokens (7, 8, 9) are context: neither in the mean nor in the gradient. Texts of a judge stand beside it."""
    trainer = trainer_of(configured(base, tmp_path, "none", algorithm="grpo"))
    masks = [[True, True, False, False, True], [True]]
    rows = [
        TextRow([1, 5, 6, 7, 8, 9], 1, "attempt", 0.5, masks[0]),
        TextRow([1, 2, 6], 2, "attempt", 0.5, masks[1]),
        TextRow([5, 6, 7, 8], 2, "trace", 0.25),
    ]
    trainer.policy.zero_grad()
    found = trainer.imitate(rows)
    kept = {n: p.grad.clone() for n, p in trainer.policy.named_parameters() if p.grad is not None}
    trainer.policy.zero_grad()
    learned = {
        (0, 1): "attempt",
        (0, 2): "attempt",
        (0, 5): "attempt",
        (1, 2): "attempt",
        (2, 2): "trace",
        (2, 3): "trace",
    }
    sums: dict[str, Any] = {"attempt": 0.0, "trace": 0.0}
    for (i, t), kind in learned.items():
        logits = trainer.policy.model(torch.tensor([rows[i].ids])).logits[0]
        sums[kind] = sums[kind] - logits.log_softmax(-1)[t - 1, rows[i].ids[t]]
    (0.5 * sums["attempt"] / 4 + 0.25 * sums["trace"] / 2).backward()
    for name, parameter in trainer.policy.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(kept[name], parameter.grad, rtol=1e-4, atol=1e-6)
    nll = sum(part.losses.get("attempt_nll", 0.0) for part in found)
    assert nll == pytest.approx(float(sums["attempt"].detach()) / 4, rel=1e-4)


# ---- in a round ----


def graded(trainer: AgentTrainer, solved: Any) -> Round:
    """A round of real episodes whose success is `solved(episode)`: an untrained policy has none of its own."""

    def play(attempts: Sequence[Attempt], *, update: int, **hooks: Any) -> list[Episode]:
        episodes = trainer.play(attempts, update=update, **hooks)
        for e in episodes:
            e.success = solved(e)
        return episodes

    return trainer.round(0, play)


@pytest.mark.parametrize("mode", ["c", "u", "retry"])
def test_successful_second_attempts_of_lost_tasks_are_learned_after_the_question_alone(
    base, tmp_path, mode: str
) -> None:
    """Four tasks of two attempts: the first task is solved at once; of the others the second attempts with number 1 succeed."""
    feedback = {"distil": {"weight": 0.5}, "aux": {"trace": 0.0, "critique": 0.0}}
    config = configured(base, tmp_path, mode, environment=TURNS, feedback=feedback, algorithm="grpo")
    trainer = trainer_of(config, scripted())
    easy = trainer.tasks[0].id
    round_ = graded(trainer, lambda e: e.attempt == 1 and (e.stage == "refined" or e.task.id == easy))
    first = {(e.group_id, e.attempt): e for e in round_.played if e.stage == "initial"}
    wanted = [e for e in round_.played if e.stage == "refined" and e.success and e.task.id != easy]
    assert len(wanted) == len(round_.texts) == 3
    rows = {tuple(row.ids): row for row in round_.texts}
    for again in wanted:
        asked = first[again.group_id, 0].prompt_ids
        said = [i for t in again.turns for i in (*t.output_ids, *t.observation_ids)]
        row = rows[(*asked, *said)]
        assert row.start == len(asked) < len(again.prompt_ids) and (row.kind, row.weight) == ("attempt", 0.5)
        assert len(again.turns) == 2 and again.turns[0].observation_ids
        flat = again.flatten()
        assert row.learned == flat.action_mask[len(again.prompt_ids) :].tolist()
        # what a new environment says, rendered anew, is what the row begins with, to the bit
        messages = trainer.env_factory().reset(again.task)
        assert TurnTemplate(trainer.tokenizer).prompt(messages) == asked == first[again.group_id, 1].prompt_ids
    figures = trainer.feedback.report(0, [round_.report])
    assert [figures[f"feedback/{name}"] for name in ("lost_groups", "distillable", "distilled")] == [3, 3, 3]
    metrics = trainer.learn(round_.rows, round_.texts)
    assert metrics["attempt_nll"] > 0 and metrics["grad_norm"] > 0


def test_no_more_are_learned_than_the_cap_allows(base, tmp_path) -> None:
    feedback = {"distil": {"weight": 0.5, "most": 2}}
    trainer = trainer_of(configured(base, tmp_path, "retry", feedback=feedback, algorithm="grpo"))
    round_ = graded(trainer, lambda e: e.stage == "refined")
    figures = trainer.feedback.report(0, [round_.report])
    assert (figures["feedback/distillable"], figures["feedback/distilled"], len(round_.texts)) == (8, 2, 2)


BAR = 0.5
"""Of a judge's score: a first attempt below it failed, a second one from it on is learned."""


def test_of_what_nobody_can_grade_the_judge_chooses(base, tmp_path) -> None:
    feedback = {"distil": {"weight": 0.5, "below": BAR, "above": BAR}}
    config = configured(
        base, tmp_path, "c", environment={"name": "test_ungraded:OpenEnv"}, feedback=feedback, algorithm="grpo"
    )
    trainer = trainer_of(config, scripted())
    assert type(trainer.feedback).pays_feedback(config.feedback)
    round_ = trainer.round(0)
    first = {(e.group_id, e.attempt): e for e in round_.played if e.stage == "initial"}
    scores: dict[str, dict[int, tuple[float, Episode]]] = {}
    hopeless = {e.group_id for e in first.values()} - {
        e.group_id for e in first.values() if score_of(judged_text(e)) >= BAR
    }
    for e in round_.played:
        if e.stage == "refined" and e.group_id in hopeless:
            score = score_of(judged_text(e, first[e.group_id, e.attempt]))
            scores.setdefault(e.group_id, {})[e.attempt] = score, e
    wanted = set()
    for found in scores.values():
        score, best = max(found.values(), key=lambda pair: pair[0])
        if score < BAR:
            continue
        asked = first[best.group_id, best.attempt].prompt_ids
        wanted.add((*asked, *(i for t in best.turns for i in (*t.output_ids, *t.observation_ids))))
    assert wanted and {tuple(row.ids) for row in round_.texts} == wanted
    assert all(row.reward is None for row in round_.rows)
    assert trainer.learn(round_.rows, round_.texts)["attempt_nll"] > 0


def test_nothing_is_asked_and_nothing_learned_where_it_is_off(base, tmp_path) -> None:
    trainer = trainer_of(configured(base, tmp_path, "retry", algorithm="grpo"))
    round_ = graded(trainer, lambda e: e.stage == "refined")
    assert round_.texts == [] and round_.report.counts["distillable"] == 0


def test_without_a_judge_nobody_chooses_among_ungraded_attempts() -> None:
    off = {
        "score_weight": 0.0,
        "refinement": "retry",
        "aux": {"trace": 0.0, "critique": 0.0},
        "distil": {"weight": 0.1},
    }
    for mode, changes, learns in (
        ("u", off, False),
        ("u", {**off, "refinement": "critique"}, True),
        ("retry", off, False),
    ):
        settings = FeedbackConfig.model_validate({"mode": mode, **changes})
        assert MODES[settings.mode].pays_feedback(settings) == learns


def test_settings_that_could_learn_nothing_are_refused() -> None:
    for mode, more in (("r", {}), ("none", {}), ("u", {"refinement": "none"})):
        with pytest.raises(ValueError, match=r"feedback\.distil learns second attempts"):
            FeedbackConfig.model_validate({"mode": mode, "distil": {"weight": 0.1}, **more})
    for mode, more in (("r", {}), ("retry", {}), ("u", {"refinement": "retry"})):
        with pytest.raises(ValueError, match=r"feedback\.context weighs first attempts by a critique"):
            FeedbackConfig.model_validate({"mode": mode, "context": {"weight": 0.1}, **more})
    with pytest.raises(ValueError, match="train_initial"):
        FeedbackConfig.model_validate({"mode": "c", "context": {"weight": 0.1}, "train_initial": False})


@pytest.mark.parametrize("parts", [1, 4])
def test_the_logged_nll_is_of_the_steps_that_have_texts(base, tmp_path, parts: int) -> None:
    """One attempt is in one of four minibatches: a mean over all four would say a quarter of its loss."""
    optim = {"minibatches": parts, "learning_rate": 1e-12}
    trainer = trainer_of(configured(base, tmp_path, "none", algorithm="grpo", optim=optim))
    rows, ids = trainer.round(0).rows, [1, 5, 6, 7]
    with torch.no_grad():
        told = trainer.policy.model(torch.tensor([ids])).logits[0].log_softmax(-1)
    wanted = -sum(float(told[t - 1, ids[t]]) for t in (2, 3)) / 2
    metrics = trainer.learn(rows, [TextRow(ids, 2, "attempt", 0.1)])
    assert metrics["attempt_nll"] == pytest.approx(wanted, rel=1e-3) and "trace_nll" not in metrics
