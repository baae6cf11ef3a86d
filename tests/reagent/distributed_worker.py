"""What test_distributed runs in one process and in two: updates of a tiny policy, and what came of them.

    accelerate launch --multi_gpu --num_processes 2 tests/reagent/distributed_worker.py POLICY OUTPUT

Each process writes OUTPUT/<case>-<rank>.json (metrics and episodes of each update) and its weights beside it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from feedback_lab import scripted, trainer_of
from safetensors.torch import save_file
from trainer_setup import settings

from reagent.rollout.episode import Episode

CASES = {"ppo": ("ppo", "none"), "grpo": ("grpo", "none"), "unified": ("ppo", "u")}
"""Name → algorithm and feedback mode."""
UPDATES = 2


def grade(episodes: Sequence[Episode]) -> Sequence[Episode]:
    """Rewards that depend on task and attempt alone. Every fourth task has an attempt of unknown outcome, so that
    processes hold unlike numbers of rows to learn from."""
    for e in episodes:
        number = int(e.task.id.rsplit("-", 1)[1])
        unknown = number % 4 == 3 and e.attempt == 0
        e.outcome_reward = None if unknown else (3 * number + 2 * e.attempt) % 5 / 2
    return episodes


def run(policy: Path, output: Path) -> None:
    """One optimiser step an update: with several, their rows are dealt out within each process, so they are other rows."""
    for case, (algorithm, mode) in CASES.items():
        config = settings(
            policy,
            output / case,
            algorithm=algorithm,
            # an untrained policy writes no tags, so that every turn but the last is answered by an observation
            environment={"options": {"parser": "search_tags"}},
            optim={"learning_rate": 1e-4, "microbatch_tokens": 600},
            loss={"kl_coef": 0.1},
            rollout={"max_episode_tokens": 700},
            feedback={"mode": mode},
        )
        trainer = trainer_of(config, scripted())
        updates = []
        for update in range(UPDATES):
            round_ = trainer.round(update)
            episodes = grade(round_.rows)
            metrics = trainer.learn(episodes, round_.texts)
            trainer.update_index += 1
            rows = {f"{e.group_id}/{e.stage} {e.attempt}": e.flatten().input_ids.tolist() for e in episodes}
            turns = sum(len(e.turns) for e in episodes)
            updates.append({"metrics": metrics, "episodes": rows, "turns": turns})
        name = f"{case}-{trainer.accelerator.process_index}"
        found = {"processes": trainer.accelerator.num_processes, "updates": updates}
        (output / f"{name}.json").write_text(json.dumps(found))
        weights = {k: p.detach().clone() for k, p in trainer.policy.named_parameters()}
        save_file(weights, output / f"{name}.safetensors")


if __name__ == "__main__":
    from accelerate import PartialState

    run(Path(sys.argv[1]), Path(sys.argv[2]))
    PartialState().destroy_process_group()
