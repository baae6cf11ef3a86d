"""Makes `litellm.jsonl` with litellm 1.106.2: the payloads that it hands to every logger; no server is asked.

`pip install litellm==1.106.2`, then `python tests/rrm/readers/samples/make_litellm.py`. An agent's three calls, the second of which fails
once, and between them a call of another conversation. Times and random ids are set to constants, empty fields left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
from litellm.integrations.custom_logger import CustomLogger

HERE = Path(__file__).parent
LEFT_OUT = ("hidden_params", "cost_breakdown", "error_information", "model_map_information")
EMPTY: tuple[Any, ...] = (None, "", [], {})
SYSTEM = {"role": "system", "content": "Use the till."}
ASK = {"role": "user", "content": "What is 6 x 7?"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "till", "arguments": '{"e": "6*7"}'}}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "42"}
TOOLS = [{"type": "function", "function": {"name": "till", "parameters": {"type": "object", "properties": {}}}}]
SECOND = [SYSTEM, ASK, {"role": "assistant", "content": None, "tool_calls": [CALL]}, RESULT]
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("a", {"messages": [SYSTEM, ASK], "mock_tool_calls": [CALL], "mock_response": "", "tools": TOOLS}),
    ("b", {"messages": [ASK], "mock_response": "Forty-two."}),
    ("a", {"messages": SECOND, "mock_response": RuntimeError("no answer"), "tools": TOOLS}),
    ("a", {"messages": SECOND, "mock_response": "It is 42.", "tools": TOOLS}),
    ("a", {"messages": [*SECOND, {"role": "assistant", "content": "It is 42."}, ASK], "mock_response": "Still 42."}),
]


class Kept(CustomLogger):
    """Keeps what every logger is given."""

    def __init__(self) -> None:
        super().__init__()
        self.payloads: list[dict[str, Any]] = []

    def log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self.payloads.append(kwargs["standard_logging_object"])

    log_failure_event = log_success_event


def small(value: Any) -> Any:
    """Without what is empty, but for a failed call's response."""
    if isinstance(value, dict):
        return {k: small(v) for k, v in value.items() if k == "response" or (v not in EMPTY and k not in LEFT_OUT)}
    return [small(v) for v in value] if isinstance(value, list) else value


def main() -> None:
    kept = Kept()
    litellm.callbacks = [kept]
    lines = []
    for number, (trace, asked) in enumerate(CALLS, 1):
        with contextlib.suppress(litellm.exceptions.APIError, litellm.exceptions.InternalServerError):
            litellm.completion(model="gpt-4o-mini", api_key="none", metadata={"trace_id": trace}, **asked)
        while len(kept.payloads) < number:
            time.sleep(0.05)  # it logs in a thread of its own
        payload = json.loads(json.dumps(small(kept.payloads[-1]), default=str))
        fixed = {"id": f"chatcmpl-{number}", "litellm_call_id": f"call-{number}", "startTime": 1.0 * number}
        payload |= {**fixed, "endTime": number + 0.5, "completionStartTime": number + 0.5, "response_time": 0.5}
        if payload["response"]:
            payload["response"] |= {"id": f"chatcmpl-{number}", "created": number}
        lines.append(json.dumps(payload))
    (HERE / "litellm.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
