"""Freed memory: kept in the process, so that a forward on the CPU does not fetch its pages anew at every operation, and given back once it
piles up."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import sys
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's <malloc.h>
TRIM_BYTES, MMAP_BYTES = 1 << 30, 256 << 20
GROWN_BYTES = 2 << 30
STATM, PAGE_BYTES = "/proc/self/statm", mmap.PAGESIZE


OTHER_ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc")


def mallocs_with_glibc() -> bool:
    """Whether this process, and one that it starts, takes its memory from glibc's malloc."""
    preloaded = os.environ.get("LD_PRELOAD", "")
    return platform.libc_ver()[0] == "glibc" and not any(name in preloaded for name in OTHER_ALLOCATORS)


@cache
def _glibc() -> ctypes.CDLL | None:
    """The C library, where it is glibc and its malloc is in use."""
    library = ctypes.CDLL(None) if sys.platform.startswith("linux") and mallocs_with_glibc() else None
    return library if library is not None and hasattr(library, "malloc_trim") else None


def keep_freed_memory() -> bool:
    """Tell glibc's malloc to reuse freed blocks of up to 256 MB instead of returning them to the system.

    PyTorch's CPU allocator calls malloc for every intermediate tensor. By default glibc gives blocks of a megabyte back
    when they are freed, and the next operation pays for zeroed pages again: a third to a half of the time of a 135M
    model's prefill. Process-wide; the heap's end is given back beyond 1 GB, gaps inside of it by `FreedMemory` alone. The same from outside, for any program:
    `MALLOC_MMAP_THRESHOLD_=268435456 MALLOC_TRIM_THRESHOLD_=1073741824`.

    Returns:
        Whether it was done: False where the C library is not glibc (other systems, musl), or another allocator is preloaded.
    """
    library = _glibc()
    if library is None:
        return False
    mapped = library.mallopt(M_MMAP_THRESHOLD, MMAP_BYTES) == 1
    # Setting either one stops glibc from adapting the other, so the second without the first would only make it worse.
    return mapped and library.mallopt(M_TRIM_THRESHOLD, TRIM_BYTES) == 1


def own_bytes() -> int:
    """What the process holds of the machine's memory, without pages of files (mapped weights, an index); 0 where that cannot be read."""
    try:
        with open(STATM, "rb", buffering=0) as file:
            _, resident, shared, *_ = file.read(128).split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * PAGE_BYTES


class FreedMemory:
    """Gives freed memory back once the process has grown by so many bytes since that was last done.

    Blocks of many sizes leave gaps in malloc's heap, and what is free between two that are held stays the process's: one that played and judged
    attempts of all lengths held 13.6 GB, of which 6.9 were free.
    """

    def __init__(self, grown: int = GROWN_BYTES) -> None:
        self.grown = grown
        self._least = 0  # held after the last time, or less since

    def give_back(self) -> bool:
        """To be called between pieces of work. Returns whether it was time to, and done."""
        library = _glibc()
        if library is None:
            return False
        size = own_bytes()
        self._least = min(self._least, size)
        if size - self._least <= self.grown:
            return False
        library.malloc_trim(ctypes.c_size_t(0))
        self._least = own_bytes()
        return True


freed_memory = FreedMemory()  # the process's
