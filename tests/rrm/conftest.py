"""Fixtures shared by the judge's tests."""

from __future__ import annotations

import pytest
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

pytest.register_assert_rewrite("engine_models")


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    """A tiny random Llama (`engine_models`)."""
    from engine_models import make_model

    return make_model()


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """Its byte-level tokenizer."""
    from engine_models import make_tokenizer

    return make_tokenizer()
