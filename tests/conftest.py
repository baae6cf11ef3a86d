"""Fixtures shared by both packages' tests."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections import Counter
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
LONGEST = (
    "tests/test_docs.py",
    "tests/reagent/train/test_sharded.py",
    "tests/rrm/annotate/test_label_browser.py",
    "tests/rrm/train/test_sft_speedups.py",
    "tests/test_processes.py",
    "tests/reagent/train/test_learning.py",
    "tests/rrm/train/test_rl.py",
    "tests/reagent/train/test_remote_runs.py",
    "tests/rrm/serve/test_serve_command.py",
    "tests/rrm/test_wheel.py",
)
"""Files whose tests take twenty seconds to minutes; most have few."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Over several workers: what takes longest first, then files by the number of their tests, so that all workers end together.

    A worker is given its next file as it ends one (`--dist loadfile --no-loadscope-reorder`, the Makefile): a long one that is given
    out last is what the others wait for.
    """
    if not hasattr(config, "workerinput"):
        return
    if gone := [name for name in LONGEST if not (config.rootpath / name).is_file()]:
        raise pytest.UsageError(f"{__file__}: LONGEST names {', '.join(gone)}: no such file")
    files = [item.nodeid.partition("::")[0] for item in items]
    tests, first = Counter(files), {name: number for number, name in enumerate(LONGEST)}
    order = {name: (first.get(name, len(first)), -tests[name]) for name in files}
    items.sort(key=lambda item: order[item.nodeid.partition("::")[0]])


def pytest_collection_finish() -> None:
    """What was imported to collect the tests stays: no search for garbage needs to look through it, and trainings ask for some each."""
    gc.collect()
    gc.freeze()


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
