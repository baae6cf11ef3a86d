"""Judging with a local model: prompts as token ids, scores as expectations over the grid."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rrm.data.feedback import Mode, parse_judgement
from rrm.data.time_slices import windows
from rrm.engines.base import Answered, Completion, Reply, Request, SamplingParams, TokenEngine, one_reply
from rrm.engines.hf.trie import off_grid_mass
from rrm.engines.sessions import open_session
from rrm.errors import EngineError
from rrm.judge.chat import Judgement
from rrm.prompt.prompter import GRID, Prompt, Prompter
from rrm.prompt.rendering import OPENINGS
from rrm.prompt.template import render

SCORE_TAG = "<score>"
SCORE_ROOM = 8  # positions reserved for a score's tokens
RETRIES = 2  # of a malformed reply
RETRY_TEMPERATURE = 0.7
SLICE_SECONDS = 10.0  # longest wait of finished rows to be scored together; target time of a slice in `score` mode
SLICE_ROWS = 16  # most rows scored together while others are being written; first slice in `score` mode
OnRow = Callable[[int, Judgement], None]  # called with a row's number and its judgement


@dataclass(frozen=True)
class Written:
    # a reply up to its opened score tag

    ids: list[int]
    text: str  # starts with the opening tag; without special tokens
    completion: Completion


def written_at_most(prompt: Prompt, mode: Mode, max_new_tokens: int) -> int:
    """Return most tokens that a reading writes, one per slot; `max_new_tokens` is of a reply's text."""
    if mode == "steps":
        return len(prompt.slots)
    return SCORE_ROOM if mode == "score" else max_new_tokens + SCORE_ROOM


def excess(engine: TokenEngine, prompt: Prompt, mode: Mode, max_new_tokens: int) -> int:
    """Count the tokens by which a prompt and its reply (`max_new_tokens` of text) exceed the model's positions; ≤ 0: they fit."""
    positions = getattr(engine, "max_positions", None)
    return 0 if positions is None else len(prompt.ids) + reserved(mode, max_new_tokens) - positions


def reserved(mode: Mode, max_new_tokens: int) -> int:
    """Return the positions kept free for a reply."""
    return {"score": SCORE_ROOM, "steps": 0}.get(mode, max_new_tokens + SCORE_ROOM)


def too_long(engine: TokenEngine, prompt_tokens: int, reply_tokens: int) -> EngineError:
    """Return the error of a prompt that exceeds the positions, with numbers and what to do."""
    shorter = "--transcript-tokens or --max-new-tokens" if reply_tokens > SCORE_ROOM else "--transcript-tokens"
    return EngineError(
        f"{prompt_tokens:,} tokens of prompt and {reply_tokens:,} of reply exceed the model's "
        f"{getattr(engine, 'max_positions', 0):,} positions: lower {shorter}",
        "too_long",
    )


def expectation(logprobs: Sequence[float]) -> tuple[float, float]:
    """Return Σ p(v)·v renormalised over the grid, and the probability off the grid.

    `logprobs` are natural log p of each grid value, in `GRID`'s order.
    """
    top = max(logprobs)
    weights = [math.exp(x - top) for x in logprobs]
    score = sum(w * v for w, v in zip(weights, GRID, strict=True)) / sum(weights)
    return min(max(score, 0.0), 1.0), off_grid_mass(logprobs)


def score_rows(
    engine: TokenEngine, prompter: Prompter, rows: Sequence[Sequence[int]], keys: Sequence[str] | None = None
) -> list[tuple[float, float]]:
    """Return (raw score, off-grid mass) of token rows that end with an opened score tag."""
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
    completions = engine.generate([p.ids for p in prompts], params, keys)
    return [_written(prompter, completion, mode) for completion in completions]


def judge_written(
    engine: TokenEngine,
    prompter: Prompter,
    prompts: Sequence[Prompt],
    written: Sequence[Written],
    keys: Sequence[str],
    mode: Mode,
) -> list[Judgement]:
    """Parse the texts, and compute the expected score where a reply opened its score tag."""
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
    keys: Sequence[str],
    mode: Mode,
    params: SamplingParams,
    on_row: OnRow,
) -> None:
    """Judge each prompt, retrying malformed replies; the first failure stays if all retries fail.

    `keys` name and seed the replies. `on_row` is called with each row as soon as it is judged: in slices of about
    `SLICE_SECONDS` in `score` mode, else while others are being written.
    """
    if mode == "score":
        _score_in_slices(engine, prompter, prompts, on_row)
        return
    rows, first = list(range(len(prompts))), dict[int, Judgement]()
    for attempt in range(1 + RETRIES):
        if attempt:
            # greedy text may run in circles until it is cut off; asking again at temperature 0 would only repeat it
            params = replace(params, temperature=max(params.temperature, RETRY_TEMPERATURE))
        failed: list[int] = []
        by_key = {f"{keys[row]}/try{attempt}": row for row in rows}
        if len(by_key) != len(rows):
            raise EngineError(
                f"{len(rows)} replies need distinct row ids, got {len(by_key)} distinct: give rows ids of their own"
            )
        for row, parsed in _write_and_read(engine, prompter, prompts, by_key, mode, params):
            judgement = replace(parsed, temperature=params.temperature)
            first.setdefault(row, judgement)
            if judgement.status == "scored" or attempt == RETRIES:
                on_row(row, judgement if judgement.status == "scored" else first[row])
            else:
                failed.append(row)
        rows = sorted(failed)


def _score_in_slices(engine: TokenEngine, prompter: Prompter, prompts: Sequence[Prompt], on_row: OnRow) -> None:
    # rows of like length together, longest first
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i].ids), reverse=True)
    for rows in windows(order, max(len(order), 1), first=SLICE_ROWS, seconds=SLICE_SECONDS):
        scored = score_rows(engine, prompter, [prompts[i].ids for i in rows])
        for i, (raw, off) in zip(rows, scored, strict=True):
            on_row(i, Judgement("scored", raw_score=raw, off_grid_mass=off))


def _write_and_read(
    engine: TokenEngine,
    prompter: Prompter,
    prompts: Sequence[Prompt],
    by_key: Mapping[str, int],
    mode: Mode,
    params: SamplingParams,
) -> Iterator[tuple[int, Judgement]]:
    """Sample and parse each row's reply, in order of completion."""
    pending: list[tuple[str, Completion]] = []
    with open_session(engine, params) as session:
        for key, row in sorted(by_key.items(), key=lambda pair: len(prompts[pair[1]].ids), reverse=True):
            session.submit(key, prompts[row].ids)
        since = time.monotonic()
        while pending or not session.idle:
            pending += session.step()
            late = time.monotonic() - since > SLICE_SECONDS
            if not (session.idle or late or len(pending) >= SLICE_ROWS):
                continue
            keys = [key for key, _ in pending]
            chosen = [prompts[by_key[key]] for key in keys]
            written = [_written(prompter, completion, mode) for _, completion in pending]
            judged = judge_written(engine, prompter, chosen, written, keys, mode)
            engine.release(keys)
            pending, since = [], time.monotonic()
            yield from ((by_key[key], judgement) for key, judgement in zip(keys, judged, strict=True))


def _written(prompter: Prompter, completion: Completion, mode: Mode) -> Written:
    text = prompter.tokenizer.decode(completion.ids, skip_special_tokens=True)
    return Written(completion.ids, OPENINGS[mode] + text, completion)


class TemplatedEngine:
    """A `ChatEngine` over a `TokenEngine`, with the model's tokenizer and template."""

    takes_schema = False

    def __init__(self, engine: TokenEngine, tokenizer: Any) -> None:
        self.engine, self.tokenizer = engine, tokenizer

    def complete(self, messages: list[dict[str, str]], params: SamplingParams, key: str = "") -> Reply:
        return one_reply(self, messages, params, key)

    def converse(self, requests: Iterable[Request], params: SamplingParams, answered: Answered) -> None:
        """Ask all in one running batch; raises EngineError if two at work have one key."""
        room, at_work = getattr(self.engine, "max_positions", None), dict[str, Request]()

        def begin(request: Request | None, ids: list[int]) -> None:
            while request is not None and room is not None and len(ids) + params.max_new_tokens > room:
                request = answered(request, too_long(self.engine, len(ids), params.max_new_tokens))
                ids = [] if request is None else self._ids(request)
            if request is not None:
                if request.key in at_work:
                    raise EngineError(f"rows need distinct keys: {request.key!r} is at work")
                at_work[request.key] = request
                session.submit(request.key, ids)

        with open_session(self.engine, params) as session:
            prompts = [(request, self._ids(request)) for request in requests]
            for request, ids in sorted(prompts, key=lambda pair: len(pair[1]), reverse=True):
                begin(request, ids)
            while not session.idle:
                for key, completion in session.step():
                    self.engine.release([key])
                    following = answered(at_work.pop(key), self._reply(completion))
                    begin(following, [] if following is None else self._ids(following))

    def _ids(self, request: Request) -> list[int]:
        return self.tokenizer.encode(render(self.tokenizer, request.messages), add_special_tokens=False)

    def _reply(self, completion: Completion) -> Reply:
        text = self.tokenizer.decode(completion.ids, skip_special_tokens=True)
        return Reply(text, "length" if completion.stop_reason == "length" else "eos")
