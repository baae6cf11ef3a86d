"""Handlers of Ctrl-C and SIGTERM while a command's imports run; `rrm.data.stop_signals` takes over."""

import os
import signal


def take_signals() -> None:
    # what the process was started to ignore stays ignored
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end)


def _end(number: int, _: object) -> None:
    os.write(2, b"terminated\n" if number == signal.SIGTERM else b"interrupted\n")
    os._exit(128 + number)
