"""AgentTrainer: roll out, compute advantages, update; PPO, GRPO, RLOO and REINFORCE++ by one loop.

One update reads top to bottom in `AgentTrainer.update`:

    round     = feedback.round(attempts, play)                token-exact rollouts, and what feedback adds to them
    batch     = make_batch(round.rows)                        right-padded, action mask by construction
    old, ref, values = forwards without gradients             recomputed by the training forward (DESIGN §5)
    advantages = compute_advantages(algorithm, …)
    for each pass, minibatch, micro-batch: loss over global denominators, backward; clip; step

Simplified on purpose: rollouts run in the training process on the same weights, and every process keeps the whole model
(data parallel over tasks). All randomness derives from (seed, update, task, sample), never from a global generator.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from reagent.algorithms.losses import importance_weights
from reagent.algorithms.objective import LossMetrics, agent_loss, explained_variance, loss_denominator, merge_metrics
from reagent.algorithms.registry import Advantages, compute_advantages
from reagent.env.env import Environment
from reagent.env.task import Task
from reagent.feedback.base import Round
from reagent.feedback.build import make_feedback
from reagent.feedback.texts import KINDS, TextRow, deal, text_batches, token_counts
from reagent.rollout.episode import Episode
from reagent.rollout.rollout import Attempt, rollout
from reagent.train.batch import Batch, logprob_gap, make_batch, microbatches, minibatches
from reagent.train.checkpoint import load_checkpoint, save_checkpoint
from reagent.train.config import AgentConfig
from reagent.train.metrics import episode_metrics, learned_metrics
from reagent.train.optimizer import learning_rate_factor, make_optimizer
from reagent.train.policy import Policy
from rrm.engines.hf.engine import HFEngine
from rrm.errors import RRMError
from rrm.seeds import derive_seed

if TYPE_CHECKING:
    from rrm.judge.agent_rrm import AgentRRM

logger = logging.getLogger(__name__)


class TrainingError(RRMError):
    """Training cannot go on; the message says which batch was at fault and which checkpoint is the last good one."""


class AgentTrainer:
    """Trains a policy on an environment.

    Args:
        config: everything but the objects below.
        policy, tokenizer: from `reagent.train.policy.load_policy`.
        env_factory: makes a fresh environment for one episode.
        tasks: training tasks, used in order and again from the start.
        folder: the run folder; checkpoints go to `checkpoints/` in it.
        judge: in place of the config's `feedback.judge`.

    Raises:
        TrainingError: a loss that is not finite. JudgeFailure: too many judgements failed.
    """

    def __init__(
        self,
        config: AgentConfig,
        policy: Policy,
        tokenizer: Any,
        env_factory: Callable[[], Environment],
        tasks: Sequence[Task],
        folder: Path,
        judge: AgentRRM | None = None,
    ) -> None:
        if (
            os.environ.get("ACCELERATE_USE_CPU") == "True"
            and "MASTER_PORT" in os.environ
            and "WORLD_SIZE" not in os.environ
        ):
            raise RRMError(
                "`accelerate launch --cpu` starts one process, however many are asked for (it leaves them to mpirun): "
                "launch with --multi_gpu instead, which stays on the CPU with cpu=true"
            )
        self.config, self.tokenizer, self.env_factory, self.tasks = config, tokenizer, env_factory, tasks
        self.folder = folder
        self.accelerator = Accelerator(
            cpu=config.cpu,
            mixed_precision=config.mixed_precision,
            log_with=[*config.report_to] or None,
            project_dir=folder,
        )
        processes = self.accelerator.num_processes
        if config.rollout.tasks_per_update % processes:
            raise RRMError(
                f"rollout.tasks_per_update={config.rollout.tasks_per_update} does not divide among {processes} processes"
            )
        self.policy = policy
        self.frozen = self._frozen_copy() if self._needs_reference and config.policy.lora is None else None
        self.optimizer = make_optimizer(policy, config)
        self.wrapped, self.prepared = self.accelerator.prepare(policy, self.optimizer)
        if self.frozen is not None:
            self.frozen.to(self.accelerator.device)
        self.engine = HFEngine(policy.model, tokenizer)
        self.feedback = make_feedback(
            config,
            tokenizer,
            device=str(self.accelerator.device),
            judge=judge,
            folder=folder,
            rank=self.accelerator.process_index,
            positions=self.engine.max_positions,
            eos_ids=self.engine.eos_ids,
        )
        self.update_index = 0
        """Updates done."""
        self.episodes_seen = 0

    # ---- set-up ----

    @property
    def _needs_reference(self) -> bool:
        return self.config.loss.kl_coef > 0

    @property
    def _kl_in_reward(self) -> bool:
        """REINFORCE++ has its KL penalty in the reward, the others in the loss."""
        return self._needs_reference and self.config.algorithm == "reinforce++"

    @property
    def _steps_per_update(self) -> int:
        return self.config.optim.epochs * self.config.optim.minibatches

    def _sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Element-wise sum over processes. It travels on the accelerator's device: NCCL knows no CPU tensors."""
        total: Any = self.accelerator.reduce(tensor.to(self.accelerator.device), reduction="sum")
        return total.to(tensor.device)

    def _frozen_copy(self) -> Policy:
        import copy

        frozen = Policy(copy.deepcopy(self.policy.model), with_values=False)
        return frozen.requires_grad_(False)

    def save(self) -> Path | None:
        """A checkpoint of the state after the updates done; on the main process only."""
        self.accelerator.wait_for_everyone()
        if not self.accelerator.is_main_process:
            return None
        state = {
            "episodes": self.episodes_seen,
            "algorithm": self.config.algorithm,
            "seed": self.config.seed,
            "feedback": self.feedback.state(),
        }
        return save_checkpoint(self.folder / "checkpoints", self.update_index, self.policy, self.optimizer, state)

    def resume(self, path: Path) -> None:
        """Continue from a checkpoint."""
        state = load_checkpoint(path, self.policy, self.optimizer)
        if state["algorithm"] != self.config.algorithm or state["seed"] != self.config.seed:
            raise RRMError(
                f"{path} was made with algorithm={state['algorithm']} seed={state['seed']}; choose another output_dir"
            )
        self.update_index, self.episodes_seen = state["update"], state["episodes"]
        self.feedback.restore(self.update_index, state.get("feedback", {}))

    # ---- one update ----

    def attempts(self, update: int) -> list[Attempt]:
        """This process's share of an update's first attempts: whole groups, so that group statistics stay local."""
        per_update, rank = self.config.rollout.tasks_per_update, self.accelerator.process_index
        share = per_update // self.accelerator.num_processes
        start = update * per_update + rank * share
        return self.feedback.attempts(self.tasks, start, share, self.config.rollout.group_size)

    def play(self, attempts: Sequence[Attempt], *, update: int, **hooks: Any) -> list[Episode]:
        """Roll out an update's attempts on the current weights; `hooks` as `rollout` takes them."""
        settings = self.config.rollout
        return rollout(
            self.engine,
            self.tokenizer,
            self.env_factory,
            attempts,
            params=settings.sampling(seed=derive_seed(self.config.seed, "rollout", update)),
            **hooks,
            **settings.limits,
        )

    def round(self, update: int) -> Round:
        """An update's episodes on the current weights, and what is to be learned from them."""
        return self.feedback.round(update, self.attempts(update), partial(self.play, update=update))

    def collect(self, update: int) -> list[Episode]:
        """The rows of `round`."""
        return self.round(update).rows

    def update(self) -> tuple[dict[str, float], list[Episode]]:
        """One round: episodes, advantages, optimiser steps. Returns metrics and the episodes."""
        started = time.perf_counter()
        found = self.round(self.update_index)
        rolled = time.perf_counter()
        figures = self.feedback.report(self.update_index, gather_object([found.report]))
        everyones: list[Episode] = gather_object(found.played)
        judging = found.report.seconds
        learning = time.perf_counter()
        metrics = self.learn(found.rows, found.texts)
        done = time.perf_counter()
        self.update_index += 1
        self.episodes_seen += len(everyones)
        tokens = sum(len(turn.output_ids) for e in everyones for turn in e.turns)
        metrics |= learned_metrics(gather_object([(e.group_id, e.reward) for e in found.rows]))
        metrics |= episode_metrics([e for e in everyones if e.stage == "initial"])
        refined = [e for e in everyones if e.stage == "refined"]
        if refined:
            metrics |= episode_metrics(refined, "refined")
        metrics |= figures | {
            "time/rollout_s": rolled - started - judging,
            "time/update_s": done - learning,
            "time/rollout_tokens_per_s": tokens / max(rolled - started - judging, 1e-9),
            "time/update_tokens_per_s": tokens / max(done - learning, 1e-9),
        }
        return metrics, found.played

    def learn(self, episodes: Sequence[Episode], texts: Sequence[TextRow] = ()) -> dict[str, float]:
        """Advantages and optimiser steps on given episodes, and on texts (of this process); returns the update's metrics."""
        batch = make_batch(episodes)
        advantages, old, ref, values = self.prepare(batch)
        ungraded = sum(e.ungraded and e.reward is None for e in episodes)
        metrics = {
            "unknown_rows": float(sum(gather_object([advantages.unknown_rows - ungraded]))),
            "ungraded_rows": float(sum(gather_object([ungraded]))),
        }
        if values is not None and advantages.returns is not None:
            explained = explained_variance(values, advantages.returns, advantages.loss_mask, self._sum)
            metrics["explained_variance"] = float(explained)
        if old is not None:
            metrics["logprob_gap"] = max(gather_object([logprob_gap(old, batch)]))
        factor = learning_rate_factor(self.update_index, self.config)
        for group in self.optimizer.param_groups:
            group["lr"] = group["base_lr"] * factor
        parts: list[LossMetrics] = []
        norms: list[float] = []
        for epoch in range(self.config.optim.epochs):
            seed = derive_seed(self.config.seed, "minibatches", self.update_index, epoch)
            dealt = minibatches(batch, self.config.optim.minibatches, seed)
            for number, index in enumerate(dealt):
                where = f"update {self.update_index}, pass {epoch}, minibatch {number}"
                told = deal(texts, number, len(dealt))
                found, norm = self.step(batch, index, advantages, old, ref, values, where, told)
                parts += found
                norms.append(norm)
        steps = max(len(norms), 1)
        merged = merge_metrics(gather_object(parts))  # each process holds its share
        for name in ("loss", "policy_loss", "value_loss", *(f"{kind}_nll" for kind in KINDS)):
            if name in merged:
                merged[name] /= steps
        return (
            metrics | merged | {"grad_norm": sum(norms) / steps, "learning_rate": self.optimizer.param_groups[0]["lr"]}
        )

    @torch.no_grad()
    def prepare(self, batch: Batch) -> tuple[Advantages, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """(advantages, old log-probabilities, reference log-probabilities, old values), on the CPU, (B, T) each.

        Where one optimiser step uses all episodes once and nothing else needs them, the old log-probabilities are the
        step's own: None, and a forward less.
        """
        loss = self.config.loss
        mask = batch.action_mask if loss.action_mask else batch.turn_index >= 0
        credit = mask if loss.advantage_mask else batch.turn_index >= 0
        old = values = None
        if self.policy.value_head is not None or self._steps_per_update > 1 or self._kl_in_reward:
            old, values = self.statistics(batch, self.wrapped, credit)
        ref = None
        if self._needs_reference:
            with self.policy.reference(self.frozen) as reference, self.accelerator.autocast():
                ref, _ = self.statistics(batch, reference, mask)
        advantages = compute_advantages(
            self.config.algorithm,
            batch.token_rewards,
            batch.action_mask,
            batch.turn_index,
            batch.group,
            known=batch.known,
            attempt=batch.attempt,
            stage=batch.stage,
            values=values,
            bootstrap=self.end_values(batch) if loss.bootstrap else None,
            logprobs=old,
            ref_logprobs=ref,
            gamma=loss.gamma,
            gae_lambda=loss.gae_lambda,
            kl_coef=loss.kl_coef if self._kl_in_reward else 0.0,
            use_whitening=loss.whiten,
            scale=loss.advantage_scale,
            per_turn=loss.credit == "turn",
            use_action_mask=loss.action_mask,
            use_advantage_mask=loss.advantage_mask,
            reduce=self._sum,
        )
        return advantages, old, ref, values

    def statistics(
        self, batch: Batch, module: torch.nn.Module, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Log-probabilities and values (B, T) of the masked tokens under a module, without gradients."""
        logprobs = torch.zeros(batch.input_ids.shape)
        values = torch.zeros(batch.input_ids.shape) if self.policy.value_head is not None else None
        for rows in microbatches(batch.lengths, range(len(batch)), self.config.optim.microbatch_tokens):
            part = batch.rows(rows)
            width = part.input_ids.shape[1]
            output = module(
                part.input_ids.to(self.accelerator.device),
                mask[rows, :width].to(self.accelerator.device),
                self.config.rollout.temperature,
            )
            logprobs[rows, :width] = output.logprobs.float().cpu()
            if values is not None and output.values is not None:
                values[rows, :width] = output.values.float().cpu()
        return logprobs, values

    @torch.no_grad()
    def end_values(self, batch: Batch) -> torch.Tensor:
        """(B,) V of the state that each cut-off episode ended in, without gradients; 0 where it ended by itself."""
        values = torch.zeros(len(batch))
        chosen = batch.truncated.nonzero()[:, 0].tolist()
        for rows in microbatches(batch.lengths + 1, chosen, self.config.optim.microbatch_tokens):
            part = batch.rows(rows)
            ids = torch.nn.functional.pad(part.input_ids, (0, 1))  # room for a token after each row's last
            after = torch.arange(ids.shape[1]) == part.lengths[:, None]  # V belongs to the token it stands before
            output = self.wrapped(
                ids.to(self.accelerator.device),
                after.to(self.accelerator.device),
                self.config.rollout.temperature,
            )
            values[rows] = output.values.float().cpu()[after]
        return values

    def step(
        self,
        batch: Batch,
        index: Sequence[int],
        advantages: Advantages,
        old: torch.Tensor | None,
        ref: torch.Tensor | None,
        values: torch.Tensor | None,
        where: str,
        texts: Sequence[TextRow] = (),
    ) -> tuple[list[LossMetrics], float]:
        """One optimiser step on rows `index` and on texts; (metrics of its micro-batches, gradient norm before clipping)."""
        settings, device = self.config.loss, self.accelerator.device
        denominator = float(self._sum(loss_denominator(advantages.loss_mask[list(index)], settings.aggregation)))
        if denominator == 0:
            logger.warning("%s: no row with a known reward; skipped", where)
            return [], 0.0
        found = self.imitate(texts)
        groups = microbatches(batch.lengths, index, self.config.optim.microbatch_tokens)
        for number, rows in enumerate(groups):
            width = int(batch.lengths[rows].max())

            def cut(x: torch.Tensor | None, rows: list[int] = rows, width: int = width) -> Any:
                return None if x is None else x[rows, :width].to(device)

            with self.accelerator.no_sync(self.wrapped) if number + 1 < len(groups) else contextlib.nullcontext():
                output = self.wrapped(cut(batch.input_ids), cut(advantages.loss_mask), self.config.rollout.temperature)
                before = output.logprobs.detach() if old is None else cut(old)
                importance = None
                if settings.importance_cap is not None:
                    importance = importance_weights(
                        before, cut(batch.rollout_logprobs), cut(batch.action_mask), settings.importance_cap
                    )
                loss, metrics = agent_loss(
                    output.logprobs,
                    before,
                    cut(advantages.advantages),
                    cut(advantages.loss_mask),
                    denominator,
                    aggregation=settings.aggregation,
                    clip_low=settings.clip_low,
                    clip_high=settings.clip_high,
                    dual_clip=settings.dual_clip,
                    entropy=output.entropy,
                    entropy_coef=settings.entropy_coef,
                    ref_logprobs=cut(ref),
                    kl_coef=0.0 if self._kl_in_reward else settings.kl_coef,
                    kl_estimator=settings.kl_estimator,
                    values=output.values,
                    old_values=cut(values),
                    returns=cut(advantages.returns),
                    vf_coef=settings.vf_coef,
                    vf_clip=settings.vf_clip,
                    importance=importance,
                )
                if not math.isfinite(metrics.losses["loss"]):
                    raise TrainingError(self._not_finite(where, number, rows, metrics))
                # data-parallel wrappers average gradients over processes; the denominator is already global
                self.accelerator.backward(loss * self.accelerator.num_processes)
            if old is None:
                metrics.maxima["logprob_gap"] = logprob_gap(output.logprobs.detach().cpu(), batch.rows(rows))
            found.append(metrics)
        total: Any = self.accelerator.clip_grad_norm_(self.wrapped.parameters(), self.config.optim.max_grad_norm)
        norm = float(total)
        if not math.isfinite(norm):
            self.optimizer.zero_grad(set_to_none=True)
            raise TrainingError(f"{where}: gradient norm is {norm}; {self._last_checkpoint()}")
        self.prepared.step()
        self.prepared.zero_grad(set_to_none=True)
        return found, norm

    def imitate(self, texts: Sequence[TextRow]) -> list[LossMetrics]:
        """Gradients of the texts' loss, added to what is there; processes are synchronised by what follows."""
        counts = self._sum(token_counts(texts)).tolist()
        device, found = self.accelerator.device, []
        for part in text_batches(texts, dict(zip(KINDS, counts, strict=True)), self.config.optim.microbatch_tokens):
            with self.accelerator.no_sync(self.wrapped):
                nll = -self.wrapped(part.input_ids.to(device), part.mask.to(device)).logprobs
                self.accelerator.backward((nll * part.weights.to(device)).sum() * self.accelerator.num_processes)
            said = nll.detach().cpu()
            found.append(LossMetrics(losses={
                f"{kind}_nll": float(said[mask].sum()) / count
                for (kind, mask), count in zip(part.masks.items(), counts, strict=True) if count
            }))  # fmt: skip
        return found

    def _not_finite(self, where: str, number: int, rows: Sequence[int], metrics: LossMetrics) -> str:
        bad = {k: v for k, v in metrics.losses.items() if not math.isfinite(v)}
        return f"{where}, micro-batch {number} (rows {list(rows)[:8]}): {bad}; {self._last_checkpoint()}"

    def _last_checkpoint(self) -> str:
        from reagent.train.checkpoint import checkpoints

        found = checkpoints(self.folder / "checkpoints")
        return f"the last good checkpoint is {found[-1]}" if found else "there is no checkpoint yet"
