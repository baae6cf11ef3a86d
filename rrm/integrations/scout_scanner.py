"""Inspect Scout: the judge as a scanner, `scan(scanners=[agent_rrm()], …)`, with links to steps."""

from __future__ import annotations

import math
from typing import Any

from rrm.data.feedback import Mode
from rrm.data.own_entries import OURS
from rrm.errors import MissingExtra
from rrm.integrations.inspect_sample import explanation, references, trajectory_of
from rrm.integrations.loading import asker
from rrm.judge.cached_judge import BatchJudge
from rrm.readers.exports import said

try:
    import anyio
    from inspect_scout import (  # pyright: ignore[reportMissingImports]
        Reference,
        Result,
        Scanner,
        Transcript,
        scanner,
    )
except ImportError as missing:
    raise MissingExtra("the scanner needs inspect_scout: pip install 'agent-rrm[scout]'") from missing


@scanner(messages="all", events=["model", "tool"], name=OURS)
def agent_rrm(
    judge: str | BatchJudge | None = None,
    mode: Mode | None = None,
    samples: int = 1,
    seed: int = 0,
    options: dict[str, Any] | None = None,
) -> Scanner[Transcript]:
    """The judge's score in [0, 1] as the value (None: failed), its critique as the explanation.

    Arguments are those of `rrm.integrations.loading.asker`; each process of a scan loads a named judge.
    """

    async def scan(transcript: Transcript) -> Result:
        asking = await anyio.to_thread.run_sync(
            lambda: asker(judge, mode=mode, samples=samples, seed=seed, options=options)
        )
        trajectory = trajectory_of(
            f"transcript {transcript.transcript_id}",
            transcript.messages,
            transcript.events,
            {"task": transcript.task_set, "model": transcript.model, "eval_id": transcript.source_id},
            id=transcript.task_id or transcript.transcript_id,
            epoch=transcript.task_repeat or 1,
        )
        feedback = await anyio.to_thread.run_sync(
            asking.submit(trajectory).result, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(math.inf)
        )
        return Result(
            value=feedback.score,
            explanation=explanation(feedback),
            metadata=said(feedback),
            references=[Reference(**link) for link in references(trajectory, feedback)],  # pyright: ignore[reportArgumentType]
        )

    return scan
