"""The arms of the study without an answer key: real configs that pay what they say, in the order in which they are run."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.studies.judges import Others, length
from benchmarks.studies.no_answer_key import ARMS, STAGES, Study, due
from reagent.feedback.build import MODES
from reagent.train.config import AgentConfig, load_agent_config
from rrm.engines.scripted import ScriptedChatEngine
from rrm.trajectory import Message, Trajectory


def config_of(arm: str) -> AgentConfig:
    return load_agent_config("lab", Study(Path("/runs"), "/runs/judge").options(arm, 0))


@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_is_a_config_and_pays_what_it_says(arm: str) -> None:
    config = config_of(arm)
    pays = MODES[config.feedback.mode].pays_feedback(config.feedback)
    assert pays == (ARMS[arm].judge is not None)
    assert config.output_dir == f"/runs/{arm}/seed0" and config.seed == ARMS[arm].offset
    assert (config.feedback.judge == "/runs/judge") == pays


def test_judge_only_sees_no_outcome() -> None:
    """In the headline only what pays differs."""
    judge, outcome, nothing = (config_of(arm) for arm in ("judge", "outcome", "nothing"))
    assert (judge.environment.label_share, outcome.environment.label_share) == (0.0, 1.0)
    assert nothing.environment.options == {"rewards": {"outcome": 0.0}} and nothing.environment.label_share == 1.0
    same = {"environment": {"label_share", "options"}, "feedback": True, "guards": True, "output_dir": True}
    left = [config.model_dump(exclude=same) for config in (judge, outcome, nothing)]  # pyright: ignore[reportArgumentType]
    assert left[0] == left[1] == left[2]
    assert (judge.feedback.mode, judge.feedback.score_weight) == ("r", 1.0)


def test_a_stage_is_run_seed_by_seed_before_the_next() -> None:
    assert sorted(arm for stage in STAGES for arm in stage) == sorted(ARMS)
    found = due({"placebo": 2, "nothing": 1, "outcome": 2})
    assert found == [("outcome", 0), ("nothing", 0), ("outcome", 1), ("placebo", 0), ("placebo", 1)]


def trajectory(name: str, steps: int) -> Trajectory:
    messages = [Message(role="user", content=f"question {name}")]
    messages += [Message(role="assistant", content=f"turn {n}") for n in range(steps)]
    return Trajectory(id=name, task=f"question {name}", messages=messages)


def test_the_judge_of_length_counts_steps_alone() -> None:
    said = length().judge([trajectory("a", 3), trajectory("b", 7), trajectory("c", 1)], mode="score")
    assert [feedback.score for feedback in said] == [0.5, 1.0, pytest.approx(0.17)]


def test_others_words_are_dealt_on_by_half() -> None:
    scores = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}

    def say(messages: list[dict[str, str]], params: object, key: str) -> str:
        (name,) = [name for name in scores if f"question {name}" in messages[-1]["content"]]
        return f"<score>{scores[name]}</score>"

    judge = Others(ScriptedChatEngine(say))
    found = judge.judge([trajectory(name, 2) for name in scores], mode="score")
    assert [(f.id, f.score) for f in found] == [("a", 0.3), ("b", 0.4), ("c", 0.1), ("d", 0.2)]
    (alone,) = judge.judge([trajectory("a", 2)], mode="score")
    assert (alone.status, alone.score) == ("judge_error", None)
