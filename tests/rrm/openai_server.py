"""A real HTTP server on 127.0.0.1 that speaks OpenAI's chat completions, each reply as a test wants it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rrm.engines.base import Reply, Request, SamplingParams, converse
from rrm.errors import EngineError


@dataclass
class Answer:
    """One HTTP response."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False
    """Never answer (until the server is closed)."""
    drop: bool = False
    """Close the connection without an answer."""


def completion(
    text: str | None, finish_reason: str = "stop", logprobs: Any = None, usage: Any = None, **message: Any
) -> Answer:
    """A well-formed chat completion; `usage` as the server says it, None: not at all."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text, **message},
        "finish_reason": finish_reason,
        "logprobs": logprobs,
    }
    said = {} if usage is None else {"usage": usage}
    return Answer(body=json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], **said}).encode())


def failure(status: int, message: str = "broken", **headers: str) -> Answer:
    """An error in OpenAI's shape."""
    return Answer(status, json.dumps({"error": {"message": message}}).encode(), headers)


@dataclass
class Server:
    """`url` ends in /v1; `requests` holds the bodies received, `keys` the Authorization headers."""

    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    """All headers of each request, names in lower case."""
    paths: list[str] = field(default_factory=list)
    most_at_once: int = 0


class _Httpd(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512  # hundreds that connect at once are not kept waiting


@contextmanager
def running(handler: type[BaseHTTPRequestHandler], port: int = 0) -> Iterator[str]:
    """The address of a server on this machine."""
    httpd = _Httpd(("127.0.0.1", port), handler)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_address[1]}"
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


@contextmanager
def answering(
    replies: dict[str, tuple[int, Any]], **headers: str
) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """A server of replies by path, and what it was asked with which key."""
    asked: list[tuple[str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.append((self.path, self.headers["Authorization"]))
            status, body = replies.get(self.path, (404, {"error": "no"}))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    with running(Handler) as url:
        yield url, asked


@contextmanager
def serve(answer: Callable[[int, dict[str, Any]], Answer]) -> Iterator[Server]:
    """Serve `answer(n, request body)`, n counting requests from 0."""
    closing, lock, active = threading.Event(), threading.Lock(), [0]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # headers and body are two packets: the second would wait 40 ms for the receipt of the first
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            sent = self.rfile.read(length)
            if len(sent) < length:  # by a client that was killed meanwhile
                self.close_connection = True
                return
            body = json.loads(sent)
            with lock:
                number = len(server.requests)
                server.requests.append(body)
                server.paths.append(self.path)
                server.keys.append(self.headers["Authorization"])
                server.headers.append({name.lower(): value for name, value in self.headers.items()})
                active[0] += 1
                server.most_at_once = max(server.most_at_once, active[0])
            try:
                said = answer(number, body)
                if said.drop:
                    self.close_connection = True
                    return
                if said.hang:
                    closing.wait(30)
                    self.close_connection = True
                    return
            finally:
                with lock:
                    active[0] -= 1
            with suppress(
                ConnectionError
            ):  # a client that stops at the first refusal leaves the others' replies unread
                self.send_response(said.status)
                for name, value in {"Content-Type": "application/json", **said.headers}.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(said.body)))
                self.end_headers()
                self.wfile.write(said.body)

        def handle(self) -> None:
            with suppress(ConnectionError):
                super().handle()

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    with running(Handler) as url:
        server = Server(f"{url}/v1")
        try:
            yield server
        finally:
            closing.set()


def complete_many(
    engine: Any,
    rows: list[list[dict[str, Any]]],
    params: SamplingParams,
    keys: list[str],
    on_reply: Callable[[int, Reply | EngineError], None] = lambda row, reply: None,
) -> list[Reply | EngineError]:
    """A reply, or the error in its place, per row and in the rows' order; `on_reply` hears of each as it comes."""
    done: dict[int, Reply | EngineError] = {}

    def answered(request: Request, reply: Reply | EngineError) -> None:
        done[request.about] = reply
        on_reply(request.about, reply)

    asked = [Request(row, key, about=i) for i, (row, key) in enumerate(zip(rows, keys, strict=True))]
    converse(engine, asked, params, answered)
    return [done[i] for i in range(len(rows))]
