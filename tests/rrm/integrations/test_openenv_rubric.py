"""The rubric, in OpenEnv's own types and calls."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("openenv.core.rubrics", reason="openenv-core is not installed (pip install 'agent-rrm[openenv]')")

from chat_judge import ChatJudge
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation

from rrm.data.annotation import Finding
from rrm.errors import RRMError
from rrm.integrations.openenv_rubric import AgentRRMRubric
from rrm.judge.agent_rrm import AgentRRM


class Say(Action):
    text: str


class Heard(Observation):
    text: str = ""


def play(rubric: Any) -> list[float]:
    """An episode: a tool's call, and an answer."""
    call = CallToolAction(tool_name="search", arguments={"query": "Ada"})
    found = CallToolObservation(tool_name="search", result={"content": [{"type": "text", "text": "Ada: London"}]})
    return [rubric(call, found), rubric(Say(text="Answer: London"), Heard(done=True))]


def test_the_last_reward_is_the_score_and_each_step_has_its_own(judge: AgentRRM) -> None:
    rubric = AgentRRMRubric(judge, task="Where was Ada born?", mode="full", intermediate_reward=0.1)
    rewards = play(rubric)
    row = rubric.transcript(rubric.trajectory)
    assert [(m.role, m.text()) for m in row.messages] == [
        ("user", "Where was Ada born?"),
        ("assistant", ""),
        ("tool", "Ada: London"),
        ("assistant", "Answer: London"),
    ]
    assert row.messages[1].tool_calls and row.messages[1].tool_calls[0].arguments == {"query": "Ada"}
    (own,) = judge.judge([row], mode="full")
    assert own.score is not None and rewards == [0.1, pytest.approx(own.score, abs=1e-6)]
    steps = rubric.compute_step_rewards()
    told = {
        f.step: {"good": 1.0, "unclear": 0.5, "bad": 0.0}[f.verdict] if f.p_good is None else f.p_good
        for f in own.findings
    }
    assert len(steps) == 2 and steps == [pytest.approx(told.get(k, own.score), abs=1e-6) for k in (1, 2)]
    assert rubric.last_score == rewards[-1]


def test_an_episode_is_judged_once_and_a_reset_forgets_it() -> None:
    judge = ChatJudge()
    rubric = AgentRRMRubric(judge, task="Where was Ada born?", mode="full")
    play(rubric)
    rubric.compute_step_rewards()
    assert sum(map(len, judge.windows)) == 1
    rubric.reset()
    assert rubric.compute_step_rewards() == [] and rubric.trajectory == []


def test_a_failure_has_a_price_or_is_an_error() -> None:
    known = AgentRRMRubric(ChatJudge(), task="Where was Ada born?", mode="full")
    play(known)
    down = ChatJudge(down=(known.transcript(known.trajectory).id,))
    with pytest.raises(RRMError, match=r"judge_error.*server is down.*failed_score"):
        play(AgentRRMRubric(down, task=known.task, mode="full"))
    rubric = AgentRRMRubric(down, task=known.task, mode="full", failed_score=-1.0)
    assert play(rubric) == [0.0, -1.0] and rubric.compute_step_rewards() == [0.0, -1.0]


@pytest.mark.parametrize("more", [0, 1, 6])
def test_without_findings_the_step_rewards_sum_to_the_score(judge: AgentRRM, more: int) -> None:
    rubric = AgentRRMRubric(judge, task="Where was Ada born?", mode="score")
    for _ in range(more):
        rubric(Say(text="hm"), Heard(text="go on"))
    score = rubric(Say(text="London"), Heard(done=True))
    assert score > 0 and rubric.compute_step_rewards() == [0.0] * more + [score]


def test_a_step_of_which_the_judge_is_unsure_is_worth_one_half() -> None:
    rubric = AgentRRMRubric(ChatJudge(), task="Where was Ada born?", mode="full")
    play(rubric)
    said = [Finding(step=1, verdict="unsure", p_good=0.1), Finding(step=2, verdict="unsure", p_good=0.9)]
    changed = rubric.feedback().model_copy(update={"findings": said})
    rubric._judged = (rubric.transcript(rubric.trajectory).id, changed)
    assert rubric.compute_step_rewards() == [0.5, 0.5]


def test_of_several_findings_on_a_step_a_bad_one_decides() -> None:
    rubric = AgentRRMRubric(ChatJudge(), task="Where was Ada born?", mode="full")
    play(rubric)
    row = rubric.feedback()
    said = [Finding(step=1, verdict="bad", text="a"), Finding(step=1, verdict="good", text="b")]
    rubric._judged = (rubric.transcript(rubric.trajectory).id, row.model_copy(update={"findings": said}))
    assert rubric.compute_step_rewards() == [0.0, row.score]
    parts = [Finding(step=1, verdict="good", p_good=0.9, text=""), Finding(step=1, verdict="bad", p_good=0.2, text="")]
    rubric._judged = (rubric._judged[0], row.model_copy(update={"findings": parts}))
    assert rubric.compute_step_rewards() == [0.2, row.score]


def test_calls_of_one_action_have_ids_of_their_own_and_the_callers_stay() -> None:
    calls = [{"name": "search", "arguments": {"q": q}} for q in "ab"]
    rubric = AgentRRMRubric(ChatJudge(), said=lambda a: {"content": "", "tool_calls": calls})
    row = rubric.transcript([("x", {"text": "found"})])
    assert [c.id for c in row.messages[0].tool_calls or ()] == ["c1.1", "c1.2"] and row.messages[
        1
    ].tool_call_id == "c1.1"
    assert all(call.keys() == {"name", "arguments"} for call in calls)


def test_own_words_for_actions_and_observations() -> None:
    rubric = AgentRRMRubric(
        ChatJudge(), said=lambda a: {"content": f"says {a}"}, seen=lambda o: {"content": f"sees {o}"}
    )
    row = rubric.transcript([("x", "y")])
    assert [(m.role, m.text()) for m in row.messages] == [("assistant", "says x"), ("user", "sees y")]
    plain = AgentRRMRubric(ChatJudge()).transcript([({"move": "e4", "clock": 3}, {"board": "…", "done": False})])
    assert [m.text() for m in plain.messages] == ['{"move": "e4", "clock": 3}', "…"]
