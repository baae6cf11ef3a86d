"""A hub on loopback: takes a repository's creation and one commit of small files, as the real one does."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from openai_server import running


class Hub(BaseHTTPRequestHandler):
    """What was asked and given stands in its class: `serve_hub` makes one of its own for each server."""

    repo: str
    files: dict[str, bytes]
    asked: list[tuple[str, Any]]
    """Paths, and the body of a repository's creation."""
    keys: set[str | None]
    private: bool
    sha: str

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.keys.add(self.headers["Authorization"])
        self.asked.append((self.path, json.loads(body) if self.path.endswith("create") else None))
        said: dict[str, Any] = {"url": f"https://huggingface.co/{self.repo}", "warnings": [], "errors": []}
        if "/preupload/" in self.path:
            paths = [f["path"] for f in json.loads(body)["files"]]
            said = {"files": [{"path": p, "uploadMode": "regular", "shouldIgnore": False} for p in paths]}
        elif "/commit/" in self.path:
            for entry in map(json.loads, body.splitlines()):
                if entry["key"] == "file":
                    self.files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            said = {"commitUrl": f"https://huggingface.co/{self.repo}/commit/abc", "commitOid": "abc", "success": True}
        self._say(said)

    def do_GET(self) -> None:
        self.asked.append((self.path, None))
        about = {"id": self.repo.removeprefix("datasets/"), "sha": self.sha, "siblings": [], "private": self.private}
        self._say([] if "/tree/" in self.path else about)

    def _say(self, said: Any) -> None:
        data = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@contextmanager
def serve_hub(monkeypatch: pytest.MonkeyPatch, repo: str) -> Iterator[type[Hub]]:
    """A hub that holds nothing yet, in the place of the real one.

    Args:
        repo: `org/name` of a model, `datasets/org/name` of a data set.
    """
    from huggingface_hub import constants

    of = {"repo": repo, "files": {}, "asked": [], "keys": set(), "private": True, "sha": "abc"}
    mine = type("MyHub", (Hub,), of)
    with running(mine) as url:
        monkeypatch.setattr(constants, "ENDPOINT", url)
        yield mine
