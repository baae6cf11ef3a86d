"""The command line: a file for each command parses its arguments and calls the library."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn

import typer
from rich.console import Console

from rrm import __version__
from rrm.cli.commands import Command, Group, with_shared_options
from rrm.cli.tables import finish as finish
from rrm.data.extras import explain
from rrm.data.stop_signals import STOPS
from rrm.errors import RRMError, SpendingLimit, file_problem
from rrm.removed import COMMANDS as COMMANDS_REMOVED

app = typer.Typer(
    cls=Group, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
)
COMMANDS = (
    "convert",
    "check",
    "show",
    "score",
    "merge",
    "choose",
    "rank",
    "annotate",
    "label",
    "estimate",
    "train",
    "eval",
    "calibrate",
    "report",
    "failures",
    "compare",
    "serve",
    "guard",
    "doctor",
)
GROUPS = ("criteria",)  # commands with commands of their own
# commands whose stopped runs go on when repeated
CONTINUES = ("score", "failures", "rank", "annotate", "label", "train", "eval", "calibrate")
KEEP_NOTHING = ("--plan", "--dry-run", "--agreement")  # options with which these do nothing that could go on
INTERRUPTED = 130  # exit code after Ctrl-C; typer turns a KeyboardInterrupt into it without a word
TERMINATED = 143  # exit code after SIGTERM, also of a training that took it where its state was complete
STOPPED = 4  # exit code of a run that a limit of money ended


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"agent-rrm {__version__}")
        raise typer.Exit


def options(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Print the package's version and exit."
    ),
) -> None:
    """Options before a command."""


def register(app: typer.Typer, package: str, commands: Sequence[str], groups: Sequence[str]) -> None:
    """Give an app the commands, and groups of commands, of the modules `NAME_cmd` of a package."""
    app.registered_commands, app.registered_groups = [], []  # of an earlier call in this process
    for name in commands:
        module = importlib.import_module(f"{package}.{name}_cmd")
        app.command(name, cls=Command)(with_shared_options(module.command))
    for name in groups:
        app.add_typer(importlib.import_module(f"{package}.{name}_cmd").app, name=name)


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        return level + super().format(record)


def run(app: typer.Typer, continues: Sequence[str], packages: Sequence[str] = ("rrm",)) -> None:
    """Run an app; `continues`: commands whose stopped runs go on when repeated; `packages`: those whose notices are shown.

    Exit codes: 0 done, 1 done with rows that failed, 2 a user error, 3 a training that a guard stopped, 4 a limit
    of money reached, 130 interrupted, 143 terminated.
    """
    app.callback(help=app.info.help if isinstance(app.info.help, str) else "")(options)
    handler = logging.StreamHandler()
    handler.setFormatter(_Plain())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    for package in packages:
        logging.getLogger(package).setLevel(logging.INFO)
    warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*")  # transformers' own, of its own code
    with STOPS:
        _run(app, continues)


def _run(app: typer.Typer, continues: Sequence[str]) -> None:
    try:
        try:
            app()
        except Exception as error:
            if not (_terminated() or _interrupted(error)):
                raise
            if (problem := error if isinstance(error, RRMError) else file_problem(error)) is not None:
                _tell(problem)  # what went wrong as it stopped: a disk that is full
            raise KeyboardInterrupt from error  # else code that was being imported has made an error of its own of the stop
    except SpendingLimit as limit:
        _fail(limit, STOPPED)
    except RRMError as error:
        _fail(error)
    except ModuleNotFoundError as error:
        if (missing := explain(error)) is None:
            raise
        _fail(missing)
    except BrokenPipeError:
        sys.exit(1)  # whoever read what is printed has hung up: `| head`
    except Exception as error:
        if (problem := file_problem(error)) is None:
            raise
        _fail(problem)
    except (KeyboardInterrupt, SystemExit) as stop:
        ended = stop.code if isinstance(stop, SystemExit) else INTERRUPTED
        if not _terminated() and ended not in (INTERRUPTED, TERMINATED):
            raise  # the app's own exit code
        ending, code = (
            ("interrupted", INTERRUPTED) if ended == INTERRUPTED and not _terminated() else ("terminated", TERMINATED)
        )
        Console(stderr=True).print(f"{ending}; {_way_on(sys.argv[1:], continues)}", style="yellow")
        sys.exit(code)
    finally:
        _flush()


def _terminated() -> bool:
    return STOPS.asked == signal.SIGTERM


def _interrupted(error: BaseException) -> bool:
    """Tell whether an error came up while a Ctrl-C was on its way."""
    before = error.__cause__ or error.__context__
    return before is not None and (isinstance(before, KeyboardInterrupt) or _interrupted(before))


def _flush() -> None:
    """Flush the streams: a closed pipe would be an error at Python's end. `>&-` makes a stream None."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None:
            continue
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        except (OSError, ValueError):
            continue


def _way_on(arguments: Sequence[str], continues: Sequence[str]) -> str:
    """Say how to go on with a stopped command."""
    keeps = (
        bool(arguments)
        and arguments[0] in continues
        and not any(a.partition("=")[0] in KEEP_NOTHING for a in arguments)
    )
    return "run the same command again to continue" if keeps else "the same command begins anew"


def _tell(error: RRMError) -> None:
    # soft_wrap: off a terminal a line stays one line, so that a command in it can be copied
    Console(stderr=True, highlight=False).print(f"error: {error}", markup=False, style="red", soft_wrap=True)


def _fail(error: RRMError, code: int = 2) -> NoReturn:
    _tell(error)
    sys.exit(code)


def quiet_off_terminals() -> None:
    """Turn libraries' progress bars off where standard error is a log; call it before they are imported."""
    if sys.stderr is None or not sys.stderr.isatty():
        for name in ("TQDM_DISABLE", "HF_HUB_DISABLE_PROGRESS_BARS"):
            os.environ.setdefault(name, "1")


def main() -> None:
    quiet_off_terminals()
    if (name := "".join(sys.argv[1:2])) in COMMANDS_REMOVED:
        _fail(RRMError(f"rrm {name} is gone: {COMMANDS_REMOVED[name]}"))
    register(app, "rrm.cli", COMMANDS, GROUPS)
    run(app, CONTINUES)
