"""A loaded judge with other criteria: one engine, the budgets it has, and what it cannot be asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from rrm.engines.scripted import ScriptedChatEngine
from rrm.errors import ConfigError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.calibration import Calibration, Platt
from rrm.judge.judge_dir import JudgeSettings
from rrm.judge.loading import reply_tokens
from rrm.judge.other_criteria import with_criteria
from rrm.prompt.criteria import load_criteria, parse_criteria

ONE = parse_criteria({"name": "one", "questions": {"done": {"ask": "Done?", "scale": "yes_no"}}}, "here")
TWO = load_criteria("tool-use")


def judge(**settings: object) -> AgentRRM:
    answer = '<criterion name="done">\nwhy: w\nsteps: 1\nanswer: yes\n</criterion>'
    return AgentRRM(ScriptedChatEngine(lambda *_: answer), settings=JudgeSettings(opening=False, **settings))  # pyright: ignore


def test_the_engine_is_the_same_and_the_judge_handed_in_is_as_it_was() -> None:
    plain = judge()
    other = with_criteria(plain, ONE)
    assert other.engine is plain.engine and (plain.criteria, other.criteria) == (None, ONE)
    assert other.info("score", 0).criteria == ONE.identity and other.settings.default_mode == "score"
    assert other.describe()["criteria"] == ONE.identity


def test_a_reply_gets_room_for_the_questions_and_budgets_that_are_there_stay() -> None:
    other = with_criteria(judge(), TWO)
    assert other.settings.max_new_tokens == reply_tokens(TWO) > reply_tokens(ONE)
    assert with_criteria(other, ONE).settings == other.settings.model_copy(update={"criteria": ONE})


def test_a_judge_with_a_rubric_or_questions_of_its_own_is_asked_no_others(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="was trained to judge by its fixed rubric"):
        with_criteria(judge(modes=["score"]), ONE)
    fitted = Calibration(modes={"score": Platt(rows=64, a=1.0, b=0.0)})
    (tmp_path / "judge.json").write_text(JudgeSettings(criteria=TWO, calibration=fitted).model_dump_json())
    calibrated = AgentRRM(
        ScriptedChatEngine([]), settings=JudgeSettings(criteria=TWO, calibration=fitted), folder=tmp_path
    )
    with pytest.raises(ConfigError, match=r"criteria of its own, tool-use \("):
        with_criteria(calibrated, ONE)
    again = with_criteria(calibrated, TWO)
    assert again.settings.calibration == fitted and again.criteria == TWO
