"""Keep freed CPU memory in the process for the next forward, and return it once it piles up."""

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
    """Tell whether this process and its children use glibc's malloc."""
    preloaded = os.environ.get("LD_PRELOAD", "")
    return platform.libc_ver()[0] == "glibc" and not any(name in preloaded for name in OTHER_ALLOCATORS)


@cache
def _glibc() -> ctypes.CDLL | None:
    library = ctypes.CDLL(None) if sys.platform.startswith("linux") and mallocs_with_glibc() else None
    return library if library is not None and hasattr(library, "malloc_trim") else None


def keep_freed_memory() -> bool:
    """Make glibc's malloc reuse freed blocks of up to 256 MB; tell whether it was done.

    PyTorch's CPU allocator calls malloc for every intermediate tensor; zeroing returned pages again takes a third to a half of a
    135M model's prefill. Process-wide. From outside: `MALLOC_MMAP_THRESHOLD_=268435456 MALLOC_TRIM_THRESHOLD_=1073741824`.
    """
    library = _glibc()
    if library is None:
        return False
    mapped = library.mallopt(M_MMAP_THRESHOLD, MMAP_BYTES) == 1
    # Setting either one stops glibc from adapting the other, so the second without the first would only make it worse.
    return mapped and library.mallopt(M_TRIM_THRESHOLD, TRIM_BYTES) == 1


def own_bytes() -> int:
    """Memory of the process without pages of files; 0 where that cannot be read."""
    try:
        with open(STATM, "rb", buffering=0) as file:
            _, resident, shared, *_ = file.read(128).split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * PAGE_BYTES


class FreedMemory:
    """Return freed memory once the process has grown by `grown` bytes since the last time."""

    def __init__(self, grown: int = GROWN_BYTES) -> None:
        self.grown = grown
        self._least = 0  # size after the last time, or less since

    def give_back(self) -> bool:
        """Call between pieces of work; tells whether memory was returned."""
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


freed_memory = FreedMemory()
