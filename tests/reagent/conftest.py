"""Fixtures shared by the agent side's tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny untrained policy of the lab in a folder."""
    from reagent.lab.demonstrations import demonstrations
    from reagent.templates import LAB_TEMPLATE
    from rrm.lab.model import build_lab_model, build_lab_tokenizer

    folder = tmp_path_factory.mktemp("policy")
    texts = [m["content"] for d in demonstrations("search", 24, 0, hops=1) for m in d.messages]
    tokenizer = build_lab_tokenizer(texts, 400)
    tokenizer.chat_template = LAB_TEMPLATE
    build_lab_model(tokenizer, hidden=32, layers=2, heads=2, seed=0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """The lab's chat template on bytes (`rollout_models`)."""
    from rollout_models import make_tokenizer

    return make_tokenizer("lab")


@pytest.fixture(scope="module")
def model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """A tiny random policy over it."""
    from rollout_models import make_model

    return make_model(tokenizer)
