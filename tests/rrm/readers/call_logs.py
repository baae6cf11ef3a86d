"""Logs of model calls for tests: records, and what is read from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from log_rows import read_lines

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError


def run_of(folder: Path, *records: Any) -> tuple[list[Trajectory], list[ReadError]]:
    found, errors = read_lines(folder / "log.txt", *records)
    assert all(t.source and t.source.format == "calls" and Trajectory.from_json(t.to_json()) == t for t in found)
    assert sum(t.meta["lines"] for t in found) + len(errors) == len(records)
    return found, errors


def texts(trajectory: Trajectory) -> list[str]:
    return [m.text() for m in trajectory.messages]


def chat(*messages: str, reply: str | None, **more: Any) -> dict[str, Any]:
    """A call: messages are `s: …`, `u: …`, `a: …`; a failed one has no reply."""
    roles = {"s": "system", "u": "user", "a": "assistant"}
    asked = [{"role": roles[m[0]], "content": m[3:]} for m in messages]
    answer = {"choices": [{"message": {"role": "assistant", "content": reply}, "finish_reason": "stop"}]}
    failed = {"status_code": 500, "body": {"error": {"message": "busy"}}}
    return {"request": {"model": "m", "messages": asked}, "response": failed if reply is None else answer} | more


def response(number: str, text: str, **more: Any) -> dict[str, Any]:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return {"object": "response", "id": number, "output": [message], "status": "completed", **more}
