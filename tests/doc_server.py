"""The servers that the documentation's commands ask: a chat model that says what it is asked for, and `rrm serve` over the lab judge."""

from __future__ import annotations

import json
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent / "rrm"))

from openai_server import Answer, completion, serve

JUDGEMENT = "<think>[step 1] looks</think><critique>[step 1] good: looks</critique><score>0.6</score>"
USAGE = {"prompt_tokens": 40, "completion_tokens": 20, "total_tokens": 60}


def instance(schema: dict[str, Any]) -> Any:
    """Something that a JSON schema allows."""
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return instance(schema["anyOf"][0])
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        return {name: instance(inner) for name, inner in schema.get("properties", {}).items()}
    return {"string": "seen in step 1", "number": 0.6, "integer": 1, "array": [], "boolean": True}.get(str(kind))


def reply(number: int, body: dict[str, Any]) -> Answer:
    """A judgement; by schema, where one is given; an order, where attempts are shown."""
    if "response_format" in body:
        return completion(json.dumps(instance(body["response_format"]["json_schema"]["schema"])), usage=USAGE)
    attempts = re.findall(r"^attempt ([A-Z]) ", body["messages"][-1]["content"], re.MULTILINE)
    if attempts:
        return completion(f"<ranking>{' > '.join(attempts)}</ranking>", usage=USAGE)
    return completion(JUDGEMENT, usage=USAGE)


@contextmanager
def chat() -> Iterator[str]:
    """The chat model's address, without `/v1`."""
    with serve(reply) as server:
        yield server.url.removesuffix("/v1")


@contextmanager
def judge_service(judge: Path, env: dict[str, str]) -> Iterator[str]:
    """`rrm serve --model JUDGE`, in a process of its own; its address."""
    command = [sys.executable, "-m", "rrm", "serve", "--model", str(judge), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=env) as process:
        try:
            said = []
            assert process.stderr is not None
            while select.select([process.stderr], [], [], 580)[0] and (line := process.stderr.readline()):
                said.append(line)
                if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                    yield found[0]
                    break
            else:
                raise AssertionError(f"rrm serve did not begin: {''.join(said)}")
        finally:
            process.terminate()
            process.wait(60)
