"""Classes of commands: `--json` and `--help-all` of each, options in groups, descriptions whole."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from rrm.cli import tables

KEYWORD = inspect.Parameter.KEYWORD_ONLY

# heading in the help → options, and those that only `--help-all` shows
GROUPS = {
    "Transcripts": ("format map outcome transcripts annotations", "shard strict"),
    "Judge": (
        "model mode samples criteria device escalate",
        "settings escalate_share transcript_tokens max_windows out_of_domain revision token dtype attn_implementation "
        "batch_tokens trust_remote_code",
    ),
    "Judge on a server": (
        "concurrency price max_cost",
        "timeout context max_new_tokens thinking_tokens temperature reasoning_effort images extra_body header",
    ),
    "Options": ("", "seed resamples train_part"),
}
RARE = frozenset(name for _, rare in GROUPS.values() for name in rare.split())


def _help_all(ctx: typer.Context, value: bool) -> None:
    if value:
        ctx.meta["help_all"] = True
        typer.echo(ctx.get_help())
        raise typer.Exit


def with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command `--json`, and `--help-all` where it has `RARE` options."""
    parameters = list(inspect.signature(command, eval_str=True).parameters.values())
    options = {"json_line": typer.Option(False, "--json", help="Print the summary as JSON, as into a pipe.")}
    if any(parameter.name in RARE for parameter in parameters):
        text = "Show this message with rare options, and exit."
        options["help_all"] = typer.Option(False, "--help-all", help=text, is_eager=True, callback=_help_all)
    if any(parameter.name == "as_json" for parameter in parameters):
        del options["json_line"]  # it has its own
    parameters += [inspect.Parameter(name, KEYWORD, default=o, annotation=bool) for name, o in options.items()]

    def run(**values: Any) -> None:
        tables.json_asked = values.pop("json_line", False)
        values.pop("help_all", None)
        command(**values)

    return with_signature(run, command, parameters)


def with_signature(
    run: Callable[..., None], command: Callable[..., None], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """Return `run` under a command's name and help, with these parameters."""
    functools.update_wrapper(run, command)
    del vars(run)["__wrapped__"]  # its signature would be taken for this one's
    vars(run)["__signature__"] = inspect.Signature([p.replace(kind=KEYWORD) for p in parameters])
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


class Command(TyperCommand):
    """A command whose help shows common options, in groups."""

    def get_short_help_str(self, limit: int = 45) -> str:
        return super().get_short_help_str(1000)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options under their headings."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []} | {name: [] for name in GROUPS}
        headings = {name: heading for heading, groups in GROUPS.items() for name in " ".join(groups).split()}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and (param.name not in RARE or "help_all" in ctx.meta):
                argument = param.param_type_name == "argument"
                sections["Arguments" if argument else headings.get(str(param.name), "Options")].append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


class Group(TyperGroup):
    def get_short_help_str(self, limit: int = 45) -> str:
        return super().get_short_help_str(1000)
