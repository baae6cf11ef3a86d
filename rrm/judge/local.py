"""Judging with a model in this process: prompts as token ids, scores as expectations over the grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rrm.engines.base import Completion, SamplingParams, TokenEngine
from rrm.engines.hf.trie import off_grid_mass
from rrm.feedback import Mode, parse_judgement
from rrm.judge.chat import Judgement
from rrm.prompt.prompter import GRID, Prompt, Prompter
from rrm.prompt.rendering import OPENINGS

SCORE_TAG = "<score>"
RETRIES = 2
"""How often a malformed reply is written again."""
RETRY_TEMPERATURE = 0.7


class Decoder(Protocol):
    """The part of a tokenizer needed to read sampled text."""

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool = ...) -> str: ...


@dataclass(frozen=True)
class Written:
    """A reply up to its opened score tag: what a full judgement is read from."""

    ids: list[int]
    text: str
    """With the opening tag in front; without special tokens."""
    completion: Completion


def expectation(logprobs: Sequence[float]) -> tuple[float, float]:
    """Σ p(v)·v over the grid, renormalised over it; and the probability that was off the grid.

    Args:
        logprobs: log p of each grid value, in `GRID`'s order; natural logarithms.
    """
    top = max(logprobs)
    weights = [math.exp(x - top) for x in logprobs]
    score = sum(w * v for w, v in zip(weights, GRID, strict=True)) / sum(weights)
    return min(max(score, 0.0), 1.0), off_grid_mass(logprobs)


def score_rows(
    engine: TokenEngine, prompter: Prompter, rows: Sequence[Sequence[int]], keys: Sequence[str] | None = None
) -> list[tuple[float, float]]:
    """(raw score, off-grid mass) of token rows that end with an opened score tag."""
    if not rows:
        return []
    return [expectation(x) for x in engine.continuation_logprobs(rows, prompter.grid(), keys)]


def write_replies(
    engine: TokenEngine,
    prompter: Prompter,
    prompts: Sequence[Prompt],
    mode: Mode,
    params: SamplingParams,
    keys: Sequence[str],
) -> list[Written]:
    """Sample each reply as far as its score tag."""
    completions = engine.generate([p.ids for p in prompts], params, keys)
    written = []
    for completion in completions:
        text = prompter.tokenizer.decode(completion.ids, skip_special_tokens=True)
        written.append(Written(completion.ids, OPENINGS[mode] + text, completion))
    return written


def judge_written(
    engine: TokenEngine,
    prompter: Prompter,
    prompts: Sequence[Prompt],
    written: Sequence[Written],
    keys: Sequence[str],
    mode: Mode,
) -> list[Judgement]:
    """Read the texts and take the expected score where the reply opened its score tag."""
    ready = [i for i, w in enumerate(written) if w.text.endswith(SCORE_TAG) and _problem(w, mode) is None]
    rows = [prompts[i].ids + written[i].ids for i in ready]
    scores = dict(zip(ready, score_rows(engine, prompter, rows, [keys[i] for i in ready]), strict=True))
    judgements = []
    for i, reply in enumerate(written):
        parts = parse_judgement(reply.text)
        if i in scores:
            raw, off = scores[i]
            judgements.append(Judgement("scored", parts.trace, parts.critique, raw, off))
            continue
        cut = reply.completion.stop_reason == "length"
        reason = "the reply was cut off by length" if cut else (_problem(reply, mode) or "no <score> block")
        judgements.append(Judgement("truncated" if cut else "unparsable", parts.trace, parts.critique, reason=reason))
    return judgements


def _problem(reply: Written, mode: Mode) -> str | None:
    """Why a reply is not of its mode's form, apart from its score."""
    parts = parse_judgement(reply.text)
    if not parts.critique:
        return "no <critique> block"
    if mode == "full" and not parts.trace:
        return "no <think> block"
    return None


def judge_rows(
    engine: TokenEngine,
    prompter: Prompter,
    prompts: Sequence[Prompt],
    names: Sequence[str],
    mode: Mode,
    params: SamplingParams,
    samples: int,
) -> list[list[Judgement]]:
    """`samples` judgements of each prompt; in `score` mode, which samples nothing, one."""
    if mode == "score":
        scored = score_rows(engine, prompter, [p.ids for p in prompts])
        return [[Judgement("scored", raw_score=raw, off_grid_mass=off)] for raw, off in scored]
    found: list[list[Judgement]] = [[] for _ in prompts]
    for k in range(samples):
        for row, judgement in enumerate(_judge_once(engine, prompter, prompts, names, mode, params, k)):
            found[row].append(judgement)
    return found


def _judge_once(
    engine: TokenEngine,
    prompter: Prompter,
    prompts: Sequence[Prompt],
    names: Sequence[str],
    mode: Mode,
    params: SamplingParams,
    sample: int,
) -> list[Judgement]:
    """One judgement of each prompt. A malformed reply is written again, sampled, with a new seed each time.

    Greedy text may run in circles until it is cut off; asking again at temperature 0 would only repeat it.
    """
    judgements: dict[int, Judgement] = {}
    for attempt in range(1 + RETRIES):
        rows = [i for i in range(len(prompts)) if i not in judgements or judgements[i].status != "scored"]
        if not rows:
            break
        if attempt:
            params = replace(params, temperature=max(params.temperature, RETRY_TEMPERATURE))
        keys = [f"{names[i]}/sample{sample}/try{attempt}" for i in rows]
        chosen = [prompts[i] for i in rows]
        written = write_replies(engine, prompter, chosen, mode, params, keys)
        judged = judge_written(engine, prompter, chosen, written, keys, mode)
        engine.release(keys)
        # the first failure is kept where every retry fails too
        judgements |= {i: j for i, j in zip(rows, judged, strict=True) if i not in judgements or j.status == "scored"}
    return [judgements[i] for i in range(len(prompts))]
