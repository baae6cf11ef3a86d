"""`rrm serve`."""

from __future__ import annotations

import asyncio
import os
import socket

import typer

from rrm.cli import finish
from rrm.cli.judge_options import ESCALATE, JudgeOptions, with_judge_options
from rrm.data.extras import needs
from rrm.errors import ConfigError

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@with_judge_options
def command(
    host: str = typer.Option(
        "127.0.0.1", help="Address to listen on; beyond this machine only with a key in RRM_API_KEY."
    ),
    port: int = typer.Option(8321, min=0, max=65535, help="0: any free one, which is said."),
    workers: int = typer.Option(1, min=1, help="Processes, each with the judge loaded."),
    batch: int = typer.Option(32, min=1, help="Transcripts that a worker is given at once."),
    most_waiting: int = typer.Option(
        4096, min=1, help="Transcripts that may wait; a request beyond is told to come again."
    ),
    most_transcripts: int = typer.Option(256, min=1, help="Transcripts of one request."),
    max_body: int = typer.Option(32, min=1, metavar="MIB", help="Largest body of a request."),
    body_timeout: float = typer.Option(60.0, min=0.1, help="Seconds in which a request's body must come."),
    job_timeout: float = typer.Option(
        1800.0,
        min=0.1,
        help="Seconds between two rows, after which a worker is taken for one that hangs, and started again.",
    ),
    escalate: str | None = ESCALATE,
    open_to_all: bool = typer.Option(False, "--open", help="Listen beyond this machine without a key."),
    *,
    judge: JudgeOptions,
) -> None:
    """Serve a judge over HTTP: /v1/score, /v1/rank, /healthz, /metrics, /openapi.json.

    A client needs nothing but the address: rrm score --model http://HOST:PORT, or feedback.judge: http://HOST:PORT. A key in the environment's RRM_API_KEY is asked of
    every client. Ctrl-C or SIGTERM takes no new request, answers those that were accepted, and ends.
    """
    needs("serve", "rrm serve", "fastapi", "uvicorn", "prometheus_client")
    from rrm.serve.address import KEY, key_of

    key = key_of(os.environ.get(KEY))
    if host not in LOOPBACK and key is None and not open_to_all:
        raise ConfigError(
            f"--host {host} lets other machines in: put a key into the environment's {KEY}, or say --open"
        )
    if judge.model is not None and judge.model.startswith(("http://", "https://")):
        raise ConfigError(
            f"{judge.model} is served already: name a judge to load, for a chat model openai:BASE_URL#model"
        )
    judge.server()  # refused before anything is loaded
    if escalate is not None and workers > 1 and judge.max_cost is not None:
        raise ConfigError("--max-cost is of one process, and each of the --workers would spend as much: serve with one")
    from rrm.serve.limits import BodyLimits
    from rrm.serve.run import serve

    limits = BodyLimits(
        max_body * 2**20, body_timeout, most_transcripts, key, names=frozenset({host, socket.gethostname()})
    )
    sizes = {"workers": workers, "batch": batch, "most_waiting": most_waiting}
    finish(asyncio.run(serve(judge, host, port, limits, **sizes, job_s=job_timeout, escalate=escalate)))
