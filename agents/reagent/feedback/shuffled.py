"""Mode `shuffled`, the control of `none`: what attempts at a task earned is dealt anew among them.

Groups, their rewards and the size of every advantage are those of `none` (with `loss.credit: turn` where no turn earns by itself), and
nothing says which attempt was better: each row's expected reward is its group's mean. What a policy becomes by it (shorter, another number
of searches, another answer rate) is drift, and a gain that is no larger teaches nothing.
"""

import random
from collections.abc import Sequence
from dataclasses import replace

from reagent.feedback.base import Play, Round
from reagent.feedback.modes import NoFeedback
from reagent.rollout.episode import Episode
from reagent.rollout.rollout import Attempt
from rrm.data.seeds import derive_seed


class ShuffledRewards(NoFeedback):
    """`shuffled`: first attempts, each with the reward of one of its group, drawn without replacement."""

    def round(self, update: int, attempts: Sequence[Attempt], play: Play) -> Round:
        """First attempts as they were played, and copies that earn one another's rewards."""
        episodes = play(attempts)
        return Round(episodes, shuffled(episodes, derive_seed(self.seed, "shuffled", update)))


def shuffled(episodes: Sequence[Episode], seed: int) -> list[Episode]:
    """Copies whose rewards are their group's, permuted. What turns earned is with the outcome, as another attempt has other turns; a row
    whose reward is unknown, or that has no turn, stays as it is. `seed`: with a group's name it decides the group's order, whatever else
    is played beside it."""
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
