"""`rrm criteria`: shipped criteria, and a commented file to start one's own from."""

from __future__ import annotations

from pathlib import Path

import typer

from rrm.cli import finish
from rrm.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="Questions for `rrm score --criteria`: list, init.", rich_markup_mode=None)


@app.command("list")
def list_() -> None:
    """List the criteria that are shipped, with their questions."""
    from rrm.prompt.criteria import load_criteria, shipped

    names = list(shipped())
    for name in names:
        criteria = load_criteria(name)
        typer.echo(f"{name}: {criteria.about}")
        for question, criterion in criteria.questions.items():
            typer.echo(f"  {question} (weight {criterion.weight:g}): {' '.join(criterion.ask.split())}")
    finish({"criteria": names})


@app.command("init")
def init(
    name: str | None = typer.Argument(
        None, metavar="[NAME]", help="Shipped criteria to start from; default: a start of all keys."
    ),
    output: Path = typer.Option(..., "-o", "--output", metavar="FILE.yaml", help="The file to write."),
) -> None:
    """Write a commented criteria file to start from. A file that is there is not overwritten."""
    from rrm.cli.paths import ready_outputs
    from rrm.prompt.criteria import START, find_shipped, load_criteria

    text = (START if name is None else find_shipped(name)).read_text(encoding="utf-8")
    if output.exists():
        raise ConfigError(f"{output} is there already, and would be overwritten: choose another -o")
    ready_outputs(output)
    output.write_text(text, encoding="utf-8")
    finish({"output": str(output), "questions": list(load_criteria(output).questions)})
