"""`tau2`: tau2-bench result files, one object with `info`, `tasks` and `simulations`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers.base import SourceItem, make, own_id, stem, without
from rrm.readers.chat import chat_message
from rrm.readers.outcomes import RunOutcome, as_outcome, get

NAME = "tau2"
MARKS = ("simulations|reward_info|termination_reason", "task_id|tasks", "messages[].role|simulations[].messages")


def sniff(value: Any) -> bool:
    """A results file, or one simulation of it."""
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("simulations"), list):
        return True
    marks = ("reward_info", "termination_reason", "trial")
    return isinstance(value.get("messages"), list) and "task_id" in value and any(k in value for k in marks)


def explode(value: Any) -> Iterator[tuple[Any, dict[str, Any]]] | None:
    """Yield a results file's simulations, each with its domain and task; None for other values."""
    if not isinstance(value, dict) or not isinstance(value.get("simulations"), list):
        return None
    return _simulations(value)


def _simulations(value: dict[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    info = value["info"] if isinstance(value.get("info"), dict) else {}
    listed = value["tasks"] if isinstance(value.get("tasks"), list) else []
    tasks = {str(t.get("id")): t for t in listed if isinstance(t, dict)}
    for simulation in value["simulations"]:
        number = str(simulation.get("task_id")) if isinstance(simulation, dict) else ""
        yield simulation, {"info": info, "task": tasks.get(number, {})}


def parse(item: SourceItem) -> Trajectory:
    """Read one simulation; the agent's policy becomes its system message."""
    record = item.value
    if not isinstance(record, dict) or not isinstance(record.get("messages"), list):
        raise ValueError("a simulation needs a list of `messages`")
    info, task = item.context.get("info", {}), item.context.get("task", {})
    world = info["environment_info"] if isinstance(info.get("environment_info"), dict) else {}
    agent = info["agent_info"] if isinstance(info.get("agent_info"), dict) else {}
    messages = [m for i, raw in enumerate(record["messages"]) for m in _messages(raw, f"messages[{i}]")]
    policy = world.get("policy")
    if isinstance(policy, str) and policy and not any(m["role"] == "system" for m in messages):
        messages.insert(0, {"role": "system", "content": policy})
    meta = without(record, "messages", "id")
    meta |= {k: v for k, v in (("domain", world.get("domain_name")), ("agent", agent.get("llm"))) if v is not None}
    if task.get("evaluation_criteria") is not None:
        meta["reference"] = task["evaluation_criteria"]
    task_name = f"{str(meta.get('domain') or stem(item.path))[:80]}:task{str(record.get('task_id'))[:80]}"
    reward = as_outcome(get(record, "reward_info.reward"))
    outcome = None if reward is None else RunOutcome(reward, "reward_info.reward")
    id = own_id(record) or f"{task_name}-trial{str(record.get('trial', 0))[:80]}"
    return make(item, NAME, messages, meta=meta, id=id, question_id=task_name, outcome=outcome)


def _messages(raw: Any, where: str) -> list[dict[str, Any]]:
    """Read one message; a bundle of tool results is split, and a result's `id` is its call's."""
    bundle = raw.get("tool_messages") if isinstance(raw, dict) else None
    messages = list[dict[str, Any]]()
    for entry in bundle if isinstance(bundle, list) and bundle else [raw]:
        message = chat_message(entry, where)
        if message["role"] == "tool" and "tool_call_id" not in message and isinstance(message.get("id"), str):
            message["tool_call_id"] = message.pop("id")
        messages.append(message)
    return messages
