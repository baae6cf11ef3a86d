"""What the tests of the table of benchmarks × methods play with: a tiny policy, four questions, scripted judges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from multihop import hotpot_file, install_search
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.agents.run import Settings
from reagent.lab.model import build_lab_tokenizer
from reagent.rollout.templates import LAB_TEMPLATE
from rrm.engines.scripted import ScriptedChatEngine
from rrm.judge.agent_rrm import AgentRRM

SMALL = ("cpu=true", "rollout.max_new_tokens=6", "rollout.max_turns=2", "rollout.max_episode_tokens=1800")


def make_policy(folder: Path) -> Path:
    """A tiny random policy that ends its turns soon."""
    tokenizer = build_lab_tokenizer(
        ["What was the trade of the mayor? Answer: baker. Search for one fact at a time. " * 3], 330
    )
    tokenizer.chat_template = LAB_TEMPLATE
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=2048, initializer_range=0.15, bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id, tie_word_embeddings=False,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def judge(score: float | None = None, name: str = "scripted") -> AgentRRM:
    """Scores what it reads by its length, or always alike."""

    def say(messages: list[dict[str, str]], *_: object) -> str:
        given = len(messages[-1]["content"]) % 10 / 10 if score is None else score
        return f"<think>[step 1] seen</think><critique>[step 1] bad: look again</critique><score>{given}</score>"

    return AgentRRM(ScriptedChatEngine(say), model=name)


def mute() -> AgentRRM:
    """Says nothing that can be read."""
    return AgentRRM(ScriptedChatEngine(lambda *_: "no idea"), model="mute")


def make_settings(policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Four questions, a search over their paragraphs, a scripted judge."""
    install_search(monkeypatch)
    path = str(hotpot_file(tmp_path))
    return Settings(
        str(policy), ["hotpotqa"], ["direct", "naive_rag"], tmp_path / "table", {"hotpotqa": path}, {"*": path},
        judge="j", judge_mode="score", limit=4, overrides=SMALL,
    )  # fmt: skip


def lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]
