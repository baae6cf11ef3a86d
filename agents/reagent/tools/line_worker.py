"""A process that answers a line with a line, and can be ended: for work that may never come to an end."""

import atexit
import json
import select
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

START_S = 60.0  # longest wait for the start: imports are slow on a busy machine


class LineWorker:
    """A program's process, started when first asked and again after it ended. Safe from several threads.

    Args:
        program: prints `ready`, and then a line for each line of JSON it reads.
        timeout_s: wall clock of one answer.
        flags: Python's.
    """

    def __init__(self, program: Path, timeout_s: float, *flags: str, env: Mapping[str, str] | None = None) -> None:
        self.timeout_s, self.env, self._command = timeout_s, env, [sys.executable, *flags, str(program)]
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the process, so that no call's time goes to it. Raises RuntimeError: it does not start."""
        with self._lock:
            self._started()

    def ask(self, request: Any) -> str:
        with self._lock:
            process = self._started()
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
                return self._line(process, self.timeout_s)
            except OSError:
                self.close()
                raise

    def close(self) -> None:
        atexit.unregister(self.close)
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _started(self) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(self._command, text=True, encoding="ascii", env=self.env, **pipes)
        atexit.register(self.close)
        try:
            self._line(self._process, START_S)
        except OSError as error:
            self.close()
            raise RuntimeError(f"a process did not start: {' '.join(self._command)}") from error
        return self._process

    @staticmethod
    def _line(process: subprocess.Popen[str], timeout_s: float) -> str:
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], timeout_s)[0]:
            raise TimeoutError(f"no end within {timeout_s:g} s")
        if not (line := process.stdout.readline().strip()):
            raise ConnectionError("it ended early")
        return line
