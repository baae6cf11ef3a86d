"""`reagent train`: a run folder, the loop around `AgentTrainer.update`, logs, curves, resume.

runs/agent/
  config.yaml      what was asked for
  metrics.jsonl    one line an update; keys under `time/` are wall-clock, all others repeat to the bit
  episodes.jsonl   sample transcripts of each update, canonical trajectories with their rewards
  eval.jsonl       held-out evaluations
  judgements.jsonl what a judge said, where feedback asks one
  curves.png       reward, success, KL, entropy over updates
  checkpoints/     resumable states
  policy/          the trained policy: safetensors (adapter or whole), tokenizer
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from reagent.env.registry import make_environment
from reagent.feedback.check import check_labels
from reagent.rollout.episode import Episode
from reagent.train.checkpoint import checkpoints
from reagent.train.config import AgentConfig
from reagent.train.evaluate import evaluate
from reagent.train.policy import load_policy
from reagent.train.trainer import AgentTrainer
from rrm.run_folder import check_folder, claim_folder

if TYPE_CHECKING:
    from rrm.judge.agent_rrm import AgentRRM

logger = logging.getLogger(__name__)

FIXED = ("seed", "algorithm", "environment", "policy", "rollout", "loss", "feedback")
"""Options that must not change between a run and its continuation."""
FREE = ("feedback.max_failure_rate",)
"""Those of them that may: what a run stopped at may be allowed it."""
SHOWN = ("episode/reward", "episode/success", "kl", "entropy", "episode/turns", "time/rollout_tokens_per_s")


def keep_lines(path: Path, updates: int) -> None:
    """Drop lines of updates that a resumed run will make again (and a line cut short by a kill)."""
    if not path.is_file():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if row["update"] < updates:
            kept.append(line + "\n")
    path.write_text("".join(kept), encoding="utf-8")


def append_line(path: Path, row: dict[str, Any]) -> None:
    """One JSON line; numbers that are not finite become null."""
    plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
    with open(path, "a", encoding="ascii") as out:
        out.write(json.dumps(plain) + "\n")


def write_samples(path: Path, update: int, episodes: Sequence[Episode], count: int) -> None:
    """The first `count` episodes of each stage of an update, for reading: a second attempt shows what it was told."""
    first = [e for e in episodes if e.stage == "initial"]
    refined = [e for e in episodes if e.stage == "refined"]
    for e in [*first[:count], *refined[:count]]:
        row = json.loads(e.trajectory.to_json())
        append_line(path, {"update": update, "stage": e.stage, "status": e.status, "reward": e.reward, **row})


def plot_curves(metrics: Path, evaluations: Path, target: Path) -> None:
    """Reward, success (training and held-out), KL or policy change, entropy."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    held_out = [json.loads(line) for line in evaluations.read_text().splitlines()] if evaluations.is_file() else []
    figure, axes = plt.subplots(2, 2, figsize=(9, 6), sharex=True)
    kl = "kl" if any(r.get("kl") is not None for r in rows) else "approx_kl"
    for axis, key in zip(axes.flat, ("episode/reward", "episode/success", kl, "entropy"), strict=True):
        points = [(r["update"], r[key]) for r in rows if r.get(key) is not None]
        if points:
            axis.plot(*zip(*points, strict=True), linewidth=1.2)
        axis.set_title(key, fontsize=10)
        axis.grid(alpha=0.3)
    if held_out:
        axes[0, 1].plot(
            [r["update"] for r in held_out],
            [r["success"]["value"] for r in held_out],
            "o-",
            color="tab:red",
            markersize=4,
        )
        axes[0, 1].legend(["training", "held out"], fontsize=8)
    for axis in axes[1]:
        axis.set_xlabel("update")
    figure.tight_layout()
    figure.savefig(target, dpi=120)
    plt.close(figure)


def train(config: AgentConfig, judge: AgentRRM | None = None) -> dict[str, Any]:
    """Run or continue a training; returns the summary the CLI prints.

    Args:
        judge: in place of the config's `feedback.judge`.

    Raises:
        RRMError: another run's folder, or a policy or judge that cannot be loaded; TrainingError: a loss that is not finite.
    """
    import torch
    from transformers import set_seed

    if config.threads:
        torch.set_num_threads(config.threads)
    set_seed(config.seed)
    folder = Path(config.output_dir)
    done = checkpoints(folder / "checkpoints")
    if done:
        check_folder(config, folder, FIXED, FREE)
    env_factory, train_tasks, eval_tasks = make_environment(config.environment, seed=config.seed)
    check_labels(config.feedback, env_factory, train_tasks)
    policy, tokenizer = load_policy(
        config.policy, with_values=config.algorithm == "ppo", entropy_gradient=config.loss.entropy_coef != 0
    )
    trainer = AgentTrainer(config, policy, tokenizer, env_factory, train_tasks, folder, judge)
    claim_folder(config, folder)
    main = trainer.accelerator.is_main_process
    if done:
        logger.warning("continuing from %s", done[-1])
        trainer.resume(done[-1])
    else:
        trainer.feedback.restore(0, {})
    logs = {name: folder / f"{name}.jsonl" for name in ("metrics", "episodes", "eval")}
    if main:
        for path in logs.values():
            keep_lines(path, trainer.update_index)
    trainer.accelerator.init_trackers("reagent", config=flat(config.model_dump(mode="json")))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())  # fmt: skip
    last: dict[str, Any] = {}
    with Progress(*columns, console=Console(stderr=True), disable=not main) as progress:
        bar = progress.add_task("training", total=config.max_updates, completed=trainer.update_index)
        while trainer.update_index < config.max_updates:
            update = trainer.update_index
            last, episodes = trainer.update()
            last["episodes"] = trainer.episodes_seen
            trainer.accelerator.log(last, step=update)
            if main:
                append_line(logs["metrics"], {"update": update, **last})
                write_samples(logs["episodes"], update, episodes, config.sample_episodes)
                shown = "  ".join(f"{k.split('/')[-1]} {last[k]:.3g}" for k in SHOWN if k in last)
                progress.update(bar, advance=1, description=shown)
            finished = trainer.update_index == config.max_updates
            if (config.eval.every and trainer.update_index % config.eval.every == 0) or finished:
                trainer.accelerator.wait_for_everyone()
                if main:
                    found, _ = evaluate(trainer.engine, tokenizer, env_factory, eval_tasks, config)
                    append_line(logs["eval"], {"update": update, "episodes": trainer.episodes_seen, **found})
            if trainer.update_index % config.save_every == 0 or finished:
                trainer.save()
    trainer.accelerator.end_training()
    if main:
        export(policy, tokenizer, folder / "policy")
        plot_curves(logs["metrics"], logs["eval"], folder / "curves.png")
    evaluation = [json.loads(line) for line in logs["eval"].read_text().splitlines()] if logs["eval"].is_file() else []
    return {
        "output_dir": str(folder),
        "policy": str(folder / "policy"),
        "updates": trainer.update_index,
        "episodes": trainer.episodes_seen,
        "reward": last.get("episode/reward"),
        "held_out_success": evaluation[-1]["success"] if evaluation else None,
    }


def export(policy: Any, tokenizer: Any, folder: Path) -> None:
    """The trained policy as a directory that `policy.base` takes again."""
    model = policy.model
    if hasattr(model, "merge_and_unload"):
        model.save_pretrained(str(folder / "adapter"), safe_serialization=True)
        model = model.merge_and_unload()
    model.save_pretrained(str(folder), safe_serialization=True)
    tokenizer.save_pretrained(str(folder))


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested config as the flat scalars trackers accept."""
    out: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            out |= flat(value, f"{prefix}{key}.")
        else:
            out[f"{prefix}{key}"] = value if isinstance(value, int | float | str | bool) else str(value)
    return out
