"""Runs of the shipped lab policy, or of one trained further, labelled by replaying them in their worlds."""

from __future__ import annotations

from pathlib import Path

from reagent.lab.labels import label
from reagent.lab.search_env import question_of, world_of
from reagent.train.config import load_agent_config
from reagent.train.evaluate import evaluate_config
from rrm.data.annotation import Annotation
from rrm.data.trajectory import Trajectory


def agent_runs(
    tasks: int, seed: int, samples: int = 1, policy: Path | None = None
) -> list[tuple[Trajectory, Annotation]]:
    """Episodes on questions that the seed names, of one to four hops, sampled as in training.

    Args:
        policy: a trained policy's folder; the shipped one by default.
    """
    own = [f"environment.eval={{hops: [1, 2, 3, 4], seed: {seed}}}", f"environment.eval_tasks={tasks}"]
    sampled = [f"eval.samples={samples}", "eval.temperature=0.7", f"seed={seed}"]
    base = [f"policy.base={policy}"] if policy else []
    _, episodes = evaluate_config(load_agent_config("lab", [*own, *sampled, *base]))
    found = []
    for episode in episodes:
        world = world_of(episode.task.seed)
        question = question_of(world, episode.task.meta["hops"])
        found.append((episode.trajectory, label(episode.trajectory, world, question)))
    return found
