"""What is logged of episodes, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

from feedback_lab import make_episode

from reagent.train.metrics import episode_metrics


def test_tokens_of_all_kinds_are_counted_of_the_mean_and_the_longest_episode() -> None:
    """Two of the prompt and one a turn; an observation adds its own."""
    short, long = make_episode([0.0]), make_episode([0.0, 0.0])
    long.turns[0] = replace(long.turns[0], observation_ids=[7, 8, 9])
    found = episode_metrics([short, long], "refined")
    assert (found["refined/tokens"], found["refined/longest_tokens"]) == (5.0, 7.0)
    assert math.isnan(episode_metrics([])["episode/longest_tokens"])
