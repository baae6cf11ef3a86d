from __future__ import annotations

import hashlib


def derive_seed(*parts: object) -> int:
    """Hash the parts' text to a 63-bit seed, e.g. `derive_seed(run_seed, row_id, attempt)`."""
    digest = hashlib.sha256("\x1f".join(str(p) for p in parts).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") >> 1
