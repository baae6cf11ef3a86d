"""Learner: advantages and optimiser steps on given episodes, the same on one process or many.

    prepared = learner.prepare(batch)                  forwards without gradients, compute_advantages
    for each pass and minibatch: learner.step(prepared, index, where, texts)
        for each micro-batch: loss over global denominators, backward
        clip, step

Minibatches are dealt over the rows of all processes; a process without rows in one takes part with a row without loss.
"""

import contextlib
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from accelerate.utils import gather_object

from reagent.algorithms.losses import importance_weights
from reagent.algorithms.objective import LossMetrics, agent_loss, explained_variance, loss_denominator, merge_metrics
from reagent.algorithms.registry import Advantages, compute_advantages
from reagent.feedback.texts import TEXT_KINDS, SFTRow, TextKind, split_minibatches, text_batches, token_counts
from reagent.rollout.batch import Batch, gaps_by_server, logprob_gap, make_batch, minibatches
from reagent.rollout.episode import Episode
from reagent.train.checkpoint import checkpoints
from reagent.train.forwards import Forwards
from reagent.train.optimizer import learning_rate_factor
from rrm.data.seeds import derive_seed
from rrm.engines.server_options import public
from rrm.errors import EngineError, RRMError

logger = logging.getLogger(__name__)
T = TypeVar("T")
KL_MARGIN = 1.5
"""Multiple of `loss.target_kl` at which an update ends, as in Stable-Baselines3."""


@dataclass(frozen=True)
class Prepared:
    """A batch with its statistics before the first step. On the CPU, (B, T) each."""

    batch: Batch
    advantages: Advantages
    old: torch.Tensor | None = None
    """Log-probabilities before the update; None where the only step's own are they."""
    ref: torch.Tensor | None = None
    values: torch.Tensor | None = None


class Learner(Forwards):
    """Takes optimiser steps on a policy; arguments as of `reagent.train.forwards.Forwards`."""

    @property
    def _kl_in_reward(self) -> bool:
        return self.config.loss.kl_coef > 0 and self.config.algorithm == "reinforce++"

    @property
    def _steps_per_update(self) -> int:
        return self.config.optim.epochs * self.config.optim.minibatches

    # ---- an update's steps ----

    def learn(self, episodes: Sequence[Episode], texts: Sequence[SFTRow] = ()) -> dict[str, float]:
        """Advantages and optimiser steps on episodes and texts of this process; returns the update's metrics."""
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
        results, norms, texted = self._steps(prepared, [e.key for e in episodes], texts)
        if self.config.loss.target_kl is not None:
            metrics["optimizer_steps"] = float(len(norms))
        steps = max(len(norms), 1)
        merged = merge_metrics(gather_object(results))  # each process holds its share
        divisors = {"loss": steps, "policy_loss": steps, "value_loss": steps} | {
            f"{text_kind}_nll": texted[text_kind] for text_kind in TEXT_KINDS
        }
        for name in divisors.keys() & merged.keys():
            merged[name] /= divisors[name]
        return (
            metrics | merged | {"grad_norm": sum(norms) / steps, "learning_rate": self.optimizer.param_groups[0]["lr"]}
        )

    def _agreement(self, old: torch.Tensor, batch: Batch, episodes: Sequence[Episode]) -> dict[str, float]:
        """Distance of the sampling numbers and weights from the training forward's.

        Raises EngineError: a remote engine is too far (`rollout.engine.max_gap`)."""
        engine = self.config.rollout.engine
        mine = gaps_by_server(old, batch, [[turn.server for turn in e.turns] for e in episodes])
        sums: dict[str, list[float]] = {}
        for server, (total, tokens) in (
            pair for process_gaps in gather_object([mine]) for pair in process_gaps.items()
        ):
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
        """Every pass and minibatch: metrics, gradient norms, and minibatches with each kind of text."""
        rank, optim = self.accelerator.process_index, self.config.optim
        self.consistent = False
        taught = prepared.advantages.loss_mask.any(1).tolist()
        rows: list[tuple[str, int, int, bool]] = gather_object(
            [(name, rank, i, teaches) for i, (name, teaches) in enumerate(zip(names, taught, strict=True))]
        )
        # no place is for a row that teaches nothing: one that stands in for a process without rows is there on no other number of processes
        everyones = [row[:3] for row in rows if row[3]] or [row[:3] for row in rows]
        counts = gather_object([[sum(row.kind == text_kind for row in texts) for text_kind in TEXT_KINDS]])
        before: dict[TextKind, int] = {
            text_kind: sum(process_counts[column] for process_counts in counts[:rank])
            for column, text_kind in enumerate(TEXT_KINDS)
        }
        everyones_texts: dict[TextKind, int] = {
            text_kind: sum(process_counts[column] for process_counts in counts)
            for column, text_kind in enumerate(TEXT_KINDS)
        }
        texted: dict[TextKind, int] = dict.fromkeys(TEXT_KINDS, 0)
        parts: list[LossMetrics] = []
        norms: list[float] = []
        for epoch in range(optim.epochs):
            seed = derive_seed(self.config.seed, "minibatches", self.update_index, epoch)
            dealt = minibatches(everyones, rank, optim.minibatches, seed)
            for number, index in enumerate(dealt):
                where = f"update {self.update_index}, pass {epoch}, minibatch {number}"
                results, norm = self.step(prepared, index, where, split_minibatches(texts, number, len(dealt), before))
                if norm is None:
                    return [*parts, *(replace(metrics, losses={}) for metrics in results)], norms, texted
                parts += results
                norms.append(norm)
                for text_kind, count in everyones_texts.items():
                    texted[text_kind] += number < count  # as `split_minibatches` deals them
        return parts, norms, texted

    # ---- before the first step ----

    @torch.no_grad()
    def prepare(self, batch: Batch) -> Prepared:
        """Old and reference log-probabilities, old values and advantages of a batch.

        Where one optimiser step uses all episodes once, old log-probabilities are the step's own: None, and a forward less."""
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
            self.config.algorithm, batch.token_rewards, batch.action_mask, batch.turn_index, batch.group,
            known=batch.known, attempt=batch.attempt, stage=batch.stage, values=values,
            bootstrap=self.end_values(batch) if loss.bootstrap else None, logprobs=old, ref_logprobs=ref,
            gamma=loss.gamma, gae_lambda=loss.gae_lambda, kl_coef=loss.kl_coef if self._kl_in_reward else 0.0,
            use_whitening=loss.whiten, scale=loss.advantage_scale, per_turn=loss.credit == "turn",
            use_action_mask=loss.action_mask, use_advantage_mask=loss.advantage_mask, reduce=self._sum,
        )  # fmt: skip
        return Prepared(batch, advantages, old, ref, values)

    # ---- one step ----

    def step(
        self, prepared: Prepared, index: Sequence[int], where: str, texts: Sequence[SFTRow] = ()
    ) -> tuple[list[LossMetrics], float | None]:
        """One optimiser step on this process's rows `index` and texts; (metrics, gradient norm).

        The norm is None where `loss.target_kl` forbids the step. Raises RRMError: the loss or the gradient is not finite. `where`: for messages."""
        mask = prepared.advantages.loss_mask
        denominator = float(self._sum(loss_denominator(mask[list(index)], self.config.loss.aggregation)))
        if denominator == 0:
            if not float(self._sum(token_counts(texts)).sum()):
                logger.warning("%s: no row with a known reward; skipped", where)
                return [], 0.0
            denominator = 1.0  # of no token: the step is the texts' alone
        results = self.imitate(texts)
        still = self._without_gradient(prepared, index)
        looked_at = sorted(i for i in still if bool(mask[i].any()))  # of an unknown row there are no figures either
        groups = self.split_minibatches(prepared.batch, mask, [i for i in index if i not in still])
        with torch.no_grad():
            results += [
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
                    raise RRMError(self._not_finite(where, number, rows or shortest, metrics))
                # data-parallel wrappers average gradients over processes; the denominator is already global
                self.accelerator.backward(loss * self.accelerator.num_processes)
            results.append(metrics)
        if self._too_far(results):
            self.ddp_optimizer.zero_grad(set_to_none=True)
            return results, None
        norm = self.clip()
        if not math.isfinite(norm):
            self.optimizer.zero_grad(set_to_none=True)
            raise RRMError(f"{where}: gradient norm is {norm}; {self._last_checkpoint()}")
        self.ddp_optimizer.step()
        self.ddp_optimizer.zero_grad(set_to_none=True)
        return results, norm

    def _too_far(self, results: Sequence[LossMetrics]) -> bool:
        """Tell whether a minibatch's mean KL, over all processes, exceeds `loss.target_kl` by its margin."""
        target = self.config.loss.target_kl
        if target is None:
            return False
        sums = [sum(metrics.sums.get(name, 0.0) for metrics in results) for name in ("approx_kl", "tokens")]
        divergence, tokens = self._sum(torch.tensor(sums)).tolist()
        return divergence > KL_MARGIN * target * tokens

    def _without_gradient(self, prepared: Prepared, index: Sequence[int]) -> set[int]:
        """Rows without a gradient: all advantages 0 and no other term. Empty under `sharding: fsdp`."""
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
            output.logprobs, before, cut(advantages.advantages), cut(mask), denominator,
            aggregation=settings.aggregation, kind=settings.policy, clip_low=settings.clip_low,
            clip_high=settings.clip_high, dual_clip=settings.dual_clip, entropy=output.entropy, entropy_coef=settings.entropy_coef,
            ref_logprobs=cut(prepared.ref), kl_coef=0.0 if self._kl_in_reward else settings.kl_coef,
            kl_estimator=settings.kl_estimator if settings.kl_coef else "k3", values=output.values,
            old_values=cut(prepared.values), returns=cut(advantages.returns), vf_coef=settings.vf_coef,
            vf_clip=settings.vf_clip, importance=importance,
        )  # fmt: skip
        if prepared.old is None and bool(mask[rows].any()):
            micro, now = batch.rows(rows), output.logprobs.detach().cpu()
            metrics.maxima["logprob_gap"] = logprob_gap(now, micro)
            metrics.sums["logprob_gap_mean"] = float(
                ((now - micro.rollout_logprobs).abs() * micro.action_mask * mask[rows, :width]).sum()
            )
        return loss, metrics

    def imitate(self, texts: Sequence[SFTRow]) -> list[LossMetrics]:
        """Add gradients of the texts' loss; the following backward synchronises processes."""
        counts = self._sum(token_counts(texts)).tolist()
        device, results = self.accelerator.device, []
        parts = text_batches(texts, dict(zip(TEXT_KINDS, counts, strict=True)), self.config.optim.microbatch_tokens)
        for micro in self.rounds(parts):
            if micro is None:
                self.accelerator.backward(self.dummy_forward(self.ddp_model).logprobs.sum())
                continue
            with self.unsynced():
                nll = -self.forward(self.ddp_model, micro.input_ids, micro.mask, temperature=1.0).logprobs
                self.accelerator.backward((nll * micro.weights.to(device)).sum() * self.accelerator.num_processes)
            token_nll = nll.detach().cpu()
            results.append(LossMetrics(losses={
                f"{text_kind}_nll": float(token_nll[mask].sum()) / count
                for (text_kind, mask), count in zip(micro.masks.items(), counts, strict=True) if count
            }))  # fmt: skip
        return results

    def _not_finite(self, where: str, number: int, rows: Sequence[int], metrics: LossMetrics) -> str:
        bad = {k: v for k, v in metrics.losses.items() if not math.isfinite(v)}
        return f"{where}, micro-batch {number} (rows {list(rows)[:8]}): {bad}; {self._last_checkpoint()}"

    def _last_checkpoint(self) -> str:
        paths = checkpoints(self.folder / "checkpoints")
        return f"the last good checkpoint is {paths[-1]}" if paths else "there is no checkpoint yet"
