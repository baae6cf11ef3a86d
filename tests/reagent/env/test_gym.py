"""Gymnasium's contract, checked by Gymnasium."""

from __future__ import annotations

import warnings

import pytest

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.utils.env_checker import check_env  # noqa: E402

from reagent.env.gym import GymEnv  # noqa: E402
from reagent.tasks.environments import make_factory, make_tasks  # noqa: E402


@pytest.mark.parametrize("name", ["search", "calculator"])
def test_the_checker_passes(name: str) -> None:
    env = GymEnv(make_factory(name)(), make_tasks(name, 5, seed=0), max_chars=2000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*not having a spec.*")
        check_env(env)


def test_an_episode() -> None:
    tasks = make_tasks("calculator", 5, seed=0, hops=2)
    env = GymEnv(make_factory("calculator", rewards={"useful": 0.25})(), tasks)
    text, info = env.reset(seed=1, options={"task": 3})
    assert info["task_id"] == tasks[3].id and tasks[3].question in text
    text, reward, terminated, truncated, info = env.step(
        '<tool_call>{"name": "calculator", "arguments": {"expression": "7 * 8"}}</tool_call>'
    )
    assert (text, reward, terminated, truncated) == ("tool: 56", 0.25, False, False)
    assert "timestamp" not in info["messages"][0] and info["message"]["tool_calls"]
    text, reward, terminated, truncated, info = env.step(f"Answer: {tasks[3].answer}")
    assert (text, reward, terminated, truncated, info["success"]) == ("", 1.0, True, False, True)
    env.close()
    assert env.reset(seed=5)[1]["task_id"] == env.reset(seed=5)[1]["task_id"]
    with pytest.raises(ValueError, match="at least one task"):
        GymEnv(make_factory("search")(), [])
