"""A server on 127.0.0.1 with the replies' shapes of vLLM 0.32, for what a real one cannot be made to do: faults.

It "samples" the tokens that `said` names and keeps the adapters that it was told to load. Real servers are asked in
`tests/rrm/engines/test_real_vllm.py`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from typing import Any

from openai_server import running

Fault = Callable[[str, dict[str, Any]], tuple[int, Any] | None]
"""(path, body) → a status and a body in place of the right reply, None: no fault; `VLLMServer.headers` go with it."""


NEUTRAL = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""What vLLM samples with where neither the request nor the model's generation_config.json says otherwise."""


class VLLMServer:
    """What a test sees of it."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.adapters: dict[str, str] = {}
        self.version = "default"
        """What it was told of its weights (with VLLM_SERVER_DEV_MODE=1)."""
        self.whole: str | None = None
        """The folder that all weights were loaded from; None: those it was started with."""
        self.paused = False
        self.said: list[int] = [7, 8, 2]
        self.fault: Fault = lambda path, body: None
        self.defaults: dict[str, float] = {}
        """The model's generation_config.json: in the place of what a request leaves out, and `max_tokens` the most of them all."""
        self.raw_logprobs = False
        self.shift = 0.0
        """What is added to every log-probability, as by other weights."""
        self.dead = False
        self.dropped = 0
        """So many requests more are read and not answered, as by a server that ends."""
        self.headers: dict[str, str] = {}
        """More headers of its replies."""
        self.sent: list[dict[str, str]] = []
        """The headers of all requests, names in small letters."""

    def of(self, path: str) -> list[dict[str, Any]]:
        """Bodies that a path was sent, samplings alone for completions."""
        return [body for at, body in self.asked if at == path and ("completions" not in at or "stop_token_ids" in body)]

    def reply(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Status and body (JSON, or a text)."""
        if path == "/v1/models":
            entry: dict[str, Any] = {"id": "base", "object": "model", "parent": None, "max_model_len": 512}
            entry["root"] = "/models/base"
            loaded = [
                {"id": name, "object": "model", "root": folder, "parent": "base", "max_model_len": None}
                for name, folder in self.adapters.items()
            ]
            return 200, {"object": "list", "data": [entry, *loaded]}
        if path == "/v1/load_lora_adapter":
            if body["lora_name"] in self.adapters:
                return 400, {"error": {"message": f"The lora adapter '{body['lora_name']}' has already been loaded."}}
            self.adapters[body["lora_name"]] = body["lora_path"]
            return 200, f"Success: LoRA adapter '{body['lora_name']}' added successfully."
        if path == "/v1/unload_lora_adapter":
            if body["lora_name"] not in self.adapters:
                return 404, {"error": {"message": f"The lora adapter '{body['lora_name']}' cannot be found."}}
            del self.adapters[body["lora_name"]]
            return 200, f"Success: LoRA adapter '{body['lora_name']}' removed successfully."
        if not path.startswith("/v1/"):
            return self._develop(path.partition("?")[0], body)
        if body["model"] not in ("base", *self.adapters):
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist."}}
        return 200, {"model": body["model"], "choices": [self._choice(body)]}

    def restart(self) -> None:
        """It has the weights again that it was started with, and knows no others."""
        self.adapters, self.version, self.whole, self.paused = {}, "default", None, False

    def _develop(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """What VLLM_SERVER_DEV_MODE=1 adds."""
        if path == "/weight_info":
            return 200, {"weight_version": self.version}
        if path == "/update_weight_version":
            self.version = body["new_version"]
        elif path == "/collective_rpc":
            assert body["method"] == "reload_weights" and self.paused
            self.whole = body["kwargs"]["weights_path"]
        elif path in ("/pause", "/resume"):
            self.paused = path == "/pause"
        elif path != "/reset_prefix_cache":
            return 404, {"detail": "Not Found"}
        return 200, {"success": True}

    def _choice(self, body: dict[str, Any]) -> dict[str, Any]:
        used = {name: body.get(name, self.defaults.get(name, value)) for name, value in NEUTRAL.items()}
        # what is left after a cut, or weighed otherwise, has other probabilities
        cut = 0.0 if used | {"temperature": 1.0} == NEUTRAL else 0.25
        if "logprob_token_ids" in body:
            top = {
                f"token_id:{token}": -1.0 - i + cut + self.shift for i, token in enumerate(body["logprob_token_ids"])
            }
            logprobs: dict[str, Any] = {"token_logprobs": [-1.0], "top_logprobs": [top]}
            return {
                "prompt_token_ids": body["prompt"],
                "token_ids": [5],
                "logprobs": logprobs,
                "finish_reason": "length",
            }
        said = self.said[: min(body["max_tokens"], int(self.defaults.get("max_tokens", 1e9)))]
        scale = 1.0 if self.raw_logprobs else 1.0 / (used["temperature"] or 1.0)
        logprobs = {
            "token_logprobs": [-0.5 + cut + self.shift] * len(said),
            "top_logprobs": [{"a": -0.5 * scale, "b": -2.0 * scale}],
        }
        ended = len(said) == len(self.said)
        return {
            "prompt_token_ids": body["prompt"],
            "token_ids": said,
            "logprobs": logprobs,
            "finish_reason": "stop" if ended else "length",
            "stop_reason": said[-1] if ended else None,
        }


@contextmanager
def serve_vllm(port: int = 0) -> Iterator[VLLMServer]:
    """A server, while the block lasts.

    Args:
        port: 0: a free one.
    """
    server, lock = VLLMServer(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # headers and body are two packets: the second would wait 40 ms for the receipt of the first
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self.answer({})

        def do_POST(self) -> None:
            self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def answer(self, body: dict[str, Any]) -> None:
            server.sent.append({name.lower(): value for name, value in self.headers.items()})
            if server.dropped > 0:
                server.dropped -= 1
                self.close_connection = True
                return
            if server.dead:  # connections that were kept open end, too
                self.close_connection = True
                return
            with lock:
                server.asked.append((self.path, body))
                status, said = server.fault(self.path, body) or server.reply(self.path, body)
            sent = said.encode() if isinstance(said, str) else json.dumps(said).encode()
            kind = "text/plain" if isinstance(said, str) and not said.startswith("{") else "application/json"
            with suppress(ConnectionError):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(sent)))
                for name, value in server.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(sent)

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    with running(Handler, port) as server.url:
        try:
            yield server
        finally:
            server.dead = True
