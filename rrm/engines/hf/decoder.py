"""Continuous decoding for the `hf` engine: rows join and leave a running batch at their own time.

A common prefix of unlike prompts runs once, equal prompts are prefilled once and copied, and a key's next turn prefills only
what is new (with the last sampled token, which was never run).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch

from rrm.data.seeds import derive_seed
from rrm.engines.base import Completion, EngineCounters, SamplingParams, StopReason
from rrm.engines.hf.base_model import widest_float
from rrm.engines.hf.host_memory import freed_memory
from rrm.engines.hf.slots import KV, SlotCache
from rrm.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence


MIN_SHARED_PREFIX = 16  # shorter common prefixes are not worth their own forward
JOIN_SHARE = 0.25  # waiting rows join once they are this share of the running ones, to prefill several at once
GROWTH = 1.5  # least factor of a growing cache, so that rows are rarely copied


BELOW_ONE = 1 - 2**-24  # largest float32 below 1: times a sum it stays below it, so a token of mass 0 is never chosen


def row_uniforms(seed: int, count: int) -> torch.Tensor:
    """Uniform numbers in [0, 1) (count,) float64 on the CPU; number t decides the row's token t."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, generator=generator, dtype=torch.float64)


def _nucleus(probs: torch.Tensor, top_p: float) -> torch.Tensor:
    """Zero all but the smallest set of likeliest tokens whose mass reaches `top_p` (the best one stays)."""
    ordered, order = probs.sort(dim=-1, descending=True)
    outside = ordered.cumsum(-1) - ordered >= top_p
    outside[:, 0] = False
    return probs.masked_fill(torch.zeros_like(outside).scatter(1, order, outside), 0.0)


def choose(
    logits: torch.Tensor, temperature: float, top_p: float, uniforms: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose the next token of each row; returns ids (B,) int64 and log-probabilities (B,) float32.

    Args:
        logits: (B, V) float32.
        temperature: 0 is greedy, with log-probabilities at temperature 1.
        top_p: nucleus mass; log-probabilities are those before the cut.
        uniforms: (B,) float64 in [0, 1), inverted through the cumulative distribution; unused when greedy.
    """
    if temperature == 0.0:
        best, ids = logits.max(-1)
        return ids, best - logits.logsumexp(-1)
    logprobs = (logits / temperature).log_softmax(-1)
    wide = widest_float(logits.device)
    probs = logprobs.to(wide).exp()
    if top_p < 1.0:
        probs = _nucleus(probs, top_p)
    cumulative = probs.cumsum(-1)
    drawn = uniforms if wide == torch.float64 else uniforms.clamp(max=BELOW_ONE)
    # cast before it moves: a device without float64 cannot receive one
    targets = drawn.to(wide).to(cumulative.device)[:, None] * cumulative[:, -1:]
    # right=True takes the first token whose cumulative mass exceeds the target: one of mass 0 is never chosen.
    ids = torch.searchsorted(cumulative, targets, right=True).clamp_(max=logits.shape[1] - 1)
    return ids[:, 0], logprobs.gather(1, ids)[:, 0]


@dataclass
class ActiveRow:
    """A row at work. Keys and values of `ids[:cached]` are in its slot, or in `kept` while it waits."""

    index: int
    ids: list[int]
    reusable: int  # leading tokens that may come from a cache: the hidden state after the last of the others is needed
    key: str | None = None
    limit: int = 0  # most new tokens
    most: int = 0  # most tokens of prompt and completion
    cached: int = 0
    kept: KV | None = None
    uniforms: list[float] = field(default_factory=list)
    new: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stop_reason: StopReason | None = None

    def completion(self, version: int) -> Completion:
        assert self.stop_reason is not None
        return Completion(self.new, self.logprobs, self.stop_reason, version)


class Host(Protocol):
    """Engine that a decoder runs on (`rrm.engines.hf.engine.HFEngine`): model, budget, kept rows."""

    tokenizer: Any
    layers: int
    max_positions: int | None
    max_batch_tokens: int
    eos_ids: frozenset[int]
    counters: EngineCounters
    version: int

    def work(self, rows: Sequence[Sequence[int]], keys: Sequence[str] | None, extra: int) -> list[ActiveRow]: ...

    def share(
        self, rows: list[ActiveRow], prefix: tuple[list[int], KV] | None = None
    ) -> tuple[list[int], KV] | None: ...

    def forward(self, cache: SlotCache, low: int, tokens: list[list[int]], starts: list[int]) -> torch.Tensor:
        """Hidden states (B, L, H) of `tokens[i]`, which follow `starts[i]` cached tokens of slot low + i."""
        ...

    def last_states(self, cache: SlotCache, low: int, rows: list[ActiveRow]) -> torch.Tensor:
        """Hidden states (B, H) after each row's last token, prefilled into slots from `low` on."""
        ...

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """(…, V) float32 logits of hidden states (…, H)."""
        ...

    def keep(self, key: str, ids: list[int], kv: KV) -> None: ...

    def release(self, keys: Sequence[str]) -> None: ...


class Decoder:
    """A running batch over an engine's model; row i of `active` is in slot i. See `HFEngine.session`."""

    def __init__(self, engine: Host, params: SamplingParams) -> None:
        self.engine, self.params = engine, params
        self.waiting: deque[ActiveRow] = deque()
        self.active: list[ActiveRow] = []
        self._cache: SlotCache | None = None
        self._prefix: tuple[list[int], KV] | None = None

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.active

    def submit(self, key: str, ids: Sequence[int], max_new_tokens: int | None = None) -> None:
        """Queue a row; its samples depend on (params.seed, key, its length).

        Raises:
            EngineError: an empty row, one beyond the model's positions, no room for a new token, or a key at work.
        """
        limit = self.params.max_new_tokens if max_new_tokens is None else max_new_tokens
        if not 1 <= limit <= self.params.max_new_tokens:
            raise EngineError(f"{key}: max_new_tokens {limit} is not within 1 … {self.params.max_new_tokens}")
        if any(row.key == key for row in (*self.waiting, *self.active)):
            raise EngineError(f"{key}: this key's row has not finished yet")
        self.add(self.engine.work([ids], [key], limit)[0])

    def add(self, row: ActiveRow) -> None:
        name = row.key if row.key is not None else derive_seed(*row.ids)
        # As many numbers as any row may need: number t of a row is the same whatever its own limit.
        row.uniforms = row_uniforms(
            derive_seed(self.params.seed, name, len(row.ids)), self.params.max_new_tokens
        ).tolist()
        self.waiting.append(row)

    def step(self) -> list[tuple[str, Completion]]:
        """Prefill joining rows, or decode a token for every row; (key, completion) of finished rows."""
        return [(row.key or "", row.completion(self.engine.version)) for row in self.advance()]

    def advance(self) -> list[ActiveRow]:
        fresh = self._admit()
        low = len(self.active) if fresh else 0
        if fresh:
            states = self._join(fresh)
        elif self.active:
            states = self._decode()
        else:
            return []
        self._sample(self.active[low:], self.engine.logits(states))
        finished: list[ActiveRow] = []
        for slot in range(len(self.active) - 1, low - 1, -1):  # from the back: a row that moves was looked at already
            if self.active[slot].stop_reason is not None:
                finished.append(self._leave(slot))
        return finished[::-1]

    # ---- joining ----

    def _admit(self) -> list[ActiveRow]:
        """Take waiting rows in order of arrival, as many as fit, if they are worth a forward."""
        fits, running = 0, len(self.active)
        most = max((row.most for row in self.active), default=0)
        for row in self.waiting:
            most = max(most, row.most)
            if running + fits and (running + fits + 1) * most > self.engine.max_batch_tokens:
                break
            fits += 1
        if fits < max(1, running * JOIN_SHARE):
            return []
        if self._prefix is not None or len({tuple(row.ids) for row in self.waiting}) > 1:
            self._prefix = self.engine.share([*self.waiting], self._prefix)
        return [self.waiting.popleft() for _ in range(fits)]

    def _join(self, fresh: list[ActiveRow]) -> torch.Tensor:
        """Prefill rows into slots behind the running ones; states (B, H) after the last token of each."""
        freed_memory.give_back()
        groups: dict[tuple[int, ...], list[ActiveRow]] = {}
        for row in fresh:
            groups.setdefault(tuple(row.ids), []).append(row)
            if row.key is not None:
                self.engine.release([row.key])  # its keys and values are in the row's hands now
        for same in groups.values():
            same.sort(key=lambda row: row.cached, reverse=True)
        ordered = sorted(groups.values(), key=lambda same: len(same[0].ids) - same[0].cached, reverse=True)
        leaders, low = [same[0] for same in ordered], len(self.active)
        cache = self._room(fresh, leaders)
        states = self.engine.last_states(cache, low, leaders)
        self.active += leaders
        order = list(range(len(leaders)))
        for slot, same in enumerate(ordered, low):
            tokens, others = len(same[0].ids), same[1:]
            if others:
                cache.copy(slot, len(self.active), len(self.active) + len(others), tokens)
            for row in others:
                row.kept, row.cached = None, tokens
            self.active += others
            order += [slot - low] * len(others)
            self._hand_on(cache, slot, same[0])
        return states[order]

    def _hand_on(self, cache: SlotCache, slot: int, leader: ActiveRow) -> None:
        """Share what was computed with waiting rows of the same ids."""
        alike = [row for row in self.waiting if row.cached < row.reusable and row.ids == leader.ids]
        if alike:
            kv = cache.take(slot, alike[0].reusable)
            for row in alike:
                row.kept, row.cached = kv, row.reusable

    def _room(self, fresh: list[ActiveRow], leaders: list[ActiveRow]) -> SlotCache:
        slots = len(self.active) + len(fresh)
        # A prefill is as wide as its longest row, also for one that starts late and ends early.
        widest = max(row.cached for row in leaders) + max(len(row.ids) - row.cached for row in leaders)
        capacity = max([widest, *(row.most for row in fresh)])
        if self._cache is None:
            self._cache = SlotCache(self.engine.layers, slots, capacity)
        elif capacity > self._cache.capacity or slots > self._cache.slots:
            if capacity > self._cache.capacity:
                grown = int(GROWTH * self._cache.capacity)
                capacity = max(capacity, min(grown, self.engine.max_positions or grown))
            used = max((row.cached for row in self.active), default=0)
            self._cache.resize(
                max(slots, self._cache.slots), max(capacity, self._cache.capacity), len(self.active), used
            )
        return self._cache

    # ---- decoding ----

    def _decode(self) -> torch.Tensor:
        """Run every row's last token; returns states (B, H) after it."""
        assert self._cache is not None
        starts = [row.cached for row in self.active]
        states = self.engine.forward(self._cache, 0, [[row.ids[-1]] for row in self.active], starts)[:, 0]
        self.engine.counters.decoded += len(self.active)
        self.engine.counters.decode_forwards += 1
        for row in self.active:
            row.cached += 1
        return states

    def _sample(self, rows: list[ActiveRow], logits: torch.Tensor) -> None:
        params, eos = self.params, self.engine.eos_ids
        uniforms = torch.tensor([row.uniforms[len(row.new)] for row in rows], dtype=torch.float64)
        ids, logprobs = choose(logits, params.temperature, params.top_p, uniforms)
        for row, token, logprob in zip(rows, ids.tolist(), logprobs.tolist(), strict=True):
            row.ids.append(token)
            row.new.append(token)
            row.logprobs.append(logprob)
        for row, stop in zip(rows, self._stopped(rows), strict=True):
            full = len(row.new) >= row.limit
            row.stop_reason = "eos" if row.new[-1] in eos else "stop" if stop else "length" if full else None

    def _stopped(self, rows: list[ActiveRow]) -> list[bool]:
        """Tell whether a stop text occurs in the decoded tail (the last token may carry more: BPE merges)."""
        stop = self.params.stop
        if not stop:
            return [False] * len(rows)
        # Every token holds at least one byte of the text; a few more give a decoder that trims the left some room.
        tail = max(len(text.encode()) for text in stop) + 4
        texts = self.engine.tokenizer.batch_decode(
            [row.new[-tail:] for row in rows], skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return [any(end in text for end in stop) for text in texts]

    def _leave(self, slot: int) -> ActiveRow:
        assert self._cache is not None
        row = self.active[slot]
        if row.key is not None:
            self.engine.keep(row.key, row.ids[: row.cached], self._cache.take(slot, row.cached))
        last = self.active.pop()
        if last is not row:
            self._cache.copy(len(self.active), slot, slot + 1, last.cached)
            self.active[slot] = last
        return row
