"""A whole multi-turn GRPO loop on one page: the parts of `reagent` without its trainer.

    python examples/grpo_from_parts.py --updates 10

A small policy learns to answer questions of several hops by calling a search tool. Every function below that computes
something of the algorithm is one that `reagent train algorithm=grpo loss.credit=turn` computes with, and one update here is one
update there (the test compares the weights). What the trainer adds is not on this page: PPO's critic, several passes and
minibatches, processes, a judge's feedback, checkpoints, evaluation, mixed precision.

To train another policy, change `load`; another environment, `environment` (docs/mdp.md).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

try:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from reagent.algorithms.groups import comparable, turn_returns
    from reagent.algorithms.grpo import grpo
    from reagent.algorithms.logprobs import token_logprobs
    from reagent.algorithms.losses import policy_loss
    from reagent.algorithms.masks import spread
    from reagent.algorithms.objective import aggregate, loss_denominator
    from reagent.env.env import EnvFactory
    from reagent.env.task import Task
    from reagent.lab.shipped import lab_policy_folder
    from reagent.rollout.batch import Batch, make_batch, microbatches
    from reagent.rollout.episode import Episode
    from reagent.rollout.rollout import rollout
    from reagent.tasks.environments import make_factory, make_tasks
    from rrm.data.seeds import derive_seed
    from rrm.engines.base import SamplingParams
    from rrm.engines.hf.engine import HFEngine
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'agent-rrm[agents]'")

TEMPERATURE = 0.7
"""Of sampling, and therefore of the log-probabilities that are learned."""
CLIP_LOW, CLIP_HIGH = 0.2, 0.28
LEARNING_RATE, MAX_GRAD_NORM = 3e-4, 1.0
MICROBATCH_TOKENS = 8192
TASKS, GROUP_SIZE = 16, 4


def load(folder: str) -> tuple[torch.nn.Module, object]:
    """A policy and its tokenizer. Dropout stays off: what is learned must be what was sampled from."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval(), AutoTokenizer.from_pretrained(folder)


def environment(seed: int) -> tuple[EnvFactory, list[Task]]:
    """The search lab, whose environment pays a little for useful calls, and much for the right answer."""
    return make_factory("search"), make_tasks("search", 256, seed, hops=[2, 4])


def play(
    engine: HFEngine, tokenizer: object, env_factory: EnvFactory, tasks: Sequence[Task], seed: int, group_size: int
) -> list[Episode]:
    """A group of episodes of each task: tokens as they were sampled, and what the environment paid for each turn."""
    return rollout(
        engine,
        tokenizer,  # pyright: ignore[reportArgumentType]
        env_factory,
        tasks,
        params=SamplingParams(max_new_tokens=48, temperature=TEMPERATURE, seed=seed),
        group_size=group_size,
        max_turns=7,
        max_episode_tokens=640,
        max_observation_tokens=128,
    )


def credit(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages (B, T) and the tokens they are of: G_k of each turn against the other rows of its group that reached turn k."""
    mask = batch.action_mask & batch.known[:, None]  # rows of unknown reward teach nothing
    returns, present = turn_returns(batch.token_rewards, mask, batch.turn_index)  # (B, K) both
    relative = grpo(returns, present, batch.group, compared=comparable(batch.group), per_turn=True, scale="batch")
    return spread(relative, batch.turn_index, mask), mask


def logprobs_of(model: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """log π of the masked tokens (B, T). Rows are padded on the right: causal attention needs no mask for that."""
    hidden = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state  # pyright: ignore
    head = model.get_output_embeddings()  # pyright: ignore[reportCallIssue]
    return token_logprobs(hidden, head, ids, mask, temperature=TEMPERATURE)[0]


def update(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: Batch) -> dict[str, float]:
    """One optimiser step on a batch: the clipped loss over all action tokens, in micro-batches that add up to it."""
    advantages, mask = credit(batch)
    denominator = float(loss_denominator(mask, "token-mean"))
    if denominator == 0:
        raise SystemExit("no episode has a known reward: nothing to learn from")
    total = deviation = 0.0
    for rows in microbatches(batch.lengths, range(len(batch)), MICROBATCH_TOKENS):
        width = int(batch.lengths[rows].max())
        ids, kept = batch.input_ids[rows, :width], mask[rows, :width]
        logprobs = logprobs_of(model, ids, kept)
        # One step on fresh episodes: the old log-probabilities are this forward's own. With several steps an update,
        # compute them before the first; the engine's (batch.rollout_logprobs) differ from them by rounding.
        per_token, _ = policy_loss(
            logprobs, logprobs.detach(), advantages[rows, :width], kept, clip_low=CLIP_LOW, clip_high=CLIP_HIGH
        )
        loss = aggregate(per_token, kept, denominator, "token-mean")
        loss.backward()
        total += float(loss.detach())
        gap = (logprobs.detach() - batch.rollout_logprobs[rows, :width]).abs()[kept]
        deviation = max(deviation, float(gap.max()) if len(gap) else 0.0)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return {"loss": total, "grad_norm": float(norm), "logprob_gap": deviation}


def train(
    folder: str, *, updates: int, tasks_per_update: int = TASKS, group_size: int = GROUP_SIZE, seed: int = 0
) -> tuple[torch.nn.Module, list[dict[str, float]]]:
    """The loop: play, credit, step. Returns the policy, and a line of figures an update."""
    model, tokenizer = load(folder)
    engine = HFEngine(model, tokenizer)  # pyright: ignore[reportArgumentType] - plays on the very weights that are trained
    env_factory, tasks = environment(seed)
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, betas=(0.9, 0.99), weight_decay=0.0)
    lines: list[dict[str, float]] = []
    for number in range(updates):
        start = number * tasks_per_update
        chosen = [tasks[i % len(tasks)] for i in range(start, start + tasks_per_update)]
        episodes = play(engine, tokenizer, env_factory, chosen, derive_seed(seed, "rollout", number), group_size)
        known = [e for e in episodes if e.reward is not None]
        figures = update(model, optimizer, make_batch(episodes))
        lines.append(
            {
                "update": number,
                "reward": sum(e.reward or 0.0 for e in known) / max(len(known), 1),
                "success": sum(bool(e.success) for e in known) / max(len(known), 1),
                "turns": sum(len(e.turns) for e in episodes) / len(episodes),
                **figures,
            }
        )
        print("  ".join(f"{name} {value:.4g}" for name, value in lines[-1].items()), flush=True)
    return model, lines


def main() -> None:
    """Parse and train."""
    parser = argparse.ArgumentParser(description="multi-turn GRPO from parts")
    parser.add_argument("--policy", default=str(lab_policy_folder()), help="a folder with a policy of the lab's kind")
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    train(args.policy, updates=args.updates, seed=args.seed)


if __name__ == "__main__":
    main()
