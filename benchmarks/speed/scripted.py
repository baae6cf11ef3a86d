"""A logits processor for vLLM that makes every completion the same turn: what `benchmarks.speed.rollout.Script` does to a model here.

    SCRIPTED_TURN='[12, 7, 2]' python -m vllm.entrypoints.openai.api_server … --logits-processors benchmarks.speed.scripted:Scripted

Runs in vLLM's environment, which has nothing of this project's but this file. The whole projection is computed before.
"""

from __future__ import annotations

import json
import os

import torch
from vllm.v1.sample.logits_processor import LogitsProcessor  # pyright: ignore[reportMissingImports]
from vllm.v1.sample.logits_processor.interface import MoveDirectionality  # pyright: ignore[reportMissingImports]


class Scripted(LogitsProcessor):
    """Raises the logit of token number i of the turn where i tokens were sampled."""

    def __init__(self, vllm_config: object, device: torch.device, is_pin_memory: bool) -> None:
        del vllm_config, is_pin_memory
        self.turn = torch.tensor(json.loads(os.environ["SCRIPTED_TURN"]), device=device)
        self.said: dict[int, list[int]] = {}  # row of the batch → the tokens it has sampled, a list that grows

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update) -> None:
        if batch_update is None:
            return
        for row in batch_update.removed:
            self.said.pop(row, None)
        for row, _, _, said in batch_update.added:
            self.said[row] = said
        for old, new, direction in batch_update.moved:
            first, second = self.said.pop(old, None), self.said.pop(new, None)
            if first is not None:
                self.said[new] = first
            if second is not None and direction == MoveDirectionality.SWAP:
                self.said[old] = second

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(logits.shape[0], device=logits.device)
        at = [min(len(self.said.get(row, ())), len(self.turn) - 1) for row in range(logits.shape[0])]
        logits[rows, self.turn[torch.tensor(at, device=logits.device)]] += 1e4
        return logits
