"""`reagent tasks`."""

import logging
from pathlib import Path
from typing import Annotated, Any

import typer

from rrm.cli import finish
from rrm.cli.paths import check_outputs
from rrm.data.printing import did_you_mean

logger = logging.getLogger(__name__)


def command(
    name: Annotated[str | None, typer.Argument(help="a benchmark; without it, all are listed")] = None,
    path: Annotated[
        str | None,
        typer.Option(
            help="a file in the published format (JSON, JSONL, parquet, CSV, also .gz), or hf:owner/name:split"
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="write the tasks as JSONL")] = None,
    passages: Annotated[
        Path | None,
        typer.Option(help="write the texts that the questions come with, each once, as JSONL: a corpus to search"),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="only tasks whose meta says so: level=hard, hops=[2,3]"),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="of the benchmark's reader: aliases=FILE, category=base"),
    ] = None,
) -> None:
    """List the benchmarks, or read one's published file into tasks.

    The name is what `environment.name` takes, and the file what `environment.train={path: …}` takes: nothing need be written first.
    """
    from reagent.env.task import write_tasks
    from reagent.tasks.base import chosen
    from reagent.tasks.source_rows import write_passages
    from rrm.errors import ConfigError

    if name is None:
        if flags := [
            o for o, v in (("--path", path), ("-o", output), ("--passages", passages), ("--where", where)) if v
        ]:
            raise ConfigError(f"{flags[0]} is for one benchmark: name it, as in reagent tasks hotpotqa {flags[0]} …")
        _list()
        return
    benchmark = find_benchmark(name)
    check_outputs(output, passages)
    source = path if path is not None else benchmark.default_path("heldout")
    if source is None:
        raise ConfigError(f"{name} is not read from the hub: give its file with --path ({benchmark.source})")
    options = _pairs(option, "--option")
    taken = {Path(str(file)).resolve() for file in (source, *options.values())}
    for flag, target in (("-o", output), ("--passages", passages)):
        if target is None:
            continue
        if target.resolve() in taken:
            raise ConfigError(f"{flag} {target} is what is read, or written, besides: give it a file of its own")
        taken.add(target.resolve())
    if unknown := [key for key in options if key not in benchmark.read_options]:
        takes = ", ".join(benchmark.read_options) or "none"
        raise ConfigError(f"{name} has no option {unknown[0]!r}; it has: {takes}")
    tasks = chosen(benchmark.read(source, **options), _pairs(where, "--where"))
    summary: dict[str, Any] = {
        "command": "tasks",
        "name": name,
        "source": source,
        "tasks": len(tasks),
        "questions": len({task.question_id for task in tasks}),
        "with_answer": sum(task.answer is not None for task in tasks),
    }
    if not summary["with_answer"]:
        logger.warning("%s: no task has an answer, so that nothing can be graded", source)
    if output is not None:
        write_tasks(output, tasks)
        summary["output"] = str(output)
    if passages is not None:
        count = write_passages(passages, benchmark.read_passages(source))
        if not count:
            raise ConfigError(f"{source} has no passages: {name}'s questions come without, or this file does")
        summary |= {"passages": count, "passages_output": str(passages)}
    finish(summary)


def _list() -> None:
    from rich.table import Table

    from reagent.tasks.registry import TASKS
    from rrm.cli.tables import print_table

    table = Table("name", "benchmark", "success", "tools", "turns", "tokens: turn, episode", "licence", "data")
    for name in TASKS:
        b = find_benchmark(name)
        limits, tools = b.limits, ", ".join(b.wants) or "its own"
        tokens = f"{limits.new_tokens}, {limits.episode_tokens}"
        table.add_row(name, b.title, b.metric, tools, str(limits.turns), tokens, b.licence, b.source)
    print_table(table)
    finish({"command": "tasks", "names": list(TASKS)})


def find_benchmark(name: str) -> Any:
    """The class of a registered benchmark. Raises ConfigError: no such benchmark."""

    from reagent.tasks.environments import find_environment
    from reagent.tasks.registry import TASKS
    from rrm.errors import ConfigError

    if name not in TASKS:
        raise ConfigError(f"no benchmark {name!r}; there are {', '.join(TASKS)}{did_you_mean(name, TASKS)}")
    return find_environment(name)


def _pairs(texts: list[str] | None, flag: str) -> dict[str, Any]:
    """Parse `key=value` texts; values are read as YAML, as a config's overrides are."""
    import yaml

    from rrm.errors import ConfigError

    pairs: dict[str, Any] = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        try:
            pairs[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ConfigError(f"{flag} {text!r}: the value cannot be read: {error}") from error
        if not equals or not key:
            raise ConfigError(f"{flag} {text!r} is not of the form key=value")
    return pairs
