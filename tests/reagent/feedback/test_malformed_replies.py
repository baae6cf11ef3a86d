"""A judge's replies that are cut, that lack a field, or that are an error's text: typed, asked for once more, and no other row's loss."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from feedback_lab import make_episode

from reagent.env.task import Task
from reagent.errors import GradeFailed
from reagent.feedback.judging import Judging
from reagent.feedback.modes import ScoreFeedback
from reagent.feedback.settings import FeedbackConfig
from reagent.rollout.episode import Episode
from reagent.tasks.judged import AnswerJudge
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.scripted import ScriptedChatEngine
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings
from rrm.prompt.criteria import Criteria, parse_criteria

MALFORMED = [
    '{"score": 0.8', '{"score": 0.', '{"critique": "[step 1] good: fine"}', '{"score": null, "critique": "fine"}',
    "Error 429: too many requests, retry after 1 second",
    '{"error": {"code": 503, "message": "overloaded, 1 of 1 servers"}}', "HTTP 500", "<score>429</score>",
]  # fmt: skip
GOOD = {1: 0.2, 2: 0.6, 3: 0.9}


def group() -> list[Episode]:
    """Four attempts at a task; the first is the one whose judgement is malformed."""
    found = []
    for n in range(4):
        messages = [Message(role="user", content="?"), Message(role="assistant", content=f"attempt {n}")]
        shown = Trajectory(id=f"g/{n}", task="?", messages=messages)
        made = make_episode([0.0], outcome=0.25)
        found.append(replace(made, group_id="g", attempt=n, trajectory=shown, prompt_messages=1))
    return found


class Replies:
    """Says each attempt's score in its own words; of the first, `malformed`, and what it is asked once more."""

    def __init__(self, malformed: str, repaired: str) -> None:
        self.malformed, self.repaired = malformed, repaired
        self.asked = 0

    def __call__(self, messages: list[dict[str, str]], params: Any, key: str) -> str:
        found = re.search(r"attempt (\d)", "".join(m["content"] for m in messages))
        assert found is not None
        if int(found[1]):
            return f"<score>{GOOD[int(found[1])]}</score>"
        self.asked += 1
        return self.malformed if self.asked == 1 else self.repaired


def paid(script: Any, criteria: Criteria | None = None) -> tuple[list[float | None], dict[str, int]]:
    """What the attempts earn beside the environment's 0.25, with λ = 1."""
    engine = ScriptedChatEngine(script)
    engine.asks_again = True
    judge = AgentRRM(engine, settings=JudgeSettings(opening=False, criteria=criteria))
    feedback = ScoreFeedback(FeedbackConfig(mode="r", score_weight=1.0), judging=Judging(judge, seed=0))
    episodes = group()
    round_ = feedback.round(0, [], lambda attempts, **hooks: episodes)
    return [None if row.reward is None else row.reward - 0.25 for row in round_.rows], dict(round_.report.counts)


@pytest.mark.parametrize("malformed", MALFORMED)
def test_one_malformed_reply_in_a_group_costs_its_own_row_alone(malformed: str) -> None:
    script = Replies(malformed, malformed)
    rewards, counts = paid(script)
    assert rewards == pytest.approx([0.0, 0.2, 0.6, 0.9])  # feedback.failure_reward, and the others' own
    assert script.asked == 2 and counts["failed_unparsable"] == counts["failed"] == 1
    script = Replies(malformed, "<score>0.4</score>")
    rewards, counts = paid(script)
    assert rewards == pytest.approx([0.4, 0.2, 0.6, 0.9]) and script.asked == 2 and not counts.get("failed")


def test_criteria_with_a_field_missing_are_asked_once_more_and_then_typed() -> None:
    asked = {"questions": {"done": {"ask": "Done?", "scale": "yes_no"}, "short": {"ask": "Short?", "scale": "yes_no"}}}
    criteria = parse_criteria(asked, "here")
    half = '<criterion name="done">\nanswer: yes\n</criterion>'
    whole = half + '\n<criterion name="short">\nanswer: no\n</criterion>'

    asked_of = list[bool]()

    def script(messages: list[dict[str, str]], params: Any, key: str) -> str:
        asked_of.append("attempt 0" in "".join(m["content"] for m in messages))
        return half if asked_of[-1] else whole

    rewards, counts = paid(script, criteria)
    assert rewards == pytest.approx([0.0, 0.5, 0.5, 0.5]) and counts["failed_unparsable"] == 1
    assert asked_of.count(True) == 2 and asked_of.count(False) == 3


@pytest.mark.parametrize(
    "reply", ['{"verdict": "correct"', '{"verdict": "correct"} 1', "Error 1: correct", '{"why": "1"}', "1"]
)
def test_a_judge_of_answers_takes_no_half_a_verdict(reply: str) -> None:
    """Cut, beside an error's text or without its fields it is typed after its tries, and is no grade."""
    engine = ScriptedChatEngine([reply] * 3)
    with pytest.raises(GradeFailed, match="could not be read in 3 tries"):
        AnswerJudge(engine).grade(Task("t", "Who?", "Ana"), "Bo")
    assert len(engine.calls) == 3
