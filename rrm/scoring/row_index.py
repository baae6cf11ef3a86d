"""The rows that a scoring run's output holds: which transcripts they are of, what they cost, and an append to them."""

from __future__ import annotations

import itertools
import logging
from array import array
from collections.abc import Collection, Container, Mapping
from typing import Any, get_args

import numpy as np

from rrm.data.feedback import Feedback, Status
from rrm.data.output import WAY_OUT, Output
from rrm.data.printing import printable
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError
from rrm.readers.unique import key_of
from rrm.scoring.coverage import LOW, percent
from rrm.scoring.ledger import Ledger, RowHashes, keys_of, order_of
from rrm.scoring.usage_totals import Spending

log = logging.getLogger(__name__)
STATUSES = frozenset(get_args(Status))
SHOWN = 20
"""Of the ids that are no longer in the input, this many are named."""
FAILED: Status = "judge_error"
AGAIN: frozenset[str] = frozenset((FAILED, "unparsable", "truncated"))
"""Of rows that may be judged again: another try, or more room for the reply, may bring a score."""


class RowIndex:
    """The rows an output holds, by id, and an append to them.

    A row with a status of `AGAIN` that is judged again stays until `tidy`: what was spent on it is known whenever a run ends.
    """

    def __init__(self, output: Output, again: Collection[str], spending: Spending) -> None:
        """Read the rows that stand; those with a status in `again` are taken for not judged.

        Raises:
            RRMError: a line that is no row of a scoring run, or a second one of an id whose first did not fail.
        """
        self.spending, self._output, self._again = spending, output, again
        self._ledger, self._appended, self._tidied = Ledger(), array("Q"), False
        try:
            spending.read_unrowed(output)
        except ValueError as error:
            raise RRMError(f"{output.path}.run.json: its usage cannot be read; {WAY_OUT}") from error
        for number, row in output.rows():
            try:
                enter(self._ledger, row)
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                why = f" ({error})" if isinstance(error, ValueError) else ""
                raise RRMError(f"{output.path}:{number}: not a row of `rrm score`{why}; {WAY_OUT}") from error
            try:
                spending.met(row, row["status"] in AGAIN)
            except ValueError as error:
                raise RRMError(f"{output.path}:{number}: {error}; {WAY_OUT}") from error
        if (second := self._ledger.second(but=AGAIN)) is not None:
            id = next(row["id"] for number, row in output.rows() if number == second + 1)
            raise RRMError(f"{output.path}:{second + 1}: a second row of {id!r}; {WAY_OUT}")
        self.tidy()
        if failed := {status: n for status in sorted(again) if (n := self._ledger.last(status))}:
            said = ", ".join(f"{n} {status}" for status, n in failed.items())
            log.warning("%s: transcripts without a score are judged again (%s)", output.path, said)

    def status_of(self, trajectory: Trajectory) -> str | None:
        """The status of a trajectory's row, None where it has none yet.

        Raises:
            RRMError: the row is of other content.
        """
        known = self._known(trajectory)
        if known is None or known.status in self._again:
            return None
        if known.digest != trajectory.digest:
            raise RRMError(
                f"{self._output.path} holds a judgement of {trajectory.id!r}, but that transcript has changed since; "
                f"{WAY_OUT}"
            )
        return known.status

    def coverage_of(self, trajectory: Trajectory) -> float | None:
        """What the trajectory's row says was read; None where it does not."""
        known = self._known(trajectory)
        return known and known.coverage

    def out_of_domain(self, trajectory: Trajectory) -> bool | None:
        """Whether the trajectory's row says that it is outside what the judge was measured on; None where it does not say."""
        known = self._known(trajectory)
        return known and known.out_of_domain

    def verdicts_of(self, trajectory: Trajectory) -> tuple[int, int]:
        """How many findings the trajectory's row has, and how many of these are unsure."""
        known = self._known(trajectory)
        return (0, 0) if known is None else (known.findings, known.unsure)

    def values_of(self, trajectory: Trajectory) -> dict[str, float | None] | None:
        """The values of the answers to criteria in the trajectory's row; None where it has none."""
        row = self._ledger.find(trajectory.id)
        return None if row is None else self._ledger.values(row)

    def first_reasons(self, ids: Container[str]) -> tuple[str | None, str | None]:
        """Of the rows of these ids, as they stand in the output: the reason of the first `judge_error`, and status and reason of the
        first without a score."""
        self.tidy()
        failure = None
        for _, row in self._output.rows():
            if row["status"] != "scored" and row["id"] in ids:
                failure = failure or failure_text(row["status"], row.get("reason"), share_of(row))
                if row["status"] == FAILED:
                    return row.get("reason"), failure
        return None, failure

    def _known(self, trajectory: Trajectory) -> RowHashes | None:
        row = self._ledger.find(trajectory.id)
        return None if row is None else self._ledger.known(row)

    def append(self, feedback: Feedback, trajectory: Trajectory) -> None:
        """Append a row, which a kill does not undo."""
        row = self.spending.paid(to_row(feedback, trajectory), feedback.usage, feedback.status in AGAIN)
        self._output.append([row])
        self._appended.append(key_of(trajectory.id))

    def tidy(self) -> None:
        """Drop rows that others took the place of."""
        self._tidied |= self.spending.tidy(self._output)

    def tell_strays(self, inputs: np.ndarray) -> None:
        """Warn of rows whose transcripts are not among the inputs any more.

        Args:
            inputs: (N,) hashes of the inputs' ids (`rrm.scoring.ledger.keys_of`).
        """
        strays = ~np.isin(self._ledger.keys(), inputs)
        if not strays.any():
            return
        gone = set(self._ledger.keys()[strays].tolist())
        named = itertools.islice((row["id"] for _, row in self._output.rows() if key_of(row["id"]) in gone), SHOWN)
        log.warning(
            "%s: %d rows are of transcripts that are no longer in the input; they stay, behind the others: %s%s",
            self._output.path,
            len(gone),
            ", ".join(map(printable, named)),
            ", …" if len(gone) > SHOWN else "",
        )

    def put_in_order(self, inputs: np.ndarray) -> None:
        """Let the rows stand as their inputs do, in whichever order they ended; those of other inputs stand last.

        Args:
            inputs: (N,) hashes of the inputs' ids (`rrm.scoring.ledger.keys_of`).
        """
        self.tidy()
        if self._tidied:
            rows = keys_of(row["id"] for _, row in self._output.rows())
        else:
            rows = np.concatenate([self._ledger.keys(), np.array(self._appended, dtype=np.uint64)])
        order = order_of(rows, inputs)
        if order is not None:
            self._output.reorder(order)


def enter(ledger: Ledger, row: dict[str, Any]) -> None:
    """Enter a row of an output.

    Raises:
        KeyError, TypeError, AttributeError, ValueError: not a row of a scoring run.
    """
    if row["status"] not in STATUSES:
        raise ValueError(f"its status is {row['status']!r}")
    for name in ("score", "raw_score", "coverage"):
        value = row.get(name)
        if value is not None and not (isinstance(value, int | float) and 0 <= value <= 1):
            raise ValueError(f"its {name} is {value!r}, and not in [0, 1]")
    outside, answers = row.get("out_of_domain", row.get("outside")), row.get("criteria")
    verdicts = [finding["verdict"] for finding in row.get("findings") or ()]
    ledger.add(
        row["id"],
        row["status"],
        row["source"]["digest"],
        share_of(row),
        outside if isinstance(outside, bool) else None,
        values_of(answers) if isinstance(answers, dict) else None,
        (len(verdicts), verdicts.count("unsure")),
    )


def share_of(row: Mapping[str, Any]) -> float | None:
    """A row's `coverage`."""
    share = row.get("coverage")
    return share if isinstance(share, int | float) and not isinstance(share, bool) else None


def failure_text(status: str, reason: Any, coverage: float | None) -> str:
    """What is told of a row without a score: its status and reason, and how much was read where that is little and may be why."""
    if coverage is None or not 0 < coverage < LOW:
        return f"{status}: {reason}"
    return f"{status}: {reason} ({percent(coverage)} of the transcript was read)"


def values_of(answers: Mapping[str, Any]) -> dict[str, float | None]:
    """The values in a row's `criteria`."""
    given = {name: answer.get("value") for name, answer in answers.items() if isinstance(answer, dict)}
    return {name: v if isinstance(v, int | float) and not isinstance(v, bool) else None for name, v in given.items()}


def to_row(feedback: Feedback, trajectory: Trajectory) -> dict[str, Any]:
    """An output row: the feedback, and where its transcript came from."""
    source = trajectory.source.model_dump(exclude={"outcome_field"}) if trajectory.source else {}
    return {**feedback.model_dump(), "source": {**source, "digest": trajectory.digest}}
