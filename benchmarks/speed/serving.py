"""What measurements of `rrm serve` share: a server in a process of its own, and a client that says exactly what it was answered."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SCRIPTED = ROOT / "tests" / "rrm" / "serve" / "scripted_worker.py"
STOP_S = 300.0
LINE = 2**26


class Unanswered(Exception):
    """The connection ended before a byte of the answer: nothing was accepted, as far as the client knows."""


class Cut(Exception):
    """The connection ended within an answer."""


@dataclass
class Server:
    """A process that serves."""

    host: str
    port: int
    process: subprocess.Popen[str]
    ended: dict[str, Any] = field(default_factory=dict)  # what it said at its end

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> dict[str, Any]:
        """What it did, once it has ended."""
        if not self.ended:
            out = self.process.stdout.read() if self.process.stdout else ""
            self.ended = {"exit": self.process.wait(STOP_S), **json.loads(out.strip().splitlines()[-1])}
        return self.ended

    def workers(self) -> list[int]:
        """Process ids of those that hold the judge."""
        pid = self.process.pid
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def cpu_s(self) -> tuple[float, float]:
        """Processor seconds so far: the server's own, and its workers'."""
        tick = os.sysconf("SC_CLK_TCK")

        def of(pid: int) -> float:
            return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()[11:13])) / tick

        return of(self.process.pid), sum(of(pid) for pid in self.workers())


@contextlib.contextmanager
def serving(*options: str, script: str | None = None, key: str | None = None) -> Iterator[Server]:
    """An `rrm serve` on a free port, ended with SIGTERM.

    Args:
        script: instead of options: JSON of `rrm.serve`'s limits and of its pool's sizes; the judge is then `SCRIPTED`.
        key: that clients must send.
    """
    own = ["rrm", "serve", "--port", "0", *options] if script is None else ["benchmarks.speed.serving", script]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "agents")])}
    env.pop("RRM_API_KEY", None)
    env |= {"RRM_API_KEY": key} if key else {}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-m", *own], text=True, env=env, cwd=ROOT, **pipes) as process:  # type: ignore[call-overload]
        assert process.stderr is not None
        try:
            found, said = None, ""
            while found is None and (line := process.stderr.readline()):
                found, said = re.search(r"on http://([\d.]+):(\d+)", line), said + line
            if found is None:
                raise SystemExit(f"the server did not start: {said}")
            threading.Thread(target=process.stderr.read, daemon=True).start()
            server = Server(found[1], int(found[2]), process)
            yield server
            if process.poll() is None:
                server.stop()
            server.wait()
        finally:
            process.kill()


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def lines(self) -> list[Any]:
        """The values of a stream."""
        return [json.loads(line) for line in self.body.splitlines()]


class Client:
    """HTTP/1.1 over one connection that is kept, and made anew where it was closed."""

    def __init__(self, host: str, port: int, key: str | None = None) -> None:
        self.host, self.port = host, port
        self.key = key
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    def request(self, path: str, body: bytes | None = None, *, key: str | None = None) -> bytes:
        """A request's bytes, with another key than the client's own where one is given."""
        key = self.key if key is None else key
        verb = "GET" if body is None else "POST"
        lines = [f"{verb} {path} HTTP/1.1", f"Host: {self.host}", "Content-Type: application/json"]
        lines += [f"Authorization: Bearer {key}"] if key else []
        lines += [] if body is None else [f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode() + (body or b"")

    async def connect(self) -> asyncio.StreamWriter:
        """A connection.

        Raises:
            Unanswered: nobody listens.
        """
        if self.writer is None or self.writer.is_closing():
            try:
                self.reader, self.writer = await asyncio.open_connection(self.host, self.port, limit=LINE)
            except OSError as error:
                raise Unanswered(str(error)) from error
        return self.writer

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None

    async def ask(self, *parts: bytes, pause_s: float = 0.0, read_pause_s: float = 0.0) -> Answer:
        """Send, and read the whole answer.

        Args:
            parts: of the request's bytes, with `pause_s` between two; `read_pause_s`: between two pieces of a stream that are read.

        Raises:
            Unanswered, Cut: the connection ended.
        """
        writer = await self.connect()
        with contextlib.suppress(OSError):  # refused while it sent: the answer may be there
            for number, part in enumerate(parts):
                await asyncio.sleep(pause_s if number else 0)
                writer.write(part)
                await writer.drain()
        begun = False
        try:
            assert self.reader is not None
            head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
            begun = True
            answer = Answer(int(head[9:12]), b"".join([piece async for piece in self._body(head, read_pause_s)]))
        except (OSError, asyncio.IncompleteReadError) as error:
            begun = begun or bool(getattr(error, "partial", b""))
            self.close()
            raise (Cut if begun else Unanswered)(f"{type(error).__name__}: {error}") from error
        except BaseException:
            self.close()
            raise
        if b"\r\nconnection: close" in head:
            self.close()
        return answer

    async def _body(self, head: bytes, pause_s: float) -> AsyncIterator[bytes]:
        assert self.reader is not None
        if found := re.search(rb"\r\ncontent-length: (\d+)", head):
            yield await self.reader.readexactly(int(found[1]))
            return
        while size := int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16):
            await asyncio.sleep(pause_s)
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readexactly(2)


async def at_once(
    clients: Sequence[Client], jobs: Sequence[Any], do: Callable[[Client, Any], Awaitable[Any]]
) -> list[Any]:
    """What came of each job; each client takes the next one as soon as it can."""
    found: list[Any] = [None] * len(jobs)
    numbers = count()

    async def work(client: Client) -> None:
        while (number := next(numbers)) < len(jobs):
            found[number] = await do(client, jobs[number])

    try:
        await asyncio.gather(*map(work, clients))
    finally:
        for client in clients:
            client.close()
    return found


def serve_script(sizes: dict[str, Any]) -> None:
    """`rrm serve` with the workers of `SCRIPTED`."""
    from functools import partial

    from rrm.cli import finish
    from rrm.cli.judge_options import JudgeOptions
    from rrm.serve import run
    from rrm.serve.client import KEY
    from rrm.serve.limits import BodyLimits
    from rrm.serve.pool import WorkerPool

    run.WorkerPool = partial(WorkerPool, command=[sys.executable, str(SCRIPTED)])  # type: ignore[assignment,misc]
    own = {name: sizes.pop(name) for name in ("body_bytes", "body_s", "transcripts")}
    limits = BodyLimits(key=os.environ.get(KEY), **own)
    finish(asyncio.run(run.serve(JudgeOptions(), "127.0.0.1", 0, limits, **sizes)))


if __name__ == "__main__":
    serve_script(json.loads(sys.argv[1]))
