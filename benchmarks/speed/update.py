"""How fast one update is, and how much memory it takes: `AgentTrainer.learn` against TRL's `GRPOTrainer`.

    python -m benchmarks.speed.update --model lab smollm2 [--rows 16] [--turns 4] [--turn-tokens 64] [--dtype bfloat16]

An update is a GRPO loss over a batch of multi-turn episodes (prompt, then turns and observations of fixed lengths; random
ids, rewards that differ within a group), forward, backward, clipping and an AdamW step, in micro-batches of the same rows.

- `ours`: `learn(episodes)`: padding, advantages, loss, step.
- `trl`: `GRPOTrainer.training_step` for each micro-batch, clipping and step as its `Trainer` does them. It is given the
  same episodes (prompt and completion ids and masks, `tool_mask`) and ready-made advantages where it would roll out and
  score (`_generate_and_score_completions`). Configured as `GRPO` below says, all else TRL's default.

Neither computes log-probabilities before the step: one step on fresh episodes needs none. That the first update has the
same gradient norm in both is checked. Each arm runs in a process of its own, in turn (A B A B …), on the same number of
threads; medians count; CPU seconds stand beside them, because they hold on a machine that does other work too. Peak memory is the
process's VmHWM over the update, reset before it (`/proc/self/clear_refs`); `update_mb` is what it exceeds the process by
that has loaded everything and updated nothing yet: gradients, optimiser state, activations.

Share of the matmul peak = FLOPs / seconds / peak. Peak: the fastest of repeated square matrix products in the same dtype on
the same threads. FLOPs, the least that the update needs, forward + backward: 6 · (weights of the layers · tokens + vocabulary
· hidden · action tokens) + 6 · layers · heads · head size · Σ tokens² of each row (causal attention). Padding, recomputation and
logits of other tokens are not counted: whoever does them does extra work. Progress goes to standard error; the last line is
one JSON object.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import record
from benchmarks.speed import arms
from benchmarks.speed.arms import Arms, Taken
from reagent.env.task import Task
from reagent.rollout.episode import Episode, Turn
from rrm.data.trajectory import Message, Trajectory

LEARNING_RATE = 1e-6
GRPO: dict[str, Any] = {"learning_rate": LEARNING_RATE, **arms.GRPO}
"""TRL's configuration beside batch sizes, lengths and checkpointing, which the command line gives."""
SAME_NORM = {"float32": 0.01, "bfloat16": 0.05}
"""How far the arms' first gradient norms may differ, relatively."""


def load(args: argparse.Namespace) -> tuple[Any, Any]:
    """(model, tokenizer). `lab`: the lab policy's shape with random weights."""
    import torch

    from rrm.config import ModelConfig
    from rrm.engines.hf.base_model import load_model

    torch.set_num_threads(args.threads)
    if args.model != "lab":
        model, tokenizer = load_model(ModelConfig(base=args.model, dtype=args.dtype))
    else:
        from reagent.lab.demonstrations import demonstrations
        from reagent.lab.model import build_lab_model, build_lab_tokenizer
        from reagent.lab.settings import LabSettings

        shape = LabSettings()
        texts = [m["content"] for d in demonstrations("search", 100, args.seed, hops=1) for m in d.messages]
        tokenizer = build_lab_tokenizer(texts, shape.vocab_size)
        model = build_lab_model(
            tokenizer, hidden=shape.hidden, layers=shape.layers, heads=shape.heads,
            intermediate=shape.intermediate, seed=args.seed,
        ).to(getattr(torch, args.dtype))  # fmt: skip
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model, tokenizer


def made_up_episodes(args: argparse.Namespace, vocabulary: int) -> list[Episode]:
    """Episodes of random ids; `--ragged` gives them 1, 2, … turns, as episodes have."""
    rng = np.random.default_rng(args.seed)

    def ids(count: int) -> list[int]:
        return rng.integers(3, vocabulary, count).tolist()

    found, prompts = [], [ids(args.prompt_tokens) for _ in range(args.rows // args.group)]
    for row in range(args.rows):
        group, attempt = divmod(row, args.group)
        turns = 1 + row % args.turns if args.ragged else args.turns
        found.append(
            Episode(
                task=Task(f"task-{group}", "made up"),
                prompt_ids=prompts[group],
                turns=[
                    Turn(
                        ids(args.turn_tokens),
                        [-1.0] * args.turn_tokens,
                        ids(args.observation_tokens) if k + 1 < turns else [],
                    )
                    for k in range(turns)
                ],
                outcome_reward=float(rng.random() + attempt % 2),
                status="finished",
                error=None,
                success=None,
                group_id=f"task-{group}",
                stage="initial",
                trajectory=Trajectory(id=f"{row}", messages=[Message(role="user", content="made up")]),
                attempt=attempt,
            )
        )
    return found


def counts(episodes: Sequence[Episode]) -> tuple[list[int], int]:
    """(tokens of each row, action tokens of all)."""
    flat = [e.flatten() for e in episodes]
    return [len(f.input_ids) for f in flat], sum(int(f.action_mask.sum()) for f in flat)


def update_flops(model: Any, lengths: Sequence[int], action_tokens: int) -> float:
    """The least an update needs, see the module's formula."""
    config, head = model.config.get_text_config(), model.get_output_embeddings().weight
    outside = {id(head), id(model.get_input_embeddings().weight)}
    layers = sum(p.numel() for p in model.parameters() if p.dim() > 1 and id(p) not in outside)
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    attention = config.num_hidden_layers * config.num_attention_heads * size * sum(n * n for n in lengths)
    return 6.0 * (layers * sum(lengths) + head.numel() * action_tokens + attention)


def matmul_flops(dtype: str, size: int, repeats: int = 5) -> float:
    """FLOP/s of the fastest of `repeats` products of square matrices."""
    import torch

    a, b = (torch.randn(size, size).to(getattr(torch, dtype)) for _ in range(2))
    out, seconds = a @ b, []
    for _ in range(repeats):
        start = time.perf_counter()
        torch.mm(a, b, out=out)
        seconds.append(time.perf_counter() - start)
    return 2.0 * size**3 / min(seconds)


# ---- the arms ----


def trainer_of(args: argparse.Namespace, model: Any, tokenizer: Any, **optim: Any) -> Any:
    """The agent trainer, of GRPO.

    Args:
        optim: of its config's section of that name.
    """
    from reagent.lab.search_env import SearchEnv
    from reagent.train.config import AgentConfig, LossConfig, OptimConfig, PolicyConfig
    from reagent.train.launch import make_accelerator
    from reagent.train.policy import Policy, switch_off_dropout
    from reagent.train.trainer import AgentTrainer
    from rrm.engines.hf.engine import HFEngine

    config = AgentConfig(
        algorithm="grpo",
        cpu=True,
        policy=PolicyConfig(gradient_checkpointing=args.gradient_checkpointing),
        optim=OptimConfig(learning_rate=LEARNING_RATE, **optim),
        loss=LossConfig(credit="episode"),
    )
    if args.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    policy = Policy(model, with_values=False)
    switch_off_dropout(policy)
    folder = Path(tempfile.mkdtemp())
    accelerator, engine = make_accelerator(config, folder), HFEngine(model, tokenizer)
    return AgentTrainer(config, policy, tokenizer, SearchEnv, [], folder, engine=engine, accelerator=accelerator)


def our_arm(args: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """An update by the agent trainer; what it says is (loss, gradient norm)."""
    import torch

    model, tokenizer = load(args)
    episodes = made_up_episodes(args, len(tokenizer))
    lengths, action_tokens = counts(episodes)
    trainer = trainer_of(args, model, tokenizer, microbatch_tokens=args.micro_rows * max(lengths))

    def update() -> tuple[float, float]:
        metrics = trainer.learn(episodes)
        return metrics["loss"], metrics["grad_norm"]

    return {
        "ours": update,
        "matmul": lambda: matmul_flops(args.dtype, args.matmul),
        "facts": lambda: {
            "parameters": sum(p.numel() for p in model.parameters()),
            "tokens": sum(lengths),
            "action_tokens": action_tokens,
            "longest_row": max(lengths),
            "update_flops": update_flops(model, lengths, action_tokens),
            "optimizer": type(trainer.optimizer).__name__,
            "torch_threads": torch.get_num_threads(),
        },
    }


def trl_inputs(episodes: Sequence[Episode], pad: int) -> dict[str, Any]:
    """What TRL's rollout hands to its loss: left-padded prompts, right-padded completions, masks, advantages (B,)."""
    import torch

    from reagent.algorithms.registry import compute_advantages
    from reagent.rollout.batch import make_batch

    batch = make_batch(episodes)
    per_token = compute_advantages(
        "grpo", batch.token_rewards, batch.action_mask, batch.turn_index, batch.group
    ).advantages
    first = batch.action_mask.int().argmax(dim=1)
    flat, prompts = [e.flatten() for e in episodes], [len(e.prompt_ids) for e in episodes]

    def padded(parts: Sequence[np.ndarray], fill: int, left: bool) -> Any:
        out = torch.full((len(parts), max(map(len, parts))), fill, dtype=torch.long)
        for row, part in zip(out, parts, strict=True):
            (row[-len(part) :] if left else row[: len(part)]).copy_(torch.as_tensor(part))
        return out

    heads = [f.input_ids[:n] for f, n in zip(flat, prompts, strict=True)]
    tails = [f.input_ids[n:] for f, n in zip(flat, prompts, strict=True)]
    masks = [f.action_mask[n:].astype(np.int64) for f, n in zip(flat, prompts, strict=True)]
    return {
        "prompt_ids": padded(heads, pad, True),
        "prompt_mask": padded([np.ones_like(x) for x in heads], 0, True),
        "completion_ids": padded(tails, pad, False),
        "completion_mask": padded([np.ones_like(x) for x in tails], 0, False),
        "tool_mask": padded(masks, 1, False),
        "advantages": per_token.gather(1, first[:, None])[:, 0],
        "num_items_in_batch": batch.action_mask.sum(),
    }


def trl_arm(args: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """An update by TRL."""
    from datasets import Dataset
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    model, tokenizer = load(args)
    episodes = made_up_episodes(args, len(tokenizer))
    inputs = trl_inputs(episodes, tokenizer.pad_token_id)
    steps = args.rows // args.micro_rows
    trainer: Any = GRPOTrainer(
        model=model,
        args=GRPOConfig(
            output_dir=tempfile.mkdtemp(),
            per_device_train_batch_size=args.micro_rows,
            gradient_accumulation_steps=steps,
            num_generations=args.group,
            max_completion_length=inputs["completion_ids"].shape[1],
            gradient_checkpointing=args.gradient_checkpointing,
            **GRPO,
        ),
        processing_class=tokenizer,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        train_dataset=Dataset.from_list([{"prompt": "made up"}] * args.rows),
    )
    trainer._generate_and_score_completions = lambda _: dict(inputs)
    trainer.current_gradient_accumulation_steps = steps  # set by `train()`, which is not what is timed
    optimizer = trainer.create_optimizer()

    def update() -> tuple[float, float]:
        loss = sum(float(trainer.training_step(trainer.model, [{}], None)) for _ in range(steps))
        norm = trainer.accelerator.clip_grad_norm_(trainer.model.parameters(), trainer.args.max_grad_norm)
        optimizer.step()
        trainer.model.zero_grad()
        return loss, float(norm or 0.0)

    return {"trl": update, "optimizer": lambda: f"{type(optimizer).__name__} ({trainer.args.optim})"}


# ---- measuring ----


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Both arms on one model, in turn; the first update of each warms up and is compared."""
    makers = {our_arm: ("ours", "matmul", "facts"), trl_arm: ("trl", "optimizer")}
    taken: dict[str, list[Taken]] = {name: [] for name in ("ours", "trl", "matmul")}
    with Arms(args, makers, memory=True) as both:
        loaded = {"ours": both.ask("facts"), "trl": both.ask("optimizer")}
        facts, trl_optimizer = loaded["ours"].result, loaded["trl"].result
        first = {name: both.ask(name).result for name in ("ours", "trl")}
        norms = {name: norm for name, (_, norm) in first.items()}
        if abs(norms["trl"] / norms["ours"] - 1) > SAME_NORM[args.dtype]:
            raise SystemExit(f"the arms do not compute the same update: first gradient norms {norms}")
        for repeat, name in itertools.product(range(args.repeats), taken):
            taken[name].append(both.ask(name))
            print(f"{args.model} {repeat} {name:7} {taken[name][-1].wall:8.3f} s", file=sys.stderr)
    return summarise(taken, facts, {name: one.resting_mb or 0.0 for name, one in loaded.items()}) | {
        "model": Path(args.model).name,
        "shape": facts | {k: getattr(args, k) for k in ("rows", "turns", "turn_tokens", "ragged", "dtype")},
        "first_grad_norm": norms,
        "first_loss": {name: loss for name, (loss, _) in first.items()},
        "trl_optimizer": trl_optimizer,
    }


def summarise(taken: dict[str, list[Taken]], facts: dict[str, Any], loaded: dict[str, float]) -> dict[str, Any]:
    """Medians of what was measured, and what follows from them."""
    names = ("ours", "trl")

    def middle(what: str) -> dict[str, float]:
        return {name: statistics.median(getattr(one, what) for one in taken[name]) for name in names}

    wall, cpu, peak = middle("wall"), middle("cpu"), middle("peak_mb")
    fastest = max(one.result for one in taken["matmul"])
    return {
        "action_tokens_per_s": {name: round(facts["action_tokens"] / wall[name], 2) for name in names},
        "tokens_per_s": {name: round(facts["tokens"] / wall[name], 2) for name in names},
        "ours_over_trl": round(wall["trl"] / wall["ours"], 3),
        "cpu_ours_over_trl": round(cpu["trl"] / cpu["ours"], 3),
        "peak_mb": {name: round(value, 1) for name, value in peak.items()},
        "update_mb": {name: round(peak[name] - loaded[name], 1) for name in names},
        "trl_peak_over_ours": round(peak["trl"] / peak["ours"], 3),
        "matmul_gflops": round(fastest / 1e9, 2),
        "share_of_matmul_peak": {name: round(facts["update_flops"] / wall[name] / fastest, 4) for name in names},
        "cpu_share_of_matmul_peak": {name: round(facts["update_flops"] / cpu[name] / fastest, 4) for name in names},
        "seconds": {name: [round(one.wall, 4) for one in found] for name, found in taken.items()},
        "cpu_seconds": {name: [round(one.cpu, 4) for one in found] for name, found in taken.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", default=["lab"], help="`lab`, `smollm2`, a model directory or a hub id")
    parser.add_argument("--rows", type=int, default=16, help="episodes")
    parser.add_argument("--group", type=int, default=8, help="episodes a prompt")
    parser.add_argument("--micro-rows", type=int, default=4, help="episodes of one forward and backward")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--turn-tokens", type=int, default=64, help="sampled tokens a turn")
    parser.add_argument("--observation-tokens", type=int, default=64, help="tokens between two turns")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--ragged", action="store_true", help="rows of 1, 2, … --turns turns instead of all alike")
    parser.add_argument("--gradient-checkpointing", action="store_true", help="in both arms (TRL's default: on)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="float32", choices=["bfloat16", "float32"])
    parser.add_argument("--matmul", type=int, default=2048, help="size of the matrices that measure the peak")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="also write the JSON object here")
    args = parser.parse_args()
    if args.rows % args.group or args.rows % args.micro_rows:
        parser.error(
            f"--rows {args.rows} must be a multiple of --group {args.group} and --micro-rows {args.micro_rows}"
        )
    runs = [measure(argparse.Namespace(**{**vars(args), "model": model})) for model in args.model]
    found = {
        "runs": runs,
        "trl_config": GRPO,
        **record.timed_with("speed.update", args, "torch", "transformers", "trl"),
    }
    if args.out:
        record.write(args.out, found)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
