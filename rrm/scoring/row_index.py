"""Index of the rows that a scoring run's output holds, and the append to it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from rrm.data.feedback import Feedback, Status
from rrm.data.output import WAY_OUT, RowFile
from rrm.data.printing import printable
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError
from rrm.scoring.coverage import LOW, percent
from rrm.scoring.usage_totals import Spending

log = logging.getLogger(__name__)
STATUSES = {status: status for status in get_args(Status)}  # one string for all equal statuses
SHOWN = 20  # ids that a warning names
FAILED: Status = "judge_error"
# statuses that another try, or more room for the reply, may turn into a score
AGAIN: frozenset[str] = frozenset((FAILED, "unparsable", "truncated"))


class RowFacts(NamedTuple):
    """Facts of a row that are held in memory."""

    status: str
    digest: int
    coverage: float | None
    out_of_domain: bool | None
    findings: int
    unsure: int  # of the findings
    values: dict[str, float | None] | None  # criterion → value


def facts_of(row: Mapping[str, Any]) -> RowFacts:
    """Extract the facts of a row; raises KeyError, TypeError, AttributeError or ValueError for no row."""
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
    """Rows of an output by id. A row judged again stays until `tidy`, so that its usage is never lost."""

    def __init__(self, output: RowFile, again: Collection[str], spending: Spending) -> None:
        """Read the rows, those in `again` as not judged; raises `RRMError` for bad or second rows."""
        self.spending, self._output, self._again = spending, output, again
        self._rows: dict[str, RowFacts] = {}
        try:
            spending.read_unrowed(output)
        except ValueError as error:
            raise RRMError(f"{output.path}.run.json: its usage cannot be read; {WAY_OUT}") from error
        for number, (row, facts) in output.rows(lambda row: (row, facts_of(row)), "a row of `rrm score`"):
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
            counts = ", ".join(f"{n} {status}" for status, n in sorted(failed.items()))
            log.warning("%s: transcripts without a score are judged again (%s)", output.path, counts)

    def find(self, trajectory: Trajectory) -> RowFacts | None:
        """Return the facts of a trajectory's row, None: to be judged; raises `RRMError` for changed content."""
        facts = self._rows.get(trajectory.id)
        if facts is None or facts.status in self._again:
            return None
        if facts.digest != int(trajectory.digest, 16):
            raise RRMError(
                f"{self._output.path} holds a judgement of {trajectory.id!r}, but that transcript has changed since; {WAY_OUT}"
            )
        return facts

    def first_reasons(self, ids: Collection[str]) -> tuple[str | None, str | None]:
        """Return, of these ids' rows, the first `judge_error`'s reason and the first failure's text."""
        self.tidy()
        failure = None
        for _, row in self._output.rows():
            if row["status"] != "scored" and row["id"] in ids:
                failure = failure or failure_text(row["status"], row.get("reason"), _number(row.get("coverage")))
                if row["status"] == FAILED:
                    return row.get("reason"), failure
        return None, failure

    def append(self, feedback: Feedback, trajectory: Trajectory) -> RowFacts:
        row = self.spending.paid(to_row(feedback, trajectory), feedback.usage, feedback.status in AGAIN)
        self._output.append([row])
        return facts_of(row)

    def tidy(self) -> None:
        """Drop rows that later ones replaced."""
        self.spending.tidy(self._output)

    def tell_strays(self, inputs: Collection[str]) -> None:
        """Warn of rows of transcripts that are no longer among the inputs."""
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
        """Sort the output as the inputs; rows of other inputs come last."""
        self.tidy()
        order = order_of([row["id"] for _, row in self._output.rows()], inputs)
        if order is not None:
            self._output.reorder(order)


def order_of(rows: Sequence[str], inputs: Iterable[str]) -> list[int] | None:
    """Return the order that sorts rows as the inputs, others last; None: they are sorted."""
    positions = {id: i for i, id in enumerate(inputs)}
    order = sorted(range(len(rows)), key=lambda number: positions.get(rows[number], len(positions)))
    return None if order == list(range(len(rows))) else order


def failure_text(status: str, reason: Any, coverage: float | None) -> str:
    """Format status, reason, and the coverage where it is low and may be why."""
    if coverage is None or not 0 < coverage < LOW:
        return f"{status}: {reason}"
    return f"{status}: {reason} ({percent(coverage)} of the transcript was read)"


def to_row(feedback: Feedback, trajectory: Trajectory) -> dict[str, Any]:
    """Make an output row: the feedback, and the source and digest of its transcript."""
    source = trajectory.source.model_dump(exclude={"outcome_field"}) if trajectory.source else {}
    return {**feedback.model_dump(), "source": {**source, "digest": trajectory.digest}}
