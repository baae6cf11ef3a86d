"""How long a server's context is, wherever it says so; and a prompt that a server cuts in silence is no judgement."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from chat_judge import rows_of
from openai_server import Answer, completion, serve

from rrm.engines.contexts import unread
from rrm.engines.openai import OpenAIEngine
from rrm.judge.agent_rrm import AgentRRM
from rrm.score import score_file
from rrm.trajectory import Message, Trajectory


@contextmanager
def tells(paths: dict[str, Any]) -> Iterator[OpenAIEngine]:
    """An engine of a server that answers these paths, and 404 to all others."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = json.dumps(paths.get(f"{self.command} {self.path}")).encode()
            self.send_response(404 if body == b"null" else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    httpd = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield OpenAIEngine(f"http://127.0.0.1:{httpd.server_address[1]}/v1", "m")
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


def listed(**said: Any) -> dict[str, Any]:
    return {"GET /v1/models": {"object": "list", "data": [{"id": "m", **said}]}}


OLLAMA = {"model_info": {"general.architecture": "qwen2", "qwen2.context_length": 32768}}


@pytest.mark.parametrize(
    ("paths", "tokens"),
    [
        (listed(max_model_len=16384), 16384),
        (listed(context_length=131072), 131072),
        (listed(max_context_length=65536), 65536),
        (listed(meta={"n_ctx": 2048}), 2048),
        ({**listed(), "GET /props": {"default_generation_settings": {"n_ctx": 6144}}}, 6144),
        ({"GET /props": {"default_generation_settings": {"n_ctx": 6144}}}, 6144),
        (
            {
                **listed(owned_by="library"),
                "POST /api/show": {**OLLAMA, "parameters": "temperature 1\nnum_ctx    16384"},
            },
            16384,
        ),
        ({**listed(owned_by="library"), "POST /api/show": OLLAMA}, 4096),
        ({"POST /api/show": {"model_info": {"bert.context_length": 512}}}, 512),
        (
            {
                **listed(),
                "GET /api/v0/models": {
                    "data": [{"id": "m", "max_context_length": 32768, "loaded_context_length": 8192}]
                },
            },
            8192,
        ),
        (listed(), None),
        ({}, None),
        ({**listed(), "GET /props": {"default_generation_settings": {"n_ctx": "many"}}}, None),
    ],
)
def test_a_server_s_context_is_read_wherever_it_says_it(paths: dict[str, Any], tokens: int | None) -> None:
    """All but `max_model_len` and `meta` were None, and read in windows of 8,192 tokens that Ollama cuts to 4,096."""
    with tells(paths) as engine:
        assert engine.context_tokens() == tokens


def long_run() -> Trajectory:
    said = "The clerk looked at the shelf, found nothing of use there, and went on to the next room of the archive. "
    messages = [Message(role="user", content="Find the map."), Message(role="assistant", content=said * 300)]
    return Trajectory(id="long", task="Find the map.", messages=messages)


def test_a_prompt_that_a_server_cuts_is_too_long_and_never_read(tmp_path: Path) -> None:
    """`scored`, with coverage 1.0, of a server that read 4,096 tokens of 7,900."""

    def ollama(n: int, body: dict[str, Any]) -> Answer:
        sent = sum(len(m["content"]) for m in body["messages"]) // 4
        return completion("<score>0.9</score>", usage={"prompt_tokens": min(sent, 4096), "completion_tokens": 4})

    with serve(ollama) as server:
        judge = AgentRRM(OpenAIEngine(server.url, "m"), model="m")
        judge.settings = judge.settings.model_copy(update={"transcript_tokens": 20_000})
        short = long_run().model_copy(
            update={"id": "short", "messages": [*long_run().messages[:1], Message(role="assistant", content="Here.")]}
        )
        summary = score_file(judge, [long_run(), short], tmp_path / "out.jsonl", mode="score")
    cut, whole = rows_of(tmp_path / "out.jsonl")
    assert (cut["status"], cut["score"], cut["coverage"]) == ("too_long", None, 0.0)
    assert "it read 4,096 tokens of a prompt of at least" in cut["reason"] and "--context" in cut["reason"]
    assert cut["usage"]["prompt_tokens"] == 4096 and summary.statuses == {"scored": 1, "too_long": 1}
    assert (whole["status"], whole["coverage"]) == ("scored", 1.0) and len(server.requests) == 2


@pytest.mark.parametrize(
    ("text", "prompt_tokens"),
    [
        ("a word, and one more " * 2000, 9000),
        (" " * 200_000 + "end", 40),
        ("=" * 200_000 + "\n" * 9000, 1600),
        ("short", 1),
        ("not counted " * 5000, 0),
    ],
)
def test_a_whole_prompt_of_few_tokens_is_no_cut_one(text: str, prompt_tokens: int) -> None:
    assert unread([{"role": "user", "content": text}], prompt_tokens) is None


def test_parts_count_by_their_texts() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    assert unread([{"role": "user", "content": [picture, {"type": "text", "text": "find it"}]}], 300) is None
    assert unread([{"role": "user", "content": [picture, {"type": "text", "text": "find it " * 5000}]}], 4096) == (
        4096,
        10000,
    )
