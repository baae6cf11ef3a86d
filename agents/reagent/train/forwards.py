"""Forwards of a trained policy, on one process or many, whole or sharded.

Under `sharding: fsdp` (`rrm.train.fsdp`) every forward and backward is one of all processes: `Forwards.rounds` tells how many
the others make, and `dummy_forward` makes up for missing rows."""

import contextlib
import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from accelerate import Accelerator

from reagent.rollout.batch import Batch, microbatches
from reagent.train.config import AgentConfig
from reagent.train.launch import is_sharded
from reagent.train.optimizer import make_optimizer
from reagent.train.policy import Policy, PolicyOutput
from reagent.train.prefixes import PrefixSharing
from rrm.engines.hf.engine import base_causal_lm
from rrm.train.fsdp import clip_grad_norm, equal_rounds, process_mesh, shard

T = TypeVar("T")


class Forwards:
    """A policy, moved to the accelerator or sharded, with its optimiser and reference."""

    def __init__(self, config: AgentConfig, policy: Policy, folder: Path, accelerator: Accelerator) -> None:
        self.config, self.policy, self.folder, self.accelerator = config, policy, folder, accelerator
        self.sharded = is_sharded(config, accelerator)
        policy.sharing = (
            PrefixSharing.of(policy.model, config.optim.microbatch_tokens) if config.optim.share_prefixes else None
        )
        self.frozen: Policy | None = None
        """The reference of a policy trained whole; an adapter is switched off instead."""
        if self._needs_reference and config.policy.lora is None:
            self.frozen = Policy(copy.deepcopy(policy.model), with_values=False).requires_grad_(False)
            self.frozen.sharing = policy.sharing
        if self.sharded:
            mesh = process_mesh(accelerator.device)
            for module in (policy, self.frozen) if self.frozen is not None else (policy,):
                shard(module, base_causal_lm(module.model), mesh)
        elif self.frozen is not None:
            self.frozen.to(accelerator.device)
        self.optimizer = make_optimizer(policy, config)
        self.ddp_model: Any = policy
        self.ddp_optimizer: Any = self.optimizer
        if not self.sharded:
            self.ddp_model, self.ddp_optimizer = accelerator.prepare(policy, self.optimizer)
        self.update_index = 0
        self.consistent = True
        """False from an update's first step until its record."""

    @property
    def _needs_reference(self) -> bool:
        guard = self.config.guards.kl
        return self.config.loss.kl_coef > 0 or (guard.max is not None and guard.action != "none")

    def _sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum over processes, on the accelerator's device: NCCL has no CPU tensors."""
        total: Any = self.accelerator.reduce(tensor.to(self.accelerator.device), reduction="sum")
        return total.to(tensor.device)

    def rounds(self, groups: Sequence[T]) -> list[T | None]:
        """This process's micro-batches, and None for each that another process has more."""
        more = equal_rounds(len(groups), self.accelerator.device) - len(groups) if self.sharded else 0
        return [*groups, *[None] * more]

    def unsynced(self) -> contextlib.AbstractContextManager[Any]:
        """Context of a backward whose gradients are not yet summed over processes (unless sharded)."""
        return contextlib.nullcontext() if self.sharded else self.accelerator.no_sync(self.ddp_model)

    def clip(self) -> float:
        most = self.config.optim.max_grad_norm
        if self.sharded:
            return clip_grad_norm(self.policy.parameters(), most)
        total: Any = self.accelerator.clip_grad_norm_(self.ddp_model.parameters(), most)
        return float(total)

    def split_minibatches(self, batch: Batch, mask: torch.Tensor, index: Sequence[int]) -> list[list[int]]:
        """Split rows `index` into micro-batches; `mask` (B, T): the tokens whose outputs are needed."""
        if self.policy.sharing is None:
            return microbatches(batch.lengths, index, self.config.optim.microbatch_tokens)
        return self.policy.sharing.split_minibatches(batch.input_ids, mask, batch.group, index)

    def statistics(
        self, batch: Batch, module: torch.nn.Module, mask: torch.Tensor, index: Sequence[int] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Log-probabilities and values (B, T) of the masked tokens of rows `index`, without gradients."""
        chosen = range(len(batch)) if index is None else index
        logprobs = torch.zeros(batch.input_ids.shape)
        values = torch.zeros(batch.input_ids.shape) if self.policy.value_head is not None else None
        with torch.no_grad():
            for rows in self.rounds(self.split_minibatches(batch, mask, chosen)):
                if rows is None:
                    self.dummy_forward(module)
                    continue
                micro = batch.rows(rows)
                width = micro.input_ids.shape[1]
                output = self.forward(module, micro.input_ids, mask[rows, :width])
                logprobs[rows, :width] = output.logprobs.float().cpu()
                if values is not None and output.values is not None:
                    values[rows, :width] = output.values.float().cpu()
        return logprobs, values

    @torch.no_grad()
    def end_values(self, batch: Batch) -> torch.Tensor:
        """(B,) V of the last state of episodes that the turn limit cut off; 0 for others."""
        values = torch.zeros(len(batch))
        chosen, wholes = batch.ends.nonzero()[:, 0].tolist(), batch.lengths + batch.ends
        for rows in self.rounds(microbatches(wholes + 1, chosen, self.config.optim.microbatch_tokens)):
            if rows is None:
                self.dummy_forward(self.ddp_model)
                continue
            micro = batch.rows(rows)
            ids = torch.zeros(len(rows), int(wholes[rows].max()) + 1, dtype=torch.long)
            for i, (length, more) in enumerate(zip(micro.lengths.tolist(), micro.ends.tolist(), strict=True)):
                ids[i, :length], ids[i, length : length + more] = micro.input_ids[i, :length], micro.end_ids[i, :more]
            after = torch.arange(ids.shape[1]) == wholes[rows][:, None]  # V belongs to the token it stands before
            predicted = self.forward(self.ddp_model, ids, after).values
            assert predicted is not None  # `loss.bootstrap` is of ppo
            values[rows] = predicted.float().cpu()[after]
        return values

    def forward(
        self, module: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor, temperature: float | None = None
    ) -> PolicyOutput:
        """Output for ids and mask (B, T), in the training's precision; default temperature: the rollout's."""
        device = self.accelerator.device
        degrees = self.config.rollout.temperature if temperature is None else temperature
        with self.accelerator.autocast():
            return module(ids.to(device), mask.to(device), degrees)

    def dummy_forward(self, module: torch.nn.Module) -> PolicyOutput:
        return self.forward(module, torch.zeros(1, 2, dtype=torch.long), torch.zeros(1, 2, dtype=torch.bool))
