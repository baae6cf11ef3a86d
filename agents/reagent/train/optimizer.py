"""The trainer's optimiser and learning-rate schedule."""

import math
from typing import Any

import torch

from reagent.train.config import AgentConfig
from reagent.train.policy import Policy


def learning_rate_factor(update: int, config: AgentConfig) -> float:
    """Learning-rate factor at an update (from 0): linear warm-up, then constant, or to 0 linearly or along half a cosine."""
    warmup = config.optim.warmup_updates
    if update < warmup:
        return (update + 1) / warmup
    if config.optim.lr_schedule == "constant":
        return 1.0
    left = max(0.0, 1.0 - (update - warmup) / max(1, config.horizon - warmup))
    return left if config.optim.lr_schedule == "linear" else 0.5 - 0.5 * math.cos(math.pi * left)


def make_optimizer(policy: Policy, config: AgentConfig) -> torch.optim.AdamW:
    settings = config.optim
    head = [] if policy.value_head is None else list(policy.value_head.parameters())
    own = {id(p) for p in head}
    body = [p for p in policy.parameters() if p.requires_grad and id(p) not in own]
    groups: list[dict[str, Any]] = [{"params": body, "lr": settings.learning_rate, "base_lr": settings.learning_rate}]
    if head:
        own_rate = settings.value_learning_rate
        rate = settings.learning_rate if own_rate is None else own_rate
        groups.append({"params": head, "lr": rate, "base_lr": rate})
    return torch.optim.AdamW(groups, betas=settings.betas, weight_decay=settings.weight_decay, foreach=False)
