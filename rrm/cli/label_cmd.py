"""`rrm label`: people label transcripts in a local page."""

from __future__ import annotations

import getpass
import re
from contextlib import suppress
from pathlib import Path
from typing import cast

import typer

from rrm.cli import finish
from rrm.cli.paths import ready_outputs
from rrm.cli.reading import ErrorLog, counting, mapping_of, read_inputs, refuse_missing, refuse_overlap
from rrm.errors import ConfigError, RRMError
from rrm.labelling.said import CATEGORIES, Ask

_RATER = re.compile(r"[\w.@+ -]{1,64}")
MOST_CATEGORIES = 35
"""Each has a key: 1 to 9, a to z."""


def command(
    inputs: list[str] = typer.Argument(..., metavar="RUNS...", help="Transcripts, files or folders."),
    output: Path | None = typer.Option(
        None, "-o", "--output", metavar="LABELS.jsonl", help="The rater's labels. Default: labels-RATER.jsonl."
    ),
    rater: str | None = typer.Option(None, metavar="NAME", help="Who labels. Default: your login name."),
    ask: str = typer.Option("outcome", metavar="outcome|steps|both", help="What makes a transcript done."),
    categories: str | None = typer.Option(
        None, metavar="A,B,…", help=f"What may be wrong with a step. Default: {', '.join(CATEGORIES)}."
    ),
    shuffle: int | None = typer.Option(None, metavar="SEED", help="Show the transcripts in a drawn order."),
    port: int = typer.Option(0, min=0, max=65535, help="Port on 127.0.0.1; 0: any free one."),
    format: str = typer.Option("auto", help="The transcripts' format."),
    map: list[str] = typer.Option([], "--map", metavar="FIELD=PATH", help="Where a field stands in any other JSON."),
) -> None:
    """Label outcomes and steps of transcripts in a page on this machine, from the keyboard.

    Every action is saved at once; the same command goes on where it was left. LABELS.jsonl holds annotations as `rrm train` (data.annotations) and `rrm eval`
    (--annotations) take them. The page shows neither outcome nor score, nor another rater's labels.
    """
    from rrm.labelling.journal import open_journal
    from rrm.labelling.pool import Pool
    from rrm.labelling.server import Labelling, LabelServer

    name = rater_of(rater)
    wanted = ask_of(ask)
    named = categories_of(categories)
    path = output or Path(f"labels-{_file_name(name)}.jsonl")
    refuse_missing(inputs)
    refuse_overlap(inputs, path)
    ready_outputs(path)
    with open_journal(path, name) as journal, ErrorLog(path) as errors:
        found = read_inputs(inputs, errors, format=format, mapping=mapping_of(map))
        with Pool(counting(found, "read"), shuffle) as pool:
            if not len(pool):
                raise RRMError(f"{inputs[0]} holds no transcript that can be read")
            labelling = Labelling(pool, journal, wanted, named)
            try:
                server = LabelServer(labelling, port)
            except OSError as error:
                raise RRMError(f"cannot listen on 127.0.0.1:{port}: {error.strerror}; choose another --port") from error
            with server:
                typer.echo(f"label at {server.address}  (Ctrl-C ends)", err=True)
                with suppress(KeyboardInterrupt):  # how it ends
                    server.serve_forever(poll_interval=0.1)
            summary = labelling.summary() | {"unreadable": errors.count, "errors": errors.written_to}
    finish(summary)


def rater_of(name: str | None) -> str:
    """The rater's name, the login's by default.

    Raises:
        ConfigError: none is known, or it cannot be an annotator's name.
    """
    if name is None:
        try:
            name = getpass.getuser()
        except (OSError, KeyError, ImportError) as error:
            raise ConfigError("nobody is logged in here by a name: say --rater NAME") from error
    if not _RATER.fullmatch(name) or not name.strip():
        raise ConfigError(f"--rater {name!r}: a name of up to 64 letters, digits, spaces and . _ @ + -")
    return name


def ask_of(word: str) -> Ask:
    """What `--ask` says."""
    if word not in ("outcome", "steps", "both"):
        raise ConfigError(f"--ask {word!r}: outcome, steps or both")
    return cast("Ask", word)


def categories_of(listed: str | None) -> tuple[str, ...]:
    """What `--categories` lists.

    Raises:
        ConfigError: none, or more than there are keys for.
    """
    if listed is None:
        return CATEGORIES
    found = tuple(dict.fromkeys(" ".join(part.split()) for part in listed.split(",") if part.strip()))
    if not 1 <= len(found) <= MOST_CATEGORIES:
        raise ConfigError(f"--categories names {len(found)}: between 1 and {MOST_CATEGORIES}, a comma between them")
    return found


def _file_name(rater: str) -> str:
    return re.sub(r"[^\w.-]+", "_", rater)
