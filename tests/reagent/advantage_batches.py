"""Batches of made-up episodes, for tests of advantages."""

from __future__ import annotations

from typing import Any

import torch

F = torch.float64


def random_batch(seed: int, rows: int, n_groups: int) -> dict[str, Any]:
    """Ragged episodes: prompt, then turns of 1–3 actions and 0–2 observation tokens, rewards on the last action."""
    rng = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=rng))

    episodes = []
    for _ in range(rows):
        mask, turn, reward = [0] * draw(1, 3), [], []
        turn, reward = [-1] * len(mask), [0.0] * len(mask)
        for k in range(draw(1, 3)):
            actions, observed = draw(1, 3), draw(0, 2)
            mask += [1] * actions + [0] * observed
            turn += [k] * (actions + observed)
            earned = float(torch.randn((), generator=rng, dtype=F))
            reward += [0.0] * (actions - 1) + [earned] + [0.0] * observed
        episodes.append((mask, turn, reward))
    width = max(len(mask) for mask, _, _ in episodes)

    def pad(values: list, fill: float) -> list:
        return values + [fill] * (width - len(values))

    return {
        "token_rewards": torch.tensor([pad(r, 0.0) for _, _, r in episodes], dtype=F),
        "action_mask": torch.tensor([pad(m, 0) for m, _, _ in episodes], dtype=torch.bool),
        "turn_index": torch.tensor([pad(t, -1) for _, t, _ in episodes]),
        "group": torch.arange(rows) % n_groups,
        "values": torch.randn(rows, width, generator=rng, dtype=F),
        "known": torch.ones(rows, dtype=torch.bool),
    }
