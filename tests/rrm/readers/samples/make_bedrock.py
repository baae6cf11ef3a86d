"""Makes `bedrock.json` with botocore 1.44.8, whose own model of the service checks the request and the response; no server is asked.

`pip install botocore==1.44.8`, then `python tests/rrm/readers/samples/make_bedrock.py`. The last of three calls of `converse`, with its whole history: a
thought and two calls at once, of which one fails, a third and the answer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from botocore.session import get_session
from botocore.stub import Stubber

HERE = Path(__file__).parent


def called(number: str, of: str) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": number, "name": "width", "input": {"of": of}}}


def gave(number: str, text: str, status: str = "success") -> dict[str, Any]:
    """One result's block."""
    return {"toolResult": {"toolUseId": number, "status": status, "content": [{"text": text}]}}


THOUGHT = {"reasoningContent": {"reasoningText": {"text": "Both widths are needed.", "signature": "s"}}}
REQUEST: dict[str, Any] = {
    "modelId": "scripted",
    "system": [{"text": "You measure things."}],
    "messages": [
        {"role": "user", "content": [{"text": "Which is wider, the door or the gate?"}]},
        {"role": "assistant", "content": [THOUGHT, called("c1", "door"), called("c2", "gate")]},
        {
            "role": "user",
            "content": [gave("c1", "the door is 4 feet wide"), gave("c2", "no gate is known, only a gateway", "error")],
        },
        {"role": "assistant", "content": [{"text": "The gate is called gateway."}, called("c3", "gateway")]},
        {"role": "user", "content": [gave("c3", "the gateway is 7 feet wide")]},
    ],
    "toolConfig": {"tools": [{"toolSpec": {"name": "width", "inputSchema": {"json": {"type": "object"}}}}]},
}
RESPONSE: dict[str, Any] = {
    "output": {"message": {"role": "assistant", "content": [{"text": "The gateway is wider than the door."}]}},
    "stopReason": "end_turn",
    "usage": {"inputTokens": 20, "outputTokens": 5, "totalTokens": 25},
    "metrics": {"latencyMs": 9},
}

if __name__ == "__main__":
    client = get_session().create_client(
        "bedrock-runtime", region_name="us-east-1", aws_access_key_id="none", aws_secret_access_key="none"
    )
    with Stubber(client) as stubbed:
        stubbed.add_response("converse", RESPONSE, REQUEST)
        answer = client.converse(**REQUEST)
    (HERE / "bedrock.json").write_text(json.dumps({"request": REQUEST, "response": answer}, indent=1) + "\n")
