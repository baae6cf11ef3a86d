"""A server on localhost whose answers are given byte by byte, to the client of `rrm serve`: a part a connection, the last one for all others."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

OPEN_END = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ABOUT = {
    "describe": {"model": "m", "model_hash": "h", "prompt_version": "2"},
    "settings": {"name": "m", "modes": ["score"]},
    "version": "1",
}
Answer = Callable[[socket.socket, dict[str, Any]], None]


def row(at: int, id: str, **judge: Any) -> bytes:
    """A line of a stream."""
    info = {"model": "m", "model_hash": "h", "prompt_version": "2", "mode": "score", **judge}
    said = {"index": at, "row": {"id": id, "status": "scored", "score": 0.5, "judge": info}}
    return json.dumps(said).encode() + b"\n"


def chunk(data: bytes) -> bytes:
    """A piece of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def whole(connection: socket.socket, body: dict[str, Any]) -> None:
    """All rows."""
    rows = [row(at, one["id"]) for at, one in enumerate(body["transcripts"])]
    connection.sendall(OPEN_END + b"".join(rows) + b'{"done": %d}\n' % len(rows))


def refused(status: int) -> Answer:
    """An error of this status."""
    said = b'{"error": {"message": "refused"}}'

    def answer(connection: socket.socket, _: dict[str, Any]) -> None:
        connection.sendall(b"HTTP/1.1 %d No\r\nContent-Length: %d\r\n\r\n%s" % (status, len(said), said))

    return answer


@dataclass
class Cutting:
    """What is asked."""

    url: str
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """(path, body) of each request but the first, for `/v1/judge`."""
    headers: list[bytes] = field(default_factory=list)


@contextmanager
def cutting(answers: Sequence[Answer], *, judge: Any = None, **about: Any) -> Iterator[Cutting]:
    """The server, which also says what its judge is, or `judge` in that place."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        found = Cutting(f"http://127.0.0.1:{listening.getsockname()[1]}")
        left = iter(answers)

        def serve(connection: socket.socket, last: list[Answer]) -> None:
            with connection, connection.makefile("rb") as said:
                path = said.readline().split()[1].decode()
                head = b"".join(iter(said.readline, b"\r\n"))
                found.headers.append(head)
                size = next((int(v) for v in head.lower().split(b"content-length: ")[1:2] for v in v.split()[:1]), 0)
                body = json.loads(said.read(size) or b"null")
                if path == "/v1/judge":
                    connection.sendall(OPEN_END + json.dumps(ABOUT | about if judge is None else judge).encode())
                    return
                found.asked.append((path, body))
                last[:] = [next(left, last[0] if last else whole)]
                last[0](connection, body)

        def run() -> None:
            last: list[Answer] = []
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                serve(connection, last)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(10)
