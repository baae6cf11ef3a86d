"""ART: a group's rewards from the judge, in the place of RULER.

    groups = await art.gather_trajectory_groups(
        (art.TrajectoryGroup(rollout(model, task) for _ in range(4)) for task in tasks),
        after_each=lambda group: judge_score_group(group, "openai:http://localhost:8000/v1#judge", swallow_exceptions=True),
    )

Needs the extra `art`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Literal

from rrm.data.feedback import Feedback, Mode
from rrm.data.trajectory import Message, Trajectory
from rrm.errors import MissingExtra, RRMError
from rrm.integrations.inspect_sample import explanation
from rrm.integrations.loading import asker
from rrm.integrations.rows import messages_of, tools_of
from rrm.judge.cached_judge import BatchJudge, by_content, lock_of
from rrm.judge.rank import SIZE, rank_groups
from rrm.readers.base import first_user_text

try:
    import art  # pyright: ignore[reportMissingImports]
except ImportError as missing:
    raise MissingExtra("group scores for ART need openpipe-art: pip install 'agent-rrm[art]'") from missing

log = logging.getLogger(__name__)
SCORE, FAILED = "agent_rrm_score", "agent_rrm_failed"


async def judge_score_group(
    group: art.TrajectoryGroup,
    judge: str | BatchJudge | None = None,
    *,
    by: Literal["rank", "score"] = "rank",
    mode: Mode = "score",
    heat: int = SIZE,
    both_orders: bool = False,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    swallow_exceptions: bool = False,
) -> art.TrajectoryGroup | None:
    """A new group whose rewards are the judge's, RULER's shape: the reward that was stands in `metrics["independent_reward"]`.

    `rank` compares the attempts in one prompt, as `rrm rank` does; a chat model can. `score` judges each by itself, as any judge can. ART
    has no reward that is left out: an attempt whose judgement failed is not in the new group, and `metrics["agent_rrm_failed"]` of the group
    counts them.

    Args:
        judge: as `AgentRRM.from_pretrained` takes it (None: the judge that ships with the package), or one that is loaded.
        mode: of `score`.
        heat, both_orders: of `rank`.
        options: further arguments of `AgentRRM.from_pretrained`.
        swallow_exceptions: None instead of what is raised, and of a group in which fewer than two have a reward.

    Raises:
        RRMError: the judge cannot rank; fewer than two attempts have a reward.
    """
    try:
        asking = await asyncio.to_thread(asker, judge, mode=mode, seed=seed, options=options)
        rows = [as_trajectory(one) for one in group.trajectories]
        if by == "rank":
            said = await asyncio.to_thread(_ranked, asking.judge, rows, heat, both_orders, seed)
        else:
            said = await asking.ask_async(rows)
        return _rewarded(group, said)
    except RRMError as error:
        if not swallow_exceptions:
            raise
        log.warning("a group is left out: %s", error)
        return None


def as_trajectory(attempt: art.Trajectory) -> Trajectory:
    """An attempt as a transcript that is named by its content.

    Raises:
        RRMError: it has further histories, or messages that cannot be read.
    """
    if attempt.additional_histories:
        raise RRMError("an attempt with additional histories is several conversations: score each, or leave them out")
    try:
        messages = messages_of("user", attempt.messages(), "messages")
        tools = tools_of(attempt.tools, "tools")
    except ValueError as error:
        raise RRMError(f"an attempt cannot be read: {error}") from error
    read = [Message(**m) for m in messages]
    return by_content(Trajectory(id="", task=first_user_text(messages), messages=read, tools=tools))


def _ranked(judge: Any, rows: list[Trajectory], heat: int, both_orders: bool, seed: int) -> list[Feedback]:
    named = [row.model_copy(update={"id": f"{number}"}) for number, row in enumerate(rows)]
    with lock_of(judge):
        (ranking,) = rank_groups(judge, [named], size=heat, both_orders=both_orders, seed=seed)
    return ranking.feedback


def _rewarded(group: art.TrajectoryGroup, said: list[Feedback]) -> art.TrajectoryGroup:
    made = []
    for attempt, feedback in zip(group.trajectories, said, strict=True):
        if feedback.score is None:
            continue
        more = {"independent_reward": attempt.reward, SCORE: feedback.score}
        logs = [*attempt.logs, f"Agent-RRM: {told}"] if (told := explanation(feedback)) else list(attempt.logs)
        metrics = attempt.metrics | more
        made.append(attempt.model_copy(update={"reward": feedback.score, "metrics": metrics, "logs": logs}))
    if len(made) < 2 <= len(said):
        why = next(f"{f.status}: {f.reason}" for f in said if f.score is None)
        raise RRMError(f"of {len(said)} attempts {len(made)} have a score ({why}): nothing to compare")
    metrics = group.metrics | {FAILED: len(said) - len(made)}
    new = art.TrajectoryGroup(made, metadata=dict(group.metadata), metrics=metrics, logs=list(group.logs))
    new.exceptions = list(group.exceptions)
    return new
