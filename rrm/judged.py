"""The rows that a scoring run's output holds: which transcripts they are of, what they cost, and an append to them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from rrm.errors import RRMError
from rrm.feedback import Feedback, Status
from rrm.output import WAY_OUT, Output
from rrm.spending import Spending
from rrm.trajectory import Trajectory

log = logging.getLogger(__name__)
FAILED: Status = "judge_error"
"""Of rows that may be judged again."""


class Judged:
    """The rows an output holds, by id, and an append to them.

    A row with status `judge_error` that is judged again stays until `tidy`: what was spent on it is known whenever a run ends.
    """

    def __init__(self, output: Output, retry_errors: bool, spending: Spending) -> None:
        """Read the rows that stand; `retry_errors` takes those with status `judge_error` for not judged.

        Raises:
            RRMError: a line that is no row of a scoring run, or a second one of an id whose first did not fail.
        """
        self.spending = spending
        self._output, self._done = output, dict[str, tuple[str, str]]()
        """id → (status, digest)."""
        self._coverage, self._outside = dict[str, float](), dict[str, bool]()
        self._values = dict[str, dict[str, float | None]]()
        for number, row in output.rows():
            try:
                key, value = row["id"], (row["status"], row["source"]["digest"])
            except (KeyError, TypeError) as error:
                raise RRMError(f"{output.path}:{number}: not a row of `rrm score`; {WAY_OUT}") from error
            share = row.get("coverage")
            if isinstance(share, int | float) and not isinstance(share, bool):
                self._coverage[key] = share
            if isinstance(row.get("outside"), bool):
                self._outside[key] = row["outside"]
            if isinstance(answers := row.get("criteria"), dict):
                self._values[key] = values_of(answers)
            if key in self._done and self._done[key][0] != FAILED:
                raise RRMError(f"{output.path}:{number}: a second row of {key!r}; {WAY_OUT}")
            self._done[key] = value
            try:
                spending.met(row, value[0] == FAILED)
            except ValueError as error:
                raise RRMError(f"{output.path}:{number}: {error}; {WAY_OUT}") from error
        self.tidy()
        failed = {key for key, (status, _) in self._done.items() if status == FAILED}
        if retry_errors and failed:
            self._done = {key: value for key, value in self._done.items() if key not in failed}
            log.warning("%s: %d transcripts that ended in judge_error are judged again", output.path, len(failed))

    def status_of(self, trajectory: Trajectory) -> str | None:
        """The status of a trajectory's row, None where it has none yet.

        Raises:
            RRMError: the row is of other content.
        """
        if trajectory.id not in self._done:
            return None
        status, known = self._done[trajectory.id]
        if known != trajectory.digest:
            raise RRMError(
                f"{self._output.path} holds a judgement of {trajectory.id!r}, but that transcript has changed since; "
                f"{WAY_OUT}"
            )
        return status

    def coverage_of(self, trajectory: Trajectory) -> float | None:
        """What the trajectory's row says was read; None where it does not."""
        return self._coverage.get(trajectory.id)

    def outside_of(self, trajectory: Trajectory) -> bool | None:
        """Whether the trajectory's row says that it is outside what the judge was measured on; None where it does not say."""
        return self._outside.get(trajectory.id)

    def values_of(self, trajectory: Trajectory) -> dict[str, float | None] | None:
        """The values of the answers to criteria in the trajectory's row; None where it has none."""
        return self._values.get(trajectory.id)

    def append(self, feedback: Feedback, trajectory: Trajectory) -> None:
        """Append a row, which a kill does not undo."""
        row = self.spending.paid(to_row(feedback, trajectory), feedback.usage, feedback.status == FAILED)
        self._output.append([row])

    def tidy(self) -> None:
        """Drop rows that others took the place of."""
        left = self.spending.stale
        if not left:
            return

        def counts(row: dict[str, Any]) -> bool:
            if left[row["id"]] > 0:
                left[row["id"]] -= 1
                return False
            return True

        self._output.keep(counts)
        self.spending.stale = Counter()


def values_of(answers: Mapping[str, Any]) -> dict[str, float | None]:
    """The values in a row's `criteria`."""
    given = {name: answer.get("value") for name, answer in answers.items() if isinstance(answer, dict)}
    return {name: v if isinstance(v, int | float) and not isinstance(v, bool) else None for name, v in given.items()}


def to_row(feedback: Feedback, trajectory: Trajectory) -> dict[str, Any]:
    """An output row: the feedback, and where its transcript came from."""
    source = trajectory.source.model_dump(exclude={"outcome_field"}) if trajectory.source else {}
    return {**feedback.model_dump(), "source": {**source, "digest": trajectory.digest}}


def is_failed(row: Mapping[str, Any]) -> bool:
    """Whether a row may be judged again."""
    return row.get("status") == FAILED
