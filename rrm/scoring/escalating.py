"""Escalation in memory, for `rrm serve`, `rrm guard` and `feedback.escalate`.

A stronger judge judges again, at once, what a small one is unsure of; rules as in `rrm.scoring.cascade`, without control
sample. A row's `judge` names who judged, its `usage` is of both; the limit of money is of the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rrm.data.feedback import Feedback, Mode
from rrm.data.trajectory import Trajectory
from rrm.engines.cost import CostTracker
from rrm.errors import SpendingLimit
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.inputs import as_trajectories
from rrm.scoring.cascade import Escalation, failure_of, is_sure, merged_row, sureness

log = logging.getLogger(__name__)


class EscalatingJudge(AgentRRM):
    """The small judge, whose `judge` asks the stronger one too; made by `escalating`."""

    stronger: AgentRRM
    escalation: Escalation  # counts over all calls

    def judge(
        self,
        trajectories: Sequence[Trajectory | Sequence[Any] | Mapping[str, Any]],
        *,
        mode: Mode | None = None,
        samples: int = 1,
        seed: int = 0,
        on_feedback: Callable[[Feedback], None] | None = None,
        **how: Any,
    ) -> list[Feedback]:
        """Judge as `AgentRRM.judge`; `on_feedback` is called once all rows are final."""
        runs, mode = as_trajectories(trajectories), mode or self.settings.default_mode or "full"
        slots = mode == "score" and self.abilities.reads_slots(
            mode
        )  # only in `steps` its rows show what it is unsure of
        rows = super().judge(runs, mode="steps" if slots else mode, samples=samples, seed=seed, **how)
        rows = self.again(rows, runs, mode=mode, samples=samples, seed=seed)
        if slots:
            rows = [_score_alone(row) if row.judge.mode == "steps" else row for row in rows]
        if on_feedback is not None:
            for row in rows:
                on_feedback(row)
        return rows

    def again(
        self,
        rows: Sequence[Feedback],
        trajectories: Sequence[Trajectory],
        *,
        mode: Mode,
        samples: int = 1,
        seed: int = 0,
        latest: bool = False,
    ) -> list[Feedback]:
        """Replace the small judge's rows that are not sure by the stronger one's.

        Args:
            latest: findings on the last step alone decide; a row stays where the stronger judge has none there.
        """
        results, counts = list(rows), self.escalation
        deciding = [_of_last(row, len(t.steps)) if latest else row for row, t in zip(rows, trajectories, strict=True)]
        doubtful = [i for i, t in enumerate(trajectories) if t.steps and not is_sure(deciding[i])]
        if not doubtful:
            return results
        doubtful.sort(key=lambda i: sureness(deciding[i]))
        heard: dict[str, Feedback] = {}
        theirs: dict[int, Feedback] = {}
        how: dict[str, Any] = {"mode": self._mode_of_stronger(mode), "samples": samples, "seed": seed}
        try:
            replies = self.stronger.judge(
                [trajectories[i] for i in doubtful], on_feedback=lambda row: heard.update({row.id: row}), **how
            )
            theirs = dict(zip(doubtful, replies, strict=True))
        except SpendingLimit as limit:
            if not counts.left:
                log.warning("what the judge is unsure of stays its own from here on: %s", limit)
            theirs = {i: heard[trajectories[i].id] for i in doubtful if trajectories[i].id in heard}
        counts.unsure += len(doubtful)
        counts.left += len(doubtful) - len(theirs)
        for i, row in theirs.items():
            if failure := failure_of(rows[i], row):
                counts.failed[failure[0]] = counts.failed.get(failure[0], 0) + 1
                counts.first_failure = counts.first_failure or ": ".join(map(str, failure))
            else:
                counts.escalated += 1
            last = len(trajectories[i].steps)
            silent = latest and bool(rows[i].findings) and not any(f.step == last and f.decided for f in row.findings)
            merged = Feedback.model_validate(merged_row(rows[i].model_dump(), row.model_dump()))
            results[i] = rows[i].model_copy(update={"usage": merged.usage}) if silent else merged
        return results

    def _mode_of_stronger(self, mode: Mode) -> Mode:
        return mode if mode != "steps" else self.stronger.settings.default_mode or "full"

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "escalate": self.escalation.model.rpartition("#")[2]}

    def streams(self, mode: Mode) -> bool:
        del mode
        return False

    @property
    def purse(self) -> CostTracker | None:
        return self.stronger.purse


def escalating(small: AgentRRM, stronger: AgentRRM) -> EscalatingJudge:
    """Combine a small judge, loaded here or behind `rrm serve`, with a stronger one."""
    cls: Any = type("EscalatingJudge", (EscalatingJudge, type(small)), {})
    judge = cls.__new__(cls)
    vars(judge).update(vars(small), stronger=stronger, escalation=Escalation(str(stronger.describe()["model"])))
    return judge


def _of_last(row: Feedback, step: int) -> Feedback:
    return row.model_copy(update={"findings": [f for f in row.findings if f.step == step], "verdict": None})


def _score_alone(row: Feedback) -> Feedback:
    judge = row.judge.model_copy(update={"mode": "score", "threshold": None, "unsure_band": None})
    return row.model_copy(update={"findings": [], "judge": judge})
