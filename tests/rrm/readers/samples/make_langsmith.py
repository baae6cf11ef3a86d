"""Makes langsmith_runs.jsonl: two traces as LangSmith's own classes build and dump them; the content is made up.

In an environment of its own: `pip install langsmith==0.15.0`, then `python make_langsmith.py`. Nothing is sent anywhere.
"""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from langsmith import Client
from langsmith.run_trees import RunTree
from langsmith.schemas import Run

HERE = Path(__file__).parent
START = datetime(2026, 1, 1, tzinfo=UTC)
CLIENT = Client(api_url="http://localhost:1", api_key="none", auto_batch_tracing=False)
SYSTEM = {"role": "system", "content": "Measure, do not guess."}
CALL = {"id": "call_1", "type": "function", "function": {"name": "width", "arguments": '{"of": "door"}'}}
TOOLS = [{"type": "function", "function": {"name": "width", "parameters": {"type": "object"}}}]


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def child(
    parent: RunTree, k: int, kind: str, name: str, inputs: Any, outputs: Any, begin: float, end: float, **more: Any
) -> RunTree:
    made = parent.create_child(
        name, kind, run_id=uuid.UUID(int=parent.id.int + k), inputs=inputs, start_time=at(begin), **more
    )
    made.end(outputs=outputs, end_time=at(end))
    return made


def trace(number: int, thing: str, answer: str) -> list[RunTree]:
    ask = {"role": "user", "content": f"How wide is the {thing}?"}
    root_id = uuid.UUID(int=number << 64)
    root = RunTree(
        name="joiner", run_type="chain", id=root_id, inputs={"question": ask["content"]}, start_time=at(0),
        client=CLIENT,
    )  # fmt: skip
    called = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    told = {"role": "tool", "tool_call_id": "call_1", "content": "90 cm"}
    extra = {"invocation_params": {"model": "m-1", "tools": TOOLS}}
    runs = [root]
    first = {"choices": [{"index": 0, "finish_reason": "tool_calls", "message": called}]}
    runs.append(child(root, 1, "llm", "ChatOpenAI", {"messages": [SYSTEM, ask]}, first, 1, 2, extra=extra))
    runs.append(child(root, 2, "tool", "width", {"of": "door"}, {"output": "90 cm"}, 2, 2.5))
    last = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": answer}}]}
    runs.append(child(root, 3, "llm", "ChatOpenAI", {"messages": [SYSTEM, ask, called, told]}, last, 3, 4, extra=extra))
    root.end(outputs={"answer": answer}, end_time=at(5))
    return runs


def dumped(run: RunTree, stats: dict[str, Any] | None) -> str:
    keys = ("id", "name", "run_type", "start_time", "end_time", "inputs", "outputs", "error", "extra", "parent_run_id")
    known = {k: getattr(run, k) for k in (*keys, "trace_id", "dotted_order", "tags")}
    known["extra"] = {k: v for k, v in known["extra"].items() if k == "invocation_params"}
    made = Run(**known, feedback_stats=stats, status="success", session_id=uuid.UUID(int=7))
    return json.dumps(json.loads(made.model_dump_json(exclude_none=True, exclude={"attachments"})))


def main() -> None:
    lines = list[str]()
    for number, (thing, answer, score) in enumerate([("door", "90 cm.", 1.0), ("gate", "A metre.", 0.0)], 1):
        root, *inner = trace(number, thing, answer)
        lines += [dumped(r, None) for r in inner]
        lines.append(dumped(root, {"correctness": {"n": 1, "avg": score, "values": {}}}))
    (HERE / "langsmith_runs.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
