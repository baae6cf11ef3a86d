"""What the rows of a file cost: counted once, also where a row took several runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from rrm.data.output import Output
from rrm.data.usage import Usage, total_of


class Spending:
    """Sums rows' `usage`. A row that failed and is judged again hands what it used on to the row that takes its place.

    The failed row stays in the file until the other one is there, and is dropped then (`stale`): whenever a run is killed, every
    use stands in exactly one row that counts.

    Args:
        priced: gives usage its money, where rows have none yet.
    """

    def __init__(self, priced: Callable[[Usage], Usage] = lambda usage: usage) -> None:
        self._priced = priced
        self.unrowed: Usage | None = None
        """What requests used that no row says: a run was stopped while they were under way."""
        self._sure: Usage | None = None
        self._failed: dict[str, Usage | None] = {}
        """Of rows that may be judged again."""
        self.stale = Counter[str]()
        """How many rows of an id stand before the one that counts."""
        self.now: Usage | None = None
        """Of the rows that this run appended, without what they were handed on."""

    def met(self, row: Mapping[str, Any], failed: bool) -> None:
        """Count a row of the file.

        Raises:
            ValueError: its `usage` is none.
        """
        said = row.get("usage")
        try:
            usage = None if said is None else self._priced(Usage.model_validate(said))
        except ValidationError as error:
            raise ValueError(f"its usage cannot be read: {error.errors()[0]['msg']}") from error
        if row["id"] in self._failed:
            self.stale[row["id"]] += 1
            del self._failed[row["id"]]  # the later row has it too
        if failed:
            self._failed[row["id"]] = usage
        else:
            self._sure = total_of((self._sure, usage))

    def paid(self, row: dict[str, Any], usage: Usage | None, failed: bool) -> dict[str, Any]:
        """The row as it is appended: with what earlier ones of its id used."""
        self.now = total_of((self.now, usage))
        if row["id"] in self._failed:
            usage = total_of((self._failed.pop(row["id"]), usage))
            self.stale[row["id"]] += 1
        if failed:
            self._failed[row["id"]] = usage
        else:
            self._sure = total_of((self._sure, usage))
        return row if usage is None else {**row, "usage": usage.model_dump()}

    def read_unrowed(self, output: Output) -> None:
        """Count what earlier runs kept.

        Raises:
            ValueError: it is no usage.
        """
        if output.unrowed is not None:
            self.unrowed = self._priced(Usage.model_validate(output.unrowed))

    def keep_unrowed(self, output: Output, used: Usage) -> None:
        """Keep what this run used in all, as far as none of its rows says so."""
        left = used.less(self.now or Usage())
        if left.requests:
            self.unrowed = left if self.unrowed is None else self.unrowed + left
            output.keep_unrowed(self.unrowed.model_dump())

    def tidy(self, output: Output) -> bool:
        """Drop the rows that others took the place of; whether there were any."""
        left, self.stale = self.stale, Counter[str]()
        if not left:
            return False

        def counts(row: dict[str, Any]) -> bool:
            if left[row["id"]] > 0:
                left[row["id"]] -= 1
                return False
            return True

        output.keep(counts)
        return True

    @property
    def total(self) -> Usage | None:
        """Of all rows of the file, each use once; None where none says."""
        return total_of((self.unrowed, self._sure, *self._failed.values()))
