"""A `rrm serve` in a process of its own, and clients that keep their connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
STOP_S = 300.0
LINE = 2**26


@dataclass
class Server:
    """A process that serves."""

    host: str
    port: int
    process: subprocess.Popen[str]

    def workers(self) -> list[int]:
        """Process ids of those that hold the judge."""
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def cpu_s(self) -> tuple[float, float]:
        """Processor seconds so far: the server's own, and its workers'."""
        tick = os.sysconf("SC_CLK_TCK")

        def seconds(pid: int) -> float:
            return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()[11:13])) / tick

        return seconds(self.process.pid), sum(map(seconds, self.workers()))


@contextlib.contextmanager
def serving(*options: str) -> Iterator[Server]:
    """Run `rrm serve` with these options on a free port, and end it with SIGTERM."""
    command = [sys.executable, "-m", "rrm", "serve", "--port", "0", *options]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "agents")])}
    env.pop("RRM_API_KEY", None)
    with subprocess.Popen(
        command, text=True, env=env, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        try:
            address, printed = None, ""
            while address is None and (line := process.stderr.readline()):
                address, printed = re.search(r"on http://([\d.]+):(\d+)", line), printed + line
            if address is None:
                raise SystemExit(f"the server did not start: {printed}")
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield Server(address[1], int(address[2]), process)
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_S)
        finally:
            process.kill()


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    body: bytes


class Client:
    """HTTP/1.1 over one connection that is kept, and made anew where it was closed."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None

    async def post(self, path: str, body: bytes) -> Answer:
        """Send JSON, and read the whole answer, which must say its length."""
        if self.reader is None or self.writer is None or self.writer.is_closing():
            self.reader, self.writer = await asyncio.open_connection(self.host, self.port, limit=LINE)
        lines = [f"POST {path} HTTP/1.1", f"Host: {self.host}", "Content-Type: application/json"]
        self.writer.write("\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body)
        await self.writer.drain()
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = re.search(rb"\r\ncontent-length: (\d+)", head)
        assert length is not None
        answer = Answer(int(head[9:12]), await self.reader.readexactly(int(length[1])))
        if b"\r\nconnection: close" in head:
            self.close()
        return answer


async def at_once(
    clients: Sequence[Client], jobs: Sequence[Any], do: Callable[[Client, Any], Awaitable[Any]]
) -> list[Any]:
    """Do all jobs and return their results; each client takes the next job as soon as it can."""
    results: list[Any] = [None] * len(jobs)
    numbers = count()

    async def work(client: Client) -> None:
        while (number := next(numbers)) < len(jobs):
            results[number] = await do(client, jobs[number])

    try:
        await asyncio.gather(*map(work, clients))
    finally:
        for client in clients:
            client.close()
    return results
