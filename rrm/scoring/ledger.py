"""What is known of each row of a long run, in few bytes a row: which transcripts an output holds, and which an input.

Ids are held as 64-bit hashes (`rrm.readers.unique`), digests as the 64 bits that they are. Two ids whose hashes are one (about one chance in
37 million over a million ids) are told as one transcript that changed or came twice, an error, never passed over.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np

from rrm.readers.unique import key_of

UNKNOWN = 255
"""Of what a row does not say."""


class RowHashes(NamedTuple):
    """What is known of one row."""

    status: str
    digest: str
    coverage: float | None
    out_of_domain: bool | None
    findings: int
    unsure: int
    """Of the findings."""


class Ledger:
    """The rows of an output, added in their order, then looked up: 46 bytes a row, and 8 more a criterion."""

    def __init__(self) -> None:
        self._keys, self._digests = array("Q"), array("Q")
        self._statuses, self._outside = bytearray(), bytearray()
        self._coverage, self._findings, self._unsure = array("d"), array("I"), array("I")
        self._names: list[str] = []
        self._values: dict[str, array[float]] = {}
        self._order, self._ranked = np.empty(0, dtype=np.uint32), np.empty(0, dtype=np.uint64)
        """Rows by key, those of one key as they came, and their keys; made anew where rows were added since."""

    def __len__(self) -> int:
        return len(self._keys)

    def add(
        self,
        id: str,
        status: str,
        digest: str,
        coverage: float | None = None,
        out_of_domain: bool | None = None,
        values: dict[str, float | None] | None = None,
        verdicts: tuple[int, int] = (0, 0),
    ) -> None:
        """Add a row.

        Args:
            verdicts: how many findings it has, and how many of these are unsure.

        Raises:
            ValueError: a digest that is none.
        """
        self._digests.append(int(digest, 16))
        self._keys.append(key_of(id))
        if status not in self._names:
            self._names.append(status)
        self._statuses.append(self._names.index(status))
        self._coverage.append(math.nan if coverage is None else coverage)
        self._outside.append(UNKNOWN if out_of_domain is None else out_of_domain)
        self._findings.append(verdicts[0])
        self._unsure.append(verdicts[1])
        for name, value in (values or {}).items():
            column = self._values.setdefault(name, array("d"))
            column.extend([math.inf] * (len(self._keys) - 1 - len(column)))
            column.append(math.nan if value is None else value)

    def find(self, id: str) -> int | None:
        """The number of the last row of an id, from 0; None for none."""
        self._sort()
        key = np.uint64(key_of(id))
        at = int(np.searchsorted(self._ranked, key, side="right")) - 1
        return int(self._order[at]) if at >= 0 and self._ranked[at] == key else None

    def known(self, row: int) -> RowHashes:
        """What is known of a row."""
        coverage, outside = self._coverage[row], self._outside[row]
        return RowHashes(
            self._names[self._statuses[row]],
            f"{self._digests[row]:016x}",
            None if math.isnan(coverage) else coverage,
            None if outside == UNKNOWN else bool(outside),
            self._findings[row],
            self._unsure[row],
        )

    def values(self, row: int) -> dict[str, float | None] | None:
        """A row's answers to criteria; None where it has none (inf: not said, nan: without a value)."""
        said = {name: column[row] for name, column in self._values.items() if row < len(column)}
        found = {name: None if math.isnan(v) else v for name, v in said.items() if v != math.inf}
        return found or None

    def last(self, status: str) -> int:
        """How many ids have a last row of this status."""
        if status not in self._names:
            return 0
        self._sort()
        ends = np.r_[self._ranked[1:] != self._ranked[:-1], True] if len(self) else np.empty(0, dtype=bool)
        statuses = np.frombuffer(bytes(self._statuses), dtype=np.uint8)[self._order]
        return int((statuses[ends] == self._names.index(status)).sum())

    def second(self, but: Collection[str]) -> int | None:
        """The number of the first row whose id stands in an earlier row of a status that is not in `but`; None where there is none."""
        self._sort()
        order, again = self._order, np.flatnonzero(self._ranked[1:] == self._ranked[:-1])
        allowed = {number for number, name in enumerate(self._names) if name in but}
        second = [int(order[i + 1]) for i in again if self._statuses[int(order[i])] not in allowed]
        return min(second, default=None)

    def keys(self) -> np.ndarray:
        """(rows,) the ids' hashes, in the rows' order."""
        return np.array(self._keys, dtype=np.uint64)  # a copy: an array that is looked at cannot grow

    def _sort(self) -> None:
        if len(self._order) != len(self._keys):
            keys = self.keys()
            self._order = np.argsort(keys, kind="stable").astype(np.uint32)
            self._ranked = keys[self._order]


def order_of(rows: np.ndarray, inputs: np.ndarray) -> np.ndarray | None:
    """The order in which (R,) rows stand as their (N,) inputs do, by hashes of their ids; rows of no input come last, as they stood.
    None where they stand so."""
    if np.array_equal(rows, inputs[: len(rows)]):
        return None
    by_key = np.argsort(inputs, kind="stable")
    if len(inputs):
        at = np.minimum(np.searchsorted(inputs, rows, sorter=by_key), len(inputs) - 1)
        places = np.where(inputs[by_key[at]] == rows, by_key[at], len(inputs))
    else:
        places = np.zeros(len(rows), dtype=np.int64)
    order = np.argsort(places, kind="stable")
    return None if np.array_equal(order, np.arange(len(rows))) else order


def keys_of(ids: Iterable[str]) -> np.ndarray:
    """(N,) hashes of ids."""
    return np.fromiter(map(key_of, ids), dtype=np.uint64)
