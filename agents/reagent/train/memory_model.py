"""Sizes of a policy's parts and of autograd's memory, on tensors without storage (`FakeTensorMode`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from reagent.train.config import AgentConfig


@dataclass(frozen=True)
class Shape:
    parameters: int
    trained: int
    weight_bytes: int
    trained_bytes: int
    layer_bytes: int
    outside_bytes: int
    """Both of weights and their gradients; outside of the layers."""
    layers: int
    hidden: int
    vocabulary: int
    tied: bool
    heads_by_size: int
    kv_token_bytes: int
    """Keys and values of a token, all layers."""
    kept: int
    """Bytes autograd keeps of a full micro-batch of episodes as long as the config allows."""
    kept_a_layer: int
    """Bytes kept of one layer, with gradient checkpointing; else 0."""
    kept_tokens: int
    wide_head: int
    """Bytes of the output head's float32 copy, where it has 16 bits."""

    @staticmethod
    def of(config: AgentConfig, device: str) -> Shape:
        """The shape of a config's policy. Raises RRMError: there is no such model, or no tokenizer beside it."""
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode
        from transformers import AutoModelForCausalLM

        from reagent.train.policy import placed
        from rrm.engines.hf.base_model import load_architecture

        settings = config.policy
        architecture, _ = load_architecture(placed(settings))  # without its tokenizer there is nothing to train
        dtype = getattr(torch, "float32" if settings.lora is None else settings.dtype)
        with torch.device("meta"):
            model: Any = AutoModelForCausalLM.from_config(
                architecture, dtype=dtype, attn_implementation=settings.attn_implementation
            )
            frozen = sum(p.numel() for p in model.parameters())
            if settings.lora is not None:
                from peft import get_peft_model

                from rrm.engines.hf.base_model import lora_config

                model = get_peft_model(model, lora_config(settings.lora, model), low_cpu_mem_usage=True)
        with FakeTensorMode(allow_non_fake_inputs=True):
            # tensors on a device, without storage: of the meta device attention would take other kernels
            model.to_empty(device=device)
            _base(model).tie_weights()
            model.train()
            rows, width = _full(config)
            activations, layer = _kept(config, model, device, rows, width)
            mine = [p for p in model.parameters() if p.requires_grad]
            layer_bytes = [_bytes_and_gradients(layer.parameters()) for layer in _base(model).get_decoder().layers]
            trained = sum(p.numel() for p in mine)
            text = architecture.get_text_config()
            size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
            keys = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
            total = frozen if settings.lora is None else frozen + trained
            head = model.get_output_embeddings().weight
            return Shape(
                parameters=total,
                trained=trained,
                weight_bytes=sum(p.numel() * p.element_size() for p in model.parameters()),
                trained_bytes=sum(p.numel() * p.element_size() for p in mine),
                layer_bytes=max(layer_bytes),
                outside_bytes=_bytes_and_gradients(model.parameters()) - sum(layer_bytes),
                layers=text.num_hidden_layers,
                hidden=text.hidden_size,
                vocabulary=head.shape[0],
                tied=head is model.get_input_embeddings().weight,
                heads_by_size=text.num_attention_heads * size,
                kv_token_bytes=2 * text.num_hidden_layers * keys * size * dtype.itemsize,
                kept=activations,
                kept_a_layer=layer,
                kept_tokens=rows * width,
                wide_head=head.numel() * 4 if head.element_size() == 2 else 0,
            )


def _full(config: AgentConfig) -> tuple[int, int]:
    width = config.rollout.max_episode_tokens
    return max(config.optim.microbatch_tokens // width, 1), width


def _kept(config: AgentConfig, model: Any, device: str, rows: int, width: int) -> tuple[int, int]:
    """(bytes autograd keeps of a micro-batch, of one of its layers where those are computed again)."""
    from reagent.train.policy import precision

    with precision(config.mixed_precision, device):
        total = _saved(model, rows, width)
        if not config.policy.gradient_checkpointing:
            return total, 0
        _base(model).gradient_checkpointing_enable()
        return _saved(model, rows, width), total // model.config.get_text_config().num_hidden_layers


def _bytes_and_gradients(parameters: Iterable[Any]) -> int:
    return sum(p.numel() * p.element_size() * (2 if p.requires_grad else 1) for p in parameters)


def _base(model: Any) -> Any:
    from rrm.engines.hf.engine import base_causal_lm

    return base_causal_lm(model)


def _saved(model: Any, rows: int, width: int) -> int:
    """Bytes that autograd keeps of a forward of the body, weights apart; each storage once."""
    import torch

    weights = {p.untyped_storage()._cdata for p in model.parameters()}
    storages: dict[int, tuple[int, Any]] = {}

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        storages[storage._cdata] = (storage.nbytes(), storage)  # the storage stays alive, or its address is used again
        return tensor

    ids = torch.zeros((rows, width), dtype=torch.long, device=next(model.parameters()).device)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        _base(model).get_decoder()(input_ids=ids, use_cache=False)
    return sum(size for where, (size, _) in storages.items() if where not in weights)
