"""Plan batches: which rows run together, and their common prefix."""

from __future__ import annotations

from collections.abc import Sequence


def common_prefix(rows: Sequence[Sequence[int]]) -> int:
    if not rows:
        return 0
    # The smallest and the largest row in dictionary order share exactly what all of them share.
    low, high = min(rows, key=tuple), max(rows, key=tuple)
    count = 0
    for a, b in zip(low, high, strict=False):
        if a != b:
            break
        count += 1
    return count


def micro_batches(lengths: Sequence[int], max_tokens: int, waste: float = 0.1, slack: int = 0) -> list[range]:
    """Cut consecutive rows into index ranges of at most `max_tokens` tokens, padding included.

    Args:
        lengths: tokens per row, sorted: only neighbours share a batch.
        waste: a batch also ends where padding would exceed this share of it,
        slack: and this many tokens (a forward costs as much as some padding).
    """
    batches: list[range] = []
    start, longest, total = 0, 0, 0
    for i, length in enumerate(lengths):
        new_longest, new_total = max(longest, length), total + length
        padded = new_longest * (i - start + 1)
        if i > start and (padded > max_tokens or padded - new_total > max(waste * padded, slack)):
            batches.append(range(start, i))
            start, new_longest, new_total = i, length, length
        longest, total = new_longest, new_total
    if lengths:
        batches.append(range(start, len(lengths)))
    return batches
