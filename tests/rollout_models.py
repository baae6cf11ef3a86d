"""What the rollout tests play with: a tokenizer for each template, a tiny random policy, and small environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from reagent.env.env import StepResult
from reagent.env.task import Task
from reagent.lab.model import build_lab_tokenizer
from reagent.rollout.templates import TEMPLATES
from rrm.engines.base import Completion, SamplingParams, StopReason
from rrm.engines.hf.engine import HFEngine
from rrm.engines.scripted import ScriptedEngine

SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}
_TEXTS = [
    '<tool_call>{"name": "search", "arguments": {"query": "who"}}</tool_call>',
    "Answer: the result was seen. " * 3,
]


def make_tokenizer(name: str) -> PreTrainedTokenizerFast:
    """A byte-level BPE with the template's special tokens; the end of a turn is eos."""
    tokenizer = build_lab_tokenizer(_TEXTS, vocab_size=330)
    if name == "llama3":
        extra = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>"]
        tokenizer.add_special_tokens({"eos_token": "<|eot_id|>", "additional_special_tokens": extra})  # pyright: ignore
    tokenizer.chat_template = TEMPLATES[name]
    return tokenizer


def make_model(tokenizer: PreTrainedTokenizerFast, *, eos_bias: float = 3.0, seed: int = 0) -> LlamaForCausalLM:
    """Hidden 32, 2 layers, float32, a sharp enough distribution; `eos_bias` sets how soon turns end."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=2048, initializer_range=0.15, bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id, tie_word_embeddings=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    model.lm_head.bias = torch.nn.Parameter(torch.zeros(len(tokenizer)))
    assert isinstance(tokenizer.eos_token_id, int)
    model.lm_head.bias.data[tokenizer.eos_token_id] = eos_bias
    return model


class Echo:
    """Answers every turn with what it read; ends after `turns` turns. Earns 0.1 a turn, and 1 at the end."""

    tools: ClassVar[list[dict[str, Any]]] = [SEARCH]
    role = "tool"

    def __init__(self, turns: int = 3) -> None:
        self.turns, self.count, self.closed = turns, 0, False

    def reset(self, task: Task) -> list[dict[str, Any]]:
        self.turns = task.meta.get("turns", self.turns)
        return [{"role": "system", "content": "Find out."}, {"role": "user", "content": task.question}]

    def observations(self, text: str) -> list[dict[str, Any]]:
        return [{"role": self.role, "content": f"{len(text)} seen", "name": "search", "tool_call_id": f"c{self.count}"}]

    async def step(self, text: str, stop_reason: StopReason = "eos") -> StepResult:
        self.count += 1
        message = {"role": "assistant", "content": text}
        if self.count >= self.turns:
            return StepResult(message, [], 0.1, 1.0, True, False, {"success": True, "answer": text})
        return StepResult(message, self.observations(text), 0.1, None, False, False, {"tool_calls": 1})

    async def close(self) -> None:
        self.closed = True


class Stateless:
    """A `TokenEngine` without sessions that forgets after every call: nothing can be reused."""

    def __init__(self, engine: HFEngine) -> None:
        self.engine, self.eos_token_id, self.eos_ids = engine, engine.eos_token_id, engine.eos_ids

    def generate(
        self, rows: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[str] | None = None
    ) -> list[Completion]:
        found = self.engine.generate(rows, params, keys)
        self.engine.release(keys or [])
        return found

    def release(self, keys: Sequence[str]) -> None:
        pass


def tasks(count: int, turns: Callable[[int], int] = lambda i: 1 + i % 3) -> list[Task]:
    """Tasks of unlike lengths and numbers of turns."""
    return [Task(f"t{i}", "Who is it? " + "really " * i, meta={"turns": turns(i)}) for i in range(count)]


def says(tokenizer: PreTrainedTokenizerFast, *turns: str, ended: bool = True) -> ScriptedEngine:
    """An engine that says these turns, one after the other, in every episode."""
    told: dict[str, int] = {}
    assert isinstance(tokenizer.eos_token_id, int)
    eos = [tokenizer.eos_token_id] if ended else []

    def script(row: list[int], params: SamplingParams, key: str) -> list[int]:
        told[key] = told.get(key, -1) + 1
        return tokenizer.encode(turns[min(told[key], len(turns) - 1)], add_special_tokens=False) + eos

    return ScriptedEngine(script, eos_token_id=tokenizer.eos_token_id)
