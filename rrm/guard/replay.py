"""Replay a guard on finished runs, to choose thresholds on logs whose outcomes are known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.guard.guard import Guard, GuardVerdict
from rrm.guard.policy import Action


@dataclass(frozen=True)
class Replayed:
    id: str
    outcome: float | None
    steps: int
    verdicts: list[GuardVerdict]
    # the step after which it was halted; None: it ran to its end, or was halted there, where nothing is saved
    halted: int | None
    asked: bool


def replay(guard: Guard, trajectory: Trajectory) -> Replayed:
    """Watch a finished run step by step until the guard halts it."""
    steps = trajectory.steps
    starts = [0, *(step.message_index for step in steps[1:]), len(trajectory.messages)]
    verdicts: list[GuardVerdict] = []
    halted: int | None = None
    with guard.session(task=trajectory.task, run=trajectory.id, tools=trajectory.tools) as session:
        for step, start, end in zip(steps, starts, starts[1:], strict=False):
            for message in trajectory.messages[start:end]:
                session.observe(message, check=False)
            verdicts.append(session.check())
            if verdicts[-1].action == "halt":
                halted = step.index if step.index < len(steps) else None
                break
    actions: list[Action] = [verdict.action for verdict in verdicts]
    return Replayed(trajectory.id, trajectory.outcome, len(steps), verdicts, halted, "ask" in actions)


def summed(runs: Iterable[Replayed]) -> dict[str, Any]:
    """Counts over runs, also of `good` (outcome ≥ 0.5) and `failing` ones, with the share of steps saved."""
    runs = list(runs)
    counts: dict[str, Any] = {
        "runs": len(runs),
        "halted": sum(run.halted is not None for run in runs),
        "asked": sum(run.asked for run in runs),
        "checks": sum(v.checked for run in runs for v in run.verdicts),
        "failed_checks": sum(v.checked and v.status != "scored" for run in runs for v in run.verdicts),
        "unsure_checks": sum(v.unsure for run in runs for v in run.verdicts),
        "judge_tokens": sum(v.tokens for run in runs for v in run.verdicts),
        "judge_seconds": round(sum(v.seconds for run in runs for v in run.verdicts), 2),
    }
    graded = [(run, run.outcome) for run in runs if run.outcome is not None]
    for name, those in (
        ("good", [run for run, outcome in graded if outcome >= 0.5]),
        ("failing", [run for run, outcome in graded if outcome < 0.5]),
    ):
        if those:
            saved = sum(run.steps - run.halted for run in those if run.halted is not None)
            counts[name] = {
                "runs": len(those),
                "halted": sum(run.halted is not None for run in those),
                "steps_saved": round(saved / max(sum(run.steps for run in those), 1), 4),
            }
    return counts
