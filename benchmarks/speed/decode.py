"""How fast one decoding step of a session is, against a plain transformers decode at the same context.

Run as `python -m benchmarks.speed.rollout --decode`.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rrm.engines.base import SamplingParams
from rrm.engines.hf.engine import HFEngine


def plain_steps(model: Any, rows: list[list[int]], steps: int) -> Iterator[float]:
    """Seconds of each step of a plain decode: DynamicCache, left padding, sampling by torch.multinomial."""
    import torch
    from transformers import DynamicCache

    width = max(map(len, rows))
    ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    cache = DynamicCache(config=model.config)
    with torch.inference_mode():
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        output = model(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1
        )
        positions = positions[:, -1:]
        ragged = len({len(row) for row in rows}) > 1
        for _ in range(steps):
            start = time.perf_counter()
            token = torch.multinomial(output.logits[:, -1].float().softmax(-1), 1)
            mask, positions = torch.cat([mask, torch.ones_like(token)], dim=1), positions + 1
            output = model(
                input_ids=token,
                attention_mask=mask if ragged else None,
                position_ids=positions,
                past_key_values=cache,
                logits_to_keep=1,
            )
            yield time.perf_counter() - start


def session_steps(engine: HFEngine, rows: list[list[int]], steps: int) -> Iterator[float]:
    """Seconds of each decoding step of a session."""
    with engine.session(SamplingParams(max_new_tokens=steps + 1, temperature=1.0)) as session:
        for i, row in enumerate(rows):
            session.submit(f"row-{i}", row)
        while len(session.active) < len(rows):
            session.step()
        for _ in range(steps):
            start = time.perf_counter()
            session.step()
            yield time.perf_counter() - start


@contextmanager
def no_eos(engine: HFEngine) -> Iterator[None]:
    """Rows that run to their limit: a step then always decodes all of them."""
    kept, engine.eos_ids = engine.eos_ids, frozenset()
    try:
        yield
    finally:
        engine.eos_ids = kept


def compare_decode(model: Any, tokenizer: Any, args: argparse.Namespace, context: int, ragged: bool) -> dict[str, Any]:
    """Median step times at one context, arms in turn."""
    import torch

    generator = torch.Generator().manual_seed(args.seed)
    lengths = [context - (i * context // (2 * args.batch) if ragged else 0) for i in range(args.batch)]
    rows = [torch.randint(3, len(tokenizer), (n,), generator=generator).tolist() for n in lengths]
    engine = HFEngine(model, tokenizer, max_batch_tokens=args.batch * (context + args.steps + 1))
    arms = {
        "ours": lambda: session_steps(engine, rows, args.steps),
        "plain": lambda: plain_steps(model, rows, args.steps),
    }
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    with no_eos(engine):
        for repeat, (name, arm) in itertools.product(range(args.repeats + 1), arms.items()):
            taken = list(arm())
            seconds[name] += taken if repeat else []
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    found = {
        "context": context,
        "rows": "unlike lengths" if ragged else "equal lengths",
        "step_ms": {name: round(1e3 * value, 3) for name, value in middle.items()},
        "ours_over_plain": round(middle["ours"] / middle["plain"], 3),
    }
    print(found, file=sys.stderr)
    return found
