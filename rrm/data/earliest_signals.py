"""Ctrl-C and SIGTERM of a command whose own imports have only begun: they end the process. `rrm.data.stop_signals`, once imported, takes them over."""

import os
import signal


def take_signals() -> None:
    """End the process by exit code 130 or 143 when it is stopped, where nothing is made yet that could be lost; what the process was
    started to ignore stays ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end)


def _end(number: int, _: object) -> None:
    os.write(2, b"terminated\n" if number == signal.SIGTERM else b"interrupted\n")
    os._exit(128 + number)
