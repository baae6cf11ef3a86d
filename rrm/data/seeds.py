"""Seeds derived by hashing, so that a row's randomness depends on the run and the row alone."""

from __future__ import annotations

import hashlib


def derive_seed(*parts: object) -> int:
    """A 63-bit seed from the parts' text, e.g. `derive_seed(run_seed, row_id, attempt)`; stable across processes."""
    digest = hashlib.sha256("\x1f".join(str(p) for p in parts).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") >> 1
