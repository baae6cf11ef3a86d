"""Freed memory that lies between blocks in use is given back once a process has grown by as much as it may."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rrm.engines.hf import host_memory
from rrm.engines.hf.host_memory import FreedMemory, resident_bytes

MB = 1 << 20
FRAGMENTED = """
import torch
from rrm.engines.hf.host_memory import FreedMemory, keep_freed_memory, resident_bytes
assert keep_freed_memory()
freed, before = FreedMemory(grown=150 << 20), resident_bytes()
assert not FreedMemory(grown=before + (1 << 30)).give_back()  # it has not grown by as much
freed.give_back()
before = resident_bytes()
blocks = [torch.ones(n << 18) for _ in range(100) for n in (3, 1)]  # of 3 and of 1 MB, in turn
held = blocks[1::2]
del blocks
full = resident_bytes()
assert full - before > 350 << 20, (before, full)  # freed, and not given back
assert freed.give_back()
after = resident_bytes()
assert full - after > 200 << 20, (full, after)
assert sum(float(block.sum()) for block in held) == 100 * (1 << 18)
assert not freed.give_back()  # counted from here on
print("given back")
"""


@pytest.mark.skipif(host_memory._glibc() is None, reason="glibc's malloc alone is told")
def test_gaps_between_blocks_in_use_are_given_back() -> None:
    run = subprocess.run([sys.executable, "-c", FRAGMENTED], capture_output=True, text=True, check=False)
    assert run.stdout == "given back\n", run.stderr


def test_it_is_time_when_the_process_has_grown_since(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([100, 101, 90, 190, 191, 70, 165, 171, 120])
    calls: list[int] = []

    class Library:
        @staticmethod
        def malloc_trim(pad: object) -> int:
            calls.append(1)
            return 1

    monkeypatch.setattr(host_memory, "resident_bytes", lambda: next(sizes))
    monkeypatch.setattr(host_memory, "_glibc", Library)
    freed = FreedMemory(grown=100)
    assert not freed.give_back()  # 100: as much as it may
    assert freed.give_back()  # 101, and 90 afterwards
    assert not freed.give_back()  # 190
    assert freed.give_back()  # 191, and 70 afterwards
    assert not freed.give_back()  # 165
    assert freed.give_back() and len(calls) == 3  # 171, and 120 afterwards


def test_where_nothing_can_be_read_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resident_bytes() > MB
    monkeypatch.setattr(host_memory, "STATM", host_memory.Path("/no/such/file"))
    assert resident_bytes() == 0 and not FreedMemory(0).give_back()
