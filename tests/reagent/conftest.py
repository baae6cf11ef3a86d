"""Fixtures shared by the agent side's tests."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from report_runs import Command, make_run
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from reagent.cli import main


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny untrained policy of the lab in a folder."""
    from reagent.lab.demonstrations import demonstrations
    from reagent.lab.model import build_lab_model, build_lab_tokenizer
    from reagent.rollout.templates import LAB_TEMPLATE

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


@pytest.fixture
def reagent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs `reagent` in this process; (exit code, standard output, standard error on one line)."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["reagent", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, " ".join(captured.err.split())

    return run


@pytest.fixture
def report(reagent: Callable[..., tuple[int, str, str]]) -> Command:
    """Runs `reagent report`; (exit code, the JSON line, standard error on one line)."""

    def run(*arguments: str | Path) -> tuple[int, dict[str, Any], str]:
        code, out, error = reagent("report", *arguments)
        return code, json.loads(out or "{}"), error

    return run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished training's run folder."""
    return make_run(tmp_path / "one")
