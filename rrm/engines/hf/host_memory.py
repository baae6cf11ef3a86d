"""Freed memory: kept in the process, so that a forward on the CPU does not fetch its pages anew at every operation, and given back once it
piles up."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from pathlib import Path

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's <malloc.h>
TRIM_BYTES, MMAP_BYTES = 1 << 30, 256 << 20
GROWN_BYTES = 2 << 30
STATM = Path("/proc/self/statm")


@cache
def _glibc() -> ctypes.CDLL | None:
    """The C library, where it is glibc (not on other systems, or musl)."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None


def keep_freed_memory() -> bool:
    """Tell glibc's malloc to reuse freed blocks of up to 256 MB instead of returning them to the system.

    PyTorch's CPU allocator calls malloc for every intermediate tensor. By default glibc gives blocks of a megabyte back
    when they are freed, and the next operation pays for zeroed pages again: a third to a half of the time of a 135M
    model's prefill. Process-wide; the heap's end is given back beyond 1 GB, gaps inside of it by `FreedMemory` alone. The same from outside, for any program:
    `MALLOC_MMAP_THRESHOLD_=268435456 MALLOC_TRIM_THRESHOLD_=1073741824`.

    Returns:
        Whether it was done: False where the C library is not glibc (other systems, musl).
    """
    library = _glibc()
    if library is None:
        return False
    mapped = library.mallopt(M_MMAP_THRESHOLD, MMAP_BYTES) == 1
    # Setting either one stops glibc from adapting the other, so the second without the first would only make it worse.
    return mapped and library.mallopt(M_TRIM_THRESHOLD, TRIM_BYTES) == 1


def resident_bytes() -> int:
    """What the process holds of the machine's memory; 0 where that cannot be read."""
    try:
        return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


class FreedMemory:
    """Gives freed memory back once the process has grown by so many bytes since that was last done.

    Blocks of many sizes leave gaps in malloc's heap, and what is free between two that are held stays the process's: one that played and judged
    attempts of all lengths held 13.6 GB, of which 6.9 were free. Reading the size takes some ten microseconds, giving a gigabyte back and
    fetching it again a quarter of a second.
    """

    def __init__(self, grown: int = GROWN_BYTES) -> None:
        self.grown = grown
        self._least = 0
        """Resident after the last time, or less since."""

    def give_back(self) -> bool:
        """To be called between pieces of work. Returns whether it was time to, and done."""
        resident = resident_bytes()
        self._least = min(self._least, resident)
        library = _glibc() if resident - self._least > self.grown else None
        if library is None:
            return False
        library.malloc_trim(ctypes.c_size_t(0))
        self._least = resident_bytes()
        return True


freed_memory = FreedMemory()
"""The process's."""
