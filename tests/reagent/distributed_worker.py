"""What test_distributed runs in one process and in two: updates of a tiny policy, a whole run, and what came of them.

    accelerate launch --multi_gpu --num_processes 2 tests/reagent/distributed_worker.py POLICY OUTPUT

Each process writes OUTPUT/<case>-<rank>.json (metrics and episodes of each update) and its weights beside it; the run is in
OUTPUT/run.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from feedback_lab import configured, scripted, trainer_of
from processes import part
from safetensors.torch import save_file
from trainer_setup import settings

from reagent.rollout.batch import make_batch
from reagent.rollout.episode import Episode
from reagent.train.run import train
from reagent.train.trainer import AgentTrainer
from rrm.errors import RRMError
from rrm.train.run_folder import sole_writer

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ppo": ("ppo", "none", {}), "grpo": ("grpo", "none", {}), "unified": ("ppo", "u", {"minibatches": 3}),
    "placebo": ("grpo", "placebo", {}), "minibatches": ("ppo", "none", {"epochs": 2, "minibatches": 6}),
}  # fmt: skip
"""Name → algorithm, feedback mode, options of `optim`. Eight rows a stage: on two processes fewer than six a process."""
UPDATES = 2
LORA = {"r": 4, "alpha": 8, "target_modules": ["q_proj", "v_proj"]}


def grade(episodes: Sequence[Episode]) -> Sequence[Episode]:
    """Rewards that depend on task and attempt alone. Every fourth task has an attempt of unknown outcome, so that
    processes hold unlike numbers of rows to learn from."""
    for e in episodes:
        number = int(e.task.id.rsplit("-", 1)[1])
        unknown = number % 4 == 3 and e.attempt == 0
        e.outcome_reward = None if unknown else (3 * number + 2 * e.attempt) % 5 / 2
    return episodes


def run(policy: Path, output: Path) -> None:
    """Every case, then the run."""
    for case, (algorithm, mode, optim) in CASES.items():
        config = settings(
            policy,
            output / case,
            algorithm=algorithm,
            # an untrained policy writes no tags, so that every turn but the last is answered by an observation
            environment={"options": {"parser": "search_tags"}},
            optim={"learning_rate": 1e-4, "microbatch_tokens": 600, **optim},
            loss={"kl_coef": 0.1},
            rollout={"max_episode_tokens": 700},
            feedback={"mode": mode, "aux": {"share": 0.3}},
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
        results = {"processes": trainer.accelerator.num_processes, "updates": updates}
        (output / f"{name}.json").write_text(json.dumps(results))
        weights = {k: p.detach().clone() for k, p in trainer.policy.named_parameters()}
        save_file(weights, output / f"{name}.safetensors")
    dynamic(policy, output)
    whole_run(policy, output / "run")


def dynamic(policy: Path, output: Path) -> None:
    """Updates that are filled with groups that differ, of tasks of which two in three teach nothing."""
    config = configured(
        policy, output / "dynamic", "none", algorithm="grpo", environment={"name": "feedback_lab:RareEnv"},
        rollout={"dynamic_sampling": 4, "max_episode_tokens": 700},
        optim={"learning_rate": 1e-4, "microbatch_tokens": 600},
    )  # fmt: skip
    trainer = trainer_of(config)
    learn, learned = trainer.learn, []

    def noted(episodes: Sequence[Episode], *rest: Any) -> dict[str, float]:
        learned.append([f"{e.group_id} {e.attempt}" for e in episodes if e.reward is not None])
        return learn(episodes, *rest)

    trainer.learn = noted
    metrics = [trainer.update()[0] for _ in range(UPDATES)]
    rank = trainer.accelerator.process_index
    batch = make_batch(trainer.collect(UPDATES))
    for _ in range(2 * rank):  # forwards that no other process makes, between what all of them do
        trainer.statistics(batch, trainer.ddp_model, batch.action_mask, [0])
    summed = trainer._sum(torch.arange(3.0)).tolist()
    (output / f"dynamic-{rank}.json").write_text(json.dumps({"metrics": metrics, "learned": learned, "summed": summed}))
    save_file(
        {k: p.detach().clone() for k, p in trainer.policy.named_parameters()}, output / f"dynamic-{rank}.safetensors"
    )


def whole_run(policy: Path, output: Path) -> None:
    """`train()` with an adapter, minibatches, evaluations and twice as many tasks an update as there are; two processes find
    the folder taken first, then are stopped after an update and go on from the checkpoint that leaves."""
    config = configured(
        policy, output, "none", algorithm="grpo", max_updates=UPDATES, save_every=100, sample_episodes=8,
        environment={"train_tasks": 2, "eval_tasks": 5}, policy={"base": str(policy), "lora": LORA},
        optim={"learning_rate": 1e-3, "microbatch_tokens": 600, "epochs": 2, "minibatches": 6}, loss={"kl_coef": 0.1},
        eval={"every": 1, "temperature": 0.7},
    )  # fmt: skip
    update = AgentTrainer.update

    def stopped(self: AgentTrainer, **options: Any) -> Any:
        if self.update_index:
            raise KeyboardInterrupt
        return update(self, **options)

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        rank = int(os.environ["RANK"])
        with nullcontext() if rank else sole_writer(Path(config.output_dir)):
            try:
                train(config)
            except RRMError as error:
                (output.parent / f"refused-{rank}.json").write_text(json.dumps(str(error)))
        with suppress(KeyboardInterrupt), patch.object(AgentTrainer, "update", stopped):
            train(config)
    train(config)


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]))
    part()
