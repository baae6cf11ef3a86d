"""The output head: logits and probabilities of hidden states.

bfloat16 logits have three digits; where numbers are learned from they are computed in float32 from a wide copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from rrm.engines.hf.trie import Trie

LOGIT_POSITIONS = 256  # positions whose logits are held at once: 256 × 49,152 × 4 bytes = 50 MB


def as_stored(layer: torch.nn.Module, states: torch.Tensor) -> torch.Tensor:
    """`layer(states)` in the precision of the layer's own weights, also inside `torch.autocast`."""
    dtype = next(layer.parameters()).dtype
    with torch.autocast(states.device.type, enabled=False):
        return layer(states.to(dtype) if dtype.is_floating_point else states)


def widened(layer: torch.nn.Module) -> torch.Tensor | None:
    """Float32 copy of the layer's weights; None where `in_float32` needs none."""
    if not isinstance(layer, torch.nn.Linear) or layer.weight.dtype not in (torch.bfloat16, torch.float16):
        return None
    return layer.weight.float()


def in_float32(layer: torch.nn.Module, states: torch.Tensor, wide: torch.Tensor | None = None) -> torch.Tensor:
    """`layer(states)` in float32 from 16-bit weights: rounded logits would depend on the batch.

    Weights under their own adapter, or quantised ones, are left to the layer.
    """
    wide = widened(layer) if wide is None else wide
    if wide is None:
        return as_stored(layer, states)
    bias = getattr(layer, "bias", None)
    with torch.autocast(states.device.type, enabled=False):
        return torch.nn.functional.linear(states.float(), wide, None if bias is None else bias.float())


class Head:
    """A model's output layer.

    Args:
        exact: float32 logits also from 16-bit weights; weights must not change inside of an open call or session.
    """

    def __init__(self, layer: Any, exact: bool = False) -> None:
        self.layer, self.exact = layer, exact
        self.wide: torch.Tensor | None = None
        self._open = 0

    @contextmanager
    def open(self) -> Iterator[None]:
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self.wide = None

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """(…, V) float32 logits of hidden states (…, H)."""
        if not self.exact:
            return as_stored(self.layer, states).float()
        if self._open and self.wide is None:
            self.wide = widened(self.layer)
        return in_float32(self.layer, states, self.wide).float()

    def token_logprobs(self, states: torch.Tensor, tokens: list[int]) -> list[float]:
        """log p of one token per hidden state (T, H)."""
        values: list[float] = []
        for start in range(0, len(tokens), LOGIT_POSITIONS):
            logits = self.logits(states[start : start + LOGIT_POSITIONS])
            targets = torch.tensor(tokens[start : start + LOGIT_POSITIONS], device=logits.device)[:, None]
            values += (logits.gather(1, targets)[:, 0] - logits.logsumexp(-1)).tolist()
        return values

    def choice_logprobs(self, states: torch.Tensor, choices: Sequence[int]) -> torch.Tensor:
        """(T, C) log-probabilities of the choices among themselves, after states (T, H), in ≥ float32."""
        chosen = torch.tensor(list(choices), device=states.device)
        layer = self.layer
        if type(layer) is not torch.nn.Linear:
            # under an adapter of its own, or quantised: only the layer knows its rows
            logits = [self.logits(chunk)[:, chosen] for chunk in states.split(LOGIT_POSITIONS)]
            return torch.cat(logits).log_softmax(-1)
        wide = torch.promote_types(layer.weight.dtype, torch.float32)
        with torch.autocast(states.device.type, enabled=False):
            bias = None if layer.bias is None else layer.bias[chosen].to(wide)
            return torch.nn.functional.linear(states.to(wide), layer.weight[chosen].to(wide), bias).log_softmax(-1)

    def trie_logprobs(self, trie: Trie, states: torch.Tensor) -> list[list[float]]:
        """Summed log-probability of every continuation per row, from states (B, 1 + N, H)."""
        edges = sorted({edge for path in trie.paths for edge in path})
        nodes, tokens = (torch.tensor(column, device=states.device) for column in zip(*edges, strict=True))
        results: list[list[float]] = []
        for chunk in states.split(max(1, LOGIT_POSITIONS // states.shape[1])):
            logits = self.logits(chunk)  # (b, 1 + N, V)
            values = (logits[:, nodes, tokens] - logits.logsumexp(-1)[:, nodes]).tolist()
            for row in values:
                values_by_edge = dict(zip(edges, row, strict=True))
                results.append([sum(values_by_edge[edge] for edge in path) for path in trie.paths])
        return results
