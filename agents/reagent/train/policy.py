"""Policy and value head as one module with one forward, for DDP and FSDP.

Only positions before tokens of `loss_mask` are projected onto the vocabulary. Rows are padded on the right, which causal
attention needs no mask for. Both heads compute in float32: bfloat16 logits are most of the difference between rollout and
training forward (MiniMax-M1, 2506.13585, §3.2)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from reagent.algorithms.logprobs import token_logprobs
from reagent.train.config import PolicyConfig
from reagent.train.prefixes import PrefixSharing
from rrm.engines.hf.engine import base_causal_lm
from rrm.engines.hf.head import in_float32
from rrm.errors import RRMError
from rrm.train.fsdp import reshard


@dataclass
class PolicyOutput:
    """(B, T) each, aligned with their token; 0 where `loss_mask` is 0."""

    logprobs: torch.Tensor
    entropy: torch.Tensor
    values: torch.Tensor | None
    """V at the position before the token."""


class Policy(nn.Module):
    """A causal language model, and for PPO a value head on its last hidden states.

    Args:
        model: a transformers causal LM, plain or wrapped by PEFT.
        with_values: add the value head (one linear layer, zero at the start: V = 0 everywhere).
        entropy_gradient: let gradients through the entropy (an entropy bonus needs them, logging does not).
    """

    def __init__(self, model: Any, *, with_values: bool, entropy_gradient: bool = False) -> None:
        super().__init__()
        self.model = model
        self.entropy_gradient = entropy_gradient
        self.sharing: PrefixSharing | None = None
        hidden: int = model.config.get_text_config().hidden_size
        self.value_head = nn.Linear(hidden, 1, dtype=torch.float32) if with_values else None
        if self.value_head is not None:
            nn.init.zeros_(self.value_head.weight)
            nn.init.zeros_(self.value_head.bias)

    def forward(self, input_ids: torch.Tensor, loss_mask: torch.Tensor, temperature: float = 1.0) -> PolicyOutput:
        """input_ids (B, T) padded on the right, loss_mask (B, T) bool, never set at t = 0."""
        base = base_causal_lm(self.model)
        if self.sharing is None:
            hidden = base.get_decoder()(input_ids=input_ids, use_cache=False).last_hidden_state  # (B, T, H)
        else:
            hidden = self.sharing.hidden(base.get_decoder(), input_ids, loss_mask)
        head: Any = base.get_output_embeddings()
        logprobs, entropy = token_logprobs(
            hidden,
            lambda states: in_float32(head, states),
            input_ids,
            loss_mask,
            temperature=temperature,
            entropy="gradient" if self.entropy_gradient else "value",
        )
        values = None
        if self.value_head is not None:
            before = hidden[:, :-1][loss_mask[:, 1:]]  # (N, H): the states in which masked tokens were sampled
            predicted = in_float32(self.value_head, before)[:, 0]
            values = predicted.new_zeros(loss_mask.shape).masked_scatter(loss_mask, predicted)
        return PolicyOutput(logprobs, entropy, values)

    @contextmanager
    def reference(self, frozen: Policy | None) -> Iterator[Policy]:
        """The policy training started from: the adapter switched off, or the frozen copy."""
        if frozen is not None:
            yield frozen
            return
        if not hasattr(self.model, "disable_adapter"):
            raise RRMError("a fully trained policy needs a frozen copy as its reference")
        with self.model.disable_adapter():
            try:
                yield self
            finally:
                reshard(
                    self
                )  # else PEFT has the gathered copies take gradients again where a forward failed, and not what they are of


def saved_tensors(policy: Policy) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = policy.model.state_dict(keep_vars=True)  # tied names keep one tensor
    if not hasattr(policy.model, "peft_config"):
        return tensors
    return {name: tensor for name, tensor in tensors.items() if tensor.requires_grad}


def precision(mixed: Literal["no", "bf16"], device: torch.device | str) -> AbstractContextManager[Any]:
    """The precision of forwards under `mixed_precision`, the same in rollout and training."""
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16) if mixed == "bf16" else nullcontext()


def placed(config: PolicyConfig) -> PolicyConfig:
    """The config with a shipped policy's folder. Raises RRMError: it is not there."""
    from reagent.lab.shipped import SHIPPED, lab_policy_folder

    return config.model_copy(update={"base": str(lab_policy_folder(config.base))}) if config.base in SHIPPED else config


def load_policy(
    config: PolicyConfig, *, with_values: bool, entropy_gradient: bool = False, trained: bool = True
) -> tuple[Policy, Any]:
    """(policy, tokenizer) with LoRA where configured, no dropout. Raises RRMError: it cannot be loaded.

    `trained` without an adapter holds weights in float32: bfloat16 loses steps of a thousandth of a weight."""
    from peft import get_peft_model

    from rrm.engines.hf.base_model import load_model, lora_config

    dtype = "float32" if trained and config.lora is None else config.dtype
    model, tokenizer = load_model(placed(config).model_copy(update={"dtype": dtype}))
    if config.chat_template is not None:
        from reagent.rollout.templates import template

        tokenizer.chat_template = template(config.chat_template)
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    if config.lora is not None:
        model = get_peft_model(model, lora_config(config.lora, model))
    policy = Policy(model, with_values=with_values, entropy_gradient=entropy_gradient)
    switch_off_dropout(policy)
    policy.train()  # from_pretrained leaves it in evaluation mode, in which gradient checkpointing is silently skipped
    return policy, tokenizer


def switch_off_dropout(module: nn.Module) -> None:
    """Zero every dropout probability, also plain numbers (`attention_dropout`)."""
    for child in module.modules():
        if isinstance(child, nn.Dropout):
            child.p = 0.0
        if isinstance(getattr(child, "attention_dropout", None), float):
            child.attention_dropout = 0.0  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
