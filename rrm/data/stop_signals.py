"""Ctrl-C and SIGTERM of a command: noted at once, raised as KeyboardInterrupt.

During an import, whose modules may catch it, or in a finaliser, where Python ignores exceptions, it is raised afterwards.
A second signal is raised at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Any

AGAIN_S = 0.05  # seconds between tries to raise a stop
IMPORTS = "<frozen importlib"  # start of the file names of import frames


class Stops:
    """Reentrant context that handles both signals; an ignored SIGINT (a background job) stays ignored."""

    def __init__(self) -> None:
        self.asked: int | None = None  # the first signal
        self.raised = False  # whether it reached the command
        self.over = False  # whether the command has ended
        self._depth, self._before, self._hook = 0, dict[int, Any](), sys.unraisablehook

    def __enter__(self) -> Stops:
        if not self._depth:
            self.asked, self.raised, self._hook = None, False, sys.unraisablehook
            handlers = {signal.SIGTERM: self._take, signal.SIGINT: self._take}
            if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
                del handlers[signal.SIGINT]
            if hasattr(signal, "setitimer"):
                handlers[signal.SIGALRM] = self._again
            self._before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
            sys.unraisablehook = self._ignored
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            _try_again(0)
            for number, handler in self._before.items():
                signal.signal(number, handler)
            sys.unraisablehook = self._hook

    @contextmanager
    def left_to_asyncio(self) -> Iterator[None]:
        """Let an event loop that starts meanwhile take SIGINT itself, and both signals by `hand_to_asyncio`."""
        numbers = (signal.SIGINT, signal.SIGTERM) if self._are_ours() else ()
        handlers = {number: signal.getsignal(number) for number in numbers}
        if handlers:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # by which asyncio knows that it may
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def hand_to_asyncio(self) -> None:
        """Call in the loop's main task: signals then cancel it, a second one is raised."""
        cancels = signal.getsignal(signal.SIGINT)
        if not (self._are_ours() and callable(cancels)):
            return

        def take(number: int, frame: FrameType | None) -> None:
            self.asked, self.raised = self.asked or number, True
            cancels(signal.SIGINT, frame)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, take if number in self._before else signal.SIG_IGN)

    def _are_ours(self) -> bool:
        here = threading.current_thread() is threading.main_thread()
        return here and bool(self._depth) and signal.getsignal(signal.SIGTERM) == self._take

    @property
    def code(self) -> int:
        """The exit code: 143 after SIGTERM, else 130."""
        return 128 + (self.asked or signal.SIGINT)

    def _take(self, number: int, frame: FrameType | None) -> None:
        first, self.asked = self.asked is None, self.asked or number
        if self.over:  # what is left are finalisers
            if not first:
                os._exit(self.code)
        elif not (first and _importing(frame) and _try_again()):
            _try_again(0)
            self.raised = True
            raise KeyboardInterrupt

    def _again(self, number: int, frame: FrameType | None) -> None:
        if _importing(frame):
            _try_again()
        elif not self.over:
            self.raised = True
            raise KeyboardInterrupt

    def raise_late(self) -> None:
        _try_again(0)
        if self.asked is not None and not self.raised:
            self.raised = True
            raise KeyboardInterrupt

    def _ignored(self, unraisable: Any) -> None:
        if not (issubclass(unraisable.exc_type, KeyboardInterrupt) and self.asked is not None and _try_again()):
            self._hook(unraisable)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith(IMPORTS):
        frame = frame.f_back
    return frame is not None


def _try_again(seconds: float = AGAIN_S) -> bool:
    """Schedule `_again` in so many seconds (0: cancel); False where the system cannot."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)
        return True
    return False


STOPS = Stops()  # of this process


def command(module: str) -> None:
    """Import a module and run its `main` as the process's command."""
    try:
        STOPS.__enter__()  # for good
        main = import_module(module).main
        STOPS.raise_late()
        try:
            main()
        finally:
            STOPS.raise_late()  # a command may end before it is tried again
    except KeyboardInterrupt:
        print("terminated" if STOPS.asked == signal.SIGTERM else "interrupted", file=sys.stderr)
        sys.exit(STOPS.code)
    finally:
        STOPS.over = True
