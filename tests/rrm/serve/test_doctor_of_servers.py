"""`rrm doctor --server` beside a server that takes no requests yet, or no more."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import uvicorn

from rrm.cli import doctor
from rrm.cli.doctor_cmd import server_line
from rrm.serve.app import make_app
from rrm.serve.limits import BodyLimits
from rrm.serve.metrics import Metrics
from rrm.serve.pool import WorkerPool
from rrm.serve.run import listen_on


@pytest.fixture
def unready() -> Iterator[tuple[str, WorkerPool, list[tuple[str, bool]]]]:
    """The service over a pool whose workers have not started: its address, the pool, and what was asked of it (path, whether with a key)."""
    metrics, asked = Metrics(), list[tuple[str, bool]]()
    pool = WorkerPool({}, workers=1, batch=1, most_waiting=1, metrics=metrics)
    app = make_app(pool, BodyLimits(body_bytes=2**20, body_s=10.0, transcripts=64), metrics)

    async def noted(scope, receive, send) -> None:
        if scope["type"] == "http":
            asked.append((scope["path"], any(name == b"authorization" for name, _ in scope["headers"])))
        await app(scope, receive, send)

    listening = listen_on("127.0.0.1", 0, 10.0)
    listening.listen()
    server = uvicorn.Server(uvicorn.Config(noted, log_level="error", access_log=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", pool, asked
    finally:
        server.should_exit = True
        thread.join(60)
        listening.close()


@pytest.mark.parametrize(("failing", "status"), [(None, "starting"), ("no such judge", "failing")])
def test_a_server_without_a_judge_is_named_and_gets_no_key(
    unready, failing: str | None, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("OPENAI_API_KEY", "RRM_API_KEY"):
        monkeypatch.setenv(variable, "sk-secret-of-a-test")
    url, pool, asked = unready
    pool.load.failing = failing
    for address in (url, f"{url}/v1"):
        found = doctor.server(address)
        assert (found["reachable"], found["kind"], found["status"]) == (False, "rrm serve", status)
        assert server_line(found).startswith(f"rrm serve ({status}): its judge ")
    assert asked == [("/healthz", False)] * 2
    said = doctor.examine([url])
    assert not said["ok"] and f"BUT {url}: rrm serve ({status}): " in said["verdict"]
