"""Fixtures shared by the judge's tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

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


@pytest.fixture(scope="session")
def invoke() -> Callable[..., tuple[int, dict[str, Any]]]:
    """`invoke(command, *arguments)` runs a command line in this process: (exit code, the last line's JSON).

    Raises what the command raised.
    """
    import typer
    from typer.testing import CliRunner

    def run(command: Callable[..., None], *arguments: object) -> tuple[int, dict[str, Any]]:
        app = typer.Typer()
        app.command()(command)
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, json.loads(result.stdout.splitlines()[-1])

    return run
