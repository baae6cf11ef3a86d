"""Policy and value head as one module with one forward, so that DDP, FSDP and DeepSpeed see a single model.

What is projected onto the vocabulary is decided by `loss_mask`: only the positions before those tokens (the rest of a
transcript is tool output, and its logits would be most of the memory). Rows are padded on the right, which causal
attention needs no mask for.

Both heads compute in float32, whatever the body runs in (`mixed_precision`) or is kept in (`policy.dtype` under an adapter):
bfloat16 logits have three digits, and most of what rollout and training forward then disagree by comes from them (MiniMax-M1,
2506.13585, §3.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from reagent.algorithms.logprobs import token_logprobs
from reagent.train.prefixes import PrefixSharing
from rrm.engines.hf.engine import base_causal_lm
from rrm.engines.hf.head import in_float32
from rrm.errors import RRMError
from rrm.train.fsdp import reshard

if TYPE_CHECKING:
    from reagent.train.config import PolicyConfig


@dataclass
class PolicyOutput:
    """(B, T) each, aligned with the token they speak of; 0 where `loss_mask` is 0."""

    logprobs: torch.Tensor
    entropy: torch.Tensor
    values: torch.Tensor | None
    """V at the position before the token: what was expected when it was sampled."""


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
        """How rows that begin alike are read as one; None: each is read whole."""
        hidden: int = model.config.get_text_config().hidden_size
        self.value_head = nn.Linear(hidden, 1, dtype=torch.float32) if with_values else None
        if self.value_head is not None:
            nn.init.zeros_(self.value_head.weight)
            nn.init.zeros_(self.value_head.bias)

    def forward(self, input_ids: torch.Tensor, loss_mask: torch.Tensor, temperature: float = 1.0) -> PolicyOutput:
        """input_ids (B, T) padded on the right, loss_mask (B, T) bool, never set at t = 0 (nothing stands before)."""
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
            found = in_float32(self.value_head, before)[:, 0]
            values = found.new_zeros(loss_mask.shape).masked_scatter(loss_mask, found)
        return PolicyOutput(logprobs, entropy, values)

    @contextmanager
    def reference(self, frozen: Policy | None) -> Iterator[Policy]:
        """The policy training started from: the adapter switched off, or the frozen copy given."""
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
    """What `policy.model.save_pretrained` writes: the adapter's tensors, or all of a policy that is trained whole."""
    found: dict[str, torch.Tensor] = policy.model.state_dict(keep_vars=True)  # tied names keep one tensor
    if not hasattr(policy.model, "peft_config"):
        return found
    return {name: tensor for name, tensor in found.items() if tensor.requires_grad}


def precision(mixed: Literal["no", "bf16"], device: torch.device | str) -> AbstractContextManager[Any]:
    """What forwards of the policy run in under `mixed_precision`, in a rollout as in training: one precision, or the update
    would learn from probabilities that are not those it sampled from."""
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16) if mixed == "bf16" else nullcontext()


def placed(config: PolicyConfig) -> PolicyConfig:
    """With the folder in place of a shipped policy's name.

    Raises:
        RRMError: the shipped policy is not there.
    """
    from reagent.lab.shipped import SHIPPED, lab_policy_folder

    return config.model_copy(update={"base": str(lab_policy_folder(config.base))}) if config.base in SHIPPED else config


def load_policy(
    config: PolicyConfig, *, with_values: bool, entropy_gradient: bool = False, trained: bool = True
) -> tuple[Policy, Any]:
    """(policy, tokenizer) with LoRA where configured; dropout is off (sampling and training must agree).

    Args:
        trained: its weights are to take steps: those of a policy without an adapter are held in float32 then. bfloat16
            cannot hold a weight and a step a thousandth of its size. `mixed_precision: bf16` computes in bfloat16.

    Raises:
        RRMError: the model cannot be loaded.
    """
    from peft import get_peft_model

    from rrm.engines.hf.base_model import load_model, lora_config

    held = "float32" if trained and config.lora is None else config.dtype
    model, tokenizer = load_model(placed(config).model_copy(update={"dtype": held}))
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
    """Zero every dropout probability, also those models keep as plain numbers (`attention_dropout`)."""
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        if isinstance(getattr(part, "attention_dropout", None), float):
            part.attention_dropout = 0.0  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
