"""ART: a group's rewards by comparing its attempts in one prompt, in the place of RULER.

    pip install openpipe-art agent-rrm
    python examples/art_group.py openai:http://localhost:8000/v1#judge

In a training loop: `art.gather_trajectory_groups(groups, after_each=lambda group: judge_score_group(group, judge))`. ART 0.5.18 changes
transformers in its process for an older one: name a chat model, or serve the judge. The last line is JSON: the rewards.
"""

from __future__ import annotations

import asyncio
import json
import sys

try:
    import art
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install openpipe-art")

from rrm import AgentRRM
from rrm.errors import ReadError
from rrm.judge.rank import rank_groups
from rrm.readers import read_value


async def judge_score_group(group: art.TrajectoryGroup, judge: AgentRRM) -> art.TrajectoryGroup | None:
    """A new group whose rewards are the judge's; the reward that was stands in `metrics["independent_reward"]`.

    ART has no reward that is left out: an attempt that could not be placed is not in the new group, and a group of fewer than two is
    None. Of an attempt's histories the first is read.
    """
    runs = []
    for number, attempt in enumerate(group.trajectories):
        tools = {"tools": attempt.tools} if attempt.tools else {}
        (run,) = read_value({"id": str(number), "messages": attempt.messages(), **tools}, "attempt")
        if isinstance(run, ReadError):
            raise run
        runs.append(run)
    (ranking,) = await asyncio.to_thread(rank_groups, judge, [runs])
    rewarded = [
        attempt.model_copy(
            update={"reward": said.score, "metrics": attempt.metrics | {"independent_reward": attempt.reward}}
        )
        for attempt, said in zip(group.trajectories, ranking.feedback, strict=True)
        if said.score is not None
    ]
    return group.model_copy(update={"trajectories": rewarded}) if len(rewarded) > 1 else None


if __name__ == "__main__":
    question = {"role": "user", "content": "What is 6 * 7?"}
    answers = ("6 * 7 is 42.", "It is 48.", "I do not know.")
    attempts = [art.Trajectory(messages_and_choices=[question, {"role": "assistant", "content": a}]) for a in answers]
    judge = AgentRRM.from_pretrained(sys.argv[1])
    rewarded = asyncio.run(judge_score_group(art.TrajectoryGroup(attempts), judge))
    print(json.dumps({"rewards": [one.reward for one in rewarded.trajectories] if rewarded else None}))
