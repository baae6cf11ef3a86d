"""Bodies as they are read: a large one in a thread, a piece at a time, so that it keeps no other client waiting.

A thread alone would not do: what is written in C or Rust holds the interpreter until it returns, seconds for 32 MiB of JSON. So the parser
calls into Python at each object, and a run is written a message at a time: there the server's loop has its turn.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from rrm.data.sizes import check_weight
from rrm.data.trajectory import Trajectory

SMALL = 2**15
"""Bytes of a body that is read between two others; a larger one would keep them waiting."""
VALUES = 8
"""Times the largest body that the values of one may take."""


def loads(body: bytes) -> Any:
    """`json.loads`, interruptible at each object.

    Raises:
        ValueError: it is no JSON.
        RecursionError: it is nested too deeply.
    """
    return json.loads(body, object_hook=lambda found: found)


def check_values(body: bytes, most: int) -> None:
    """Refuse a body that is small as bytes and large as values: 31 MiB of `{},` would take 1.4 GB.

    Raises:
        HTTPException: 413.
    """
    try:
        check_weight(body, "the body", VALUES * most)
    except ValueError as error:
        raise HTTPException(413, f"{error}: send fewer transcripts at once") from None


def dumps(run: Trajectory) -> str:
    """A run's JSON in ASCII, interruptible at each message; they stand last.

    Raises:
        ValueError, RecursionError: it cannot be written.
    """
    head = json.dumps(run.model_dump(mode="json", exclude={"messages"}))
    messages = ", ".join(json.dumps(message.model_dump(mode="json")) for message in run.messages)
    return f'{head[:-1]}, "messages": [{messages}]}}'


class BodyRequest(Request):
    """A request whose body is put together and parsed in a thread unless it is `SMALL`; one such body is parsed at a time."""

    async def body(self) -> bytes:
        """All of it."""
        if not hasattr(self, "_body"):
            chunks = [chunk async for chunk in self.stream()]
            small = sum(map(len, chunks)) <= SMALL
            self._body = b"".join(chunks) if small else await asyncio.to_thread(b"".join, chunks)
        return self._body

    async def json(self) -> Any:
        """Its body's value; as `loads` raises."""
        if not hasattr(self, "_json"):
            body = await self.body()
            if len(body) <= SMALL:
                self._json = loads(body)
            else:
                async with self.app.state.large:
                    check_values(body, self.app.state.limits.body_bytes)
                    self._json = await asyncio.to_thread(loads, body)
        return self._json


class BodyRoute(APIRoute):
    """An endpoint that is given its body so."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """What answers a request."""
        answered = super().get_route_handler()

        async def handler(request: Request) -> Response:
            return await answered(BodyRequest(request.scope, request.receive))

        return handler
