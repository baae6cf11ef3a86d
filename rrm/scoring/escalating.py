"""Escalation without a file: a judge whose rows are judged again, as they come, where it is not sure of them.

For `rrm serve`, `rrm guard` and `feedback.escalate`. Which rows, in which order, and whose row is taken is as in a cascade
(`rrm.scoring.cascade`), of what is judged at once; there is no control sample. A row's `judge` says whose it is, its `usage` is of both.
The limit of money is of the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from rrm.data.feedback import Feedback, Mode
from rrm.data.trajectory import Trajectory
from rrm.engines.cost import CostTracker
from rrm.errors import SpendingLimit
from rrm.judge.agent_rrm import AgentRRM
from rrm.scoring.cascade import Escalation, failure_of, is_sure, merged_row, sureness

log = logging.getLogger(__name__)


class EscalatingJudge(AgentRRM):
    """The small judge in all but `judge`; made by `escalating`."""

    stronger: AgentRRM
    escalation: Escalation
    """Counts, of all that was judged."""

    def judge(
        self,
        trajectories: Sequence[Trajectory],
        *,
        mode: Mode = "full",
        samples: int = 1,
        seed: int = 0,
        on_feedback: Callable[[Feedback], None] | None = None,
        **how: Any,
    ) -> list[Feedback]:
        """As `AgentRRM.judge`; rows are handed over once all are final."""
        slots = mode == "score" and self.abilities.reads_slots(
            mode
        )  # only in `steps` its rows show what it is unsure of
        rows = super().judge(trajectories, mode="steps" if slots else mode, samples=samples, seed=seed, **how)
        rows = self.again(rows, trajectories, mode=mode, samples=samples, seed=seed)
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
        """The small judge's rows, with the stronger one's in the place of those that are not sure.

        Args:
            latest: whether the last step alone matters: a row is sure where that step is, and kept where the stronger judge says nothing of it.
        """
        found, told = list(rows), self.escalation
        asked = [_of_last(row, len(t.steps)) if latest else row for row, t in zip(rows, trajectories, strict=True)]
        doubtful = [i for i, t in enumerate(trajectories) if t.steps and not is_sure(asked[i])]
        if not doubtful:
            return found
        doubtful.sort(key=lambda i: sureness(asked[i]))
        heard: dict[str, Feedback] = {}
        theirs: dict[int, Feedback] = {}
        how: dict[str, Any] = {"mode": self._mode_of_stronger(mode), "samples": samples, "seed": seed}
        try:
            said = self.stronger.judge(
                [trajectories[i] for i in doubtful], on_feedback=lambda row: heard.update({row.id: row}), **how
            )
            theirs = dict(zip(doubtful, said, strict=True))
        except SpendingLimit as limit:
            if not told.left:
                log.warning("what the judge is unsure of stays its own from here on: %s", limit)
            theirs = {i: heard[trajectories[i].id] for i in doubtful if trajectories[i].id in heard}
        told.unsure += len(doubtful)
        told.left += len(doubtful) - len(theirs)
        for i, row in theirs.items():
            if failure := failure_of(rows[i], row):
                told.failed[failure[0]] = told.failed.get(failure[0], 0) + 1
                told.first_failure = told.first_failure or ": ".join(map(str, failure))
            else:
                told.escalated += 1
            last = len(trajectories[i].steps)
            silent = latest and bool(rows[i].findings) and not any(f.step == last and f.decided for f in row.findings)
            merged = Feedback.model_validate(merged_row(rows[i].model_dump(), row.model_dump()))
            found[i] = rows[i].model_copy(update={"usage": merged.usage}) if silent else merged
        return found

    def _mode_of_stronger(self, mode: Mode) -> Mode:
        return mode if mode != "steps" else self.stronger.settings.default_mode or "full"

    def describe(self) -> dict[str, Any]:
        """What decides the scores: also who judges what the small judge is unsure of."""
        return {**super().describe(), "escalate": self.escalation.model.rpartition("#")[2]}

    def streams(self, mode: Mode) -> bool:
        """It does not."""
        del mode
        return False

    @property
    def purse(self) -> CostTracker | None:
        """Of the stronger judge."""
        return self.stronger.purse


def escalating(small: AgentRRM, stronger: AgentRRM) -> EscalatingJudge:
    """The small judge, loaded here or behind `rrm serve`, with a stronger one for what it is unsure of."""
    kind: Any = type("EscalatingJudge", (EscalatingJudge, type(small)), {})
    judge = kind.__new__(kind)
    vars(judge).update(vars(small), stronger=stronger, escalation=Escalation(str(stronger.describe()["model"])))
    return judge


def _of_last(row: Feedback, step: int) -> Feedback:
    return row.model_copy(update={"findings": [f for f in row.findings if f.step == step]})


def _score_alone(row: Feedback) -> Feedback:
    judge = row.judge.model_copy(update={"mode": "score", "threshold": None, "unsure_band": None})
    return row.model_copy(update={"findings": [], "judge": judge})
