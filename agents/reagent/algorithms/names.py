"""The algorithms' names, and what kind each is of."""

from typing import Literal

Algorithm = Literal["ppo", "grpo", "rloo", "reinforce++", "reinforce++-baseline", "opo", "rft"]
GROUP_METHODS: tuple[Algorithm, ...] = ("grpo", "rloo", "reinforce++-baseline", "opo")
"""Algorithms that compare the episodes of one task."""
TOKEN_METHODS: tuple[Algorithm, ...] = ("ppo", "reinforce++")
"""Algorithms whose credit flows from token to token, discounted by `loss.gamma`."""
