"""`reagent distil`: one round of learning from attempts chosen among a policy's own, without labels.

    play      distil.samples attempts at each of distil.tasks training tasks
    choose    one of them, by the judge (or by what needs none), where its score is high enough
    learn     the mean negative log-likelihood of the chosen episodes' sampled tokens, in nats a token

Rejection sampling with a reward model (RAFT, 2304.06767; ReST, 2308.08998), on the tokens that were sampled.

runs/agent/
  config.yaml, policy/, checkpoints/, judgements.jsonl as of `reagent train`
  episodes-<n>.jsonl   the episodes of a part of the tasks; present parts are not played again
  chosen.jsonl         the transcripts that are learned, with `meta.judge_score`
  choice.json          their keys, chosen once
  metrics.jsonl        one line an optimiser step
  eval.jsonl           held-out evaluations, before the first step and after the last
"""

from __future__ import annotations

import json
import logging
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from reagent.algorithms.objective import LossMetrics, aggregate, merge_metrics
from reagent.algorithms.registry import Advantages
from reagent.env.gradability import Grading
from reagent.env.task import Task
from reagent.feedback.base import judgeable
from reagent.feedback.judging import JudgingReport
from reagent.feedback.modes import CritiqueFeedback
from reagent.rollout.attempts import plan
from reagent.rollout.batch import make_batch
from reagent.rollout.episode import Episode, read_episodes, write_episodes
from reagent.tasks.environments import make_environment
from reagent.train.build_feedback import AskedFor
from reagent.train.checkpoint import checkpoints, load_checkpoint, restore_logs, save_checkpoint
from reagent.train.choosing import attempts_of, make_chooser, policy_tokens
from reagent.train.config import AgentConfig
from reagent.train.engine import close, make_engine, sync
from reagent.train.evaluate import EpisodeRunner, evaluate
from reagent.train.export import export
from reagent.train.guard_settings import GuardsConfig
from reagent.train.launch import make_accelerator
from reagent.train.learner import Learner, Prepared
from reagent.train.optimizer import learning_rate_factor
from reagent.train.policy import Policy, load_policy
from reagent.train.runlog import append_line, keep_lines, read_rows
from reagent.train.signals import Stopping
from rrm.data.output import file_when_whole
from rrm.data.seeds import derive_seed
from rrm.data.trajectory import Trajectory, write_jsonl
from rrm.errors import ConfigError, RRMError
from rrm.evaluation.choosing import OF_SCORES
from rrm.judge.agent_rrm import AgentRRM
from rrm.train.checkpoints import full_disk_named, newest_whole
from rrm.train.run_folder import check_folder, claim_folder, read_record, sole_writer

logger = logging.getLogger(__name__)
FIXED = ("seed", "environment", "policy", "rollout", "optim", "feedback", "eval", "distil", "mixed_precision")
"""Options that must not change between a run and its continuation,"""
FREE = (
    "feedback.max_failure_rate", "optim.microbatch_tokens", "optim.share_prefixes", "policy.gradient_checkpointing", "policy.export_dtype", "rollout.engine",
)  # fmt: skip
"""but these may,"""
BEFORE_THE_CHOICE = tuple(f"distil.{key}" for key in ("by", "min_score", "epochs", "batch_episodes", "learning_rate"))
"""and these before the choice: the played episodes stay."""
PART = 32


class SFTLearner(Learner):
    """Learner of the mean negative log-likelihood of sampled tokens, at temperature 1."""

    def imitate_episodes(self, episodes: Sequence[Episode], where: str) -> dict[str, float]:
        """One optimiser step; returns `nll` (before it), `tokens`, `grad_norm`, `learning_rate`.

        Raises RRMError: the loss or the gradient is not finite."""
        batch = make_batch(episodes)
        batch.rollout_logprobs.zero_()
        mask = batch.action_mask
        nothing = Advantages(torch.zeros_like(batch.token_rewards), None, mask, 0)
        factor = learning_rate_factor(self.update_index, self.config)
        for group in self.optimizer.param_groups:
            group["lr"] = group["base_lr"] * factor
        results, norm = self.step(Prepared(batch, nothing), range(len(batch)), where)
        self.update_index += 1
        merged = merge_metrics(results)
        return {
            "nll": merged["loss"],
            "tokens": float(mask.sum()),
            "grad_norm": norm or 0.0,
            "learning_rate": self.optimizer.param_groups[0]["lr"],
        }

    def _without_gradient(self, prepared: Prepared, index: Sequence[int]) -> set[int]:
        return set()

    def _loss(
        self, prepared: Prepared, rows: list[int], mask: torch.Tensor, denominator: float
    ) -> tuple[torch.Tensor, LossMetrics]:
        """A micro-batch's share of −Σ log π / tokens over `mask` (B, T)."""
        width, device = int(prepared.batch.lengths[rows].max()), self.accelerator.device
        row_mask = mask[rows, :width].to(device)
        output = self.ddp_model(prepared.batch.input_ids[rows, :width].to(device), row_mask)
        loss = aggregate(-output.logprobs, row_mask, denominator, "token-mean")
        return loss, LossMetrics(losses={"loss": float(loss.detach())})


@dataclass(frozen=True)
class Chosen:
    episodes: list[Episode]
    scores: list[float | None]
    tasks: int
    judge_tokens: int

    def write(self, path: Path) -> None:
        row = {
            "keys": [e.key for e in self.episodes], "scores": self.scores, "tasks": self.tasks, "judge_tokens": self.judge_tokens,
        }  # fmt: skip
        with file_when_whole(path) as file:
            file.write(json.dumps(row) + "\n")

    @classmethod
    def read(cls, path: Path, played: Sequence[Episode]) -> Chosen:
        row, by_key = read_record(path), {e.key: e for e in played}
        return cls([by_key[key] for key in row["keys"]], row["scores"], row["tasks"], row["judge_tokens"])

    def figures(self, by: str, played: Sequence[Episode]) -> dict[str, Any]:
        scores = [score for score in self.scores if score is not None]
        successes = [e.success for e in self.episodes if e.success is not None]
        graded = [e.success for e in played if e.success is not None]
        return {
            "tasks": self.tasks,
            "attempts": len(played),
            "learned": len(self.episodes),
            "labels": self.tasks if by == "oracle" else 0,
            "score": sum(scores) / len(scores) if scores else None,
            "attempts_success": sum(graded) / len(graded) if graded else None,
            "learned_success": sum(successes) / len(successes) if successes else None,
            "policy_tokens": policy_tokens(played),
            "judge_tokens": self.judge_tokens,
        }


@dataclass
class Distilling:
    """One run of `reagent distil`; continues from its folder."""

    config: AgentConfig
    policy: Policy
    player: EpisodeRunner
    chooser: CritiqueFeedback | None
    accelerator: Accelerator
    stopping: Stopping

    @property
    def folder(self) -> Path:
        return Path(self.config.output_dir)

    def run(self, train_tasks: Sequence[Task], eval_tasks: Sequence[Task]) -> dict[str, Any]:
        """Play, choose, learn, and evaluate before and after; returns the summary.

        Raises JudgeFailure: too many judgements failed; RRMError: nothing to learn from; RRMError."""
        newest = newest_whole(checkpoints(self.folder / "checkpoints"))
        if newest is not None:
            restore_logs(newest, self.folder)
        keep_lines(self.folder / "eval.jsonl", sys.maxsize)  # without a line that a full disk or a kill cut short
        if newest is None:  # later the weights are no longer those it started from
            self.evaluate(eval_tasks, update=-1)
        episodes = self.play(train_tasks[: self.config.distil.tasks])
        choice = self.folder / "choice.json"
        if not choice.is_file():
            with Grading(self.player.env_factory) as grading:
                self.choose(episodes, grading).write(choice)
        chosen = Chosen.read(choice, episodes)
        write_jsonl(self.folder / "chosen.jsonl", map(_scored, chosen.episodes, chosen.scores))
        imitator = self.imitator(len(chosen.episodes))
        if newest is not None:
            state = load_checkpoint(newest, self.policy, imitator.optimizer)
            if state.get("algorithm") != "distil":
                raise RRMError(f"{newest} is of a run of reagent train: choose another output_dir=…")
            imitator.update_index = state["update"]
        self.learn(imitator, chosen.episodes)
        after = self.evaluate(eval_tasks, update=imitator.update_index - 1)
        gap = export(self.policy, self.player.tokenizer, self.folder / "policy", self.config)
        nll = [row["nll"] for row in read_rows(self.folder / "metrics.jsonl")]
        before = next((row for row in read_rows(self.folder / "eval.jsonl") if row["update"] == -1), None)
        return {
            "output_dir": str(self.folder),
            "policy": str(self.folder / "policy"),
            **chosen.figures(self.config.distil.by, episodes),
            "export_gap": gap,
            "steps": imitator.update_index,
            "nll": [nll[0], nll[-1]],
            "held_out_success_before": before["success"] if before else None,
            "held_out_success": after["success"],
        }

    # ---- play and choose ----

    def play(self, tasks: Sequence[Task]) -> list[Episode]:
        """All attempts at the tasks; parts that are in the folder are read."""
        attempts = plan(tasks, self.config.distil.samples)
        size = PART * self.config.distil.samples
        parts = [attempts[i : i + size] for i in range(0, len(attempts), size)]
        episodes: list[Episode] = []
        with _progress() as progress:
            bar = progress.add_task("playing", total=len(parts))
            for number, batch in enumerate(parts):
                path = self.folder / f"episodes-{number:04d}.jsonl"
                if not path.is_file():
                    with self.stopping.at_once():
                        write_episodes(path, self.player(batch))
                episodes += read_episodes(path)
                progress.update(bar, advance=1)
        return episodes

    def choose(self, episodes: Sequence[Episode], grading: Grading) -> Chosen:
        """The attempts to learn from, one a task at most. Raises RRMError: none can be chosen."""
        settings, report = self.config.distil, JudgingReport()
        scores = self._scores(episodes, report)
        groups = attempts_of(episodes, scores if self.chooser else None, grading.is_graded)
        if settings.by == "oracle":
            groups = [g for g in groups if g.known]
            if not groups:
                raise RRMError(
                    "distil.by=oracle chooses by outcomes, and no training task is graded: use distil.by=judge, or give the "
                    "tasks answers (environment.label_share)"
                )
        rows = [g.rows[g.choose(settings.by, self.config.seed)] for g in groups]
        learned = [i for i in rows if judgeable(episodes[i]) and self._worth(episodes[i], scores[i])]
        if not learned:
            raise RRMError(
                f"of {len(groups)} tasks no attempt is worth learning from (distil.by={settings.by}, "
                f"distil.min_score={settings.min_score}): lower the threshold, or play more attempts (distil.samples)"
            )
        tokens = int(report.counts["judge_tokens"])
        return Chosen([episodes[i] for i in learned], [scores[i] for i in learned], len(groups), tokens)

    def _scores(self, episodes: Sequence[Episode], report: JudgingReport) -> list[float | None]:
        """The judge's scores, part by part: a stopped run loses one part's."""
        if self.chooser is None:
            return [None] * len(episodes)
        size, scores = PART * self.config.distil.samples, list[float | None]()
        spent = self.folder / "judge_tokens.json"
        if spent.is_file():  # of parts that are read back
            report.counts["judge_tokens"] += json.loads(spent.read_text(encoding="ascii"))
        for start in range(0, len(episodes), size):
            with self.stopping.at_once():
                mode = self.config.feedback.score_mode
                judged = self.chooser.judge(episodes[start : start + size], mode, 0, report)
                with file_when_whole(spent) as file:
                    file.write(f"{report.counts['judge_tokens']:.0f}\n")
            scores += [j.score for j in judged]
        self.chooser.report(0, [report])
        return scores

    def _worth(self, episode: Episode, score: float | None) -> bool:
        """True where a chosen attempt is learned from: a success of the oracle's, a score that is high enough."""
        settings = self.config.distil
        if settings.by == "oracle":
            return bool(episode.success)
        return settings.by not in OF_SCORES or (score is not None and score >= (settings.min_score or 0.0))

    # ---- learn ----

    def imitator(self, episodes: int) -> SFTLearner:
        config, settings = self.config, self.config.distil
        rate = config.optim.learning_rate if settings.learning_rate is None else settings.learning_rate
        changes = {
            "max_updates": steps_of(episodes, settings.batch_episodes, settings.epochs), "schedule_updates": None,
            "optim": config.optim.model_copy(update={"learning_rate": rate}),
            "loss": config.loss.model_copy(update={"aggregation": "token-mean", "kl_coef": 0.0}), "guards": GuardsConfig(),  # none of them looks here: no reference is held for them
        }  # fmt: skip
        return SFTLearner(config.model_copy(update=changes), self.policy, self.folder, self.accelerator)

    def learn(self, imitator: SFTLearner, episodes: Sequence[Episode]) -> None:
        batch, steps = self.config.distil.batch_episodes, imitator.config.max_updates
        log, complete = self.folder / "metrics.jsonl", True
        keep_lines(log, imitator.update_index)
        try:
            with _progress() as progress:
                bar = progress.add_task("learning", total=steps, completed=imitator.update_index)
                while imitator.update_index < steps:
                    self.stopping.check()
                    number, complete = imitator.update_index, False
                    rows = rows_of_step(number, len(episodes), batch, self.config.seed)
                    figures = imitator.imitate_episodes([episodes[i] for i in rows], f"step {number}")
                    append_line(log, {"update": number, **figures})
                    complete = True
                    progress.update(bar, advance=1, description=f"nll {figures['nll']:.3f}")
                    if imitator.update_index % self.config.save_every == 0 or imitator.update_index == steps:
                        self.save(imitator)
        except (KeyboardInterrupt, SystemExit) as error:
            if complete and imitator.update_index:
                self.save(imitator)
            logger.warning(
                "stopped (%s) after step %d; the same command goes on from there",
                type(error).__name__,
                imitator.update_index,
            )
            raise

    def save(self, imitator: SFTLearner) -> None:
        folder, state = self.folder / "checkpoints", {"algorithm": "distil", "seed": self.config.seed}
        save_checkpoint(folder, imitator.update_index, self.policy, imitator.optimizer, state)

    def evaluate(self, tasks: Sequence[Task], *, update: int) -> dict[str, Any]:
        """Held-out figures after a step (−1: before the first); made once."""
        path, player = self.folder / "eval.jsonl", self.player
        for row in read_rows(path):
            if row["update"] == update:
                return row
        with self.stopping.at_once():
            sync(player.engine, self.policy, update + 1, self.accelerator)
            figures, _ = evaluate(replace(player, temperature=None, seed=None), tasks)
        row = {"update": update, **figures}
        append_line(path, row)
        return row


def steps_of(episodes: int, batch: int, epochs: int) -> int:
    return epochs * -(-episodes // batch)


def rows_of_step(step: int, episodes: int, batch: int, seed: int) -> list[int]:
    """The episodes of an optimiser step; each pass is shuffled by seed and dealt evenly."""
    a_pass = steps_of(episodes, batch, 1)
    order = list(range(episodes))
    random.Random(derive_seed(seed, "distil", step // a_pass)).shuffle(order)
    return order[step % a_pass :: a_pass]


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True))


def _scored(episode: Episode, score: float | None) -> Trajectory:
    meta = episode.trajectory.meta if score is None else {**episode.trajectory.meta, "judge_score": score}
    return episode.trajectory.model_copy(update={"meta": meta})


def distil(config: AgentConfig, judge: AgentRRM | None = None) -> dict[str, Any]:
    """Run or continue a distillation; returns the summary the CLI prints.

    Raises RRMError: another run's folder, several processes, a policy or judge that cannot be loaded, nothing to learn from, or a loss
    that is not finite; ConfigError: a warm start; JudgeFailure: too many judgements failed."""
    from transformers import set_seed

    if config.threads:
        torch.set_num_threads(config.threads)
    set_seed(config.seed)
    folder, settings = Path(config.output_dir), config.distil
    if config.warm_start.tasks:
        raise ConfigError(
            "reagent distil has no warm start: set warm_start=0, or name the taught policy as policy.base"
        )
    check_distil_folder(config, folder)
    accelerator = make_accelerator(config, folder)
    if accelerator.num_processes > 1:
        raise RRMError("reagent distil runs in one process: start it without accelerate launch")
    with full_disk_named(folder), sole_writer(folder):
        env_factory, train_tasks, eval_tasks = make_environment(config.environment, seed=config.seed)
        if len(train_tasks) < settings.tasks:
            logger.warning(
                "distil.tasks=%d are wanted and environment.train_tasks=%d are there: these are played", settings.tasks, len(train_tasks)
            )  # fmt: skip
        policy, tokenizer = load_policy(config.policy, with_values=False)
        policy.to(accelerator.device)
        player = EpisodeRunner(
            make_engine(config, policy, tokenizer, folder=folder),
            tokenizer,
            env_factory,
            config,
            temperature=config.rollout.temperature if settings.temperature is None else settings.temperature,
            seed=derive_seed(config.seed, "distil"),
            here=str(accelerator.device),
        )
        try:
            asker = AskedFor(f"distil.by={settings.by}", "choose by what needs no judge (distil.by=majority)")
            asks = settings.by in OF_SCORES
            chooser = make_chooser(config, player, judge, asker=asker, folder=folder) if asks else None
            claim_folder(config, folder)
            if chooser is not None:
                chooser.restore(1, {})  # every judgement that is on record: all are of one round
            with Stopping() as stopping:
                return Distilling(config, policy, player, chooser, accelerator, stopping).run(train_tasks, eval_tasks)
        finally:
            close(player.engine)


def check_distil_folder(config: AgentConfig, folder: Path) -> None:
    """Refuse a folder that holds another run. Raises RRMError."""
    chosen = (folder / "choice.json").is_file()
    check_folder(config, folder, FIXED, FREE if chosen else (*FREE, *BEFORE_THE_CHOICE))
    if (folder / "config.yaml").is_file() and (folder / "episodes.jsonl").is_file():
        raise RRMError(f"{folder} holds a run of reagent train: choose another output_dir=…")
