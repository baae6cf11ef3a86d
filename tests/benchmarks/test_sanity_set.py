"""The sanity set keeps its shape: sixty runs, one label a step, at most one mistake, every call answered."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rrm.data.mistakes import MISTAKE_KINDS

PATH = Path(__file__).parents[2] / "benchmarks" / "models" / "sanity.jsonl"
RUNS: list[dict[str, Any]] = [json.loads(line) for line in PATH.read_text("ascii").splitlines()]
FLAWED = [run for run in RUNS if run["kind"] is not None]
DOMAINS = ("support", "coding", "retrieval", "data", "web", "calendar")
KINDS = set(MISTAKE_KINDS)
each_run = pytest.mark.parametrize("run", RUNS, ids=[run["id"] for run in RUNS])


def steps(run: dict[str, Any]) -> list[dict[str, Any]]:
    return [message for message in run["messages"] if message["role"] == "assistant"]


def calls(run: dict[str, Any]) -> list[dict[str, Any]]:
    return [call for step in steps(run) for call in step.get("tool_calls", [])]


def is_complete(call: dict[str, Any], tools: dict[str, Any]) -> bool:
    """Tell whether a call's arguments are a JSON object with all required parameters and no unknown one."""
    try:
        arguments = json.loads(call["function"]["arguments"])
    except ValueError:
        return False
    parameters = tools[call["function"]["name"]]["parameters"]
    return set(parameters["required"]) <= arguments.keys() <= parameters["properties"].keys()


def test_the_set_has_ten_runs_of_each_domain_half_of_them_flawed() -> None:
    assert len({run["id"] for run in RUNS}) == len(RUNS) == 60
    assert Counter(run["domain"] for run in RUNS) == dict.fromkeys(DOMAINS, 10)
    assert Counter(run["domain"] for run in FLAWED) == dict.fromkeys(DOMAINS, 5)


def test_every_kind_of_mistake_occurs_twice_and_at_every_position() -> None:
    kinds = Counter(run["kind"] for run in FLAWED)
    assert set(kinds) == KINDS
    assert min(kinds.values()) >= 2
    positions = [(run["step_labels"].index("bad"), len(run["step_labels"])) for run in FLAWED]
    first = sum(at == 0 for at, _ in positions)
    last = sum(at == length - 1 for at, length in positions)
    assert min(first, last, len(FLAWED) - first - last) >= 5


def test_half_of_the_runs_have_a_written_policy_of_some_length() -> None:
    policies = [message["content"] for run in RUNS for message in run["messages"] if message["role"] == "system"]
    assert len(policies) == 30
    assert sum(run["messages"][0]["role"] == "system" for run in FLAWED) == 15
    assert all(30 <= len(policy.split()) <= 120 for policy in policies)


@each_run
def test_labels_are_one_a_step_with_one_mistake_only_in_flawed_runs(run: dict[str, Any]) -> None:
    labels = run["step_labels"]
    assert len(labels) == len(steps(run))
    assert 2 <= len(labels) <= 6
    if run["kind"] is None:
        assert run["why"] is None
        assert set(labels) == {"good"}
    else:
        mistake = labels.index("bad")
        assert labels == ["good"] * mistake + ["bad"] + [None] * (len(labels) - mistake - 1)
        assert f"Step {mistake + 1} " in run["why"] or f"step {mistake + 1} " in run["why"]


@each_run
def test_every_call_has_its_result_unless_the_run_ends_with_it(run: dict[str, Any]) -> None:
    waiting: list[str] = []
    for message in run["messages"]:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
        else:
            assert not waiting
            waiting = [call["id"] for call in message.get("tool_calls", [])]
    assert not waiting or run["messages"][-1]["role"] == "assistant"
    assert len({call["id"] for call in calls(run)}) == len(calls(run))
    assert run["task"] == next(message["content"] for message in run["messages"] if message["role"] == "user")


@each_run
def test_calls_name_a_listed_tool_and_are_well_formed_unless_that_is_the_mistake(run: dict[str, Any]) -> None:
    tools = {tool["function"]["name"]: tool["function"] for tool in run["tools"]}
    assert all(tool["description"] for tool in tools.values())
    assert {call["function"]["name"] for call in calls(run)} <= tools.keys()
    for step, label in zip(steps(run), run["step_labels"], strict=True):
        malformed = run["kind"] == "malformed_call" and label == "bad"
        assert all(is_complete(call, tools) is not malformed for call in step.get("tool_calls", []))
