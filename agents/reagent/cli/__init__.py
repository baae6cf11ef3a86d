"""The command line of the agent side: `reagent train | probe | eval | distil | choose | tasks | corpus | report | lab build`."""

import importlib
import os
import sys

import typer

from rrm.cli import quiet_off_terminals, run

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
COMMANDS = ("train", "probe", "eval", "distil", "choose", "tasks", "corpus", "report")
CONTINUES = ("train", "distil")
"""Commands that continue a stopped run when they are given again."""


def main() -> None:
    quiet_off_terminals()
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # so that `environment.name=my_env:MyEnv` finds my_env.py here
    app.registered_commands, app.registered_groups = [], []  # of an earlier call in this process
    for name in COMMANDS:
        app.command(name)(importlib.import_module(f"reagent.cli.{name}_cmd").command)
    app.add_typer(importlib.import_module("reagent.cli.lab_cmd").app, name="lab")
    run(app, CONTINUES)
