"""Read rows that begin alike as one *pack*: attempts at a task share their prompt.

[prefix | rest of one row | rest of another | …] is one row of the decoder: a rest sees the prefix and itself, at positions that go
on from the prefix. Results are the rows' own, to rounding. Rows join a pack while the saving exceeds the cost of attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rrm.engines.hf.engine import base_causal_lm
from rrm.errors import ConfigError

OPTION = "optim.share_prefixes"
ATTENTION = ("sdpa", "eager")


WINDOWS = ("sliding_window", "window_size", "attention_window", "attention_chunk_size", "keep_window_size")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""Config names of limited attention, and of the number of experts."""
ROWS, PROBED = 4, 48
"""Rows, and tokens of each, of the check on a model."""
UNLIKE = {True: 1e-3, False: 0.05}
"""Largest relative difference of their hidden states: of weights in 32 bits or more, and in fewer."""


@dataclass(frozen=True)
class PackedRows:
    rows: tuple[int, ...]
    prefix: int
    """Tokens that all of them begin with; all of a lone row's."""
    tokens: int


@dataclass(frozen=True)
class PackedTensors:
    """Packs as tensors: N packs of L tokens, for B rows of T."""

    input_ids: Tensor
    position_ids: Tensor
    """(N, L) long both; L is a multiple of 8."""
    sees: Tensor
    """(N, L, L) bool: tokens (last) each token attends to. Padding sees itself."""
    index_of: Tensor
    """(B, T) long: each token's index among the N · L; 0 behind a row's end."""


def _weights_a_token(base: Any, config: Any) -> float:
    """Weights that multiply a token, without embeddings and head; of experts the chosen ones."""
    embeddings: Any = base.get_input_embeddings()
    sizes = {name: p.numel() for name, p in base.get_decoder().named_parameters()}
    experts = sum(size for name, size in sizes.items() if ".experts." in name)
    there = next((n for key in EXPERTS if (n := getattr(config, key, None))), 1)
    idle = 1 - min(getattr(config, "num_experts_per_tok", None) or there, there) / there
    return sum(sizes.values()) - embeddings.weight.numel() - experts * idle


def ends(mask: Tensor) -> Tensor:
    """(B, T) bool → (B,) long: tokens of each row up to the mask's last one, at least 1."""
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return (mask * places).amax(1).clamp(min=1)


@dataclass(frozen=True)
class PrefixSharing:
    """Packing of a model's rows, in at most `budget` tokens (packs × longest).

    `pairs`: of tokens, whose attention costs as many operations as a token's matrix products."""

    pairs: float
    budget: int

    @classmethod
    def of(cls, model: Any, budget: int) -> PrefixSharing:
        """The sharing of a causal LM. Raises ConfigError: packed rows give other results (tried on the model)."""
        base = base_causal_lm(model)
        config = base.config.get_text_config()
        kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
        windows = sorted(name for name in WINDOWS if getattr(config, name, None))
        if kinds != {"full_attention"} or windows:
            raise ConfigError(
                f"{OPTION}: {config.model_type} has layers without full attention ({', '.join([*sorted(kinds), *windows])}), which no mask keeps from "
                "reading one row's tokens in another: set it to false"
            )
        if config._attn_implementation not in ATTENTION:
            raise ConfigError(
                f"{OPTION}: attention {config._attn_implementation} takes no mask of our own: set policy.attn_implementation to "
                f"one of {', '.join(ATTENTION)}, or {OPTION} to false"
            )
        if not hasattr(config, "num_attention_heads"):
            raise ConfigError(f"{OPTION}: {config.model_type} has no attention: set it to false")
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        inner = 2 * config.num_hidden_layers * config.num_attention_heads * size
        sharing = cls(_weights_a_token(base, config) / inner, budget)
        sharing._check(base)
        return sharing

    @torch.no_grad()
    def _check(self, base: Any) -> None:
        config, decoder, weight = base.config.get_text_config(), base.get_decoder(), next(base.parameters())
        tokens = torch.arange(1, PROBED + 1, device=weight.device) % config.vocab_size
        ids = tokens.repeat(ROWS, 1)
        for row in range(ROWS):  # all begin with half of the tokens
            ids[row, PROBED // 2 :] = tokens.roll(row + 1)[PROBED // 2 :]
        mask = torch.ones_like(ids, dtype=torch.bool)
        unpacked = decoder(input_ids=ids, use_cache=False).last_hidden_state.float()
        wide = PrefixSharing(float("inf"), ROWS * PROBED)
        try:
            error = float((wide.hidden(decoder, ids, mask).float() - unpacked).norm() / unpacked.norm())
        except (RuntimeError, ValueError, TypeError, AssertionError) as problem:
            raise ConfigError(
                f"{OPTION}: {config.model_type} takes no mask of our own ({problem}): set it to false"
            ) from problem
        if not error <= UNLIKE[weight.dtype.itemsize >= 4]:
            raise ConfigError(
                f"{OPTION}: {config.model_type} computes of rows that share their prefix something else than of the rows (a relative difference "
                f"of {error:.2g}): its positions or masks are its own. Set it to false"
            )

    def packs(self, ids: Tensor, ends: Tensor, order: Sequence[int]) -> list[PackedRows]:
        """Pack neighbours in `order` where a shared prefix pays. `ids`: (B, T); `ends`: (B,)."""
        result: list[PackedRows] = []
        for row in order:
            end = int(ends[row])
            joined = self._join(result[-1], row, end, ids, ends) if result else None
            if joined is None:
                result.append(PackedRows((row,), end, end))
            else:
                result[-1] = joined
        return result

    def _join(self, pack: PackedRows, row: int, end: int, ids: Tensor, ends: Tensor) -> PackedRows | None:
        """The pack with one more row; None where that does not pay."""
        least = min(pack.prefix, end)
        unlike = (ids[pack.rows[0], :least] != ids[row, :least]).nonzero()
        prefix = int(unlike[0, 0]) if len(unlike) else least
        rows = (*pack.rows, row)
        tokens = prefix + sum(int(ends[i]) - prefix for i in rows)
        apart = pack.tokens + end
        if _even(tokens) > self.budget or tokens >= apart:
            return None
        own = end**2 / 2  # a row that is read whole is masked as it comes, for half of its square
        added = tokens**2 - pack.tokens**2 - own
        return PackedRows(rows, prefix, tokens) if (apart - tokens) * self.pairs > added else None

    def split_minibatches(self, ids: Tensor, mask: Tensor, group: Tensor, index: Sequence[int]) -> list[list[int]]:
        """Rows `index` in lists whose packs × longest stay within the budget, groups together.

        `ids`, `mask`: (B, T); `group`: (B,), whose rows begin alike. A longer row stands alone."""
        last = ends(mask)
        longest = {int(g): int(last[group == g].max()) for g in group[list(index)].unique()}
        order = sorted(index, key=lambda i: (-longest[int(group[i])], int(group[i]), -int(last[i])))
        out: list[list[int]] = []
        count, width, joined = 0, 0, False
        for pack in self.packs(ids, last, order):
            wider, any_joined = max(width, pack.tokens), joined or len(pack.rows) > 1
            if out and (count + 1) * (_even(wider) if any_joined else wider) <= self.budget:
                out[-1] += pack.rows
                count, width, joined = count + 1, wider, any_joined
            else:
                out.append(list(pack.rows))
                count, width, joined = 1, pack.tokens, len(pack.rows) > 1
        return out

    def hidden(self, decoder: Any, ids: Tensor, mask: Tensor) -> Tensor:
        """(B, T, H) last hidden states, valid up to each row's last token of the mask."""
        last = ends(mask).cpu()  # packs are made on the host: on a GPU each number of theirs would be waited for
        width = int(last.max())
        host_ids = ids[:, :width].cpu()
        packs = self.packs(host_ids, last, range(len(host_ids)))
        if len(packs) == len(host_ids):
            states = decoder(input_ids=ids[:, :width], use_cache=False).last_hidden_state
        else:
            layout = lay_out(packs, host_ids, last)
            dtype = _computed_in(decoder, ids.device)
            # made once in that type: attention would make a copy of any other for each layer, and keep it for the backward
            unseen = torch.zeros(layout.sees.shape, dtype=dtype).masked_fill_(~layout.sees, torch.finfo(dtype).min)
            states = decoder(
                input_ids=layout.input_ids.to(ids.device),
                position_ids=layout.position_ids.to(ids.device),
                attention_mask=unseen[:, None].to(ids.device),
                use_cache=False,
            ).last_hidden_state
            states = states.flatten(0, 1)[layout.index_of.to(ids.device)]
        return torch.nn.functional.pad(states, (0, 0, 0, ids.shape[1] - width))


def _computed_in(decoder: Any, device: torch.device) -> torch.dtype:
    if torch.is_autocast_enabled(device.type):
        return torch.get_autocast_dtype(device.type)
    return next(decoder.parameters()).dtype


def _even(tokens: int) -> int:
    """Packed length: a multiple of 8, else a GPU's kernels copy the mask in each layer."""
    return -(-tokens // 8) * 8


def lay_out(packs: Sequence[PackedRows], ids: Tensor, ends: Tensor) -> PackedTensors:
    """Packs of rows (B, T) as (packs, longest) tensors."""
    shape = len(packs), _even(max(pack.tokens for pack in packs))
    tokens, positions = (torch.zeros(shape, dtype=torch.long) for _ in range(2))
    segment = torch.full(shape, -1, dtype=torch.long)  # 0 the prefix, −1 padding, k the k-th row's rest
    positions_of = torch.zeros_like(ids)
    for n, pack in enumerate(packs):
        begin = pack.prefix
        tokens[n, :begin] = ids[pack.rows[0], :begin]
        positions[n, :begin] = torch.arange(begin)
        segment[n, :begin] = 0
        for k, row in enumerate(pack.rows, 1):
            end = int(ends[row])
            stop = begin + end - pack.prefix
            tokens[n, begin:stop] = ids[row, pack.prefix : end]
            positions[n, begin:stop] = torch.arange(pack.prefix, end)
            segment[n, begin:stop] = k
            positions_of[row, : pack.prefix] = n * shape[1] + torch.arange(pack.prefix)
            positions_of[row, pack.prefix : end] = n * shape[1] + torch.arange(begin, stop)
            begin = stop
    sees = (segment[:, :, None] == segment[:, None, :]) | ((segment[:, None, :] == 0) & (segment[:, :, None] > 0))
    return PackedTensors(tokens, positions, sees.tril(), positions_of)
