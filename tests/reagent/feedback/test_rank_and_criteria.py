"""Rewards from a chat judge's comparison of attempts, and from its answers to criteria."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from feedback_lab import configured, make_episode, trainer_of
from pydantic import ValidationError

from reagent.env.task import Task
from reagent.feedback.judging import Judging
from reagent.feedback.modes import CritiqueFeedback, ScoreFeedback
from reagent.feedback.settings import FeedbackConfig
from reagent.feedback.shuffled import shuffled
from reagent.rollout.episode import Episode
from reagent.train.build_feedback import AskedFor, check_unseen, load_judge
from reagent.train.config import load_agent_config
from reagent.train.dynamic_sampling import compared
from reagent.train.judge_monitor import JudgeMonitor
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.cost import CostTracker, Prices
from rrm.engines.scripted import ScriptedChatEngine
from rrm.errors import ConfigError, EngineError, RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings
from rrm.prompt.criteria import Criteria, parse_criteria

ASKED = {"questions": {"done": {"ask": "Done?", "scale": "yes_no"}}}
CRITERIA = parse_criteria(ASKED, "here")
SEEING = parse_criteria({**ASKED, "see_reference": True}, "here")


def judge_of(script: Any, criteria: Criteria | None = None) -> AgentRRM:
    return AgentRRM(ScriptedChatEngine(script), settings=JudgeSettings(opening=False, criteria=criteria))


def episode(group: str, number: int, merit: int, **changes: Any) -> Episode:
    messages = [Message(role="user", content="?"), Message(role="assistant", content=f"merit {merit}")]
    trajectory = Trajectory(id=f"{group}/{number}", task="?", messages=messages)
    made = make_episode([0.0], outcome=0.25)
    return replace(made, group_id=group, attempt=number, trajectory=trajectory, prompt_messages=1, **changes)


def rank_by_merit(messages: list[dict[str, str]], params: Any, key: str) -> str:
    matches = re.findall(r"^attempt ([A-Z]) \w{6}\n\[step 1\]\nagent: merit (\d)", messages[1]["content"], re.M)
    order = [name for name, _ in sorted(matches, key=lambda pair: -int(pair[1]))]
    return f"<ranking>{' > '.join(order)}</ranking>"


def rewards(feedback: ScoreFeedback, episodes: list[Episode]) -> tuple[list[float | None], dict[str, float]]:
    round_ = feedback.round(0, [], lambda attempts, **hooks: episodes)
    return [row.outcome_reward for row in round_.rows], dict(round_.report.counts)


def ranked(judge: AgentRRM, record: Path | None = None, **settings: Any) -> ScoreFeedback:
    config = FeedbackConfig(mode="r", score_from="rank", score_weight=0.5, **settings)
    return ScoreFeedback(config, judging=Judging(judge, seed=0, record=record))


def test_a_group_s_attempts_are_paid_by_their_order(tmp_path: Path) -> None:
    record, judge = tmp_path / "j.jsonl", judge_of(rank_by_merit)
    feedback = ranked(judge, record)
    episodes = [episode("g", 0, 1), episode("h", 0, 5), episode("g", 1, 3), episode("h", 1, 4), episode("g", 2, 2)]
    paid, counts = rewards(feedback, episodes)
    assert paid == [0.25, 0.75, 0.75, 0.25, 0.5] and (counts["judged"], counts["asked"]) == (5, 5)
    assert rewards(feedback, episodes)[0] == paid
    assert isinstance(judge.engine, ScriptedChatEngine) and len(judge.engine.calls) == 2  # not asked again
    again = ranked(judge_of([]), record)  # the record has all of them
    assert again._judging is not None
    again._judging.resume(1)
    assert rewards(again, episodes)[0] == paid
    assert len(record.read_text().splitlines()) == 5


def test_an_attempt_without_another_is_unknown_and_failures_are_what_they_always_are() -> None:
    paid, counts = rewards(ranked(judge_of([])), [episode("g", 0, 1), episode("h", 0, 2)])
    assert paid == [None, None] and counts["judged"] == 0
    pair = [episode("g", 0, 1), episode("g", 1, 2)]
    paid, counts = rewards(ranked(judge_of(["<ranking>A</ranking>"])), pair)
    assert paid == [0.25, 0.25] and (counts["failed_unparsable"], counts["floored"]) == (2, 2)
    feedback = ranked(judge_of([EngineError("gone"), "<ranking>A = B</ranking>"]))
    assert rewards(feedback, pair)[0] == [None, None]
    assert rewards(feedback, pair)[0] == [0.5, 0.5]  # asked again, since nobody had answered


@pytest.mark.parametrize("wrong", [{"mode": "u"}, {"recalibrate": {}}])
def test_relative_scores_are_of_mode_r_alone(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"feedback\.score_from=rank gives relative scores"):
        FeedbackConfig(**{"mode": "r", "score_from": "rank", **wrong})


def test_processes_judge_whole_groups_of_an_evaluation() -> None:
    episodes = [episode(group, k, k) for group in "ghi" for k in range(3)]
    feedback, config = ranked(judge_of([])), load_agent_config("lab", ["feedback.mode=r", "feedback.score_from=rank"])
    shares = [JudgeMonitor(config, feedback, rank=rank, processes=2).share_of(episodes) for rank in (0, 1)]
    assert shares == [[0, 1, 2, 6, 7, 8], [3, 4, 5]]
    assert JudgeMonitor(config, feedback).share_of(episodes) == list(range(9))


def answered(said: str) -> str:
    return f'<criterion name="done">\nwhy: w\nsteps: 1\nanswer: {said}\n</criterion>'


def test_criteria_give_the_score_and_a_failed_answer_is_a_failed_judgement() -> None:
    judge = judge_of([answered("yes"), answered("no"), answered("perhaps"), EngineError("gone")], CRITERIA)
    feedback = ScoreFeedback(FeedbackConfig(mode="r", score_weight=0.5), judging=Judging(judge, seed=0))
    paid, counts = rewards(feedback, [episode("g", k, k) for k in range(4)])
    assert paid == [0.75, 0.25, 0.25, None]
    assert (counts["failed_unparsable"], counts["failed_judge_error"], counts["floored"]) == (1, 1, 1)


def test_the_reference_is_shown_where_the_criteria_allow_it_and_the_task_is_graded() -> None:
    task = Task("t", "?", "forty-two")
    shown = []
    for criteria, asked in ((SEEING, task), (CRITERIA, task), (SEEING, replace(task, graded=False))):
        judge = judge_of(lambda *_: answered("yes"), criteria)
        feedback = ScoreFeedback(FeedbackConfig(mode="r"), judging=Judging(judge, seed=0))
        rewards(feedback, [episode("g", 0, 1, task=asked)])
        assert isinstance(judge.engine, ScriptedChatEngine)
        shown.append("forty-two" in json.dumps(judge.engine.calls[0][0]))
    assert shown == [True, False, False]


def test_other_criteria_are_other_judgements() -> None:
    one, other = (Judging(judge_of([], criteria), seed=0) for criteria in (CRITERIA, SEEING))
    assert len({one.key(episode("g", 0, 1).trajectory), other.key(episode("g", 0, 1).trajectory)}) == 2


def test_texts_of_a_judge_that_saw_the_reference_are_refused() -> None:
    for mode in ("c", "u"):
        with pytest.raises(ConfigError, match=f"feedback.mode={mode} hands its texts to the policy"):
            check_unseen(judge_of([], SEEING), FeedbackConfig(mode=mode))
        check_unseen(judge_of([], CRITERIA), FeedbackConfig(mode=mode))
    check_unseen(judge_of([], SEEING), FeedbackConfig(mode="r"))
    with pytest.raises(
        ConfigError, match=r"distil\.by=judge chooses without it: set see_reference: false, or take another"
    ):
        check_unseen(judge_of([], SEEING), FeedbackConfig(mode="c"), asker=AskedFor("distil.by=judge", "take another"))
    assert CritiqueFeedback.asks_texts(FeedbackConfig(mode="c"))


def test_the_config_names_criteria() -> None:
    served = FeedbackConfig(mode="r", judge="openai:http://127.0.0.1:9/v1#m", criteria="tool-use")
    judge = load_judge(served, "cpu")
    assert judge.criteria is not None and judge.criteria.name == "tool-use"
    with pytest.raises(RRMError, match="no criteria 'tool_use'"):
        load_judge(served.model_copy(update={"criteria": "tool_use"}), "cpu")


def test_what_was_paid_for_rows_that_are_made_again_stays_paid(tmp_path: Path) -> None:
    record = tmp_path / "j.jsonl"

    def judged_in(update: int) -> str:
        feedback = {
            "id": f"k{update}", "score": 0.5, "status": "scored", "usage": {"requests": 1, "cost": 1.0},
            "judge": {"model": "m", "mode": "score", "prompt_version": "3"},
        }  # fmt: skip
        return json.dumps({"key": f"k{update}", "mode": "score", "update": update, "feedback": feedback}) + "\n"

    record.write_text("".join(map(judged_in, range(4))))
    spent = []
    for update in (2, 2, 0):
        judge = SimpleNamespace(purse=CostTracker(Prices.parse("1,1"), 100.0))
        Judging(judge, seed=0, record=record).resume(update)  # pyright: ignore[reportArgumentType]
        spent.append(judge.purse.spent)
        with record.open("a") as file:
            file.writelines(map(judged_in, (2, 3)))
    assert spent == [4.0, 6.0, 8.0]


def group(name: str, *outcomes: float | None) -> list[Episode]:
    """Attempts at one task: turns that earned 0.25, and the outcome."""
    results = []
    for number, outcome in enumerate(outcomes):
        episode = make_episode([0.25] * (1 + number % 2), outcome)
        episode.group_id, episode.attempt = name, number
        results.append(episode)
    return results


def test_each_group_keeps_its_rewards_and_its_episodes() -> None:
    played = [*group("a", 0.0, 1.0, None, 2.0), *group("b", 5.0, 5.0), make_episode([])]
    rows = shuffled(played, 3)
    assert [row.key for row in rows] == [e.key for e in played]
    assert sorted(rows[i].reward or 0.0 for i in (0, 1, 3)) == [0.25, 1.5, 2.5]  # turns' rewards are in it
    assert [rows[2], rows[6]] == [played[2], played[6]] and sorted(r.reward or 0.0 for r in rows[4:6]) == [5.25, 5.5]
    assert all(turn.reward == 0.0 for i in (0, 1, 3, 4, 5) for turn in rows[i].turns)
    assert [e.reward for e in played[:2]] == [0.25, 1.5]  # what was played stays as it was
    # a group's order hangs on nothing that is beside it
    assert [r.reward for r in shuffled(played[4:6], 3)] == [r.reward for r in rows[4:6]]


def test_a_reward_says_nothing_of_its_row() -> None:
    played = group("a", 0.0, 0.0, 0.0, 1.0)
    means = [0.0] * 4
    for seed in range(2000):
        for i, row in enumerate(shuffled(played, seed)):
            means[i] += (row.reward or 0.0) / 2000
    expected = sum(e.reward or 0.0 for e in played) / 4
    assert means == pytest.approx([expected] * 4, abs=0.05)  # four standard errors


def test_a_trainer_learns_the_groups_that_it_would_with_their_own_rewards(base: Path, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"algorithm": "grpo", "environment": {"name": "feedback_lab:RareEnv"}}
    rollout = {"dynamic_sampling": 9, "group_size": 3, "tasks_per_update": 2, "max_episode_tokens": 700}
    results = {
        mode: trainer_of(configured(base, tmp_path / mode, mode, rollout=rollout, **changes)).round(0)
        for mode in ("none", "shuffled")
    }
    own, dealt = results["none"], results["shuffled"]
    assert [e.key for e in own.played] == [e.key for e in dealt.played]
    assert [e.key for e in own.rows] == [e.key for e in dealt.rows]
    assert compared(own.rows, per_turn=False) == compared(dealt.rows, per_turn=False)
    # what is logged of them is what they earned
    assert [e.reward for e in own.played] == [e.reward for e in dealt.played]
    assert sum(e.reward or 0.0 for e in own.rows) == pytest.approx(sum(e.reward or 0.0 for e in dealt.rows))
    assert [e.reward for e in own.rows] != [e.reward for e in dealt.rows]


def test_a_control_that_would_change_nothing_is_refused() -> None:
    """PPO takes groups of one: the rewards would be their own, under the name of the control."""
    told = ["algorithm=ppo", "feedback.mode=shuffled"]
    with pytest.raises(ConfigError, match=r"feedback\.mode=shuffled deals rewards among .*set rollout\.group_size ≥ 2"):
        load_agent_config("lab", [*told, "rollout.group_size=1"])
    assert load_agent_config("lab", [*told, "rollout.group_size=2"]).feedback.mode == "shuffled"
