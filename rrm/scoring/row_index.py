"""The rows that a scoring run's output holds: which transcripts they are of, what they cost, and an append to them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from rrm.data.feedback import Feedback, Status
from rrm.data.output import WAY_OUT, Output
from rrm.data.printing import printable
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError
from rrm.scoring.coverage import LOW, percent
from rrm.scoring.usage_totals import Spending

log = logging.getLogger(__name__)
STATUSES = {status: status for status in get_args(Status)}
"""One text each, whatever number of rows has it."""
SHOWN = 20
"""Of the ids that are no longer in the input, this many are named."""
FAILED: Status = "judge_error"
AGAIN: frozenset[str] = frozenset((FAILED, "unparsable", "truncated"))
"""Of rows that may be judged again: another try, or more room for the reply, may bring a score."""


class RowFacts(NamedTuple):
    """What is held of one row."""

    status: str
    digest: int
    coverage: float | None
    out_of_domain: bool | None
    findings: int
    unsure: int
    """Of the findings."""
    values: dict[str, float | None] | None
    """Of the answers to criteria."""


def facts_of(row: Mapping[str, Any]) -> RowFacts:
    """What is held of a row of an output.

    Raises:
        KeyError, TypeError, AttributeError, ValueError: not a row of a scoring run.
    """
    if not isinstance(row["id"], str):
        raise TypeError("its id is no text")
    if row["status"] not in STATUSES:
        raise ValueError(f"its status is {row['status']!r}")
    for name in ("score", "raw_score", "coverage"):
        value = row.get(name)
        if value is not None and not (isinstance(value, int | float) and 0 <= value <= 1):
            raise ValueError(f"its {name} is {value!r}, and not in [0, 1]")
    outside, answers = row.get("out_of_domain", row.get("outside")), row.get("criteria")
    verdicts = [finding["verdict"] for finding in row.get("findings") or ()]
    return RowFacts(
        STATUSES[row["status"]],
        int(row["source"]["digest"], 16),
        _number(row.get("coverage")),
        outside if isinstance(outside, bool) else None,
        len(verdicts),
        verdicts.count("unsure"),
        {k: _number(a.get("value")) for k, a in answers.items() if isinstance(a, dict)}
        if isinstance(answers, dict)
        else None,
    )


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


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
        self._rows: dict[str, RowFacts] = {}
        try:
            spending.read_unrowed(output)
        except ValueError as error:
            raise RRMError(f"{output.path}.run.json: its usage cannot be read; {WAY_OUT}") from error
        for number, row in output.rows():
            try:
                facts = facts_of(row)
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                why = f" ({error})" if isinstance(error, ValueError) else ""
                raise RRMError(f"{output.path}:{number}: not a row of `rrm score`{why}; {WAY_OUT}") from error
            try:
                spending.met(row, row["status"] in AGAIN)
            except ValueError as error:
                raise RRMError(f"{output.path}:{number}: {error}; {WAY_OUT}") from error
            if (before := self._rows.get(row["id"])) is not None and before.status not in AGAIN:
                raise RRMError(f"{output.path}:{number}: a second row of {row['id']!r}; {WAY_OUT}")
            self._rows[row["id"]] = facts
        self.tidy()
        failed = Counter(facts.status for facts in self._rows.values() if facts.status in again)
        if failed:
            said = ", ".join(f"{n} {status}" for status, n in sorted(failed.items()))
            log.warning("%s: transcripts without a score are judged again (%s)", output.path, said)

    def find(self, trajectory: Trajectory) -> RowFacts | None:
        """What is held of a trajectory's row, None where it is to be judged.

        Raises:
            RRMError: the row is of other content.
        """
        known = self._rows.get(trajectory.id)
        if known is None or known.status in self._again:
            return None
        if known.digest != int(trajectory.digest, 16):
            raise RRMError(
                f"{self._output.path} holds a judgement of {trajectory.id!r}, but that transcript has changed since; {WAY_OUT}"
            )
        return known

    def first_reasons(self, ids: Collection[str]) -> tuple[str | None, str | None]:
        """Of the rows of these ids, as they stand in the output: the reason of the first `judge_error`, and status and reason of the
        first without a score."""
        self.tidy()
        failure = None
        for _, row in self._output.rows():
            if row["status"] != "scored" and row["id"] in ids:
                failure = failure or failure_text(row["status"], row.get("reason"), _number(row.get("coverage")))
                if row["status"] == FAILED:
                    return row.get("reason"), failure
        return None, failure

    def append(self, feedback: Feedback, trajectory: Trajectory) -> RowFacts:
        """Append a row, which a kill does not undo."""
        row = self.spending.paid(to_row(feedback, trajectory), feedback.usage, feedback.status in AGAIN)
        self._output.append([row])
        return facts_of(row)

    def tidy(self) -> None:
        """Drop rows that others took the place of."""
        self.spending.tidy(self._output)

    def tell_strays(self, inputs: Collection[str]) -> None:
        """Warn of rows whose transcripts are not among the inputs' ids any more."""
        gone = [id for id in self._rows if id not in inputs]
        if gone:
            log.warning(
                "%s: %d rows are of transcripts that are no longer in the input; they stay, behind the others: %s%s",
                self._output.path,
                len(gone),
                ", ".join(map(printable, gone[:SHOWN])),
                ", …" if len(gone) > SHOWN else "",
            )

    def put_in_order(self, inputs: Iterable[str]) -> None:
        """Let the rows stand as their inputs' ids do, in whichever order they ended; those of other inputs stand last."""
        self.tidy()
        order = order_of([row["id"] for _, row in self._output.rows()], inputs)
        if order is not None:
            self._output.reorder(order)


def order_of(rows: Sequence[str], inputs: Iterable[str]) -> list[int] | None:
    """The order in which rows stand as their inputs do, by id; rows of no input come last, as they stood. None where they stand so."""
    places = {id: place for place, id in enumerate(inputs)}
    order = sorted(range(len(rows)), key=lambda number: places.get(rows[number], len(places)))
    return None if order == list(range(len(rows))) else order


def failure_text(status: str, reason: Any, coverage: float | None) -> str:
    """What is told of a row without a score: its status and reason, and how much was read where that is little and may be why."""
    if coverage is None or not 0 < coverage < LOW:
        return f"{status}: {reason}"
    return f"{status}: {reason} ({percent(coverage)} of the transcript was read)"


def to_row(feedback: Feedback, trajectory: Trajectory) -> dict[str, Any]:
    """An output row: the feedback, and where its transcript came from."""
    source = trajectory.source.model_dump(exclude={"outcome_field"}) if trajectory.source else {}
    return {**feedback.model_dump(), "source": {**source, "digest": trajectory.digest}}
