"""`tau_bench`: tau-bench result files, a list of `{task_id, reward, info, traj, trial}`."""

from __future__ import annotations

from typing import Any

from rrm.data.questions import question_hash
from rrm.data.trajectory import Trajectory
from rrm.readers.base import SourceItem, make, stem, without
from rrm.readers.messages import chat_messages
from rrm.readers.outcomes import find_outcome

NAME = "tau_bench"
MARKS = ("task_id", "traj[].role")


def sniff(value: Any) -> bool:
    """A task id beside a list of messages called `traj`."""
    return isinstance(value, dict) and "task_id" in value and isinstance(value.get("traj"), list)


def parse(item: SourceItem) -> Trajectory:
    """Read one trial; trials of one task share the hidden user instruction, which makes the question id."""
    record = item.value
    if not isinstance(record, dict) or not isinstance(record.get("traj"), list):
        raise ValueError("no list of messages called `traj`")
    info = record["info"] if isinstance(record.get("info"), dict) else {}
    task = info["task"] if isinstance(info.get("task"), dict) else {}
    if not record["traj"] and info.get("error"):
        raise ValueError(f"the run has no messages: {str(info['error'])[:200]}")
    meta = without(record, "traj")
    if task.get("actions") is not None or task.get("outputs") is not None:
        meta["reference"] = {"actions": task.get("actions"), "outputs": task.get("outputs")}
    instruction = task.get("instruction")
    number, trial = str(record.get("task_id"))[:80], str(record.get("trial", 0))[:80]
    name = f"{stem(item.path)}:task{number}"
    messages, outcome = chat_messages(record["traj"], "traj"), find_outcome({"reward": record.get("reward")})
    question = (question_hash(instruction) if isinstance(instruction, str) else None) or name
    return make(item, NAME, messages, meta=meta, id=f"{name}-trial{trial}", question_id=question, outcome=outcome)
