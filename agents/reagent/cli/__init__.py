"""The command line of the agent side: `reagent train | probe | eval | rescore | distil | choose | tasks | corpus | report | lab build`."""

import os
import sys

import typer

from rrm.cli import quiet_off_terminals, register, run
from rrm.cli.commands import Group

app = typer.Typer(
    cls=Group, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
)
COMMANDS = ("train", "probe", "eval", "rescore", "distil", "choose", "tasks", "corpus", "report")
CONTINUES = ("train", "distil", "rescore")
"""Commands that continue a stopped run when they are given again."""


def main() -> None:
    quiet_off_terminals()
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # so that `environment.name=my_env:MyEnv` finds my_env.py here
    register(app, "reagent.cli", COMMANDS, ("lab",))
    run(app, CONTINUES, ("rrm", "reagent"))
