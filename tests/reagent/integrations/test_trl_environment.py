"""Our environments as TRL's: the same episode earns the same as in the environment itself."""

from __future__ import annotations

import asyncio
import importlib.util
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers.utils import get_json_schema

from reagent.env.env import ToolEnv
from reagent.env.task import Task
from reagent.env.tool import tool
from reagent.errors import GradeUnknown
from reagent.integrations.trl import ToolEnvironments
from reagent.lab.shipped import judge_folder
from reagent.tasks.environments import make_factory, make_tasks
from rrm.data.trajectory import ToolCall
from rrm.errors import ConfigError
from rrm.integrations.trl import judged_environment
from rrm.integrations.trl_environment import schemas, tool_names
from rrm.judge.agent_rrm import AgentRRM

sys.path.append(str(Path(__file__).parents[2] / "rrm"))  # its models


def calculator(**options: Any) -> tuple[ToolEnvironments, list[Task]]:
    tasks = make_tasks("calculator", 4, seed=0, hops=2)
    return ToolEnvironments(make_factory("calculator", tool_prompt="template", **options), tasks), tasks


def test_the_tools_are_the_environments_and_answer() -> None:
    environments, _ = calculator()
    env = environments()
    assert tool_names(type(env)) == ["answer", "calculator"]
    own = environments.make().tools[0]["function"]
    functions = {s["function"]["name"]: s["function"] for s in schemas(env)}
    assert functions["calculator"]["description"] == own["description"]
    for schema in (own, functions["calculator"]):
        schema["parameters"].pop("additionalProperties", None)
    assert functions["calculator"]["parameters"] == own["parameters"]
    assert functions["answer"]["parameters"]["required"] == ["answer"]
    assert get_json_schema(env.calculator)["function"]["name"] == "calculator"


def test_choices_optional_arguments_and_types_come_back() -> None:
    class Shop(ToolEnv):
        @tool
        def buy(self, thing: str, count: int = 1, kind: str = "new") -> str:
            """Buy a thing.

            Args:
                thing: What to buy.
                count: How many.
                kind: New or old. (choices: ["new", "old"])
            """
            return f"{count} {kind} {thing}"

    environments = ToolEnvironments(lambda: Shop(tool_prompt="template"), [Task("1", "buy", "x")])
    env = environments()
    (parameters,) = [s["function"]["parameters"] for s in schemas(env) if s["function"]["name"] == "buy"]
    own = environments.make().tools[0]["function"]["parameters"]
    assert parameters["required"] == own["required"] == ["thing"]
    for name, about in own["properties"].items():
        assert parameters["properties"][name]["type"] == about["type"]
        assert parameters["properties"][name].get("enum") == about.get("enum")
    env.reset(**environments.rows()[0])
    assert env.buy(thing="pen", kind="old") == "1 old pen"


def test_an_episode_earns_what_the_environment_pays() -> None:
    environments, tasks = calculator(rewards={"useful": 0.25})
    row = environments.rows()[2]
    env = environments.make()
    assert row["prompt"] == env.reset(tasks[2]) and row["task_id"] == tasks[2].id
    call = ToolCall(name="calculator", arguments={"expression": "7 * 8"})
    results = [asyncio.run(env.step(env.parser.render_turn(calls=[call])))]
    results.append(asyncio.run(env.step(env.parser.render_turn(answer=str(tasks[2].answer)))))
    earned = sum(r.reward + (r.outcome_reward or 0.0) for r in results)

    played = environments()
    assert played.reset(**row, other="column") is None
    assert played.calculator(expression="7 * 8") == results[0].observations[0]["content"]
    assert played.answer(answer=str(tasks[2].answer))
    assert played.get_reward() == pytest.approx(earned) and earned == 1.25
    with pytest.raises(ValueError, match="the episode is over"):
        played.calculator(expression="1 + 1")


def test_an_episode_without_an_answer_and_one_that_reached_its_limit() -> None:
    environments, _ = calculator(rewards={"unanswered": -0.5, "useful": 0.0}, max_turns=1)
    env = environments()
    env.reset(**environments.rows()[0])
    assert env.get_reward() == -0.5
    env.calculator(expression="1 + 1")
    assert env.get_reward() == -0.5
    with pytest.raises(ValueError, match="over"):
        env.answer(answer="2")


def test_a_grade_that_cannot_be_had_leaves_the_reward_out() -> None:
    class Ungradable(ToolEnv):
        def grade(self, task: Task, answer: str) -> float:
            raise GradeUnknown("the server is down")

    environments = ToolEnvironments(lambda: Ungradable(tool_prompt="template"), [Task("1", "q", "a")])
    env = environments()
    env.reset(**environments.rows()[0])
    with pytest.raises(GradeUnknown):
        env.answer(answer="a")
    assert env.get_reward() is None


def test_what_cannot_be_one_is_refused() -> None:
    tasks = make_tasks("calculator", 1, seed=0)
    with pytest.raises(ConfigError, match='tool_prompt="template"'):
        ToolEnvironments(make_factory("calculator"), tasks)
    with pytest.raises(ConfigError, match="at least one task"):
        ToolEnvironments(make_factory("calculator", tool_prompt="template"), [])


def test_with_the_judge_the_reward_is_that_of_the_mode_r() -> None:
    judge = AgentRRM.from_pretrained(str(judge_folder()))
    environments, tasks = calculator()
    env = judged_environment(environments, judge, weight=0.3)()
    env.reset(**environments.rows()[1])
    env.calculator(expression="7 * 8")
    env.answer(answer=str(tasks[1].answer))
    (feedback,) = judge.judge([env._transcript()], mode="score")
    assert feedback.score is not None
    assert env.get_reward() == pytest.approx(env._inner.get_reward() + 0.3 * feedback.score, abs=1e-6)
    assert [c.name for m in env._transcript().messages for c in m.tool_calls or ()] == ["calculator", "answer"]


def test_they_are_played_where_a_loop_runs_and_in_another_process() -> None:
    environments, tasks = calculator()

    async def notebook(env: Any) -> tuple[str, Any]:
        env.reset(**environments.rows()[2])
        content = env.calculator(expression="7 * 8")
        env.answer(answer=str(tasks[2].answer))
        return content, env.get_reward()

    other = pickle.loads(pickle.dumps(environments))  # noqa: S301
    assert other.rows() == environments.rows()
    judged = pickle.loads(pickle.dumps(judged_environment(environments, str(judge_folder()))))  # noqa: S301
    for env in (environments(), other()):
        assert asyncio.run(notebook(env)) == ("56", 1.0)
    content, reward = asyncio.run(notebook(judged()))
    assert content == "56" and 1.0 < reward < 2.0


@pytest.fixture(scope="module")
def example() -> Any:
    path = Path(__file__).resolve().parents[3] / "examples" / "trl_judge.py"
    spec = importlib.util.spec_from_file_location("trl_judge", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_trains_the_labs_policy(example: Any, tmp_path: Path) -> None:
    summary = example.main(["--updates", "2", "--output", str(tmp_path)])
    assert summary["updates"] == 2 and summary["failed"] == 0.0 and 0 < summary["score"] < 1


def test_the_example_plays_a_judged_environment(example: Any, tmp_path: Path) -> None:
    from trl_models import caller

    environments, _ = calculator()
    row = environments.rows()[0]
    model, tokenizer = caller(
        row["prompt"], schemas(environments()), '{"name": "answer", "arguments": {"answer": "4"}}'
    )
    for module in (model, tokenizer):
        module.save_pretrained(tmp_path / "policy")
    arguments = ["--model", str(tmp_path / "policy"), "--environment", "--updates", "1", "--output", str(tmp_path)]
    summary = example.main(arguments)
    assert summary["updates"] == 1 and summary["failed"] == 0.0
