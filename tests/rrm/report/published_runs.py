"""What the tests of publishing share."""

from __future__ import annotations

from typing import Any

from rrm.data.feedback import JudgeInfo

JUDGE = JudgeInfo(model="openai:http://10.1.2.3:8000/v1#m-7b", model_hash="ab12", prompt_version="2", mode="full")
TOKEN = "hf_" + "a1B2" * 9  # the form of one, and none


def messages(*said: str) -> list[dict[str, Any]]:
    call = {"name": "look", "arguments": {"at": "door", "how": None}, "id": "c1"}
    return [
        {"role": "user", "content": "How wide?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": [{"type": "text", "text": "90 cm"}], "tool_call_id": "c1", "odd": [1, None]},
        *({"role": "assistant", "content": text} for text in said),
    ]
