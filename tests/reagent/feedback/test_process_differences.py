"""Differences of a judge's opinion as turn rewards: what they add up to, what Φ reads, what it costs."""

from __future__ import annotations

from typing import Any

import pytest
from feedback_lab import TURNS, configured, make_episode, scripted, trainer_of
from test_feedback import judged_text, score_of

from reagent.feedback.base import as_judged
from reagent.feedback.potential_shaping import forward_fill, lowest_so_far, prefixes
from reagent.feedback.settings import FeedbackConfig
from reagent.feedback.shaping import differences, with_differences
from reagent.lab.model import build_lab_model, build_lab_tokenizer
from reagent.train.config import AgentConfig
from rrm.data.annotation import Finding
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.hf.engine import HFEngine
from rrm.errors import ConfigError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings
from rrm.prompt.prompter import Prompter

LAMBDA = 0.3


def test_a_turn_of_which_the_judge_is_unsure_leaves_phi_as_it_was() -> None:
    said = [(1, "good", 0.8), (2, "unsure", 0.1), (3, "bad", 0.4), (4, "good", 0.9)]
    findings = [Finding(step=k, verdict=verdict, p_good=p) for k, verdict, p in said]  # pyright: ignore[reportArgumentType]
    assert lowest_so_far(findings, 4) == [0.8, 0.8, 0.4]


# ---- what they add up to ----


def test_differences_are_those_of_ng_harada_and_russell() -> None:
    assert differences([0.5, 0.25, 1.0]) == [-0.25, 0.75]
    assert differences([0.5, 0.25, 1.0], gamma=0.5) == [0.5 * 0.25 - 0.5, 0.5 * 1.0 - 0.25]
    assert differences([0.5]) == []


@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_a_discounted_sum_of_differences_leaves_first_and_last(gamma: float) -> None:
    """Σ γ^k F_k = γ^K Φ(s_K) − Φ(s_0): with Φ(end) = 0 it is −Φ(start), whatever happens between: no policy gains by it."""
    for between in ([0.1, 0.9, 0.3], [0.7], [], [1.0, 0.0, 1.0, 0.0, 1.0]):
        for end in (0.0, 0.75):
            differs = differences([0.4, *between, end], gamma=gamma)
            total = sum(gamma**k * f for k, f in enumerate(differs))
            assert total == pytest.approx(gamma ** len(differs) * end - 0.4, abs=1e-12)


@pytest.mark.parametrize("potentials", [[], [0.25], [0.5, 0.125, 1.0, 0.0]])
def test_a_score_is_spread_over_the_turns_to_the_last_bit(potentials: list[float]) -> None:
    turns = len(potentials) + 1
    spread = with_differences(make_episode([0.0] * turns), potentials, 0.75, 0.5)
    assert sum(t.reward for t in spread.turns) == 0.5 * 0.75
    shaped = with_differences(make_episode([0.0] * turns), potentials, 0.0, 0.5)
    assert sum(t.reward for t in shaped.turns) == 0.0
    by_hand = [0.5 * (b - a) for a, b in zip([0.0, *potentials], [*potentials, 0.75], strict=True)]
    assert [t.reward for t in spread.turns] == by_hand
    earned = with_differences(make_episode([0.25] * turns, outcome=1.0), potentials, 0.75, 0.5)
    assert earned.reward == 0.25 * turns + 1.0 + 0.5 * 0.75


def test_a_failed_judgement_is_no_score_and_turns_are_counted() -> None:
    assert with_differences(make_episode([0.0, 0.0]), [0.5], None, 0.3).reward is None
    with pytest.raises(ValueError, match="2 turns, and Φ after 3"):
        with_differences(make_episode([0.0, 0.0]), [0.5, 0.5, 0.5], 1.0, 0.3)


# ---- Φ ----


def test_phi_is_the_lowest_p_good_so_far() -> None:
    def said(*p: float | None) -> list[Finding]:
        return [Finding(step=k, verdict="good", p_good=x) for k, x in enumerate(p, start=1)]

    assert lowest_so_far(said(0.9, 0.4, 0.8, 0.1), 4) == [0.9, 0.4, 0.4]
    assert lowest_so_far(said(None, 0.6, None, 0.7, 0.2), 5) == [0.0, 0.6, 0.6, 0.6]
    assert lowest_so_far([], 3) == [0.0, 0.0] and lowest_so_far(said(0.9), 1) == []
    assert forward_fill([None, 0.5, None, 0.25]) == [0.0, 0.5, 0.5, 0.25]


def test_a_prefix_is_the_attempt_up_to_a_turns_end_and_nothing_later() -> None:
    episode = make_episode([0.0, 0.0, 0.0])
    own = [
        m
        for k in range(3)
        for m in (Message(role="assistant", content=f"turn {k}"), Message(role="tool", content=f"seen {k}"))
    ][:-1]
    shown = [Message(role="user", content="an example"), Message(role="assistant", content="its answer")]
    messages = [*shown, Message(role="user", content="?"), *own]
    episode.trajectory, episode.prompt_messages = Trajectory(id="t", task="?", messages=messages), 3
    said = [[m.text() for m in t.messages] for t in prefixes(episode)]
    assert said == [["?", "turn 0", "seen 0"], ["?", "turn 0", "seen 0", "turn 1", "seen 1"]]
    assert [m.text() for m in as_judged(episode).messages] == [*said[1], "turn 2"]
    assert [len(t.steps) for t in prefixes(episode)] == [1, 2]


# ---- in training ----


def differing(base: Any, folder: Any, pay: str, **feedback: Any) -> AgentConfig:
    changes = {"process": {"pay": pay, "judge_mode": feedback.pop("judge_mode", None)}, **feedback}
    return configured(
        base, folder, "process", environment=TURNS, feedback=changes, algorithm="grpo", loss={"credit": "turn"}
    )


@pytest.mark.parametrize("pay", ["spread", "shaping"])
def test_each_prefix_is_scored_as_a_run_of_its_own(base, tmp_path, pay: str) -> None:
    judge = scripted()
    trainer = trainer_of(differing(base, tmp_path, pay), judge)
    round_ = trainer.round(0)
    moved = 0
    for row, played in zip(round_.rows, round_.played, strict=True):
        assert len(played.turns) == 2
        (start,) = prefixes(played)
        assert [m.role for m in played.own_messages[:3]] == ["assistant", "user", "assistant"]
        assert start.messages == [*played.trajectory.messages[: played.prompt_messages], *played.own_messages[:2]]
        middle = score_of(judged_text(played.__class__(**{**vars(played), "trajectory": start})))
        end = score_of(judged_text(played)) if pay == "spread" else 0.0
        expected = [LAMBDA * middle, LAMBDA * (end - middle)]
        assert [a.reward - b.reward for a, b in zip(row.turns, played.turns, strict=True)] == pytest.approx(expected)
        assert row.outcome_reward == played.outcome_reward
        moved += middle != 0
    assert moved
    asked = len(judge.engine.calls)  # pyright: ignore[reportAttributeAccessIssue]
    assert asked == trainer.feedback.report(0, [round_.report])["feedback/asked"] <= 16
    assert trainer.learn(round_.rows)["unknown_rows"] == 0


@pytest.fixture(scope="module")
def slots() -> AgentRRM:
    """An untrained judge whose verdicts stand in slots: its numbers mean nothing, and differ from step to step."""
    tokenizer = build_lab_tokenizer(["Task step agent result is good bad. The run is earlier steps"] * 3, 400)
    model = build_lab_model(tokenizer, hidden=32, layers=2, heads=2, seed=0)
    settings = JudgeSettings(modes=["steps"], prompt_version="2", transcript_tokens=700)
    return AgentRRM(HFEngine(model, tokenizer), Prompter(tokenizer, 700), settings=settings)


def test_one_reading_of_the_slots_is_enough(base, tmp_path, slots: AgentRRM) -> None:
    """Φ after turn 1 is p_good as it stands in the whole run and in the prefix alike; s comes from the same reading."""
    trainer = trainer_of(differing(base, tmp_path, "spread", judge_mode="steps"), slots)
    round_ = trainer.round(0)
    whole = slots.judge([as_judged(e) for e in round_.played], mode="steps")
    alone = slots.judge([prefixes(e)[0] for e in round_.played], mode="steps")
    for row, played, said, part in zip(round_.rows, round_.played, whole, alone, strict=True):
        p, s = said.findings[0].p_good, said.score
        assert p is not None and s is not None and part.findings[0].p_good == pytest.approx(p, abs=1e-6)
        earned = [a.reward - b.reward for a, b in zip(row.turns, played.turns, strict=True)]
        assert earned == pytest.approx([LAMBDA * p, LAMBDA * (s - p)], abs=1e-6)
    figures = trainer.feedback.report(0, [round_.report])
    assert figures["feedback/asked"] == len({tuple(m.text() for m in e.own_messages) for e in round_.played})
    assert figures["feedback/judge_tokens"] <= sum(
        r.tokens for r in slots.measure([as_judged(e) for e in round_.played], "steps")
    )


def test_p_good_as_findings_takes_one_reading_and_is_bounded(base, tmp_path, slots: AgentRRM) -> None:
    feedback = {"process": {"judge_mode": "steps", "good": 0.05, "bad": -0.1, "max_rewarded_steps": 1}}
    trainer = trainer_of(configured(base, tmp_path, "process", environment=TURNS, feedback=feedback), slots)
    round_ = trainer.round(0)
    assert trainer.feedback.report(0, [round_.report])["feedback/asked"] <= 8
    added = [float(row.reward or 0) - float(e.reward or 0) for row, e in zip(round_.rows, round_.played, strict=True)]
    assert any(added) and all(-0.1 - 1e-9 <= x <= 0.05 + 1e-9 for x in added)


def test_ungraded_attempts_learn_from_what_is_spread_and_not_from_shaping(base, tmp_path) -> None:
    for pay in ("spread", "shaping"):
        config = differing(base, tmp_path / pay, pay)
        config.environment.label_share = 0.5
        trainer = trainer_of(config, scripted())
        assert type(trainer.feedback).pays_feedback(config.feedback) == (pay == "spread")
        round_ = trainer.round(0)
        assert {e.ungraded for e in round_.played} == {True, False}
        for row, played in zip(round_.rows, round_.played, strict=True):
            if pay == "shaping":
                assert row.ungraded == played.ungraded and (row.reward is None) == played.ungraded
                continue
            earned = sum(t.reward for t in played.turns) + (played.outcome_reward or 0.0)
            assert row.reward == pytest.approx(earned + LAMBDA * score_of(judged_text(played)))
    config = differing(base, tmp_path / "open", "shaping")
    config.environment.label_share = 0.0
    with pytest.raises(ConfigError, match="none of the 32 training tasks has an answer"):
        trainer_of(config, scripted())


def test_configs_say_where_differences_teach_nothing_or_something_else() -> None:
    def made(pay: str, **changes: Any) -> AgentConfig:
        return AgentConfig.model_validate({"feedback": {"mode": "process", "process": {"pay": pay}}, **changes})

    for pay, changes, message in (
        ("spread", {"algorithm": "grpo"}, r"pay=spread .*feedback\.mode=r: set loss\.credit=turn"),
        ("shaping", {"algorithm": "rloo"}, r"pay=shaping .*feedback\.mode=none: set loss\.credit=turn"),
        ("spread", {"algorithm": "ppo", "loss": {"gamma": 0.99}}, r"set loss\.gamma=1"),
        ("shaping", {"loss": {"gamma": 0.99}}, r"loss\.gamma=1"),
        ("shaping", {"loss": {"bootstrap": True}}, r"loss\.bootstrap=false"),
    ):
        with pytest.raises(ValueError, match=message):
            made(pay, **changes)
    assert made("shaping").algorithm == "ppo" and made("spread", algorithm="grpo", loss={"credit": "turn"})
    with pytest.raises(ValueError, match="has no findings"):
        FeedbackConfig.model_validate({"mode": "process", "process": {"judge_mode": "score"}})
