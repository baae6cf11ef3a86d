"""Fixtures shared by the judge's tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from benchmarks.speed.devtools import Chromium, find_chromium

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


@pytest.fixture
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Code that comes with models goes to a folder of the test's own, and is forgotten after it: the package of the first such
    folder would stand in for that of every later test."""

    def forget() -> None:
        for name in [n for n in sys.modules if n.partition(".")[0] == "transformers_modules"]:
            del sys.modules[name]

    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    forget()
    yield
    forget()


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    """A page of a headless browser."""
    if find_chromium() is None:
        pytest.skip("no chromium on this machine")
    with Chromium() as page:
        yield page
