"""Sum the usage of an output's rows, each use once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from rrm.data.output import RowFile
from rrm.data.usage import Usage, total_of


class Spending:
    """Sums rows' `usage`. A row that replaces a failed one carries the failed one's usage too.

    The failed row stays until then (`stale`), so a killed run loses no usage. `priced` adds money where rows have none.
    """

    def __init__(self, priced: Callable[[Usage], Usage] = lambda usage: usage) -> None:
        self._priced = priced
        self.unrowed: Usage | None = None  # of requests under way when a run was stopped: no row has it
        self._sure: Usage | None = None
        self._failed: dict[str, Usage | None] = {}  # by id, of rows that may be judged again
        self.stale = Counter[str]()  # id → rows before the one that counts
        self.now: Usage | None = None  # of rows appended by this run, without usage taken over

    def met(self, row: Mapping[str, Any], failed: bool) -> None:
        """Count a row of the file; raises `ValueError` for a bad `usage`."""
        value = row.get("usage")
        try:
            usage = None if value is None else self._priced(Usage.model_validate(value))
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
        """Return the row to append, with the usage of earlier ones of its id."""
        self.now = total_of((self.now, usage))
        if row["id"] in self._failed:
            usage = total_of((self._failed.pop(row["id"]), usage))
            self.stale[row["id"]] += 1
        if failed:
            self._failed[row["id"]] = usage
        else:
            self._sure = total_of((self._sure, usage))
        return row if usage is None else {**row, "usage": usage.model_dump()}

    def read_unrowed(self, output: RowFile) -> None:
        """Count usage that earlier runs kept; raises `ValueError` where it is none."""
        if output.unrowed is not None:
            self.unrowed = self._priced(Usage.model_validate(output.unrowed))

    def keep_unrowed(self, output: RowFile, used: Usage) -> None:
        """Keep usage of this run that no row has."""
        left = used.less(self.now or Usage())
        if left.requests:
            self.unrowed = left if self.unrowed is None else self.unrowed + left
            output.keep_unrowed(self.unrowed.model_dump())

    def tidy(self, output: RowFile) -> bool:
        """Drop replaced rows; return whether there were any."""
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
        """Usage of all rows, each use once; None: no row says."""
        return total_of((self.unrowed, self._sure, *self._failed.values()))
