"""A worker's process: start, lines of JSON (`rrm.serve.worker`), end."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rrm.errors import RRMError

LINE_BYTES = 2**28  # of one answer


class WorkerProcess:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def started(cls, command: Sequence[str]) -> WorkerProcess:
        """Start a process, which has loaded nothing yet; raises `RRMError`."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                limit=LINE_BYTES, start_new_session=True,  # Ctrl-C is for the server, which lets it finish
            )  # fmt: skip
        except OSError as error:
            raise RRMError(f"no process can be started: {error}") from error
        return cls(process)

    async def load(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Let it load the judge; returns `rrm.serve.schemas.About` as JSON. Raises `RRMError`."""
        try:
            self.write(json.dumps({"options": options}))
            await self.drained()
            reply = await self.read_line()
            if "failed" in reply:
                raise RRMError(reply["failed"])
            return reply["about"]
        except (EOFError, ConnectionError) as error:
            await self.end()
            raise RRMError(f"the process that loads the judge ended with {self._process.returncode}") from error
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise RRMError(f"the process that loads the judge does not say what it should: {error}") from error

    def write(self, line: str) -> None:
        """Write a line, without waiting until it is taken."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode("ascii") + b"\n")

    async def drained(self) -> None:
        assert self._process.stdin is not None
        await self._process.stdin.drain()

    async def read_line(self) -> dict[str, Any]:
        """Read a line; raises `EOFError` where the process ended."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise EOFError(f"exit code {self._process.returncode}")
        return json.loads(line)

    async def ended(self) -> int:
        """Wait for its end; returns its exit code."""
        return await self._process.wait()

    async def end(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await self._process.wait()
