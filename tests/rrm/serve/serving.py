"""A server in a thread of this process, over workers of a script."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn

from rrm.serve.address import ServerAddress
from rrm.serve.app import make_app
from rrm.serve.limits import HEAD_S, BodyLimits, protocol
from rrm.serve.metrics import Metrics
from rrm.serve.pool import WorkerPool
from rrm.serve.run import KEEP_ALIVE_S, listen_on

WORKER = Path(__file__).with_name("scripted_worker.py")
PATIENCE_S = 200
"""For what comes at once, on a machine that has much else to do."""


@dataclass
class Served:
    url: str
    pool: WorkerPool
    server: uvicorn.Server
    thread: threading.Thread

    def stop(self) -> None:
        """As a signal does."""
        self.server.should_exit = True

    def connect(self) -> socket.socket:
        """A connection, for a test that writes its requests itself."""
        parts = urlsplit(self.url)
        return socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_S)

    def head(self, *headers: str) -> bytes:
        """The head of a request for scores, as clients write it: they name the address that they ask."""
        kind = "Content-Type: application/json"
        lines = "POST /v1/score HTTP/1.1", f"Host: {urlsplit(self.url).netloc}", kind, *headers
        return "".join(f"{line}\r\n" for line in (*lines, "")).encode()

    def sent(self, body: Any) -> socket.socket:
        """A connection that asked for scores and did not read."""
        raw, data = self.connect(), json.dumps(body).encode()
        raw.sendall(self.head(f"Content-Length: {len(data)}") + data)
        return raw

    def ask(self, path: str, body: Any = None, raw: bytes | None = None, **headers: str) -> tuple[int, Any]:
        """Status and JSON."""
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, {"Content-Type": "application/json", **headers})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
                status, said = reply.status, reply.read()
        except urllib.error.HTTPError as error:
            status, said = error.code, error.read()
        return status, json.loads(said) if said[:1] in b"{[" else said.decode()


@contextmanager
def serving(
    *,
    workers: int = 1,
    batch: int = 8,
    most_waiting: int = 200,
    job_s: float = 60.0,
    connections: int = 1000,
    head_s: float = HEAD_S,
    worker: str | None = None,
    options: Mapping[str, Any] | None = None,
    **limits: Any,
) -> Iterator[Served]:
    """The service, ready; over a worker of a script, or a module's with a judge of these options."""
    bounds = BodyLimits(**{"body_bytes": 2**20, "body_s": 10.0, "transcripts": 64, **limits})
    ready, made = threading.Event(), list[Any]()
    listening = listen_on("127.0.0.1", 0, bounds.body_s)
    listening.listen()

    async def life() -> None:
        metrics = Metrics()
        pool = WorkerPool(
            dict(options or {}),
            workers=workers,
            batch=batch,
            most_waiting=most_waiting,
            metrics=metrics,
            job_s=job_s,
            command=[sys.executable, *([str(WORKER)] if worker is None else ["-m", worker])],
        )
        await pool.start()
        app, http = make_app(pool, bounds, metrics), protocol(connections, head_s)
        config = uvicorn.Config(app, http=http, log_level="error", access_log=False, timeout_keep_alive=KEEP_ALIVE_S)
        server = uvicorn.Server(config)
        made.extend((pool, server))
        ready.set()
        await server.serve(sockets=[listening])

    thread = threading.Thread(target=lambda: asyncio.run(life()), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE_S)
    found = Served(f"http://127.0.0.1:{listening.getsockname()[1]}", *made, thread)
    try:
        yield found
    finally:
        found.stop()
        thread.join(PATIENCE_S)
        listening.close()
        assert not thread.is_alive()


def until(true: Callable[[], Any]) -> Any:
    """What it says once it is true; a test that waits in vain ends by its own time-out."""
    while not (said := true()):
        time.sleep(0.005)
    return said


def heard(address: ServerAddress, path: str, body: Any) -> list[dict[str, Any]]:
    """All lines of a stream."""

    async def lines() -> list[dict[str, Any]]:
        return [line async for line in address.lines(path, body)]

    return asyncio.run(lines())


def run(id: str, text: str) -> dict[str, Any]:
    """A transcript of one step."""
    return {
        "id": id,
        "task": "Do it.",
        "messages": [{"role": "user", "content": "Do it."}, {"role": "assistant", "content": text}],
    }
