"""What judging a set of transcripts would take: rows, tokens, time and cost (`rrm score --dry-run`)."""

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

OUTPUT_TOKENS: dict[Mode, int] = {"full": 512, "critique": 256, "score": 16, "steps": 1}
"""Room a reply needs at most, for the estimate, of a judge that does not say."""
PROBE_SECONDS = 1.0
"""What the first transcript may take if further ones are to be timed."""


@dataclass
class Estimate:
    """What judging would take."""

    rows: int = 0
    prompt_tokens: int = 0
    """As often as they are read (`rrm.data.feedback.Reads`)."""
    max_output_tokens: int = 0
    """Room of all replies, each asked for once: most end earlier, but a model here writes one that cannot be read up to twice more
    (`rrm.judge.local.RETRIES`), and a server is asked again after failures. Where verdicts are read at slots, a token each and none besides."""
    seconds: float | None = None
    """Extrapolated from `probed` transcripts; None where nothing was timed (a server is not called)."""
    probed: int = 0
    readings: int = 0
    """Prompts in all: a long transcript may take several."""
    coverage: dict[str, Any] | None = None
    """As in `rrm.scoring.run.ScoreSummary`."""
    unsupported_media: dict[str, Any] | None = None
    """As in `rrm.scoring.run.ScoreSummary`."""
    cost: float | None = None
    """In the currency of the prices given: at most, where no request fails, and with nothing cached."""
    cost_of_prompts: float | None = None
    """Of that, what is read."""


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
    """Rows, tokens, and time extrapolated from `probe` transcripts of middling length, judged and thrown away (from one,
    where that takes more than a second).

    Args:
        thinking_tokens: room for thinking beside each reply.
    """
    found, first, coverage, readings = Estimate(), list[tuple[int, Trajectory]](), Coverage(), 0
    asked: int | None = getattr(judge, "answer_tokens", None)
    reply = (asked or OUTPUT_TOKENS[mode]) + thinking_tokens
    unshown = Unshown(getattr(judge, "images", None) is not None)
    for window in windows(unshown.counted(inputs), 256):
        reads = judge.measure(window, mode, samples)
        counts = [r.tokens for r in reads]
        for read, trajectory in zip(reads, window, strict=True):
            if trajectory.steps:
                coverage.add(trajectory.id, read.coverage)
        readings += sum(r.readings for r in reads)
        found.max_output_tokens += sum(r.readings * reply if r.written is None else r.written for r in reads)
        first = first or list(zip(counts, window, strict=True))
        found.rows += len(window)
        found.prompt_tokens += sum(counts)
    found.readings, found.coverage = readings, coverage.report(judge.describe(), judge)
    found.unsupported_media = unshown.report()
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
            found.prompt_tokens / max(tokens, 1)
            if mode in ("score", "steps") and not asked
            else found.rows / len(middle)
        )
        found.seconds, found.probed = round(took * share, 1), len(middle)
    if prices is not None:
        used = Usage(prompt_tokens=found.prompt_tokens)
        found.cost_of_prompts = round(prices.of(used), 6)
        found.cost = round(prices.of(used.model_copy(update={"completion_tokens": found.max_output_tokens})), 6)
    return found
