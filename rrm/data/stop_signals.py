"""Ctrl-C and SIGTERM of a command, from its first line on: noted at once, raised as KeyboardInterrupt where nothing swallows it.

Amid an import it would be lost: modules catch whatever their own imports raise, and the command ran on as if nobody had asked. So it
is raised when the import has ended; so is one that came up where Python ignores exceptions (a finaliser). A second one is raised at
once, wherever it meets the command. While this module itself is imported `rrm.data.earliest_signals` takes them.
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

AGAIN_S = 0.05
"""Seconds after which a stop that could not be raised is tried again."""
IMPORTS = "<frozen importlib"
"""Beginning of the file name of a frame that imports something."""


class Stops:
    """Takes both signals while entered, which may be within itself.

    A SIGINT that whoever started the process had ignored (a shell that puts it in the background) stays so.
    """

    def __init__(self) -> None:
        self.asked: int | None = None
        """The signal that came first."""
        self.raised = False
        """Whether that reached the command."""
        self.over = False
        """Whether the command has ended, and the process is about to."""
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
        """While entered, an event loop that is begun takes SIGINT in its own way, and both by `hand_to_asyncio`. Off the main thread, and
        while this is not entered, nothing is changed."""
        numbers = (signal.SIGINT, signal.SIGTERM) if self._are_ours() else ()
        held = {number: signal.getsignal(number) for number in numbers}
        if held:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # by which asyncio knows that it may
        try:
            yield
        finally:
            for number, handler in held.items():
                signal.signal(number, handler)

    def hand_to_asyncio(self) -> None:
        """To be called in the loop's main task, which the signals that are taken then cancel; a second one is raised."""
        cancels = signal.getsignal(signal.SIGINT)
        if not (self._are_ours() and callable(cancels)):
            return

        def take(number: int, frame: FrameType | None) -> None:
            self.asked, self.raised = self.asked or number, True
            cancels(signal.SIGINT, frame)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, take if number in self._before else signal.SIG_IGN)

    def _are_ours(self) -> bool:
        """Whether nobody else (a training, a server) takes them meanwhile."""
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
        """Raise a stop that waits to be tried again."""
        _try_again(0)
        if self.asked is not None and not self.raised:
            self.raised = True
            raise KeyboardInterrupt

    def _ignored(self, what: Any) -> None:
        if not (issubclass(what.exc_type, KeyboardInterrupt) and self.asked is not None and _try_again()):
            self._hook(what)


def _importing(frame: FrameType | None) -> bool:
    """Whether a frame, or one that waits for it, imports something."""
    while frame is not None and not frame.f_code.co_filename.startswith(IMPORTS):
        frame = frame.f_back
    return frame is not None


def _try_again(seconds: float = AGAIN_S) -> bool:
    """Have `_again` called after so many seconds (0: not any more); False where the system cannot."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)
        return True
    return False


STOPS = Stops()
"""Those of this process."""


def command(module: str) -> None:
    """Import a module and run its `main` as the process's command; whatever stops it before it can say more, ends it by the exit code."""
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
