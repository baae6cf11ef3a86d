"""A server in a thread of this process, over workers of a script."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from rrm.serve.app import make_app
from rrm.serve.connections import HEAD_S, protocol
from rrm.serve.limits import Limits
from rrm.serve.metrics import Metrics
from rrm.serve.pool import Pool
from rrm.serve.run import listen_on

WORKER = Path(__file__).with_name("scripted_worker.py")


@dataclass
class Served:
    url: str
    pool: Pool
    server: uvicorn.Server
    thread: threading.Thread

    def stop(self) -> None:
        """As a signal does."""
        self.server.should_exit = True

    def ask(self, path: str, body: Any = None, raw: bytes | None = None, **headers: str) -> tuple[int, Any]:
        """Status and JSON."""
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, {"Content-Type": "application/json", **headers})
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
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
    **limits: Any,
) -> Iterator[Served]:
    """The service, ready."""
    bounds = Limits(**{"body_bytes": 2**20, "body_s": 10.0, "transcripts": 64, **limits})
    ready, made = threading.Event(), list[Any]()
    listening = listen_on("127.0.0.1", 0, bounds.body_s)
    listening.listen()

    async def life() -> None:
        metrics = Metrics()
        pool = Pool(
            {},
            workers=workers,
            batch=batch,
            most_waiting=most_waiting,
            metrics=metrics,
            job_s=job_s,
            command=[sys.executable, str(WORKER)],
        )
        await pool.start()
        app, http = make_app(pool, bounds, metrics), protocol(connections, head_s)
        server = uvicorn.Server(uvicorn.Config(app, http=http, log_level="error", access_log=False))
        made.extend((pool, server))
        ready.set()
        await server.serve(sockets=[listening])

    thread = threading.Thread(target=lambda: asyncio.run(life()), daemon=True)
    thread.start()
    assert ready.wait(150)
    found = Served(f"http://127.0.0.1:{listening.getsockname()[1]}", *made, thread)
    try:
        yield found
    finally:
        found.stop()
        thread.join(100)
        listening.close()
        assert not thread.is_alive()


def run(id: str, text: str) -> dict[str, Any]:
    """A transcript of one step."""
    return {
        "id": id,
        "task": "Do it.",
        "messages": [{"role": "user", "content": "Do it."}, {"role": "assistant", "content": text}],
    }
