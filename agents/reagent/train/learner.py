"""Learner: advantages and optimiser steps on given episodes, the same on one process or many.

    prepared = learner.prepare(batch)                  forwards without gradients, compute_advantages
    for each pass and minibatch: learner.step(prepared, index, where, texts)
        for each micro-batch: loss over global denominators, backward
        clip, step

Minibatches are dealt over the rows of all processes, so that two processes make the steps of one; a process that has no row
in a minibatch takes part with a row that carries no loss. Old log-probabilities are recomputed by the training forward.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from accelerate.utils import gather_object

from reagent.algorithms.losses import importance_weights
from reagent.algorithms.objective import LossMetrics, agent_loss, explained_variance, loss_denominator, merge_metrics
from reagent.algorithms.registry import Advantages, compute_advantages
from reagent.feedback.texts import TEXT_KINDS, SFTRow, TextKind, split_minibatches, text_batches, token_counts
from reagent.rollout.batch import Batch, gaps_by_server, logprob_gap, make_batch, minibatches, row_names
from reagent.rollout.episode import Episode
from reagent.train.checkpoint import checkpoints
from reagent.train.forwards import Forwards
from reagent.train.optimizer import learning_rate_factor
from rrm.data.seeds import derive_seed
from rrm.engines.server_options import public
from rrm.errors import EngineError, RRMError

logger = logging.getLogger(__name__)
T = TypeVar("T")


class TrainingError(RRMError):
    """Training cannot go on; the message says which batch was at fault and which checkpoint is the last good one."""


@dataclass(frozen=True)
class Prepared:
    """A batch with all that was computed of it before its first step. On the CPU, (B, T) each."""

    batch: Batch
    advantages: Advantages
    old: torch.Tensor | None = None
    """Log-probabilities before the update; None where the only step's own are they."""
    ref: torch.Tensor | None = None
    """Log-probabilities under the reference; None without KL."""
    values: torch.Tensor | None = None
    """Values before the update; None without a value head."""


class Learner(Forwards):
    """Takes optimiser steps on a policy; arguments as `reagent.train.forwards.Forwards` has them."""

    @property
    def _kl_in_reward(self) -> bool:
        """REINFORCE++ has its KL penalty in the reward, the others in the loss."""
        return self.config.loss.kl_coef > 0 and self.config.algorithm == "reinforce++"

    @property
    def _steps_per_update(self) -> int:
        return self.config.optim.epochs * self.config.optim.minibatches

    # ---- an update's steps ----

    def learn(self, episodes: Sequence[Episode], texts: Sequence[SFTRow] = ()) -> dict[str, float]:
        """Advantages and optimiser steps on given episodes, and on texts (of this process); returns the update's metrics."""
        batch = make_batch(episodes)
        prepared = self.prepare(batch)
        advantages = prepared.advantages
        ungraded = sum(e.ungraded and e.reward is None for e in episodes)
        metrics = {
            "unknown_rows": float(sum(gather_object([advantages.unknown_rows - ungraded]))),
            "ungraded_rows": float(sum(gather_object([ungraded]))),
        }
        if prepared.values is not None and advantages.returns is not None:
            explained = explained_variance(prepared.values, advantages.returns, advantages.loss_mask, self._sum)
            metrics["explained_variance"] = float(explained)
        if prepared.old is not None:
            metrics["logprob_gap"] = max(gather_object([logprob_gap(prepared.old, batch)]))
            metrics |= self._agreement(prepared.old, batch, episodes)
        factor = learning_rate_factor(self.update_index, self.config)
        for group in self.optimizer.param_groups:
            group["lr"] = group["base_lr"] * factor
        found, norms, texted = self._steps(prepared, row_names(episodes), texts)
        steps = max(len(norms), 1)
        merged = merge_metrics(gather_object(found))  # each process holds its share
        of = {"loss": steps, "policy_loss": steps, "value_loss": steps} | {
            f"{kind}_nll": texted[kind] for kind in TEXT_KINDS
        }
        for name in of.keys() & merged.keys():
            merged[name] /= of[name]
        return (
            metrics | merged | {"grad_norm": sum(norms) / steps, "learning_rate": self.optimizer.param_groups[0]["lr"]}
        )

    def _agreement(self, old: torch.Tensor, batch: Batch, episodes: Sequence[Episode]) -> dict[str, float]:
        """How far the numbers and weights that episodes were sampled from are from the training forward's; of weights nothing where they
        are the same.

        Raises:
            EngineError: a remote engine's are too far for anything to be learned (`rollout.engine.max_gap`).
        """
        engine = self.config.rollout.engine
        mine = gaps_by_server(old, batch, [[turn.server for turn in e.turns] for e in episodes])
        sums: dict[str, list[float]] = {}
        for server, (total, tokens) in (pair for one in gather_object([mine]) for pair in one.items()):
            before = sums.get(server, [0.0, 0.0])
            sums[server] = [before[0] + total, before[1] + tokens]
        gaps = {server: total / max(tokens, 1.0) for server, (total, tokens) in sums.items()}
        gap = sum(total for total, _ in sums.values()) / max(sum(tokens for _, tokens in sums.values()), 1.0)
        versions = [turn.version for episode in episodes for turn in episode.turns]
        oldest = min(gather_object([min(versions, default=self.update_index)]))
        worst = max(gaps, key=lambda server: gaps[server], default="")
        if engine.is_remote and engine.max_gap is not None and not gaps.get(worst, 0.0) <= engine.max_gap:
            raise EngineError(
                f"update {self.update_index}: {worst or public(engine.server)} and the training forward differ by {gaps[worst]:.3f} nats "
                f"a sampled token (rollout.engine.max_gap={engine.max_gap:g}), so nothing was learned from these episodes: has the "
                f"server other weights or another precision than the policy? {self._last_checkpoint()}"
            )
        stale = {"staleness": float(self.update_index - oldest)} if self.config.rollout.is_off_policy else {}
        return {"logprob_gap_mean": gap, **stale}

    def _steps(
        self, prepared: Prepared, names: Sequence[str], texts: Sequence[SFTRow]
    ) -> tuple[list[LossMetrics], list[float], dict[TextKind, int]]:
        """Every pass and minibatch: this process's metrics, the gradient norms, and in how many of them on any process each kind of
        text stands."""
        rank, optim = self.accelerator.process_index, self.config.optim
        self.consistent = False
        taught = prepared.advantages.loss_mask.any(1).tolist()
        rows: list[tuple[str, int, int, bool]] = gather_object(
            [(name, rank, i, told) for i, (name, told) in enumerate(zip(names, taught, strict=True))]
        )
        # no place is for a row that teaches nothing: one that stands in for a process without rows is there on no other number of processes
        everyones = [row[:3] for row in rows if row[3]] or [row[:3] for row in rows]
        counts = gather_object([[sum(row.kind == kind for row in texts) for kind in TEXT_KINDS]])
        before: dict[TextKind, int] = {
            kind: sum(one[at] for one in counts[:rank]) for at, kind in enumerate(TEXT_KINDS)
        }
        everyones_texts: dict[TextKind, int] = {
            kind: sum(one[at] for one in counts) for at, kind in enumerate(TEXT_KINDS)
        }
        texted: dict[TextKind, int] = dict.fromkeys(TEXT_KINDS, 0)
        parts: list[LossMetrics] = []
        norms: list[float] = []
        for epoch in range(optim.epochs):
            seed = derive_seed(self.config.seed, "minibatches", self.update_index, epoch)
            dealt = minibatches(everyones, rank, optim.minibatches, seed)
            for kind, number in everyones_texts.items():
                texted[kind] += min(number, len(dealt))  # as `split_minibatches` deals them
            for number, index in enumerate(dealt):
                where = f"update {self.update_index}, pass {epoch}, minibatch {number}"
                found, norm = self.step(prepared, index, where, split_minibatches(texts, number, len(dealt), before))
                parts += found
                norms.append(norm)
        return parts, norms, texted

    # ---- before the first step ----

    @torch.no_grad()
    def prepare(self, batch: Batch) -> Prepared:
        """Old and reference log-probabilities, old values and advantages of a batch.

        Where one optimiser step uses all episodes once and nothing else needs them, the old log-probabilities are the
        step's own: None, and a forward less.
        """
        loss = self.config.loss
        mask = batch.action_mask if loss.action_mask else batch.turn_index >= 0
        credit = mask if loss.advantage_mask else batch.turn_index >= 0
        old = values = ref = None
        off = self.config.rollout.is_off_policy  # compared with the rollout's before any step
        if self.policy.value_head is not None or self._steps_per_update > 1 or self._kl_in_reward or off:
            old, values = self.statistics(batch, self.ddp_model, credit)
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
        return Prepared(batch, advantages, old, ref, values)

    # ---- one step ----

    def step(
        self, prepared: Prepared, index: Sequence[int], where: str, texts: Sequence[SFTRow] = ()
    ) -> tuple[list[LossMetrics], float]:
        """One optimiser step on rows `index` and on texts; (metrics of its micro-batches, gradient norm before clipping).

        Args:
            index: this process's rows of the minibatch, possibly none.
            where: for messages.

        Raises:
            TrainingError: the loss or the gradient is not finite.
        """
        mask = prepared.advantages.loss_mask
        denominator = float(self._sum(loss_denominator(mask[list(index)], self.config.loss.aggregation)))
        if denominator == 0:
            if not float(self._sum(token_counts(texts)).sum()):
                logger.warning("%s: no row with a known reward; skipped", where)
                return [], 0.0
            denominator = 1.0  # of no token: the step is the texts' alone
        found = self.imitate(texts)
        still = self._without_gradient(prepared, index)
        looked_at = sorted(i for i in still if bool(mask[i].any()))  # of an unknown row there are no figures either
        groups = self.split_minibatches(prepared.batch, mask, [i for i in index if i not in still])
        with torch.no_grad():
            found += [
                self._loss(prepared, rows, mask, denominator)[1]
                for rows in self.split_minibatches(prepared.batch, mask, looked_at)
            ]
        # gradients are added up over processes: one without rows brings zeros, or the others wait for ever
        rounds = self.rounds(groups) or [None]
        nothing, shortest = torch.zeros_like(mask), [int(prepared.batch.lengths.argmin())]
        for number, rows in enumerate(rounds):
            with self.unsynced() if number + 1 < len(rounds) else contextlib.nullcontext():
                loss, metrics = self._loss(prepared, rows or shortest, mask if rows else nothing, denominator)
                if not math.isfinite(metrics.losses["loss"]):
                    raise TrainingError(self._not_finite(where, number, rows or shortest, metrics))
                # data-parallel wrappers average gradients over processes; the denominator is already global
                self.accelerator.backward(loss * self.accelerator.num_processes)
            found.append(metrics)
        norm = self.clip()
        if not math.isfinite(norm):
            self.optimizer.zero_grad(set_to_none=True)
            raise TrainingError(f"{where}: gradient norm is {norm}; {self._last_checkpoint()}")
        self.ddp_optimizer.step()
        self.ddp_optimizer.zero_grad(set_to_none=True)
        return found, norm

    def _without_gradient(self, prepared: Prepared, index: Sequence[int]) -> set[int]:
        """Those of the rows whose loss has no gradient: all their advantages are 0 and nothing but the policy's term is in it. Their
        figures take a forward alone. None under `sharding: fsdp`, where all processes make the same forwards and backwards."""
        loss = self.config.loss
        penalised = loss.entropy_coef != 0 or (loss.kl_coef != 0 and not self._kl_in_reward)
        if self.sharded or penalised or prepared.values is not None:
            return set()
        pushed = ((prepared.advantages.advantages != 0) & prepared.advantages.loss_mask).any(1)
        return {i for i in index if not pushed[i]}

    def _loss(
        self, prepared: Prepared, rows: list[int], mask: torch.Tensor, denominator: float
    ) -> tuple[torch.Tensor, LossMetrics]:
        """A micro-batch's share of the loss, over `mask` (B, T)."""
        settings, batch, advantages = self.config.loss, prepared.batch, prepared.advantages
        width = int(batch.lengths[rows].max())

        def cut(x: torch.Tensor | None) -> Any:
            return None if x is None else x[rows, :width].to(self.accelerator.device)

        output = self.forward(self.ddp_model, cut(batch.input_ids), cut(mask))
        before = output.logprobs.detach() if prepared.old is None else cut(prepared.old)
        importance = None
        cap = self.config.importance_cap
        if cap is not None:
            importance = importance_weights(before, cut(batch.rollout_logprobs), cut(batch.action_mask & mask), cap)
        loss, metrics = agent_loss(
            output.logprobs,
            before,
            cut(advantages.advantages),
            cut(mask),
            denominator,
            aggregation=settings.aggregation,
            clip_low=settings.clip_low,
            clip_high=settings.clip_high,
            dual_clip=settings.dual_clip,
            entropy=output.entropy,
            entropy_coef=settings.entropy_coef,
            ref_logprobs=cut(prepared.ref),
            kl_coef=0.0 if self._kl_in_reward else settings.kl_coef,
            kl_estimator=settings.kl_estimator if settings.kl_coef else "k3",
            values=output.values,
            old_values=cut(prepared.values),
            returns=cut(advantages.returns),
            vf_coef=settings.vf_coef,
            vf_clip=settings.vf_clip,
            importance=importance,
        )
        if prepared.old is None and bool(mask[rows].any()):
            part, now = batch.rows(rows), output.logprobs.detach().cpu()
            metrics.maxima["logprob_gap"] = logprob_gap(now, part)
            metrics.sums["logprob_gap_mean"] = float(
                ((now - part.rollout_logprobs).abs() * part.action_mask * mask[rows, :width]).sum()
            )
        return loss, metrics

    def imitate(self, texts: Sequence[SFTRow]) -> list[LossMetrics]:
        """Gradients of the texts' loss, added to what is there; processes are synchronised by what follows."""
        counts = self._sum(token_counts(texts)).tolist()
        device, found = self.accelerator.device, []
        parts = text_batches(texts, dict(zip(TEXT_KINDS, counts, strict=True)), self.config.optim.microbatch_tokens)
        for part in self.rounds(parts):
            if part is None:
                self.accelerator.backward(self.dummy_forward(self.ddp_model).logprobs.sum())
                continue
            with self.unsynced():
                nll = -self.forward(self.ddp_model, part.input_ids, part.mask, temperature=1.0).logprobs
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
        found = checkpoints(self.folder / "checkpoints")
        return f"the last good checkpoint is {found[-1]}" if found else "there is no checkpoint yet"
