"""A server's life: the judge is loaded, it listens, it is told to stop, it answers what it took, it ends."""

from __future__ import annotations

import contextlib
import gc
import signal
import socket
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import typer
import uvicorn

from rrm.cli.judge_options import JudgeOptions
from rrm.errors import RRMError
from rrm.serve.app import make_app
from rrm.serve.limits import BodyLimits, most_connections, protocol
from rrm.serve.metrics import Metrics
from rrm.serve.pool import JOB_S, WorkerPool

KEEP_ALIVE_S = 75
"""Longer than proxies keep theirs, so that none finds its connection closed as it asks."""


class _Server(uvicorn.Server):
    """Ends on a signal as on an order: uvicorn's own raises it a second time once all is answered."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals stop the server while it serves."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


async def serve(
    judge: JudgeOptions,
    host: str,
    port: int,
    limits: BodyLimits,
    *,
    workers: int,
    batch: int,
    most_waiting: int,
    job_s: float = JOB_S,
    escalate: str | None = None,
) -> dict[str, Any]:
    """Serve until SIGTERM or Ctrl-C; returns what was done.

    Args:
        workers, batch, most_waiting, job_s: of the pool.
        escalate: name of a stronger judge for what this one is unsure of.

    Raises:
        RRMError: the judge cannot be loaded, or nothing can listen there.
    """
    listening = listen_on(host, port, limits.body_s)
    with contextlib.closing(listening):
        metrics = Metrics()
        options = {**asdict(judge), "escalate": escalate}
        pool = WorkerPool(
            options, workers=workers, batch=batch, most_waiting=most_waiting, metrics=metrics, job_s=job_s
        )
        about = await pool.start()
        gc.collect()
        gc.freeze()  # what was imported stays: to look through it while large bodies are read held the loop for a third of a second
        where = f"[{host}]" if ":" in host else host
        app = make_app(pool, limits, metrics)
        config = uvicorn.Config(
            app,
            http=protocol(most_connections()),
            log_level="warning",
            access_log=False,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        listening.listen(config.backlog)  # whoever reads the line may ask at once
        typer.echo(
            f"serving {about['describe']['model']} on http://{where}:{listening.getsockname()[1]} (its API: /openapi.json)",
            err=True,
        )
        try:
            await _Server(config).serve(sockets=[listening])
        finally:
            await pool.kill()  # after a second Ctrl-C nothing is waited for
    return {"served": about["describe"]["model"], **metrics.totals()}


def listen_on(host: str, port: int, patience_s: float) -> socket.socket:
    """A socket, taken before the judge is loaded.

    Args:
        patience_s: a client that takes nothing of what is sent to it for so long is cut off: it would hold its answer, and the server's end, for ever.

    Raises:
        RRMError: it cannot be had.
    """
    try:
        family, kind, number, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, number)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if (cut_off := getattr(socket, "TCP_USER_TIMEOUT", None)) is not None:  # Linux; connections inherit it
            found.setsockopt(socket.IPPROTO_TCP, cut_off, int(1000 * patience_s))
        found.bind(place)
        return found
    except OSError as error:
        raise RRMError(f"nothing can listen on {host}:{port}: {error.strerror or error}") from error
