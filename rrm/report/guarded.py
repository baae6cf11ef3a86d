"""A guard's verdicts on a run for the page, from the audit (`rrm.guard.audit`), by the run's id.

A run that was watched several times shows its latest session, and of a step judged several times the last row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.guard.audit import AuditRow
from rrm.report.timeline import NEVER, moment


class AuditRows:
    def __init__(self, rows: Iterable[AuditRow]) -> None:
        self._runs: dict[str, list[AuditRow]] = {}
        for row in rows:
            rows_of_run = self._runs.setdefault(row.run, [])
            if rows_of_run and rows_of_run[-1].began < row.began:
                rows_of_run.clear()
            if not rows_of_run or rows_of_run[-1].began == row.began:
                rows_of_run.append(row)
        self._shown: set[str] = set()

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def runs(self) -> list[str]:
        return list(self._runs)

    @property
    def unmatched(self) -> int:
        """Runs that no transcript asked for so far."""
        return len(self._runs.keys() - self._shown)

    def of(self, trajectory: Trajectory) -> list[AuditRow]:
        """Return the transcript's rows; none where no guard watched it."""
        name = next((id for id in (trajectory.id, trajectory.own_id) if id in self._runs), None)
        if name is None:
            return []
        self._shown.add(name)
        return self._runs[name]


def watched(rows: Iterable[AuditRow]) -> dict[str, Any] | None:
    """Return the page's data of a guard: `said`, `spans`, and `resumed`; None without rows.
    `said` has a list a step (step, verdict, status, score, p_good, reason, calls as `[name, arguments]`, tokens, seconds), `spans` rows
    of a timeline in seconds since the session began, `resumed` the steps after which a person let the run go on."""
    rows = list(rows)
    if not rows:
        return None
    last = {row.step: row for row in rows if not row.resumed}
    began = moment(rows[0].began)
    spans: list[list[Any]] = []
    for step, row in sorted(last.items()):
        written = moment(row.at)
        end = None if written is None or began is None or written < began else written - began
        took = row.seconds if 0 <= row.seconds < NEVER else 0.0
        tools = [
            [step, "tool", call.name, round(call.seconds, 3), _before(end, took + call.seconds)]
            for call in row.calls
            if call.seconds is not None and call.seconds < NEVER
        ]
        spans += [*tools, *([[step, "judge", None, round(took, 3), _before(end, took)]] if took else [])]
    verdicts = [
        [
            row.step, row.verdict, row.status, row.score, row.p_good, row.reason or "",
            [[call.name, call.arguments] for call in row.calls], row.tokens, row.seconds,
        ]
        for _, row in sorted(last.items())
    ]  # fmt: skip
    behind = sorted({step_before(rows, n) for n, row in enumerate(rows) if row.resumed})
    return {"said": verdicts, "spans": spans, "resumed": behind}


def step_before(rows: list[AuditRow], n: int) -> int:
    """Return the latest step on record when the n-th row was written."""
    return next((row.step for row in reversed(rows[:n]) if not row.resumed), 0)


def _before(end: float | None, seconds: float) -> float | None:
    return None if end is None else round(max(end - seconds, 0.0), 3)
