"""Dynamic sampling (DAPO, 2503.14476 §3.2): fill an update with groups whose rewards differ.

Up to `further` more batches of tasks are drawn until enough groups differ; only those are learned (texts of `feedback.aux`
of every group). Which groups these are does not depend on the number of processes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from accelerate import Accelerator
from accelerate.utils import gather_object

from reagent.algorithms.groups import comparable, episode_returns, leave_one_out, turn_returns
from reagent.env.task import Task
from reagent.feedback.base import FeedbackMode, Play, Round
from reagent.rollout.batch import make_batch
from reagent.rollout.episode import Episode


@dataclass(frozen=True)
class SamplingStats:
    tasks: int
    groups: int
    differing: int
    """Groups whose rewards differ, surplus ones included; `groups` counts those with several known rows."""

    def figures(self) -> dict[str, float]:
        return {f"sampling/{name}": float(value) for name, value in vars(self).items()}


@dataclass(frozen=True)
class DynamicSampler:
    """Fills an update with `count` groups of `size`, from up to `further` more batches of tasks."""

    feedback: FeedbackMode
    count: int
    size: int
    further: int
    per_turn: bool
    accelerator: Accelerator

    def round(self, update: int, tasks: Sequence[Task], start: int, play: Play) -> tuple[Round, SamplingStats]:
        """An update's round, of tasks from number `start` on; all processes call this together.

        Without differing groups, rows are the first draw's, so that a step is still counted."""
        ranks, rank = self.accelerator.num_processes, self.accelerator.process_index
        share = self.count // ranks * self.size
        # planned at once: a task that comes again has another name, and other random numbers
        planned = self.feedback.attempts(tasks, start, self.count * (1 + self.further), self.size)
        order = {name: i for i, name in enumerate(dict.fromkeys(attempt.group_id for attempt in planned))}
        total: Round | None = None
        mine: list[str] = []
        groups = drawn = 0
        while True:
            first = drawn * self.count * self.size + rank * share
            round_ = self.feedback.round(update, planned[first : first + share], play)
            several, differ = compared(round_.rows, per_turn=self.per_turn)
            groups, mine, drawn = groups + several, [*mine, *differ], drawn + 1
            total = round_ if total is None else joined(total, round_)
            everyones = sorted((name for names in gather_object([mine]) for name in names), key=order.__getitem__)
            if drawn > self.further or len(everyones) >= self.count:
                break
        # the first in the order of the plan, which is the same on any number of processes
        chosen = set(everyones[: self.count]) or set(list(order)[: self.count])
        total.rows = [row for row in total.rows if row.group_id in chosen] or [zero_reward_row(total.rows[0])]
        return total, SamplingStats(drawn * self.count, sum(gather_object([groups])), len(everyones))


def zero_reward_row(row: Episode) -> Episode:
    """A row that teaches nothing, for a process without rows."""
    return replace(row, outcome_reward=None, ungraded=True)


def compared(rows: Sequence[Episode], *, per_turn: bool) -> tuple[int, list[str]]:
    """(groups of several known rows, names of those in which an advantage is not 0)."""
    groups: dict[str, list[Episode]] = {}
    for row in rows:
        if row.reward is not None and row.turns:
            groups.setdefault(row.group_id, []).append(row)
    several = {name: group for name, group in groups.items() if len(group) > 1}
    return len(several), [name for name, group in several.items() if _differ(group, per_turn)]


def _differ(group: Sequence[Episode], per_turn: bool) -> bool:
    batch = make_batch(group)
    if per_turn:
        returns, present = turn_returns(batch.token_rewards, batch.action_mask, batch.turn_index)
    else:
        returns, present = episode_returns(batch.token_rewards, batch.action_mask)
    return bool(leave_one_out(returns, present, comparable(batch.group, batch.attempt, batch.stage)).any())


def joined(first: Round, second: Round) -> Round:
    return Round(
        played=[*first.played, *second.played],
        rows=[*first.rows, *second.rows],
        texts=[*first.texts, *second.texts],
        report=first.report.merge(second.report),
    )
