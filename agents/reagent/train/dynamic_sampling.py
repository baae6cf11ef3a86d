"""Dynamic sampling (DAPO, 2503.14476 §3.2): an update is filled with groups that have something to compare.

    sampling = Dynamic(feedback, tasks_per_update, group_size, further, per_turn, accelerator)
    found, drawn = sampling.round(update, tasks, start, play)

A group whose episodes all earned the same has advantages of 0: its tasks were too hard or too easy, and the update is made of the rest.
Where these are few, more batches of tasks are drawn, at most `further` of them, until there are enough groups that
differ; only those are learned (texts that a judge wrote, of `feedback.aux`, are learned of every group that was played). Sampled rewards
alone decide, a judge's where a judge pays. Which groups those are does not hang on how many processes share the sampling.
"""

from __future__ import annotations

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
    """What an update's sampling took, on all processes."""

    tasks: int
    """Drawn; the next update's begin after them."""
    groups: int
    """Of several known rows."""
    differing: int
    """Of these, before any was left out as one too many."""

    def figures(self) -> dict[str, float]:
        """For the log."""
        return {
            "sampling/tasks": float(self.tasks),
            "sampling/groups": float(self.groups),
            "sampling/differing": float(self.differing),
        }


@dataclass(frozen=True)
class DynamicSampler:
    """Fills updates.

    Args:
        count, size: groups of an update over all processes, and first attempts of each.
        further: batches of `count` tasks that may be drawn after the first.
        per_turn: whether groups are compared turn by turn (`loss.credit: turn`), so that turns that earned otherwise are a difference.
    """

    feedback: FeedbackMode
    count: int
    size: int
    further: int
    per_turn: bool
    accelerator: Accelerator

    def round(self, update: int, tasks: Sequence[Task], start: int, play: Play) -> tuple[Round, SamplingStats]:
        """An update's round, of tasks from number `start` on. All processes call this together.

        Rows are those of groups that differ, at most as many as an update has; where none does, of the first draw's, so that a step is
        still counted. Every episode that was played is in `played`.
        """
        ranks, rank = self.accelerator.num_processes, self.accelerator.process_index
        share = self.count // ranks * self.size
        # planned at once: a task that comes again has another name, and other random numbers
        planned = self.feedback.attempts(tasks, start, self.count * (1 + self.further), self.size)
        order = {name: i for i, name in enumerate(dict.fromkeys(attempt.group_id for attempt in planned))}
        whole: Round | None = None
        mine: list[str] = []
        groups = drawn = 0
        while True:
            first = drawn * self.count * self.size + rank * share
            found = self.feedback.round(update, planned[first : first + share], play)
            several, differ = compared(found.rows, per_turn=self.per_turn)
            groups, mine, drawn = groups + several, [*mine, *differ], drawn + 1
            whole = found if whole is None else joined(whole, found)
            everyones = sorted((name for names in gather_object([mine]) for name in names), key=order.__getitem__)
            if drawn > self.further or len(everyones) >= self.count:
                break
        # the first in the order of the plan, which is the same on any number of processes
        chosen = set(everyones[: self.count]) or set(list(order)[: self.count])
        whole.rows = [row for row in whole.rows if row.group_id in chosen] or [zero_reward_row(whole.rows[0])]
        return whole, SamplingStats(drawn * self.count, sum(gather_object([groups])), len(everyones))


def zero_reward_row(row: Episode) -> Episode:
    """A row that nothing is learned from: a process whose groups are all left out still takes part in the others' steps."""
    return replace(row, outcome_reward=None, ungraded=True)


def compared(rows: Sequence[Episode], *, per_turn: bool) -> tuple[int, list[str]]:
    """(groups of several rows whose reward is known, the names of those in which an advantage is not 0, in order)."""
    groups: dict[str, list[Episode]] = {}
    for row in rows:
        if row.reward is not None and row.turns:
            groups.setdefault(row.group_id, []).append(row)
    several = {name: found for name, found in groups.items() if len(found) > 1}
    return len(several), [name for name, found in several.items() if _differ(found, per_turn)]


def _differ(group: Sequence[Episode], per_turn: bool) -> bool:
    """Whether one of a group's rows is better or worse than what it is compared with, as the algorithms have it."""
    batch = make_batch(group)
    if per_turn:
        returns, present = turn_returns(batch.token_rewards, batch.action_mask, batch.turn_index)
    else:
        returns, present = episode_returns(batch.token_rewards, batch.action_mask)
    return bool(leave_one_out(returns, present, comparable(batch.group, batch.attempt, batch.stage)).any())


def joined(one: Round, other: Round) -> Round:
    """Two draws of one update."""
    return Round(
        played=[*one.played, *other.played],
        rows=[*one.rows, *other.rows],
        texts=[*one.texts, *other.texts],
        report=one.report.merge(other.report),
    )
