"""A server's life: load the judge, listen, answer until told to stop, finish what was accepted."""

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

KEEP_ALIVE_S = 75  # longer than proxies keep theirs, so that none finds its connection closed


class _Server(uvicorn.Server):
    """End on a signal as on an order: uvicorn's own raises it again once all is answered."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
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
    """Serve until SIGTERM or Ctrl-C; returns counts.

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
    """Bind a socket, before the judge is loaded; raises `RRMError`.

    Args:
        patience_s: seconds after which a client that takes none of its answer is cut off.
    """
    try:
        family, socket_type, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket_type, number)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if (cut_off := getattr(socket, "TCP_USER_TIMEOUT", None)) is not None:  # Linux; connections inherit it
            listener.setsockopt(socket.IPPROTO_TCP, cut_off, int(1000 * patience_s))
        listener.bind(address)
        return listener
    except OSError as error:
        raise RRMError(f"nothing can listen on {host}:{port}: {error.strerror or error}") from error
