"""ART: a group's rewards by comparing its attempts, RULER's shape. Needs `pip install 'agent-rrm[art]'` and a chat model.

    python examples/art_judge.py openai:http://localhost:8000/v1#judge

In a training loop it is `after_each` of `art.gather_trajectory_groups`. The last line is JSON: the rewards.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

try:
    import art

    from rrm.integrations.art_group import judge_score_group
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'agent-rrm[art]'")


def main() -> None:
    """Three attempts at one question."""
    parser = argparse.ArgumentParser(description="A group's rewards by comparing its attempts.")
    parser.add_argument("judge", help="openai:BASE_URL#model, or http://HOST:PORT of rrm serve")
    judge = parser.parse_args().judge
    answers = ("6 * 7 is 42.", "It is 48.", "I do not know.")
    question = {"role": "user", "content": "What is 6 * 7?"}
    attempts = [
        art.Trajectory(messages_and_choices=[question, {"role": "assistant", "content": answer}]) for answer in answers
    ]
    group = asyncio.run(judge_score_group(art.TrajectoryGroup(attempts), judge))
    print(json.dumps({"rewards": [one.reward for one in group.trajectories] if group else None}))


if __name__ == "__main__":
    main()
