"""A headless Chromium driven over the DevTools protocol on a pipe: no driver program and no sockets.

    with Chromium() as page:
        page.open(Path("report.html").as_uri())
        page.evaluate("document.title")

Protocol: JSON messages ended by a NUL byte, read by the browser from file descriptor 3 and written to 4
(`--remote-debugging-pipe`).
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
ON_3_AND_4 = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3]]  # clear of 3 and 4 before either is taken
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_chromium() -> str | None:
    """Path of an installed Chromium or Chrome, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((found for name in names if (found := shutil.which(name))), None)


class DevToolsError(RuntimeError):
    """The browser refused a command, or a script in the page threw."""


class Chromium:
    """One browser with one page."""

    def __init__(self, width: int = 1280, height: int = 800, timeout_s: float = 120.0) -> None:
        self.width, self.height, self.timeout_s = width, height, timeout_s
        self.events: list[dict[str, Any]] = []  # events received so far (`{"method", "params"}`)
        self._id = 0
        self._held = b""
        self._session: str | None = None

    def __enter__(self) -> Chromium:
        program = find_chromium()
        if program is None:
            raise DevToolsError("no chromium or google-chrome on PATH; install one")
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        child_in, self._out = os.pipe()
        self._in, child_out = os.pipe()
        own = [f"--user-data-dir={self._profile.name}", f"--window-size={self.width},{self.height}"]
        launch = [sys.executable, "-I", "-c", ON_3_AND_4, str(child_in), str(child_out), program]
        self._process = subprocess.Popen(
            [*launch, *FLAGS, "--remote-debugging-pipe", *own],
            pass_fds=(child_in, child_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(child_in)
        os.close(child_out)
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        self.resize(self.width, self.height)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._out)  # the browser ends when its pipe does
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        self._profile.cleanup()

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command and wait for its result; events that come meanwhile are kept in `events`."""
        self._id += 1
        message: dict[str, Any] = {"id": self._id, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._receive()
            if reply.get("id") != self._id:
                self.events.append(reply)
            elif "error" in reply:
                raise DevToolsError(f"{method}: {reply['error']['message']}")
            else:
                return reply["result"]

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + self.timeout_s
        while b"\0" not in self._held:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise DevToolsError(f"no answer from the browser within {self.timeout_s:.0f} s")
            data = os.read(self._in, 1 << 20)
            if not data:
                raise DevToolsError("the browser closed its pipe")
            self._held += data
        message, self._held = self._held.split(b"\0", 1)
        return json.loads(message)

    def open(self, url: str) -> None:
        """Load a page and wait for its load event."""
        self.send("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is awaited."""
        reply = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in reply:
            raise DevToolsError(json.dumps(reply["exceptionDetails"])[:500])
        return reply["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true in the page."""
        deadline = time.monotonic() + self.timeout_s
        while not self.evaluate(f"new Promise(r => setTimeout(() => r(Boolean({condition})), 10))"):
            if time.monotonic() > deadline:
                raise DevToolsError(f"never came true within {self.timeout_s:.0f} s: {condition}")

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press and release one key (`j`, `Enter`, `Escape`, `ArrowDown`, `Tab`, …)."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        code = {"Tab": 9}.get(key, 0)  # moving the focus is the browser's own doing, which goes by the code
        keys = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **keys)
        self.send("Input.dispatchKeyEvent", type="keyUp", **keys)

    def resize(self, width: int, height: int, dark: bool = False, scale: float = 1.0) -> None:
        """The page's size in CSS pixels and its colour scheme."""
        sizes = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600}
        self.send("Emulation.setDeviceMetricsOverride", **sizes)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", features=scheme)

    def screenshot(self, path: str | Path) -> None:
        """What the page shows now, as a PNG."""
        Path(path).write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))
