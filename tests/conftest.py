"""Fixtures shared by both packages' tests."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# new examples are for people to look at; CI draws the same ones for the same code
settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public transcripts beside the checkout; tests that need it skip where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("public transcripts (../shared/data) are not on this machine")
    return SHARED


@pytest.fixture(scope="module", autouse=True)
def fresh_accelerator() -> None:
    """accelerate keeps one state a process (precision, devices): what one file chose must not be found by the next."""
    state = sys.modules.get("accelerate.state")
    if state is not None:
        state.AcceleratorState._reset_state(reset_partial_state=True)


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
