"""Mode `shuffled`, the control of `none`: rewards are dealt anew among the attempts at a task.

Groups, their rewards and the size of every advantage are those of `none`, but each row's expected reward is its group's
mean: what a policy becomes by it is drift."""

import random
from collections.abc import Sequence
from dataclasses import replace

from reagent.feedback.base import Play, Round
from reagent.feedback.modes import NoFeedback
from reagent.rollout.episode import Episode
from reagent.rollout.rollout import Attempt
from rrm.data.seeds import derive_seed


class ShuffledRewards(NoFeedback):
    def round(self, update: int, attempts: Sequence[Attempt], play: Play) -> Round:
        episodes = play(attempts)
        return Round(episodes, shuffled(episodes, derive_seed(self.seed, "shuffled", update)))


def shuffled(episodes: Sequence[Episode], seed: int) -> list[Episode]:
    """Copies whose rewards are their group's, permuted; turn rewards go into the outcome."""
    groups: dict[str, list[int]] = {}
    for i, episode in enumerate(episodes):
        if episode.reward is not None and episode.turns:
            groups.setdefault(episode.group_id, []).append(i)
    rows = list(episodes)
    for name, places in groups.items():
        dealt = [episodes[i].reward for i in places]
        random.Random(derive_seed(seed, name)).shuffle(dealt)
        for i, reward in zip(places, dealt, strict=True):
            turns = [replace(turn, reward=0.0) for turn in episodes[i].turns]
            rows[i] = replace(episodes[i], turns=turns, outcome_reward=reward)
    return rows
