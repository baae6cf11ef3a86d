"""Choosing at inference: what is chosen, what it is worth, and second attempts at equal tokens."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from feedback_lab import PaidEnv, calls_of, configured, make_episode, scripted

from reagent.env.task import Task
from reagent.feedback.judging import content_key
from reagent.rollout.episode import Episode
from reagent.train.choosing import Cost, at_equal_tokens, distinct_by_n, evaluate_chosen, policy_tokens
from reagent.train.config import AgentConfig
from reagent.train.evaluate import evaluate_config
from rrm.data.trajectory import Message
from rrm.errors import ConfigError
from rrm.evaluation.choosing import STRATEGIES, Attempts, as_preference


class OpenEnv(PaidEnv):
    """Its tasks come without their answers."""

    def is_graded(self, task: Task) -> bool:
        return False


def config(base: Path, output: Path, mode: str = "none", **changes: Any) -> AgentConfig:
    """Four attempts at each of four held-out tasks."""
    return configured(base, output, mode, **{"eval": {"samples": 4, "temperature": 1.0}, **changes})


def by_task(episodes: list[Episode]) -> dict[str, list[Episode]]:
    found: dict[str, list[Episode]] = defaultdict(list)
    for e in episodes:
        found[e.group_id].append(e)
    return found


def test_what_the_judge_chooses_is_what_it_scores_best(base, tmp_path) -> None:
    judge, settings = scripted(), config(base, tmp_path)
    figures, episodes = evaluate_chosen(settings, ["judge", "longest", "random", "oracle"], judge=judge)
    tasks = by_task(episodes)
    assert len(tasks) == 4 and all(len(found) == 4 for found in tasks.values())
    worth, best = [], []
    for group, found in tasks.items():
        scores = [e.trajectory.meta["judge_score"] for e in found]
        (chosen,) = [e for e in found if "judge" in e.trajectory.meta["chosen_by"]]
        assert chosen.trajectory.meta["judge_score"] == max(scores)
        assert figures["choose"]["chosen"][group]["judge"] == {
            "id": chosen.trajectory.id, "answer": chosen.answer, "score": max(scores),
        }  # fmt: skip
        worth.append(np.mean([float(e.success or 0) for e, s in zip(found, scores, strict=True) if s == max(scores)]))
        best.append(max(float(e.success or 0) for e in found))
    success = figures["choose"]["success"]
    assert success["judge"]["value"] == pytest.approx(np.mean(worth))
    assert success["random"]["value"] == pytest.approx(figures["success"]["value"])
    assert success["oracle"]["value"] == pytest.approx(np.mean(best))
    assert success["oracle"]["value"] == pytest.approx(figures["pass_at_k"]["4"])
    assert [*figures["choose"]["by_n"]] == ["2", "4"]
    assert (
        figures["choose"]["policy_tokens"]
        == policy_tokens(episodes)
        == sum(len(e.flatten().input_ids) for e in episodes)
    )
    assert len(calls_of(judge)) == len({content_key(e.trajectory) for e in episodes})  # each content once
    assert figures["choose"]["judge_tokens"] == figures["feedback/judge_tokens"] > 0
    plain, same = evaluate_config(settings)  # the attempts are those of an evaluation without choosing
    assert [e.turns for e in same] == [e.turns for e in episodes] and plain["by_task"] == figures["by_task"]
    json.dumps(figures, allow_nan=False)


def test_without_answers_it_is_said_what_is_chosen_and_success_is_nothing(base, tmp_path, caplog) -> None:
    settings = config(base, tmp_path, "r", environment={"name": "test_eval_choosing:OpenEnv"})
    figures, episodes = evaluate_chosen(settings, ["judge", "oracle", "majority"], judge=scripted())
    assert "the oracle, which chooses by outcomes, is left out" in caplog.text
    assert figures["ungraded_tasks"] == 4 and figures["success"]["value"] is None
    chosen = figures["choose"]
    assert (chosen["graded_tasks"], chosen["by_n"], "success" in chosen) == (0, {}, False)
    assert all({*found} == {"judge", "majority"} for found in chosen["chosen"].values())
    marks = [[name for e in found for name in e.trajectory.meta["chosen_by"]] for found in by_task(episodes).values()]
    assert all(sorted(one) == ["judge", "majority"] for one in marks)


def test_no_judge_is_asked_where_no_strategy_does(base, tmp_path) -> None:
    judge = scripted()
    figures, episodes = evaluate_chosen(config(base, tmp_path), ["majority", "longest"], judge=judge)
    assert not calls_of(judge) and figures["choose"]["judge_tokens"] == 0
    assert figures["choose"]["judge_minus"] == {} and "judge_score" not in episodes[0].trajectory.meta


@pytest.mark.parametrize(
    ("changes", "strategies", "retries", "said"),
    [
        ({"eval": {"samples": 1}}, ["judge"], 0, "eval.samples=1: choosing needs several attempts"),
        ({"mode": "c"}, ["judge"], 0, "feedback.mode=c plays second attempts"),
        ({}, ["longest"], 1, "give --choose judge"),
        ({}, ["judge"], 5, "no more retries than eval.samples"),
    ],
)
def test_what_there_is_nothing_to_choose_from_is_refused(base, tmp_path, changes, strategies, retries, said) -> None:
    with pytest.raises(ConfigError, match=said):
        evaluate_chosen(config(base, tmp_path, **changes), strategies, retries=retries, judge=scripted())


@pytest.mark.parametrize(
    ("strategies", "retries", "said"),
    [
        (["judge"], 0, "--choose judge with environment.name=calculator: the judge is feedback.judge=lab, which reads"),
        ([*STRATEGIES], 1, "--choose judge,weighted with environment.name=calculator"),
        ([*STRATEGIES], 1, "; or leave judge and weighted out of --choose and --retries (majority, longest"),
        (["weighted", "random"], 0, "; or leave judge and weighted out of --choose (majority, longest"),
    ],
)
def test_a_judge_that_cannot_read_the_tasks_is_refused_by_the_options_name(
    base, tmp_path, strategies, retries, said
) -> None:
    settings = config(base, tmp_path, environment={"name": "calculator"}, feedback={"judge": "lab"})
    with pytest.raises(ConfigError) as refused:
        evaluate_chosen(settings, strategies, retries=retries)
    assert said in str(refused.value) and "feedback.mode" not in str(refused.value)


# ---- second attempts at equal tokens ----


def group(question: int, scores: list[float | None], outcomes: list[float]) -> Attempts:
    n = len(outcomes)
    return Attempts(
        f"q{question}", range(n), np.ones(n), [None] * n, np.array(outcomes), {"judge": as_preference(scores)}
    )


def test_equal_tokens_by_hand(base, tmp_path, caplog) -> None:
    settings = config(base, tmp_path)
    # n attempts hold the success n times in four
    alone = [group(q, [0.9, 0.5, 0.4, 0.3], [1, 0, 0, 0]) for q in range(12)]
    both = [group(q, [0.1, 0.2], [1, 0] if q < 6 else [0, 1]) for q in range(12)]
    found = at_equal_tokens(alone, both, 2.5, settings)
    assert found["samples"] | {"success": None} == {"attempts": 2.5, "wanted": 2.5, "success": None}
    assert found["samples"]["success"]["value"] == pytest.approx((0.5 + 0.75) / 2)
    assert found["success"]["value"] == 0.5
    assert found["minus_samples"]["value"] == pytest.approx(0.5 - 0.625)
    assert found["minus_samples"]["low"] < found["minus_samples"]["value"] < found["minus_samples"]["high"]
    assert not caplog.text
    four = [replace(g, question=f"{g.question}/{n}", asked=g.question) for g in both for n in range(4)]
    of_four = [replace(g, question=f"{g.question}/{n}", asked=g.question) for g in alone for n in range(4)]
    together = at_equal_tokens(of_four, four, 2.5, settings)  # each question asked in four ways
    assert together["success"] == found["success"] and together["minus_samples"] == found["minus_samples"]
    more = at_equal_tokens(alone, both, 5.2, settings)
    assert (more["samples"]["attempts"], more["samples"]["success"]["value"]) == (4.0, 1.0)
    assert "set eval.samples=6 or more" in caplog.text


def test_copies_of_an_attempt_are_judged_once_so_few_attempts_cost_more_than_their_share() -> None:
    """Of four attempts at a task three are the same: the judge reads two of them. One attempt was said to cost a quarter of that."""
    first = make_episode([0.0])
    other = make_episode([0.0])
    other.trajectory.messages[-1] = Message(role="assistant", content="something else")
    episodes = [first, first, other, first]
    distinct = distinct_by_n(episodes, 4)
    # by hand: the other one is among n of four with n/4, the copies' with …
    assert distinct == pytest.approx([0, 1, 1.5, 1.75, 2])
    cost = Cost(policy=400, judge=200, distinct=distinct)
    assert [cost.at(n) for n in (1, 2, 4)] == [(100, 100), (200, 150), (400, 200)]
    assert cost.at(1.5) == (150, 125)  # half of one attempt's and half of two attempts'
    for n in (1, 1.5, 3, 4):
        assert cost.attempts(sum(cost.at(n))) == pytest.approx(n)
    assert cost.attempts(1200) == pytest.approx(8)  # more than there are: at the mean price
    assert distinct_by_n([replace(first, turns=[])] * 4, 4) == [0] * 5  # nothing to judge
    assert Cost(policy=400, judge=0, distinct=[0.0] * 5).attempts(200) == pytest.approx(2)


@pytest.mark.parametrize("same_mode", [True, False])
def test_second_attempts_are_compared_at_equal_tokens(base, tmp_path, same_mode) -> None:
    feedback = {"score_mode": "full" if same_mode else "score", "critique_mode": "full"}
    judge = scripted()
    figures, episodes = evaluate_chosen(config(base, tmp_path, feedback=feedback), ["judge"], retries=1, judge=judge)
    retry, firsts = figures["retry"], [e for e in episodes if e.stage == "initial"]
    seconds = [e for e in episodes if e.stage == "refined"]
    again = [e for e in firsts if e.attempt == 0]
    assert [e.group_id for e in seconds] == [e.group_id for e in again] and retry["retries"] == 1
    assert retry["policy_tokens"] == policy_tokens([*again, *seconds])
    assert "Critique:" in seconds[0].trajectory.messages[1].text()
    contents = {content_key(e.trajectory) for e in firsts}
    assert len(calls_of(judge)) >= len(contents) + (0 if same_mode else 1)
    spent, alone = retry["policy_tokens"] + retry["judge_tokens"], retry["samples"]
    if alone["wanted"] <= 4:  # the same tokens, to a token's rounding
        assert alone["policy_tokens"] + alone["judge_tokens"] == pytest.approx(spent, abs=2)
    assert figures["feedback/judge_tokens"] >= retry["judge_tokens"]
    for e, s in zip(again, seconds, strict=True):  # the better scored of the two is marked
        scores = {x.key: x.trajectory.meta.get("judge_score", -1.0) for x in (e, s)}
        (chosen,) = [x for x in (e, s) if "retry" in x.trajectory.meta["chosen_by"]]
        assert scores[chosen.key] == max(scores.values())
    assert sum("retry" in x.trajectory.meta["chosen_by"] for x in episodes) == 4
