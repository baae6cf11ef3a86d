"""A tiny model that calls a tool as TRL's Qwen3 template has it, because it has learnt one turn by heart."""

from __future__ import annotations

from typing import Any

import torch
from engine_models import make_tokenizer
from transformers import MistralConfig, MistralForCausalLM, PreTrainedTokenizerFast

MARKS = ("<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<think>", "</think>", "<|endoftext|>")
WINDOW = 48
"""Tokens that a layer looks back: two of them see 96, so that what a short text's end teaches holds after a long prompt."""


def caller(messages: list[dict[str, Any]], tools: list[Any], call: str) -> tuple[Any, PreTrainedTokenizerFast]:
    """The model, which answers these messages with this call nearly always, and its tokenizer: bytes and the template's marks."""
    from trl.chat_template_utils import qwen3_chat_template

    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": list(MARKS)})
    tokenizer.eos_token, tokenizer.pad_token = "<|im_end|>", "<|endoftext|>"
    tokenizer.padding_side = "left"
    tokenizer.chat_template = qwen3_chat_template
    prompt = tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True, tokenize=False)
    begun = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    turn = tokenizer(f"<tool_call>\n{call}\n</tool_call><|im_end|>", add_special_tokens=False)["input_ids"]
    torch.manual_seed(0)
    settings: dict[str, Any] = dict(
        vocab_size=len(tokenizer), hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=4096, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id, bos_token_id=None, sliding_window=WINDOW,
    )  # fmt: skip
    model = MistralForCausalLM(MistralConfig(**settings))
    begun = begun[-2 * WINDOW :]
    ids = torch.tensor([begun + turn])
    labels = ids.clone()
    labels[:, : len(begun)] = -100
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(200):
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.item() < 0.005:
            break
    return model, tokenizer
