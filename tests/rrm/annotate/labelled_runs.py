"""What the tests of labelling share: runs, a page that is served in this process, and what a browser said of it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.speed.devtools import Chromium, DevToolsError
from rrm.annotate.label import Ask
from rrm.annotate.label_journal import open_journal
from rrm.annotate.label_pool import TranscriptPool
from rrm.annotate.label_server import Labelling, LabelServer, label_server
from rrm.data.mistakes import MISTAKE_KINDS
from rrm.data.trajectory import Message, ToolCall, Trajectory

WAITING = "Object.keys(localStorage).filter((name) => name.startsWith('rrm-label/')).length"
"""How many actions the browser keeps until they are saved."""


def run(n: int, *, steps: int = 3, text: str = "I look it up.") -> Trajectory:
    """A run of so many steps, every one but the last with a call."""
    messages = [Message(role="user", content=f"Who was number {n}?")]
    for k in range(1, steps):
        call = ToolCall(name="search", arguments={"query": f"{n} {k}"})
        messages += [Message(role="assistant", content=text, tool_calls=[call])]
        messages += [Message(role="tool", name="search", content=f"Result {k}: {text}")]
    messages.append(Message(role="assistant", content=f"It was {n}."))
    return Trajectory(id=f"run/{n}", task=f"Who was number {n}?", messages=messages, outcome=1.0, question_id=f"q{n}")


@contextmanager
def served(
    runs: Sequence[Trajectory], labels: Path, rater: str = "ann", ask: Ask = "outcome", port: int = 0
) -> Iterator[LabelServer]:
    """The page of these runs; its label file is closed at the end."""
    with ExitStack() as stack:
        journal, pool = stack.enter_context(open_journal(labels, rater)), stack.enter_context(TranscriptPool(runs))
        server = stack.enter_context(label_server(Labelling(pool, journal, ask, MISTAKE_KINDS), port))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(
    server: LabelServer, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """A request as the page sends it, but for what is given."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    host = f"127.0.0.1:{server.server_port}"
    sent = {"Host": host}
    if method == "POST":
        sent |= {"Origin": f"http://{host}", "Content-Type": "application/json"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    connection.request(method, path, raw, {name: value for name, value in sent.items() if value})
    reply = connection.getresponse()
    found = reply.status, dict(reply.getheaders()), reply.read()
    connection.close()
    return found


def begun(folder: Path, *more: str) -> tuple[subprocess.Popen[str], str, str]:
    """`rrm label` in a process of its own: it, its host and port, and the token."""
    command = [sys.executable, "-c", "from rrm.cli import main; main()", "label", "runs.jsonl", "--rater", "ann", *more]
    child = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
    )
    assert child.stderr is not None
    found = None
    while found is None:
        line = child.stderr.readline()
        assert line, "it ended"
        found = re.search(r"http://(127\.0\.0\.1:\d+)/([\w-]+)/", line)
    return child, found[1], found[2]


def opened(browser: Chromium, address: str) -> None:
    """Open the page and wait for its first transcript."""
    browser.events.clear()
    browser.open(address)
    browser.wait("document.getElementById('title')")


def reloaded(browser: Chromium) -> None:
    """Reload the page and wait until its transcript is back."""
    loads = lambda: sum(event["method"] == "Page.loadEventFired" for event in browser.events)  # noqa: E731
    before = loads()
    browser.send("Page.reload")
    while loads() == before:
        with suppress(DevToolsError):  # while it navigates it refuses; the events that came meanwhile are taken in
            browser.evaluate("1")
    browser.wait("document.getElementById('title')")


def at(browser: Chromium, n: int) -> None:
    """Wait until transcript n is on screen."""
    browser.wait(f"document.getElementById('place').textContent.startsWith('{n} of ')")


def saved(browser: Chromium) -> None:
    """Wait until nothing waits to be saved."""
    browser.wait(f"!{WAITING}")


def complaints(browser: Chromium, address: str) -> list[dict[str, Any]]:
    """Exceptions, policy violations, and requests for anything but the page's own addresses."""
    bad = [e for e in browser.events if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
    requests = [e for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    return bad + [e for e in requests if not e["params"]["request"]["url"].startswith((address, "data:"))]
