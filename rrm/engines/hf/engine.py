"""`hf`: the in-process engine over a transformers causal language model (DESIGN §3, §8).

- Rows are sorted by length and padded on the *right*: no mask, nothing inferred from ids (SmolLM2's pad is its eos).
- The prefix that all rows of a call share (a judge's rubric) runs once, at batch 1.
- Decoding uses a cache of slots (`rrm.engines.hf.slots`): no copy a token, a finished row's slot is reused at once.
- The vocabulary projection runs only where probabilities are needed; continuations run as a trie (`rrm.engines.hf.trie`).

A row's numbers do not depend on its batch beyond rounding; its samples are seeded by (run seed, key or content, length).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from rrm.engines.base import Completion, EngineCounters, SamplingParams, Span, check_choices
from rrm.engines.hf.batching import common_prefix, micro_batches
from rrm.engines.hf.decoder import MIN_SHARED_PREFIX, ActiveRow, Decoder
from rrm.engines.hf.head import Head, as_stored
from rrm.engines.hf.host_memory import freed_memory
from rrm.engines.hf.slots import KV, SlotCache, kv_bytes
from rrm.engines.hf.trie import Trie, build_trie
from rrm.errors import EngineError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass
class _Kept:
    ids: list[int]
    kv: KV
    size: int


def base_causal_lm(model: Any) -> PreTrainedModel:
    """The transformers model inside a PEFT wrapper (with its adapter layers), or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


MAX_BATCH_TOKENS, KEPT_BYTES = 32768, 2 << 30  # defaults of an engine


class HFEngine:
    """A `TokenEngine` over a Hugging Face causal language model with full attention in every layer.

    Args:
        model: Llama, Qwen2/3, Mistral (without sliding window), …; merged, plain or wrapped by PEFT.
        tokenizer: for `eos_token_id`, and to decode text when `params.stop` is given.
        max_batch_tokens: tokens (prompt and generated) whose keys and values are held at once.
        prefill_tokens: of one forward; default 512 on CPU (two take 0.6 of the time of one of 1,024), else 16,384.
        kept_bytes: memory for rows kept under keys, least recently used dropped first. Release keys when weights change.
        device: where to move the model; default: where it is.
        exact_head: float32 logits also from 16-bit weights, as in a policy's training forward. Takes a float32 copy of the
            head per call or session, inside of which weights must not change.

    Raises:
        EngineError: a model whose logits are more than `lm_head(hidden)`, or with sliding-window layers.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        prefill_tokens: int | None = None,
        kept_bytes: int = KEPT_BYTES,
        device: str | torch.device | None = None,
        exact_head: bool = False,
    ) -> None:
        if device is not None:
            model.to(device)  # pyright: ignore[reportArgumentType]
        self.model, self.tokenizer = base_causal_lm(model), tokenizer
        self.device = next(self.model.parameters()).device
        self.max_batch_tokens, self.kept_bytes = max_batch_tokens, kept_bytes
        self.prefill_tokens = prefill_tokens or (512 if self.device.type == "cpu" else 16384)
        self._decoder: Any = self.model.get_decoder()
        self.head = Head(self.model.get_output_embeddings(), exact_head)
        self._dtype = self.head.layer.weight.dtype
        config = self.model.config.get_text_config()
        self.layers: int = config.num_hidden_layers
        self.max_positions: int | None = getattr(config, "max_position_embeddings", None)
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._held = 0
        self.counters = EngineCounters()
        self.version = 0  # of the weights, which whoever changes them sets (`sync`)
        self.eos_ids = eos_ids_of(self.model, tokenizer)
        own = tokenizer.eos_token_id
        self.eos_token_id: int = own if isinstance(own, int) else min(self.eos_ids)
        self._check_model(config)

    # ---- the contract ----

    def generate(
        self, rows: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[str] | None = None
    ) -> list[Completion]:
        """See `TokenEngine`. Log-probabilities are those before any nucleus cut (temperature 1 if greedy).

        A finished row stays cached under its key until `release`, within `kept_bytes`. A stop text stays in the output, with the rest
        of its last token. Raises EngineError: an empty row, or one that with `max_new_tokens` exceeds the model's positions.
        """
        work = self.work(rows, keys, params.max_new_tokens)
        if params.max_new_tokens < 1:
            return [Completion([], [], "length") for _ in work]
        completions: dict[int, Completion] = {}
        with self.session(params) as decoder:
            for row in sorted(work, key=lambda row: len(row.ids), reverse=True):  # the longest rows come first
                decoder.add(row)
            while not decoder.idle:
                completions.update((row.index, row.completion(self.version)) for row in decoder.advance())
        return [completions[i] for i in range(len(work))]

    @contextmanager
    def session(self, params: SamplingParams) -> Iterator[Decoder]:
        """Open a running batch without gradients and dropout; a key's cached tokens are not run again."""
        with self._inference():
            yield Decoder(self, params)

    def logprobs(self, rows: Sequence[Sequence[int]], spans: Sequence[Span]) -> list[list[float]]:
        """See `TokenEngine`; EngineError for a span outside its row, or one that starts at 0."""
        work = self.work(rows, None, 0)
        for row, span in zip(work, spans, strict=True):
            if not 1 <= span.start <= span.stop <= len(row.ids):
                raise EngineError(f"row {row.index}: span [{span.start}, {span.stop}) of {len(row.ids)} tokens")
            # The last token of the span is only looked up, and what follows it is not needed at all.
            row.new, row.ids, row.reusable = row.ids, row.ids[: max(1, span.stop - 1)], span.start - 1
        results: list[list[float]] = [[] for _ in work]
        with self._inference():
            for cache, group in self._groups([r for r in work if spans[r.index].start < spans[r.index].stop], 0):
                for batch, hidden, starts in self._prefill(cache, 0, group):
                    for i, row in enumerate(batch):
                        span = spans[row.index]
                        states = hidden[i, span.start - 1 - starts[i] : span.stop - 1 - starts[i]]
                        results[row.index] = self.head.token_logprobs(states, row.new[span.start : span.stop])
        return results

    def continuation_logprobs(
        self, rows: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]], keys: Sequence[str] | None = None
    ) -> list[list[float]]:
        """See `TokenEngine`: a prefill, and one forward over the inner nodes of the continuations' trie.

        `rrm.engines.hf.trie.off_grid_mass` gives the mass of anything else."""
        trie = build_trie(continuations)
        work = self.work(rows, keys, len(trie.tokens))
        results: list[list[float]] = [[] for _ in work]
        with self._inference():
            for cache, group in self._groups(work, len(trie.tokens)):
                values = self.head.trie_logprobs(trie, self._states(cache, trie, group))
                for row, logprobs in zip(group, values, strict=True):
                    results[row.index] = logprobs
        return results

    def choice_logprobs(
        self,
        rows: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]],
        choices: Sequence[int],
        keys: Sequence[str] | None = None,
    ) -> list[list[list[float]]]:
        """See `TokenEngine`: one prefill a row; the head runs in float32, for the choices alone.

        Raises EngineError: an empty row, a position outside its row, or choices that are not two tokens of the vocabulary."""
        check_choices(rows, positions, choices)
        tokens = self.head.layer.weight.shape[0]
        if max(choices) >= tokens:
            raise EngineError(f"choices {list(choices)}: the model has {tokens} tokens")
        prefixes = [
            row[: max(row_positions, default=0) + 1] for row, row_positions in zip(rows, positions, strict=True)
        ]
        work = self.work(prefixes, keys, 0, [min(row_positions, default=0) for row_positions in positions])
        results: list[list[list[float]]] = [[] for _ in work]
        with self._inference():
            for cache, group in self._groups([row for row in work if positions[row.index]], 0):
                for batch, hidden, starts in self._prefill(cache, 0, group):
                    counts = [len(positions[row.index]) for row in batch]
                    lines = [i for i, n in enumerate(counts) for _ in range(n)]
                    columns = [position - starts[i] for i, row in enumerate(batch) for position in positions[row.index]]
                    values = self.head.choice_logprobs(hidden[lines, columns], choices)
                    for row, row_values in zip(batch, values.split(counts), strict=True):
                        results[row.index] = row_values.tolist()
                for slot, row in enumerate(group):
                    if row.key is not None:
                        self.keep(row.key, row.ids, cache.take(slot, len(row.ids)))
        return results

    def release(self, keys: Sequence[str]) -> None:
        for key in keys:
            if key in self._kept:
                self._held -= self._kept.pop(key).size

    def sync(self, model: Any, version: int) -> None:
        self.version = version

    def close(self) -> None:
        pass

    # ---- setting up ----

    def _check_model(self, config: Any) -> None:
        """Refuse a model for which this engine's shortcuts would be wrong."""
        sliding = ["sliding_attention"] if getattr(config, "sliding_window", None) else ["full_attention"]
        kinds = set(getattr(config, "layer_types", None) or sliding)
        if kinds != {"full_attention"}:
            raise EngineError(
                f"{type(self.model).__name__} has {sorted(kinds)} layers; only full attention is supported"
            )
        with self._inference():
            ids = torch.arange(min(3, config.vocab_size), device=self.device)[None]
            full_logits = self.model(input_ids=ids, use_cache=False).logits.float()
            states = self._decoder(input_ids=ids, use_cache=False).last_hidden_state[0]
            parts = as_stored(self.head.layer, states).float()  # as the model itself projects
        if not torch.allclose(full_logits[0], parts, rtol=1e-3, atol=1e-3):
            raise EngineError(
                f"{type(self.model).__name__} changes its logits after lm_head; this engine would miss it"
            )

    @contextmanager
    def _inference(self) -> Iterator[None]:
        """Turn off gradients and dropout; restore each module's training mode afterwards."""
        training = [module for module in self.model.modules() if module.training]
        self.model.eval()
        try:
            with self.head.open(), torch.inference_mode():
                yield
        finally:
            for module in training:
                module.training = True

    def work(
        self,
        rows: Sequence[Sequence[int]],
        keys: Sequence[str] | None,
        extra: int,
        reusable: Sequence[int] | None = None,
    ) -> list[ActiveRow]:
        """Check the rows and match each with what is kept under its key.

        Args:
            reusable: per row, leading tokens that may come from a cache; default: all but the last.
        """
        if keys is not None and (len(keys) != len(rows) or len(set(keys)) != len(keys)):
            raise EngineError(
                f"{len(rows)} rows need as many distinct keys, got {len(keys)} ({len(set(keys))} distinct)"
            )
        work: list[ActiveRow] = []
        for i, row_ids in enumerate(rows):
            ids = [int(token) for token in row_ids]
            if not ids:
                raise EngineError(f"row {i} is empty; a row needs at least one token")
            if self.max_positions is not None and len(ids) + extra > self.max_positions:
                raise EngineError(
                    f"row {i}: {len(ids)} tokens and {extra} more exceed the model's {self.max_positions} positions; "
                    "shorten the row"
                )
            key = keys[i] if keys is not None else None
            most = len(ids) - 1 if reusable is None else reusable[i]
            row = ActiveRow(i, ids, most, key, limit=extra, most=len(ids) + extra)
            entry = self._kept.get(row.key) if row.key is not None else None
            if entry is not None and row.key is not None:
                self._kept.move_to_end(row.key)
                row.cached = min(common_prefix([entry.ids, ids]), row.reusable)
                row.kept = entry.kv if row.cached else None
            work.append(row)
        return work

    def share(self, rows: list[ActiveRow], prefix: tuple[list[int], KV] | None = None) -> tuple[list[int], KV] | None:
        """Run the common prefix of uncached rows once, and share it; returns (ids, keys and values).

        Args:
            prefix: one that was run before; rows that do not start with enough of it get nothing.
        """
        bare = [row for row in rows if row.kept is None]
        if prefix is None:
            shared = min([common_prefix([row.ids for row in bare]), *(row.reusable for row in bare)])
            if len(bare) < 2 or shared < MIN_SHARED_PREFIX:
                return None
            cache, ids = SlotCache(self.layers, 1, shared), bare[0].ids[:shared]
            self.forward(cache, 0, [ids], [0])
            self._count_prefill(shared)
            prefix = (ids, cache.take(0, shared))
        for row in bare:
            shared = min(common_prefix([prefix[0], row.ids]), row.reusable)
            if shared >= MIN_SHARED_PREFIX:
                row.kept, row.cached = prefix[1], shared
        return prefix

    def _count_prefill(self, tokens: int) -> None:
        self.counters.prefilled += tokens
        self.counters.prefill_forwards += 1

    def _groups(self, work: list[ActiveRow], extra: int) -> Iterator[tuple[SlotCache, list[ActiveRow]]]:
        """Group rows whose keys and values fit `max_batch_tokens`, longest first, each with a fresh cache."""
        if not work:
            return
        self.share(work)
        ordered = sorted(work, key=lambda row: len(row.ids), reverse=True)
        for group in micro_batches([len(row.ids) + extra for row in ordered], self.max_batch_tokens, waste=0.5):
            freed_memory.give_back()
            rows = ordered[group.start : group.stop]
            # A prefill is as wide as its longest row, also for one that starts late and ends early.
            widest = max(row.cached for row in rows) + max(len(row.ids) - row.cached for row in rows)
            yield SlotCache(self.layers, len(rows), max(len(rows[0].ids) + extra, widest)), rows

    # ---- forwards ----

    def forward(
        self, cache: SlotCache, low: int, tokens: list[list[int]], starts: list[int], trie: Trie | None = None
    ) -> torch.Tensor:
        width = max(len(row) for row in tokens)
        ids = torch.tensor([row + [0] * (width - len(row)) for row in tokens], device=self.device)
        cache.aim(low, starts, width, self.device)
        positions = cache.positions
        mask: torch.Tensor | None = None
        if trie is not None:
            positions = cache.positions[:, :1] + torch.tensor(trie.depths(), device=self.device) - 1
            mask = self._tree_mask(cache, trie)
        elif cache.common_start is None or (cache.common_start > 0 and width > 1):
            # Right padding needs no mask of its own: a pad comes after every token of its row.
            queries = cache.positions if cache.common_start is None else cache.positions[:1]
            mask = self._additive(torch.arange(cache.visible, device=self.device) <= queries[:, :, None])
        output = self._decoder(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
        )
        return output.last_hidden_state

    def _additive(self, allowed: torch.Tensor) -> torch.Tensor:
        """Boolean (B, L, S) as additive mask (B, 1, L, S), for sdpa and eager attention."""
        mask = torch.zeros(allowed.shape, dtype=self._dtype, device=self.device)
        return mask.masked_fill_(~allowed, torch.finfo(self._dtype).min)[:, None]

    def _tree_mask(self, cache: SlotCache, trie: Trie) -> torch.Tensor:
        """(B, 1, N, S): node i sees its row, its ancestors and itself."""
        starts = cache.positions[:, :1, None]  # (B, 1, 1)
        keys = torch.arange(cache.visible, device=self.device)  # (S,)
        sees = torch.tensor(trie.sees(), device=self.device)  # (N, N)
        node = (keys - starts).clamp(0, len(trie.tokens) - 1)[:, 0]  # (B, S): which node stands at a key position
        inside = (keys >= starts) & (keys < starts + len(trie.tokens))  # (B, 1, S)
        return self._additive((keys < starts) | (inside & sees[:, node].transpose(0, 1)))

    def _prefill(
        self, cache: SlotCache, low: int, rows: list[ActiveRow]
    ) -> Iterator[tuple[list[ActiveRow], torch.Tensor, list[int]]]:
        """Prefill slots from `low` on; yields (rows, hidden (B, L, H), first position of each)."""
        filled = 0
        while filled < len(rows):  # neighbours that hold the same keys and values are filled by one copy
            same = filled + 1
            while (
                same < len(rows) and rows[same].kept is rows[filled].kept and rows[same].cached == rows[filled].cached
            ):
                same += 1
            kv = rows[filled].kept
            if kv is not None:
                cache.fill(low + filled, low + same, kv, rows[filled].cached)
            filled = same
        new = [len(row.ids) - row.cached for row in rows]
        for batch in micro_batches(new, self.prefill_tokens, slack=self.prefill_tokens // 8):
            chunk = rows[batch.start : batch.stop]
            self._count_prefill(sum(new[batch.start : batch.stop]))
            starts = [row.cached for row in chunk]
            hidden = self.forward(cache, low + batch.start, [row.ids[row.cached :] for row in chunk], starts)
            for row in chunk:
                row.cached, row.kept = len(row.ids), None
            yield chunk, hidden, starts

    def last_states(self, cache: SlotCache, low: int, rows: list[ActiveRow]) -> torch.Tensor:
        states: list[torch.Tensor] = []
        for chunk, hidden, starts in self._prefill(cache, low, rows):
            last = [len(row.ids) - start - 1 for row, start in zip(chunk, starts, strict=True)]
            states.append(hidden[torch.arange(len(chunk)), last])
        return torch.cat(states)

    def _states(self, cache: SlotCache, trie: Trie, group: list[ActiveRow]) -> torch.Tensor:
        """Hidden states (B, 1 + N, H) at the trie's root and inner nodes."""
        root = self.last_states(cache, 0, group)[:, None]
        if not trie.tokens:
            return root
        nodes = self.forward(cache, 0, [trie.tokens] * len(group), [len(row.ids) for row in group], trie)
        return torch.cat([root, nodes], dim=1)

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        return self.head.logits(states)

    def keep(self, key: str, ids: list[int], kv: KV) -> None:
        """Keep a row's keys and values; drop the least recently used ones beyond `kept_bytes`."""
        self.release([key])
        self._kept[key] = _Kept(ids, kv, kv_bytes(kv))
        self._held += self._kept[key].size
        while self._held > self.kept_bytes and self._kept:
            self.release([next(iter(self._kept))])


def eos_ids_of(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Ids that end a completion, of tokenizer and generation config (Qwen has two), or EngineError."""
    configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    ids = [configured] if isinstance(configured, int) else list(configured or [])
    if isinstance(tokenizer.eos_token_id, int):
        ids.append(tokenizer.eos_token_id)
    if not ids:
        raise EngineError("neither the tokenizer nor the generation config names an eos token; set tokenizer.eos_token")
    return frozenset(ids)
