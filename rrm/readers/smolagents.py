"""`smolagents`: an agent's memory (`get_full_steps()`, `get_succinct_steps()`), or `RunResult.dict()`.

A step is one message of the agent with its calls, and one of what it observed. Fields:
https://huggingface.co/docs/smolagents/reference/agents (memory).
"""

from __future__ import annotations

import re
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers.base import SourceItem, make, own_id, text_field, without
from rrm.readers.chat import as_text, text_of, tool_call
from rrm.readers.outcomes import find_outcome, get
from rrm.readers.turns import Turns

NAME = "smolagents"
MARKS = ("steps[].step_number|[].step_number|memory.steps", "steps[].observations|[].observations|steps[].task|[].task")
PLACES = ("steps", "memory.steps", "memory")
STEP = ("step_number", "observations", "timing")
CODE = "python_interpreter"
Message = dict[str, Any]


def sniff(value: Any) -> bool:
    """A list of steps, or an object that holds one under a usual name."""
    return _steps(value) is not None


def _steps(value: Any) -> list[Any] | None:
    """The steps in a value; None where it holds none."""
    places = (get(value, path) for path in PLACES) if isinstance(value, dict) else (value,)
    for steps in places:
        if isinstance(steps, list) and any(isinstance(s, dict) and all(k in s for k in STEP) for s in steps):
            return steps
    return None


def parse(item: SourceItem) -> Trajectory:
    steps = _steps(item.value)
    if steps is None:
        raise ValueError(f"no list of steps at {', '.join(PLACES)}")
    record = item.value if isinstance(item.value, dict) else {}
    turns, task, usage = Turns(), "", {"input_tokens": 0, "output_tokens": 0}
    system = get(record, "memory.system_prompt.system_prompt") if isinstance(record.get("memory"), dict) else None
    for i, step in enumerate(steps):
        if not isinstance(step, dict):
            raise ValueError(f"steps[{i}] must be an object, got {type(step).__name__}")
        system = system if isinstance(system, str) else step.get("system_prompt") or _system(step)
        for key in usage:
            count = get(step, f"token_usage.{key}") if isinstance(step.get("token_usage"), dict) else 0
            usage[key] += count if isinstance(count, int) else 0
        if "task" in step:
            task = task or as_text(step["task"])
            turns.add_text("user", step["task"])
        elif "plan" in step:
            turns.said(as_text(step["plan"]), is_plan=True, timestamp=_time(step, "end_time"))
            turns.close()
        elif "step_number" in step:
            _act(turns, step)
        elif step.keys() == {"output"} and not _is_said(turns, step["output"]):
            turns.said(step["output"])
    if isinstance(system, str) and system:
        turns.messages.insert(0, {"role": "system", "content": system})
    if "output" in record and not _is_said(turns, record["output"]):
        turns.close()
        turns.said(record["output"])
    return make(
        item,
        NAME,
        turns.messages,
        meta=without(record, "id", "steps", "memory") | ({"usage": usage} if any(usage.values()) else {}),
        id=own_id(record),
        task=text_field(record, "question", "task") or task,
        outcome=find_outcome({k: v for k, v in record.items() if k != "state"}),
    )


def _time(step: Message, name: str) -> Any:
    return step["timing"].get(name) if isinstance(step.get("timing"), dict) else None


def _system(step: Message) -> str | None:
    messages = step.get("model_input_messages")
    first = messages[0] if isinstance(messages, list) and messages and isinstance(messages[0], dict) else {}
    return text_of(first.get("content")) if as_text(first.get("role", "")).lower().endswith("system") else None


def _act(turns: Turns, step: Message) -> None:
    """Add one step: the model's text and calls, then the results."""
    turns.close()
    output, calls, error = step.get("model_output"), step.get("tool_calls"), step.get("error")
    message = step.get("model_output_message")
    usage = step.get("token_usage")
    turns.agent(step_number=step.get("step_number"), timestamp=_time(step, "end_time"), usage=usage)
    inner = message if isinstance(message, dict) else {}
    if thought := inner.get("reasoning_content"):
        turns.thought(as_text(thought))
    turns.said(text_of(output) if isinstance(output, list) else as_text(output or "") or text_of(inner.get("content")))
    calls = calls or inner.get("tool_calls")  # a step whose call failed keeps it in the model's message alone
    tool_calls = [tool_call(c) for c in calls if c is not None] if isinstance(calls, list) else []
    for call in tool_calls:
        arguments = call["arguments"]
        is_code = call["name"] == CODE and isinstance(arguments, str)
        turns.called(call["name"], {"code": arguments} if is_code else arguments, call.get("id"))
    texts = [as_text(step["observations"])] if step.get("observations") else []
    if error:
        texts.append(as_text(error.get("message", error) if isinstance(error, dict) else error))
    elif step.get("action_output") is not None and not any(
        _stands(as_text(step["action_output"]), text) for text in texts
    ):
        texts.append(as_text(step["action_output"]))
    if texts:
        number = tool_calls[0].get("id") if len(tool_calls) == 1 else None
        name = tool_calls[0]["name"] if len(tool_calls) == 1 else None
        took = _time(step, "duration")
        took = took if isinstance(took, int | float) and not isinstance(took, bool) else None
        turns.came_back("\n".join(texts), number, name, failed=bool(error), duration_s=took)


def _is_said(turns: Turns, output: Any) -> bool:
    """Return whether the run's answer stands in its last messages or their calls' arguments."""
    if output is None:
        return True
    for message in turns.messages[-2:]:
        arguments = [c["arguments"] for c in message.get("tool_calls") or []]
        values = [v for a in arguments for v in (a.values() if isinstance(a, dict) else [a])]
        if any(_stands(as_text(output), text) for text in (text_of(message["content"]), *map(as_text, values))):
            return True
    return False


def _stands(answer: str, text: str) -> bool:
    """Return whether an answer stands in a text, not as a piece of a longer word or number."""
    return re.search(rf"(?<!\w)(?<!\d[.,]){re.escape(answer)}(?!\w|[.,]\d)", text) is not None
