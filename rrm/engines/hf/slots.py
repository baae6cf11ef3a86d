"""A KV cache of slots, indexed by each row's own length: nothing is copied as rows grow or wait.

DynamicCache concatenates the whole cache at every token (a third of a 135M model's decoding time on CPU) and needs aligned rows.
Here a layer is one buffer (slots, heads, capacity, head_dim); positions beyond a row's length are masked by index.
"""

from __future__ import annotations

from typing import Any
from weakref import proxy

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

KV = list[tuple[torch.Tensor, torch.Tensor]]  # per layer: keys and values of one row, each (heads, tokens, head_dim)


class _SlotLayer(CacheLayerMixin):
    """One layer's buffer; `SlotCache.aim` decides where to write, once a forward."""

    def __init__(self, owner: SlotCache) -> None:
        super().__init__()
        # weakly: in a ring of references a cache would stay in memory, gigabytes of it, until Python looks for such rings
        self.owner: SlotCache = proxy(owner)

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate zeros: masked values are multiplied by 0, and 0 × garbage may be NaN."""
        _, heads, _, dim = key_states.shape
        shape = (self.owner.slots, heads, self.owner.capacity, dim)
        self.keys, self.values = (
            key_states.new_zeros(shape),
            value_states.new_zeros((*shape[:3], value_states.shape[3])),
        )
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write (B, heads, L, dim) at the aimed slots; returns views (B, heads, visible, dim)."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        aim = self.owner
        keys, values = self.keys[aim.low : aim.high], self.values[aim.low : aim.high]
        if aim.common_start is not None:
            stop = aim.common_start + key_states.shape[2]
            keys[:, :, aim.common_start : stop] = key_states
            values[:, :, aim.common_start : stop] = value_states
        else:
            keys[aim.row_index, :, aim.positions] = key_states.transpose(1, 2)
            values[aim.row_index, :, aim.positions] = value_states.transpose(1, 2)
        return keys[:, :, : aim.visible], values[:, :, : aim.visible]

    def get_seq_length(self) -> int:
        return self.owner.common_start or 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.owner.visible, 0

    def get_max_length(self) -> int:
        return self.owner.capacity


class SlotCache(Cache):
    """`slots` rows of at most `capacity` tokens over `n_layers` layers.

    Bytes: slots × capacity × n_layers × 2 × kv_heads × head_dim × bytes a value."""

    def __init__(self, n_layers: int, slots: int, capacity: int) -> None:
        self.slots, self.capacity = slots, capacity
        self.low = self.high = self.visible = 0
        self.common_start: int | None = 0
        self.row_index = self.positions = torch.empty(0, dtype=torch.long)
        self.rows_layers = [_SlotLayer(self) for _ in range(n_layers)]
        super().__init__(layers=[*self.rows_layers])

    def aim(self, low: int, starts: list[int], width: int, device: torch.device) -> None:
        """Aim the next forward: row i writes slot low + i at starts[i] … starts[i] + width − 1."""
        self.low, self.high = low, low + len(starts)
        self.visible = max(starts) + width
        if self.visible > self.capacity or self.high > self.slots:
            raise ValueError(f"{self.high} rows of {self.visible} tokens do not fit {self.slots} x {self.capacity}")
        self.common_start = starts[0] if min(starts) == max(starts) else None
        first = torch.tensor(starts, device=device)[:, None]
        self.positions = first + torch.arange(width, device=device)  # (B, L), also the position ids of a plain row
        self.row_index = torch.arange(len(starts), device=device)[:, None]

    def fill(self, low: int, high: int, kv: KV, tokens: int) -> None:
        """Copy the first `tokens` positions of one row's keys and values into slots [low, high)."""
        for layer, (keys, values) in zip(self.rows_layers, kv, strict=True):
            if not layer.is_initialized:
                layer.lazy_initialization(keys[None], values[None])
            assert layer.keys is not None and layer.values is not None
            layer.keys[low:high, :, :tokens] = keys[:, :tokens]
            layer.values[low:high, :, :tokens] = values[:, :tokens]

    def take(self, slot: int, tokens: int) -> KV:
        """Clone a slot's first `tokens` positions."""
        return [
            (layer.keys[slot, :, :tokens].clone(), layer.values[slot, :, :tokens].clone())
            for layer in self.rows_layers
            if layer.keys is not None and layer.values is not None
        ]

    def copy(self, source: int, low: int, high: int, tokens: int) -> None:
        """Copy a slot's first `tokens` positions over slots [low, high)."""
        for layer in self.rows_layers:
            assert layer.keys is not None and layer.values is not None
            layer.keys[low:high, :, :tokens] = layer.keys[source, :, :tokens]
            layer.values[low:high, :, :tokens] = layer.values[source, :, :tokens]

    def resize(self, slots: int, capacity: int, keep: int, tokens: int) -> None:
        """Make room for more or longer rows; keeps the first `tokens` positions of slots [0, keep)."""
        self.slots, self.capacity = slots, capacity
        for layer in self.rows_layers:
            keys, values = layer.keys, layer.values
            if keys is None or values is None:
                continue
            layer.lazy_initialization(keys, values)
            assert layer.keys is not None and layer.values is not None
            layer.keys[:keep, :, :tokens] = keys[:keep, :, :tokens]
            layer.values[:keep, :, :tokens] = values[:keep, :, :tokens]


def kv_bytes(kv: KV) -> int:
    """Bytes of one row's keys and values."""
    return sum(k.numel() * k.element_size() + v.numel() * v.element_size() for k, v in kv)
