"""`processbench`: ProcessBench, one solution per row with its first error; a step is a message.

`label` counts from 0, -1 means no error: the steps before it are good and it is bad in a human label (`meta["annotations"]`); later steps
have no label. `final_answer_correct` is the outcome. Source: https://huggingface.co/datasets/Qwen/ProcessBench.
"""

from __future__ import annotations

from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers.base import SourceItem, make, own_id, without
from rrm.readers.outcomes import RunOutcome

NAME = "processbench"
MARKS = ("problem", "steps", "label", "final_answer_correct")


def sniff(value: Any) -> bool:
    """A problem, its steps as texts, and the number of the wrong one."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("problem"), str)
        and isinstance(value.get("steps"), list)
        and "label" in value
        and "final_answer_correct" in value
    )


def parse(item: SourceItem) -> Trajectory:
    record = item.value
    problem, steps, label = (record.get(k) if isinstance(record, dict) else None for k in ("problem", "steps", "label"))
    if not isinstance(problem, str) or not isinstance(steps, list) or not all(isinstance(s, str) for s in steps):
        raise ValueError("no text under `problem`, or no list of texts under `steps`")
    if isinstance(label, bool) or not isinstance(label, int) or not -1 <= label < len(steps):
        raise ValueError(
            f"label {str(label)[:40]!r} is no step of {len(steps)}: -1 for no error, else the first wrong step from 0"
        )
    right = record.get("final_answer_correct")
    if right is not None and not isinstance(right, bool):
        raise ValueError(f"final_answer_correct is {str(right)[:40]!r}: true or false is expected")
    good = label if label >= 0 else len(steps)
    findings = [{"step": k + 1, "verdict": "good" if k < good else "bad"} for k in range(min(good + 1, len(steps)))]
    meta = without(record, "id", "problem", "steps", "final_answer_correct", "question_id")
    if isinstance(meta.get("generator"), str):
        meta["agent"] = meta.pop("generator")
    if findings:
        meta["annotations"] = [{"findings": findings, "annotator": NAME, "kind": "human"}]
    messages = [{"role": "user", "content": problem}, *({"role": "assistant", "content": step} for step in steps)]
    outcome = None if right is None else RunOutcome(float(right), "final_answer_correct")
    id, question = own_id(record), own_id(record, "question_id")
    return make(item, NAME, messages, meta=meta, id=id, task=problem, question_id=question, outcome=outcome)
