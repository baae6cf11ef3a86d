"""Episodes as tensors: one right-padded batch an update, and micro-batches within a token budget."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch

from reagent.rollout.episode import Episode
from rrm.data.seeds import derive_seed


@dataclass
class Batch:
    """An update's rows: B rows, T tokens of the longest; padding stands on the right."""

    input_ids: torch.Tensor  # (B, T) long, 0 in the padding
    action_mask: torch.Tensor  # (B, T) bool: sampled by the policy
    turn_index: torch.Tensor  # (B, T) long: -1 on prompt and padding
    token_rewards: torch.Tensor  # (B, T) float32
    rollout_logprobs: torch.Tensor  # (B, T) float32, 0 off the action mask
    group: torch.Tensor  # (B,) long
    attempt: torch.Tensor
    """(B,) long: number within the group; a second attempt has that of the first one its prompt holds."""
    stage: torch.Tensor  # (B,) long: 0 for first attempts, 1 for second ones
    known: torch.Tensor  # (B,) bool: the row's reward is known
    end_ids: torch.Tensor
    """(B, E) long, 0 in the padding: tokens after an episode that the turn limit cut off."""
    ends: torch.Tensor
    """(B,) long: length of a row's `end_ids`; above 0 its continuation is worth V (`loss.bootstrap`)."""
    lengths: torch.Tensor  # (B,) long: tokens without padding

    def __len__(self) -> int:
        return len(self.lengths)

    def rows(self, index: Sequence[int]) -> Batch:
        """The rows named, padded to their own longest."""
        chosen = torch.tensor(list(index), dtype=torch.long)
        width = int(self.lengths[chosen].max())
        parts = {f.name: getattr(self, f.name)[chosen] for f in fields(self)}
        return Batch(**{k: v[:, :width] if v.dim() == 2 and k != "end_ids" else v for k, v in parts.items()})


def make_batch(episodes: Sequence[Episode]) -> Batch:
    """Flatten and pad. A row of unknown outcome has no rewards. Raises ValueError: no episode."""
    if not episodes:
        raise ValueError("no episodes to make a batch of")
    flat = [e.flatten() for e in episodes]
    # an environment that failed before it said anything leaves a row of one padding token: every process keeps its rows
    lengths = torch.tensor([max(1, len(f.input_ids)) for f in flat])
    width = int(lengths.max())
    groups = {name: i for i, name in enumerate(dict.fromkeys(e.group_id for e in episodes))}

    def pad(columns: list[Any], fill: float, dtype: torch.dtype, width: int = width) -> torch.Tensor:
        out = torch.full((len(flat), width), fill, dtype=dtype)
        for i, column in enumerate(columns):
            row = torch.as_tensor(column)
            out[i, : len(row)] = row.to(dtype)
        return out

    has_reward = torch.tensor([e.reward is not None for e in episodes])
    ends = [e.end_ids if e.status == "turn_limit" else [] for e in episodes]
    return Batch(
        input_ids=pad([f.input_ids for f in flat], 0, torch.long),
        action_mask=pad([f.action_mask for f in flat], 0, torch.bool),
        turn_index=pad([f.turn_index for f in flat], -1, torch.long),
        token_rewards=pad([f.token_rewards for f in flat], 0, torch.float32) * has_reward[:, None],
        rollout_logprobs=pad([f.rollout_logprobs for f in flat], 0, torch.float32),
        group=torch.tensor([groups[e.group_id] for e in episodes]),
        attempt=torch.tensor([e.attempt for e in episodes]),
        stage=torch.tensor([int(e.stage == "refined") for e in episodes]),
        known=has_reward,
        end_ids=pad(ends, 0, torch.long, max(map(len, ends))),
        ends=torch.tensor([len(ids) for ids in ends]),
        lengths=lengths,
    )


def logprob_gap(logprobs: torch.Tensor, batch: Batch) -> float:
    """The largest |difference| between a token's log-probability in training and in the rollout engine."""
    return float(_gaps(logprobs, batch).max())


def gaps_by_server(
    logprobs: torch.Tensor, batch: Batch, servers: Sequence[Sequence[str]]
) -> dict[str, tuple[float, int]]:
    """Server → (sum of these differences over the tokens that it sampled, number of tokens).
    `servers`: of each row's turns, the address that sampled them ("": this process)."""
    gaps, compared = _gaps(logprobs, batch), _compared(batch)
    gaps_of: dict[str, tuple[float, int]] = {}
    for i, turns in enumerate(servers):
        for k, server in enumerate(turns):
            mine = compared[i] & (batch.turn_index[i] == k)
            total, tokens = gaps_of.get(server, (0.0, 0))
            gaps_of[server] = total + float(gaps[i][mine].double().sum()), tokens + int(mine.sum())
    return gaps_of


def _gaps(logprobs: torch.Tensor, batch: Batch) -> torch.Tensor:
    return (logprobs - batch.rollout_logprobs).abs() * _compared(batch)


def _compared(batch: Batch) -> torch.Tensor:
    return batch.action_mask & batch.known[:, None]


def microbatches(lengths: torch.Tensor, index: Sequence[int], budget: int) -> list[list[int]]:
    out: list[list[int]] = []
    for i in sorted(index, key=lambda i: -int(lengths[i])):
        width = int(lengths[out[-1][0]]) if out else 0
        if out and (len(out[-1]) + 1) * width <= budget:
            out[-1].append(i)
        else:
            out.append([i])
    return out


def minibatches(everyones: Sequence[tuple[str, int, int]], rank: int, count: int, seed: int) -> list[list[int]]:
    """Shuffle the rows of all processes and deal them evenly into at most `count` parts.

    The division depends on the rows' names alone. Every process gets as many parts, some perhaps empty: all must take each step.

    Args:
        everyones: (name, process, row number there) of every row, in any order.
        rank: this process, whose row numbers of each part are returned.
    """
    order = sorted(everyones)
    if count > 1:
        random.Random(derive_seed(seed, "minibatches")).shuffle(order)
    count = min(count, len(order))
    return [sorted(i for _, process, i in order[k::count] if process == rank) for k in range(count)]
