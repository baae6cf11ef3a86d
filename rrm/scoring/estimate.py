"""Estimate rows, tokens, time and cost of judging transcripts (`rrm score --dry-run`)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rrm.data.feedback import Mode
from rrm.data.time_slices import windows
from rrm.data.trajectory import Trajectory
from rrm.data.usage import Usage
from rrm.engines.cost import Prices
from rrm.scoring.coverage import Coverage
from rrm.scoring.run import ScoringJudge
from rrm.scoring.unsupported_media import Unshown

# room for a reply, of a judge without `answer_tokens`
OUTPUT_TOKENS: dict[Mode, int] = {"full": 512, "critique": 256, "score": 16, "steps": 1}
PROBE_SECONDS = 1.0  # of the first transcript, above which no further ones are timed


@dataclass
class Estimate:
    rows: int = 0
    prompt_tokens: int = 0
    """Each as often as it is read (`rrm.data.feedback.Reads`)."""
    max_output_tokens: int = 0
    """Room of all first tries (`rrm.judge.local.RETRIES` come on top); a token for each slot."""
    seconds: float | None = None
    """Extrapolated from `probed` transcripts; None: nothing was timed (servers are not called)."""
    probed: int = 0
    readings: int = 0  # prompts; a long transcript may take several
    coverage: dict[str, Any] | None = None  # as in `rrm.scoring.run.ScoreSummary`
    unsupported_media: dict[str, Any] | None = None  # as in `rrm.scoring.run.ScoreSummary`
    cost: float | None = None
    """Upper bound in the prices' currency, without retries and cache."""
    cost_of_prompts: float | None = None  # part of `cost`


def estimate(
    judge: ScoringJudge,
    inputs: Iterable[Trajectory],
    *,
    mode: Mode = "full",
    samples: int = 1,
    seed: int = 0,
    probe: int = 4,
    prices: Prices | None = None,
    thinking_tokens: int = 0,
) -> Estimate:
    """Count rows and tokens, and time `probe` transcripts of middling length, whose rows are dropped."""
    result, first, coverage, readings = Estimate(), list[tuple[int, Trajectory]](), Coverage(), 0
    answer_tokens: int | None = getattr(judge, "answer_tokens", None)
    reply = (answer_tokens or OUTPUT_TOKENS[mode]) + thinking_tokens
    unshown = Unshown(getattr(judge, "images", None) is not None)
    for window in windows(unshown.counted(inputs), 256):
        reads = judge.measure(window, mode, samples)
        counts = [r.tokens for r in reads]
        for measured, trajectory in zip(reads, window, strict=True):
            if trajectory.steps:
                coverage.add(trajectory.id, measured.coverage)
        readings += sum(r.readings for r in reads)
        result.max_output_tokens += sum(r.readings * reply if r.written is None else r.written for r in reads)
        first = first or list(zip(counts, window, strict=True))
        result.rows += len(window)
        result.prompt_tokens += sum(counts)
    result.readings, result.coverage = readings, coverage.report(judge.describe(), judge)
    result.unsupported_media = unshown.report()
    if first and probe:
        first.sort(key=lambda pair: pair[0])
        middle = first[max(0, (len(first) - probe) // 2) :][:probe]
        silent: Mode = "steps" if mode == "steps" else "score"
        judge.judge([t for _, t in middle[:1]], mode=silent, samples=1, seed=seed)  # warm up: loading is not judging
        started = time.monotonic()
        judge.judge([t for _, t in middle[:1]], mode=mode, samples=samples, seed=seed)
        if time.monotonic() - started > PROBE_SECONDS:
            middle = middle[:1]  # an estimate that takes as long as the run is none
        elif middle[1:]:
            judge.judge([t for _, t in middle[1:]], mode=mode, samples=samples, seed=seed)
        took, tokens = time.monotonic() - started, sum(n for n, _ in middle)
        # scoring is reading: time goes with tokens; writing a judgement dwarfs reading: time goes with rows
        share = (
            result.prompt_tokens / max(tokens, 1)
            if mode in ("score", "steps") and not answer_tokens
            else result.rows / len(middle)
        )
        result.seconds, result.probed = round(took * share, 1), len(middle)
    if prices is not None:
        used = Usage(prompt_tokens=result.prompt_tokens)
        result.cost_of_prompts = round(prices.of(used), 6)
        result.cost = round(prices.of(used.model_copy(update={"completion_tokens": result.max_output_tokens})), 6)
    return result
