"""A small judge that reads slots, and runs to guard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from reagent.lab.model import build_lab_model, build_lab_tokenizer
from rrm.engines.hf.engine import HFEngine
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings
from rrm.prompt.prompter import Prompter


@pytest.fixture(scope="session")
def slot_judge() -> Callable[..., AgentRRM]:
    """`slot_judge(tokens)`: a judge of random float32 weights, windows of `tokens`, an engine of its own."""
    tokenizer = build_lab_tokenizer(["Task step agent result is good bad. The run is earlier steps"] * 3, 400)
    model = build_lab_model(tokenizer, hidden=32, layers=2, heads=2, seed=0)

    def make(tokens: int = 600, **changes: Any) -> AgentRRM:
        settings = JudgeSettings(modes=["steps"], prompt_version="2", transcript_tokens=tokens)
        settings = settings.model_copy(update=changes, deep=True)
        return AgentRRM(HFEngine(model, tokenizer), Prompter(tokenizer, tokens), settings=settings)

    return make
