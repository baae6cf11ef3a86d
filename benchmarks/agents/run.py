"""Benchmarks × methods, played, judged and put in one table; a run that was stopped goes on with the same command.

    python -m benchmarks.agents.run --policy runs/grpo/policy --tasks hotpotqa,2wiki --methods direct,naive_rag,tool_call \\
      --path hotpotqa=hotpot_dev_distractor_v1.json --path 2wiki=dev.json --corpus wiki --judge default --limit 500 -o runs/table

A method is `NAME`, `NAME@POLICY` or `LABEL=NAME@POLICY`: `base=tool_call,grpo=policy@runs/grpo/policy`. Each cell has a folder of its own
(`benchmarks.agents.cells`). What fails in one, by name, is written into its failure.json and the table, and the others go on; exit code 1.
Further arguments are keys of the config: `rollout.max_new_tokens=128 policy.dtype=bfloat16 'environment.options={parser: llama3}'`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import ValidationError

from benchmarks.agents.cells import FAILURE, Cell, Judges, benchmark_of, play_cell, write_whole
from benchmarks.agents.inputs import Inputs
from benchmarks.agents.methods import METHODS, Entry, MethodSettings, NotApplicable, entries_of
from benchmarks.agents.page import MARKDOWN, REPORT, TABLE, write_table
from reagent.train.config import AgentConfig, load_agent_config
from reagent.train.engine import close
from reagent.train.evaluate import EpisodeRunner, load_player
from rrm.config import explain, set_key
from rrm.data.feedback import Mode
from rrm.data.provenance import environment
from rrm.errors import ConfigError, RRMError
from rrm.judge.agent_rrm import AgentRRM

log = logging.getLogger(__name__)
EVERY = "*"  # the task of an option that was given for all


@dataclass(frozen=True)
class Settings:
    """What is to be played."""

    policy: str
    tasks: Sequence[str]
    methods: Sequence[str]
    output: Path
    paths: dict[str, str] = field(default_factory=dict)  # by task
    corpora: dict[str, str] = field(default_factory=dict)  # by task, `*` for all whose tools search one
    options: dict[str, dict[str, Any]] = field(default_factory=dict)  # further `environment.options` by task
    judge: str | None = "default"
    judge_mode: Mode | None = None
    critic: str | None = None
    limit: int | None = None
    method: MethodSettings = field(default_factory=MethodSettings)
    config: str | None = None  # a shipped config or a file that the others' values come from
    overrides: Sequence[str] = ()
    against: str | None = None
    retry_errors: bool = False


def base_config(settings: Settings, task: str, policy: str) -> AgentConfig:
    """The config of a benchmark, before a method changes it; a wrong key or value raises ConfigError."""
    named = [f"environment.name={task}", *settings.overrides]
    if settings.config is not None:
        config = load_agent_config(settings.config, named)
    else:
        tree: dict[str, Any] = {}
        for override in named:
            set_key(tree, override)
        try:
            config = AgentConfig.model_validate(tree)
        except ValidationError as error:
            raise ConfigError(explain(error, AgentConfig, "command line")) from error
    benchmark, own = benchmark_of(config.environment.name), config.environment
    config.policy.base = policy
    own.options = own.options | settings.options.get(task, {})
    tools = own.options.get("tools", benchmark.wants)
    if isinstance(tools, str) or not isinstance(tools, Sequence):
        raise ConfigError(
            f"environment.options.tools of {task} must be a list of names, [] for none, not {tools!r}; without it the benchmark's own "
            f"are used ({', '.join(benchmark.wants) or 'none'})"
        )
    corpus = settings.corpora.get(task, settings.corpora.get(EVERY) if "search" in tools else None)
    own.options |= {} if corpus is None else {"corpus": corpus}
    own.eval = own.eval | ({"path": settings.paths[task]} if task in settings.paths else {})
    return config


def plan_cells(settings: Settings, judges: Judges) -> tuple[list[Cell], list[tuple[Cell, NotApplicable]]]:
    """The table's cells, benchmark by benchmark, and those of them that mean nothing; what is wrong raises ConfigError."""
    entries = entries_of(settings.methods)
    labels = [entry.label for entry in entries]
    if settings.against is not None and settings.against not in labels:
        raise ConfigError(f"--against {settings.against}: there is no such method; there are {', '.join(labels)}")
    for given in (settings.paths, settings.corpora, settings.options):
        if strange := [task for task in given if task not in (*settings.tasks, EVERY)]:
            raise ConfigError(f"{strange[0]} is none of the tasks {', '.join(settings.tasks)}")
    if twice := [task for task in settings.tasks if settings.tasks.count(task) > 1]:
        raise ConfigError(f"the task {twice[0]} is named twice")
    inputs = Inputs()
    planned = [_cell(settings, task, entry, judges, inputs) for task in settings.tasks for entry in entries]
    return [cell for cell, _ in planned], [(cell, problem) for cell, problem in planned if problem is not None]


def _cell(
    settings: Settings, task: str, entry: Entry, judges: Judges, inputs: Inputs
) -> tuple[Cell, NotApplicable | None]:
    method, problem = entry.method(settings.method), None
    config = base_config(settings, task, entry.policy or settings.policy)
    if method.headline == "refined" and judges.critic_name is not None:
        config.feedback.judge = judges.critic_name
    try:
        config = method.configure(config, benchmark_of(config.environment.name))
    except NotApplicable as error:
        problem = error
    folder = settings.output / task.replace(":", "-") / entry.label
    return Cell(task, entry, method, config, folder, settings.limit, judges, inputs), problem


class Policies:
    """One policy at a time."""

    def __init__(self) -> None:
        self._key: str | None = None
        self._player: EpisodeRunner | None = None

    def player(self, config: AgentConfig) -> EpisodeRunner:
        """The config's policy, loaded unless it is the last one, or RRMError."""
        key = json.dumps([config.policy.model_dump(), config.rollout.engine.model_dump(), config.mixed_precision])
        if self._player is None or key != self._key:
            self.close()
            self._player, self._key = load_player(config), key
        return self._player

    def close(self) -> None:
        player, self._player = self._player, None
        if player is not None:
            close(player.engine)


def run_table(settings: Settings, loaded: dict[str, AgentRRM] | None = None) -> dict[str, Any]:
    """Play what is left of the table and write it; returns the summary.

    Args:
        loaded: judges that need not be loaded, by name.

    Raises:
        RRMError: a wrong option, or a cell that was played with another config: nothing is played then.
    """
    judges = Judges(settings.judge, settings.critic, dict(loaded or {}), settings.judge_mode)
    cells, hopeless = plan_cells(settings, judges)
    skipped = {cell.name for cell, _ in hopeless}
    done = {cell.name: metrics for cell in cells if cell.name not in skipped and (metrics := cell.done()) is not None}
    for cell, problem in hopeless:
        _fail(cell, problem)
    for cell in cells:
        if cell.name in done:  # what went wrong under another judge is not what is asked for now
            (cell.folder / FAILURE).unlink(missing_ok=True)
    errors = {name for name, metrics in done.items() if metrics["figures"]["left_out"].get("env_error")}
    again = [cell for cell in cells if settings.retry_errors and cell.name in errors]
    waiting = [cell for cell in cells if cell.name not in skipped | done.keys()] + again
    policies, about = Policies(), {"environment": environment(), "limit": settings.limit, "judge": settings.judge}
    try:
        for cell in sorted(waiting, key=lambda cell: cell.config.policy.base):  # stable: each policy is loaded once
            log.info("%s", cell.name)
            try:
                play_cell(cell, partial(policies.player, cell.config), retry_errors=settings.retry_errors)
            except Exception as error:  # one cell's failure is typed and kept, and the others go on
                log.error("%s: %s", cell.name, error, exc_info=not isinstance(error, RRMError))
                _fail(cell, error)
    finally:
        policies.close()
    rows = write_table(cells, settings.output, settings.against, about)
    failed = [name for row in rows if "failure" in row and (name := f"{row['task']}/{row['label']}") not in skipped]
    counts = {"cells": len(cells), "played": len(waiting) - len(failed), "kept": len(done) - len(again)}
    files = [str(path) for name in (TABLE, MARKDOWN, REPORT) if (path := settings.output / name).is_file()]
    return {**counts, "not_applicable": sorted(skipped), "failed": failed, "written": files}


def _fail(cell: Cell, error: Exception) -> None:
    cell.folder.mkdir(parents=True, exist_ok=True)
    write_whole(cell.folder / FAILURE, {"kind": type(error).__name__, "message": str(error)})


def by_task(given: Sequence[str], what: str, whole: bool = False) -> dict[str, str]:
    """Read `TASK=VALUE` each, or raise ConfigError; with `whole` a value alone is for all tasks."""
    found: dict[str, str] = {}
    for text in given:
        task, equals, value = text.partition("=")
        if not equals and whole:
            task, value = EVERY, text
        if not task or not value:
            raise ConfigError(f"{what} {text}: write TASK=VALUE")
        if task in found:
            raise ConfigError(f"{what}: {task} is there twice")
        found[task] = value
    return found


def options_by_task(given: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read `TASK={key: value}` each, or raise ConfigError."""
    found: dict[str, dict[str, Any]] = {}
    for task, text in by_task(given, "--options").items():
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"--options {task}: not YAML: {error}") from error
        if not isinstance(value, dict):
            raise ConfigError(f"--options {task}: write TASK={{key: value}}, not {text!r}")
        found[task] = value
    return found


def parse(arguments: Sequence[str] | None = None) -> Settings:
    """Read the command line, or raise ConfigError."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    own = MethodSettings()
    parser.add_argument("overrides", nargs="*", metavar="a.b=c", help="keys of the config, for all cells")
    parser.add_argument("--policy", required=True, help="a directory, a hub id, or a shipped policy")
    parser.add_argument("--tasks", required=True, help="benchmarks (`reagent tasks`), with commas")
    parser.add_argument("--methods", default="direct,naive_rag,tool_call,react", help=f"of {', '.join(METHODS)}")
    for name, form, says in (
        ("path", "TASK=FILE", "a benchmark's questions"), ("corpus", "[TASK=]DIR", "what search looks in"),
        ("options", "TASK={…}", "further environment.options"),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", action="append", default=[], metavar=form, help=says)
    parser.add_argument("--judge", default="default", help="as rrm score --model; none: no judge")
    parser.add_argument("--judge-mode", choices=get_args(Mode), help="as rrm score --mode")
    parser.add_argument("--critic", help="writes reagent_c's critiques; default: the judge")
    parser.add_argument("--limit", type=int, help="most questions of a benchmark, drawn by environment.eval's seed")
    parser.add_argument("--passages", type=int, default=own.passages, help="naive_rag")
    parser.add_argument("--samples", type=int, default=own.samples, help="best_of_n")
    parser.add_argument("--temperature", type=float, default=own.temperature, help="best_of_n")
    parser.add_argument("--config", help="a shipped config, or a file")
    parser.add_argument("--against", metavar="LABEL", help="also differences from this method, paired by question")
    parser.add_argument("--retry-errors", action="store_true", help="play attempts again that the environment failed")
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_intermixed_args(arguments)
    for name in ("limit", "passages", "samples"):
        if (value := getattr(args, name)) is not None and value < 1:
            raise ConfigError(f"--{name} must be at least 1, got {value}")
    same = ("policy", "output", "judge_mode", "critic", "limit", "config", "overrides", "against", "retry_errors")
    return Settings(
        tasks=args.tasks.split(","),
        methods=args.methods.split(","),
        paths=by_task(args.path, "--path"),
        corpora=by_task(args.corpus, "--corpus", whole=True),
        options=options_by_task(args.options),
        judge=None if args.judge == "none" else args.judge,
        method=MethodSettings(args.passages, args.samples, args.temperature),
        **{name: getattr(args, name) for name in same},
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every cell is done; 1: some failed; 2: nothing was played."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    sys.path.insert(0, os.getcwd())  # a benchmark of one's own, `module:Class`
    try:
        summary = run_table(parse(arguments))
    except RRMError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(summary))
    return 1 if summary["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
