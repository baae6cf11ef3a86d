"""SIGTERM and Ctrl-C end a training where its state is whole, so that a checkpoint of it can be kept."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

logger = logging.getLogger(__name__)


class Stopping:
    """While entered, SIGTERM and SIGINT are taken at `check` or inside `at_once`: SystemExit(143) and KeyboardInterrupt.

    A second Ctrl-C is taken at once, wherever it meets the run. Off the main thread nothing is changed: Python lets only that
    one handle signals.
    """

    def __init__(self) -> None:
        self.asked: int | None = None
        self._at_once = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stopping:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Stop here if that was asked for."""
        if self.asked is not None:
            raise KeyboardInterrupt if self.asked == signal.SIGINT else SystemExit(128 + self.asked)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Inside, what is asked for is done at once: nothing is lost there but time."""
        self._at_once = True
        try:
            self.check()
            yield
        finally:
            self._at_once = False

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.asked is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = number
        if self._at_once:
            self.check()
        logger.warning("%s: stopping after this update's steps", signal.Signals(number).name)
