"""Coroutines run from synchronous code, also where a loop already runs."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import pytest

from rrm.engines.async_runner import run


async def slow(ended: list[str]) -> None:
    try:
        await asyncio.sleep(20)
    finally:
        ended.append("cancelled")


def test_an_interrupt_ends_work_within_a_running_loop() -> None:
    ended: list[str] = []

    async def cell() -> float:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a notebook
        begun = time.monotonic()
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            run(slow(ended))
        return time.monotonic() - begun

    before, loop = signal.getsignal(signal.SIGINT), asyncio.new_event_loop()
    try:
        assert loop.run_until_complete(cell()) < 5 and ended == ["cancelled"]
    finally:
        signal.signal(signal.SIGINT, before)
        loop.close()
    assert "run" not in {thread.name for thread in threading.enumerate()}


def test_results_and_errors_come_back_from_within_a_running_loop() -> None:
    async def fails() -> None:
        raise LookupError("here")

    async def cell() -> int:
        with pytest.raises(LookupError, match="here"):
            run(fails())
        return run(asyncio.sleep(0, 3))

    assert asyncio.run(cell()) == 3
