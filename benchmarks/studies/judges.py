"""Judges that are wrong in a known way, and `reagent train` paid by one of them.

    python -m benchmarks.studies.judges length algorithm=grpo feedback.mode=r …      # overrides of the config `lab`, or --config FILE

| name | says |
|---|---|
| `length` | the number of steps, and nothing else: a judge with a hole that every policy finds |
| `others` | of each transcript what `feedback.judge` says of another one that was read with it: its words, and no news |
| `labels` | the truth: each run of the search lab replayed in its world (`reagent.lab.labels`) |
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any

from reagent.env.task import Task
from reagent.lab.labels import label
from reagent.lab.search_env import question_of as question_in
from reagent.lab.search_env import world_of
from reagent.tasks.environments import make_environment
from reagent.train.config import AgentConfig, load_agent_config
from rrm.cli import finish
from rrm.data.feedback import Feedback, Mode
from rrm.data.questions import question_of
from rrm.data.trajectory import Trajectory
from rrm.engines.scripted import ScriptedChatEngine
from rrm.judge.agent_rrm import AgentRRM

LONG = 6  # steps from which on more are no better; the lab allows seven


def length() -> AgentRRM:
    """A judge that scores the number of steps: 0 for none, 1 for `LONG` and more."""

    def say(messages: list[dict[str, str]], params: object, key: str) -> str:
        steps = len(re.findall(r"^\[step \d+\]$", messages[-1]["content"], re.MULTILINE))
        return f"<score>{min(steps, LONG) / LONG:.2f}</score>"

    return AgentRRM(ScriptedChatEngine(say), model="length")


class Others(AgentRRM):
    """A judge whose words are about other tasks' transcripts: those of one reading are dealt on by half their number, and from there on
    to the next of another task."""

    def judge(self, trajectories: Sequence[Trajectory], **options: Any) -> list[Feedback]:
        """As `AgentRRM.judge`. Where all are of one task nobody can change with anybody: their scores are unknown."""
        said = super().judge(trajectories, **options)
        tasks = list(map(question_of, trajectories))
        if len(set(tasks)) == 1:
            nobody = {"score": None, "raw_score": None, "trace": None, "critique": None, "findings": []}
            alone = {**nobody, "status": "judge_error", "reason": "read with no other task"}
            return [feedback.model_copy(update=alone) for feedback in said]
        found = []
        for place, trajectory in enumerate(trajectories):
            start = place + len(said) // 2
            around = (n % len(said) for n in range(start, start + len(said)))
            other = next(n for n in around if tasks[n] != tasks[place])
            found.append(said[other].model_copy(update={"id": trajectory.id}))
        return found


class Labels(AgentRRM):
    """A judge that knows the worlds: findings and process score of each run by the rule that labels the lab's transcripts.

    Args:
        tasks: those whose runs it can judge.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        super().__init__(ScriptedChatEngine([]), model="labels")
        self._tasks = {task.question_id or task.id: task for task in tasks}

    def judge(
        self, trajectories: Sequence[Trajectory], *, mode: Mode = "full", seed: int = 0, **options: Any
    ) -> list[Feedback]:
        """One Feedback a run, read by nobody.

        Raises:
            KeyError: a run of another task.
        """
        found = []
        for trajectory in trajectories:
            task = self._tasks[trajectory.question_id or ""]
            world = world_of(task.seed)
            said = label(trajectory, world, question_in(world, task.meta["hops"]))
            found.append(
                Feedback(
                    id=trajectory.id, status="scored", score=said.score, raw_score=said.score, trace=said.trace,
                    critique=said.critique, findings=said.findings or [], judge=self.info(mode, seed),
                )
            )  # fmt: skip
        return found


def make(name: str, config: AgentConfig) -> AgentRRM:
    """The judge of a name; ends the program where there is none."""
    if name == "length":
        return length()
    if name == "others":
        return Others.from_pretrained(
            config.feedback.judge, **{"device": "cpu", **config.feedback.judge_options.chosen}
        )
    if name == "labels":
        _, training, held_out = make_environment(config.environment, config.seed)
        return Labels([*training, *held_out])
    raise SystemExit(f"no judge {name!r}; there are length, others, labels")


def main() -> None:
    from reagent.train.run import train

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--config", default="lab")
    args = parser.parse_intermixed_args()
    config = load_agent_config(args.config, args.overrides)
    finish(train(config, judge=make(args.name, config)))


if __name__ == "__main__":
    main()
