"""The lab's environments, their tasks and demonstrations, and the guide's own environment."""

from __future__ import annotations

import asyncio
import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from reagent.env.env import StepResult, ToolEnv
from reagent.env.parsers import MalformedCall
from reagent.env.task import Task
from reagent.errors import ToolError
from reagent.feedback.second_attempt_prompt import second_attempt
from reagent.lab.calculator_env import CalculatorEnv
from reagent.lab.demonstrations import demonstrations
from reagent.lab.search_env import SearchEnv, world_of
from reagent.lab.wordings import TERSE_SYSTEM
from reagent.lab.world import TERSE_BAD_ARGUMENTS, TERSE_TOOL_ERROR
from reagent.tasks.environment_config import EnvironmentConfig
from reagent.tasks.environments import make_environment, make_factory, make_tasks
from reagent.tools.calculator import evaluate, format_number
from rrm.data.feedback import parse_findings
from rrm.data.trajectory import ToolCall
from rrm.errors import ConfigError

NAMES = ("search", "calculator")
GUIDE = Path(__file__).resolve().parents[3] / "docs" / "your-environment.md"


def solve(env: Any, task: Task) -> list[StepResult]:
    """Play a task's plan."""

    async def main() -> list[StepResult]:
        plan, steps = type(env).plan(task), []
        env.reset(task)
        value = plan.start
        for step in range(plan.length):
            move = plan.move(step, value)
            steps.append(await env.step(env.parser.render_turn(calls=[move.call])))
            assert move.value in steps[-1].observations[0]["content"]
            value = move.value
        return [*steps, await env.step(env.parser.render_turn(answer=value))]

    return asyncio.run(main())


@pytest.mark.parametrize("parser", ["hermes", "search_tags", "react"])
@pytest.mark.parametrize("name", NAMES)
def test_every_task_is_solved_by_its_plan_in_as_many_calls_as_it_has_hops(name: str, parser: str) -> None:
    env = make_factory(name, parser=parser)()
    for task in make_tasks(name, 12, seed=1, hops=[1, 2, 3, 4, 5]):
        steps = solve(env, task)
        assert len(steps) == task.meta["hops"] + 1
        assert steps[-1].outcome_reward == 1.0 and steps[-1].info["success"] is True
        assert all(v == "useful" for s in steps for v in s.info["verdicts"])


@pytest.mark.parametrize("name", NAMES)
def test_tasks_follow_from_the_seed_and_seeds_and_splits_share_no_world(name: str) -> None:
    tasks = make_tasks(name, 40, seed=7)
    assert tasks == make_tasks(name, 40, seed=7) and tasks[:10] == make_tasks(name, 10, seed=7)
    parts = [tasks, make_tasks(name, 40, seed=8), make_tasks(name, 40, seed=7, split="heldout")]
    for key in ("id", "seed", "question"):
        assert len({getattr(t, key) for part in parts for t in part}) == 120, key
    counts = [t.meta["hops"] for t in make_tasks(name, 30, seed=0, hops=[2, 5, 3])]
    assert {h: counts.count(h) for h in (2, 3, 5)} == {2: 10, 3: 10, 5: 10}


def test_search_finds_nothing_usefully() -> None:
    env = SearchEnv()
    task = make_tasks("search", 1, seed=0)[0]
    env.reset(task)
    step = asyncio.run(env.step('<tool_call>{"name": "search", "arguments": {"query": "weather"}}</tool_call>'))
    assert step.observations[0]["content"] == "No facts found." and step.info["verdicts"] == ["useless"]
    assert world_of(task.seed) is env.world


def test_a_failing_search_fails_the_same_way_every_time_and_may_be_retried() -> None:
    task = make_tasks("search", 1, seed=0)[0]
    person = world_of(task.seed).entities["person"]

    def kinds() -> list[list[str]]:
        env = SearchEnv(error_rate=0.5, max_turns=100)
        env.reset(task)
        text = '<tool_call>{"name": "search", "arguments": {"query": "%s"}}</tool_call>'

        async def main() -> list[list[str]]:
            return [(await env.step(text % f"boss of {who}")).info["verdicts"] for who in person for _ in range(2)]

        return asyncio.run(main())

    first = kinds()
    assert first == kinds()
    assert {v for k in first for v in k} == {"failed", "useful", "repeated"}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("482 + 371", "853"), (" -3 * (2 + 5.5) ", "-22.5"), ("7 / 2", "3.5"), ("8 / 2", "4"),
        ("1 / 3", "0.3333333333"), ("7 // 2 + 7 % 2", "4"), ("2 ** 10", "1024"), ("+5", "5"),
    ],
)  # fmt: skip
def test_arithmetic(expression: str, value: str) -> None:
    assert format_number(evaluate(expression)) == value


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("1 / 0", "division by zero"), ("0 ** -1", "division by zero"), ("9 ** 9 ** 9", "too large"),
        ("10 ** 40", "too large"), ("1" * 31, "too large"), ("1e999", "not a real number"),
        ("(-8) ** 0.5", "not a real number"), ("__import__('os')", "only numbers"), ("(1).real", "only numbers"),
        ("True + 1", "only numbers"), ("1j", "only numbers"), ("'a' * 3", "only numbers"),
        ("1 if 1 else 2", "only numbers"), ("1 << 2", "only numbers"), ("1 +", "not an arithmetic expression"),
        ("", "not an arithmetic expression"), ("1\x00", "not an arithmetic expression"),
        ("(" * 150, "not an arithmetic expression"), ("1+" * 150, "longer than 200"),
    ],
)  # fmt: skip
def test_nothing_but_arithmetic_is_calculated(expression: str, reason: str) -> None:
    with pytest.raises(ToolError, match=reason):
        evaluate(expression)


def test_the_lab_calculator_does_one_operation_at_a_time() -> None:
    with pytest.raises(ToolError, match="at most 1 operation at a time"):
        evaluate("1 + 2 + 3", 1)
    assert evaluate("-1 - -2", 1) == 1
    for task in make_tasks("calculator", 50, seed=3, hops=[5]):
        assert task.answer is not None and 0 < int(task.answer) < 10**8


@pytest.mark.parametrize("name", NAMES)
def test_demonstrations_are_what_the_environment_would_show(name: str) -> None:
    rows = list(demonstrations(name, 60, 0, imperfect=0.5))
    again = list(demonstrations(name, 60, 0, imperfect=0.5))
    assert rows == again
    repaired = 0
    for row in rows:
        env: Any = make_factory(name)()
        assert row.messages[:2] == env.reset(row.task)
        assert [m["role"] for m in row.messages[:2]] == ["system", "user"]
        assert all(m["role"] == "assistant" for m, t in zip(row.messages, row.train_on, strict=True) if t)
        last = row.messages[-1]["content"]
        assert row.train_on[-1] and env.grade(row.task, env.parser.parse(last).answer) == 1.0
        repaired += len(row.messages) > 2 * row.task.meta["hops"] + 3
    assert 15 < repaired < 45
    trained = [m["content"] for r in rows for m, t in zip(r.messages, r.train_on, strict=True) if t]
    parse = make_factory(name)().parser.parse  # pyright: ignore[reportAttributeAccessIssue]
    assert not any(isinstance(c, MalformedCall) for text in trained for c in parse(text).calls)
    everything = list(demonstrations(name, 60, 0, imperfect=0.5, train_on_mistakes=True))
    assert sum(map(sum, (r.train_on for r in everything))) > len(trained)
    clean = list(demonstrations(name, 20, 0, imperfect=0.0))
    assert all(len(r.messages) == 2 * r.task.meta["hops"] + 3 for r in clean)


@pytest.mark.parametrize("name", NAMES)
def test_a_hurried_demonstrator_answers_with_its_first_result_but_not_after_a_critique(name: str) -> None:
    rows = list(demonstrations(name, 400, 0, hops=3, imperfect=0.0, hurried=0.6))
    calls = [(len(r.messages) - 3) // 2 for r in rows]
    assert set(calls) == {1, 3} and calls.count(1) / 400 == pytest.approx(0.6, abs=0.07)
    for row, made in zip(rows, calls, strict=True):
        env: Any = make_factory(name)()
        answer = env.parser.parse(row.messages[-1]["content"]).answer
        assert row.train_on[-1] and answer in row.messages[-2]["content"]  # what the last call gave
        assert made < 3 or env.grade(row.task, answer) == 1.0
    for row in demonstrations(name, 20, 0, hops=3, imperfect=0.0, with_critique=True, hurried=1.0):
        env = make_factory(name)()
        assert env.grade(row.task, env.parser.parse(row.messages[-1]["content"]).answer) == 1.0


@pytest.mark.parametrize("name", NAMES)
def test_baseline_demonstrations(name: str) -> None:
    for row in demonstrations(name, 8, 0, kind="direct"):
        assert [m["role"] for m in row.messages] == ["system", "user", "assistant"]
        assert row.messages[-1]["content"] == f"Answer: {row.task.answer}"
    for row in demonstrations(name, 8, 0, kind="naive_rag", hops=1):
        assert [m["role"] for m in row.messages] == ["system", "user", "assistant", "tool", "assistant"]
        assert row.task.answer and row.task.answer in row.messages[3]["content"]


@pytest.mark.parametrize("parser", ["hermes", "search_tags", "react"])
@pytest.mark.parametrize("name", NAMES)
def test_a_critique_names_the_mistake_and_not_the_answer(name: str, parser: str) -> None:
    for row in demonstrations(name, 40, 0, with_critique=True, imperfect=0.0, parser=parser):
        prompt = row.messages[1]["content"]
        assert prompt.startswith(f"{row.task.question}\nFirst attempt:\n[step 1] ") and prompt.endswith("\nTry again.")
        critique = prompt.split("Critique:\n")[1]
        findings = parse_findings(critique, 99)
        assert findings[-1].verdict == "bad" and [f.step for f in findings] == list(range(1, len(findings) + 1))
        assert prompt.count("[step ") >= 2 * len(findings)
        assert not re.search(rf"\b{re.escape(row.task.answer or '')}\b", critique)
        assert not any(row.train_on[:2]) and row.train_on[-1]


def test_a_second_attempt_keeps_the_prompt_and_adds_to_its_question() -> None:
    prompt = [{"role": "system", "content": "s"}, {"role": "user", "content": "q?"}]
    attempt = [
        {"role": "assistant", "content": "", "tool_calls": [{"name": "search", "arguments": {"query": "a"}, "id": "1"}]},
        {"role": "tool", "content": "b <|im_end|>" + "x" * 5000, "tool_call_id": "1"},
        {"role": "assistant", "content": "Answer: c"},
    ]  # fmt: skip
    messages = second_attempt(prompt, attempt, "[step 1] bad: no", max_chars=200)
    assert prompt[1]["content"] == "q?" and messages[0] == prompt[0]
    lines = messages[1]["content"].split("\n")
    assert lines[:2] == ["q?", "First attempt:"]
    assert lines[2].startswith('[step 1] search {"query": "a"} -> b (|im_end|)xxxx') and " … xxx" in lines[2]
    assert 195 < len(lines[2]) + len(lines[3]) < 220
    assert lines[3:] == ["[step 2] Answer: c", "Critique:", "[step 1] bad: no", "Try again."]
    retry = second_attempt(prompt, attempt, None)[1]["content"]
    assert "Critique" not in retry and retry.endswith("Try again.")
    with pytest.raises(ValueError, match="user message"):
        second_attempt(prompt[:1], attempt, None)


def test_episodes_are_short_in_the_labs_own_tokens() -> None:
    from reagent.lab.model import MAX_POSITIONS, build_lab_tokenizer

    rows = [r for name in NAMES for c in (False, True) for r in demonstrations(name, 60, 1, with_critique=c)]
    tokenizer = build_lab_tokenizer(m["content"] for row in rows for m in row.messages)

    def longest(name: str, **options: Any) -> int:
        rows = demonstrations(name, 10, 2, **options)
        return max(len(tokenizer.apply_chat_template(r.messages, tokenize=True)["input_ids"]) for r in rows)

    for name in NAMES:
        assert longest(name, hops=4, imperfect=0.0) < 450
        assert longest(name, hops=4, with_critique=True) < MAX_POSITIONS - 200


def test_only_the_name_changes_between_environments() -> None:
    seeds = []
    for name in NAMES:
        config = EnvironmentConfig(name=name, train_tasks=6, eval_tasks=4, eval={"hops": [3]}, options={"max_turns": 3})
        factory, train, held_out = make_environment(config, seed=5)
        env = factory()
        assert isinstance(env, SearchEnv if name == "search" else CalculatorEnv) and env.max_turns == 3
        assert (len(train), len(held_out), {t.meta["hops"] for t in held_out}) == (6, 4, {3})
        assert held_out == make_environment(config, seed=6)[2]  # held-out tasks are the same for every run
        assert not {t.seed for t in train} & {t.seed for t in held_out}
        seeds.append([t.seed for t in train])
    assert seeds[0] != seeds[1]


def test_what_ones_own_environment_raises_is_said_with_its_place(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "down_env.py").write_text(
        "class Down:\n    def __init__(self):\n        raise RuntimeError('db down')\n"
    )
    (tmp_path / "bad_module_env.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"'down_env:Down' cannot be made: RuntimeError: db down \(.*down_env.py:3\)"):
        make_factory("down_env:Down")
    with pytest.raises(ConfigError, match=r"cannot be imported: ZeroDivisionError: .*bad_module_env.py:1\)"):
        make_factory("bad_module_env:Env")


def test_wrong_names_and_options_are_refused() -> None:
    for name, options, message in (
        ("serach", {}, "did you mean search"),
        ("reagent.nothing:Env", {}, "cannot be imported"),
        ("reagent.tools.calculator:MAX_CHARS", {}, "not a class or function"),
        ("search", {"max_turn": 3}, "max_turn"),
    ):
        with pytest.raises(ConfigError, match=message):
            make_factory(name, **options)
    for name, options, message in (
        ("search", {"hop": 1}, "hop"),
        ("search", {"hops": [0]}, "at least one hop, got 0"),
        ("reagent.env.env:ToolEnv", {}, "no make_tasks"),
    ):
        with pytest.raises(ConfigError, match=message):
            make_tasks(name, 3, 0, **options)
    with pytest.raises(ValueError, match="no plans"):
        next(demonstrations("reagent.env.env:ToolEnv", 1, 0))


def test_the_guides_environment_works_as_it_stands(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)[0]
    assert len(code.splitlines()) < 40
    (tmp_path / "my_env.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    factory, train, held_out = make_environment(
        EnvironmentConfig(name="my_env:Products", train_tasks=3, eval_tasks=2), seed=0
    )
    env = factory()
    assert isinstance(env, ToolEnv) and len(train) == 3 and len(held_out) == 2

    async def play(task: Task) -> list[StepResult]:
        env.reset(task)
        a, b = re.findall(r"\d+", task.question)
        called = await env.step(f'<tool_call>{{"name": "multiply", "arguments": {{"a": {a}, "b": {b}}}}}</tool_call>')
        return [called, await env.step(f"Answer: {called.observations[0]['content']}")]

    for task in train:
        steps = asyncio.run(play(task))
        assert steps[-1].terminated and steps[-1].outcome_reward == 1.0
        # a call pays nothing by default: trivial ones earned 0.2
        assert sum(s.reward for s in steps) == pytest.approx(0.0)


def test_the_judges_terse_transcripts_use_the_environments_words() -> None:
    (task,) = SearchEnv.make_tasks(1, 0)
    env = SearchEnv(error_rate=1.0)
    system = env.reset(task)[0]
    assert system == {"role": "system", "content": TERSE_SYSTEM}
    down = asyncio.run(env.step(env.parser.render_turn(calls=[SearchEnv.plan(task).retrieval()])))
    assert down.observations[0]["content"] == TERSE_TOOL_ERROR
    broken = asyncio.run(env.step('<tool_call>{"name": "search", "arguments": {"query": "x"</tool_call>'))
    assert broken.observations[0]["content"] == TERSE_BAD_ARGUMENTS


def test_a_countdown_is_won_by_the_expression_that_was_tried() -> None:
    env = make_factory("countdown")()
    for task in make_tasks("countdown", 20, seed=1, numbers=[3, 6]):
        env.reset(task)
        call = ToolCall(name="calculator", arguments={"expression": task.answer})
        tried = asyncio.run(env.step(env.parser.render_turn(calls=[call])))
        assert tried.observations[0]["content"] == str(task.meta["target"])
        assert asyncio.run(env.step(env.parser.render_turn(answer=task.answer))).info["success"] is True


def test_no_number_of_a_countdown_is_its_target() -> None:
    tasks = make_tasks("countdown", 200, seed=0)
    assert not any(task.meta["target"] in task.meta["numbers"] for task in tasks)


def test_countdown_takes_any_plain_expression_with_each_number_once() -> None:
    task, env = Task("t", "", meta={"numbers": [1, 2, 3, 5, 8], "target": 24}), make_factory("countdown")()
    assert [env.grade(task, right) for right in ("3 * 8", "(5 + 1 - 3) * 8", "8 / (1 / 3)")] == [1.0] * 3
    wrong = ("8 + 8 + 8", "25 - 1", "5**2 - 1", "3 * 8 // 1", "3 * 8 = 24", "24", "", "3 * 8.0", "1" * 9999)
    assert not any(env.grade(task, one) for one in wrong)
