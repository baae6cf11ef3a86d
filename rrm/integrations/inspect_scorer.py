"""Inspect: the judge as a scorer, `scorer=[match(), agent_rrm()]`; scored as `rrm score` does."""

from __future__ import annotations

import math
from typing import Any

from rrm.data.feedback import Feedback, Mode
from rrm.data.own_entries import OURS
from rrm.data.trajectory import Trajectory
from rrm.errors import MissingExtra
from rrm.integrations.inspect_sample import explanation, references, trajectory_of
from rrm.integrations.loading import asker
from rrm.judge.cached_judge import BatchJudge
from rrm.readers.exports import said

try:
    import anyio
    from inspect_ai.log import transcript  # pyright: ignore[reportMissingImports]
    from inspect_ai.scorer import (  # pyright: ignore[reportMissingImports]
        Score,
        Scorer,
        Target,
        mean,
        scorer,
        stderr,
    )
    from inspect_ai.solver import TaskState  # pyright: ignore[reportMissingImports]
except ImportError as missing:
    raise MissingExtra("the scorer needs inspect_ai: pip install 'agent-rrm[inspect]'") from missing


@scorer(metrics=[mean(), stderr()], name=OURS)
def agent_rrm(
    judge: str | BatchJudge | None = None,
    mode: Mode | None = None,
    samples: int = 1,
    seed: int = 0,
    options: dict[str, Any] | None = None,
) -> Scorer:
    """The judge's score in [0, 1], its critique as the explanation, and its findings in the metadata.

    A failed judgement is unscored: logged, and counted by no metric. Arguments are those of `rrm.integrations.loading.asker`.
    """

    async def score(state: TaskState, target: Target) -> Score:
        asking = await anyio.to_thread.run_sync(
            lambda: asker(judge, mode=mode, samples=samples, seed=seed, options=options)
        )
        trajectory = trajectory_of(
            f"sample {state.sample_id}",
            state.messages,
            transcript().events,
            {"model": str(state.model)},
            id=state.sample_id,
            epoch=state.epoch,
            input=state.input,
            target=list(target),
        )
        feedback = await anyio.to_thread.run_sync(
            asking.submit(trajectory).result,
            abandon_on_cancel=True,
            limiter=anyio.CapacityLimiter(math.inf),  # it only waits, and must not take a thread from who works
        )
        return _score(trajectory, feedback, state.output.completion)

    return score


def _score(trajectory: Trajectory, feedback: Feedback, answer: str) -> Score:
    metadata = said(feedback)
    if feedback.score is None:
        return Score.unscored(
            reason="grader_failed", answer=answer, explanation=explanation(feedback), metadata=metadata
        )
    if links := references(trajectory, feedback):
        metadata["scanner_references"] = links  # Inspect's viewer makes links of them
    return Score(value=feedback.score, answer=answer, explanation=explanation(feedback), metadata=metadata)
