"""`reagent report`."""

from pathlib import Path
from typing import Annotated

import typer

from rrm.cli import finish
from rrm.cli.paths import check_outputs


def command(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN", help="run folders of `reagent train` or `reagent distil`")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="REPORT.html", help="the page to write")],
    judge: Annotated[
        Path | None, typer.Option(metavar="METRICS.json", help="figures of the judge, as `rrm eval -o` writes them")
    ] = None,
    reliability: Annotated[
        Path | None, typer.Option(metavar="PLOT.png", help="its reliability diagram, as `rrm eval --plot` draws it")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=TRANSCRIPTS.jsonl,FEEDBACK.jsonl",
            help="a policy's episodes (`reagent eval --transcripts`) and the judge's rows on them (`rrm score -o`); "
            "give one for each policy, the one before training first",
        ),
    ] = None,
    title: Annotated[str, typer.Option(help="the page's heading")] = "Agent training report",
    examples: Annotated[int, typer.Option(min=0, help="most questions whose transcripts are shown")] = 6,
) -> None:
    """Write one self-contained HTML page: runs, their curves, the judge, and transcripts of policies side by side."""
    from reagent.report import read_policy, read_runs, write_page
    from reagent.report.examples import parse_policy
    from rrm.errors import ConfigError

    named = [parse_policy(text) for text in policy or []]
    names = [name for name, _, _ in named]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"two policies are called {twice[0]!r}; give each its own name")
    inputs = [judge, reliability, *(path for _, *files in named for path in files)]
    if output.resolve() in [path.resolve() for path in inputs if path is not None]:
        raise ConfigError(f"{output} is one of the inputs; write the page elsewhere")
    check_outputs(output)
    recorded = read_runs(runs)
    policies = [read_policy(*each) for each in named]
    finish(
        write_page(
            output, recorded, judge=judge, reliability=reliability, policies=policies, title=title, examples=examples
        )
    )
