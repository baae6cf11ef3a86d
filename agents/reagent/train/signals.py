"""SIGTERM and Ctrl-C end a training at a consistent state, so that a checkpoint can be kept."""

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
    """While entered, SIGTERM and SIGINT raise at `check` or in `at_once`; a second Ctrl-C everywhere."""

    def __init__(self) -> None:
        self.asked: int | None = None
        self._at_once = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stopping:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        if self.asked is not None:
            raise KeyboardInterrupt if self.asked == signal.SIGINT else SystemExit(128 + self.asked)

    @contextmanager
    def at_once(self) -> Iterator[None]:
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
