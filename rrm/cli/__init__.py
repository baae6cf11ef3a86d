"""The command line: each command's file parses its arguments and calls the library. Errors print without a traceback."""

from __future__ import annotations

import importlib
import json
import logging
import sys
import warnings
from typing import Any, NoReturn

import typer
from rich.console import Console

from rrm.errors import RRMError, file_problem
from rrm.extras import explain

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
COMMANDS = ("convert", "check", "show", "score", "annotate", "train", "eval", "report")


def finish(summary: dict[str, Any], *, err: bool = False) -> None:
    """Every run ends with one line of JSON on standard output (`err`: on standard error, where rows went to the other)."""
    typer.echo(json.dumps(summary), err=err)


def _register() -> None:
    for name in COMMANDS:
        module = importlib.import_module(f"rrm.cli.{name}_cmd")
        app.command(name)(module.command)


def run(app: typer.Typer) -> None:
    """Run an app. Exit codes: 0 done, 1 done with rows that failed, 2 a user error, 130 interrupted."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("rrm.progress").setLevel(logging.INFO)
    warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*")  # transformers' own, of its own code
    try:
        app()
    except RRMError as error:
        _fail(error)
    except ModuleNotFoundError as error:
        if (missing := explain(error)) is None:
            raise
        _fail(missing)
    except Exception as error:
        if (problem := file_problem(error)) is None:
            raise
        _fail(problem)
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted; run the same command again to continue", style="yellow")
        sys.exit(130)


def _fail(error: RRMError) -> NoReturn:
    # soft_wrap: off a terminal a line stays one line, so that a command in it can be copied
    Console(stderr=True, highlight=False).print(f"error: {error}", markup=False, style="red", soft_wrap=True)
    sys.exit(2)


def main() -> None:
    """Entry point of `rrm`."""
    _register()
    run(app)
