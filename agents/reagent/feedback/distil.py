"""Second attempts that are learned as first ones: which, of a task's attempts.

A group method learns nothing from a task whose every first attempt failed. Where a second one, after a critique, succeeded, the
policy can do it: it is learned after the question alone, by imitation (`reagent.feedback.texts.attempt_row`), so that it comes
without the critique. What failed is no negative: as actions after another prompt its tokens say nothing of the policy.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from reagent.feedback.base import Judged
from reagent.feedback.settings import DistilConfig
from rrm.seeds import derive_seed


def solved(judged: Judged, bound: float) -> bool | None:
    """Whether an attempt succeeded: as the environment says, or where nobody can grade it, by a score of at least `bound`; None
    where that is not known."""
    if not judged.episode.ungraded:
        return judged.episode.success
    return None if judged.score is None else judged.score >= bound


def lost(firsts: Sequence[Judged], settings: DistilConfig) -> bool:
    """Whether a task's first attempts all failed, of those of which it is known."""
    known = [found for found in (solved(one, settings.below) for one in firsts) if found is not None]
    return bool(known) and not any(known)


def worth_learning(seconds: Sequence[Judged], settings: DistilConfig) -> list[int]:
    """Numbers of a task's second attempts to learn: those that succeeded; of ungraded ones that with the highest score, the first of
    equals, if it reaches `above`."""
    found = [i for i, one in enumerate(seconds) if solved(one, settings.above)]
    ranked = [i for i in found if seconds[i].episode.ungraded]
    best = max(ranked, key=lambda i: seconds[i].score or 0.0, default=None)
    return [i for i in found if i == best or not seconds[i].episode.ungraded]


def drawn(everyones: Sequence[str], most: int, seed: int, update: int) -> set[str]:
    """At most `most` of all processes' candidates, by name, the same on each."""
    names = sorted(everyones)
    if len(names) <= most:
        return set(names)
    return set(random.Random(derive_seed(seed, "distil", update)).sample(names, most))
