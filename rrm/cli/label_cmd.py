"""`rrm label`: people label transcripts in a local page."""

from __future__ import annotations

import getpass
import json
import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer
from rich.table import Table
from rich.text import Text

from rrm.annotate.label import Ask
from rrm.cli import finish
from rrm.cli.paths import ready_outputs
from rrm.cli.reading import ErrorLog, counting, mapping_of, read_inputs, refuse_missing, refuse_overlap
from rrm.cli.tables import figure_text, print_table
from rrm.data.mistakes import MISTAKE_KINDS
from rrm.data.output import file_when_whole
from rrm.errors import ConfigError, RRMError
from rrm.readers.base import printable

if TYPE_CHECKING:
    from rrm.annotate.rater_agreement import LabelledContents
    from rrm.data.annotation import Annotation

log = logging.getLogger(__name__)
_RATER = re.compile(r"[\w.@+ -]{1,64}")
SHOWN = 20  # disagreements in the table
MOST_CATEGORIES = 35  # each has a key: 1 to 9, a to z


def command(
    inputs: list[str] = typer.Argument(
        ..., metavar="RUNS...", help="Transcripts, files or folders; with --agreement the raters' files of labels."
    ),
    output: Path | None = typer.Option(
        None,
        "-o",
        "--output",
        metavar="LABELS.jsonl",
        help="The rater's labels. Default: labels-RATER.jsonl. With --agreement: all figures and disagreements, as JSON.",
    ),
    rater: str | None = typer.Option(None, metavar="NAME", help="Who labels. Default: your login name."),
    ask: str = typer.Option("outcome", metavar="outcome|steps|both", help="What makes a transcript done."),
    categories: str | None = typer.Option(
        None, metavar="A,B,…", help=f"What may be wrong with a step. Default: {', '.join(MISTAKE_KINDS)}."
    ),
    shuffle: int | None = typer.Option(None, metavar="SEED", help="Show the transcripts in a drawn order."),
    choose: int | None = typer.Option(
        None,
        min=2,
        metavar="N",
        help="With --scores: label N runs, drawn with known chances, more often where the judge is unsure.",
    ),
    scores: list[Path] = typer.Option([], metavar="SCORED.jsonl", help="With --choose: what rrm score wrote of RUNS."),
    agreement: bool = typer.Option(
        False, "--agreement", help="Label nothing: say how far the raters of these files agree."
    ),
    transcripts: list[str] = typer.Option(
        [],
        metavar="IN",
        help="With --agreement: the transcripts, so that intervals are over questions and labels without a digest find theirs.",
    ),
    port: int = typer.Option(0, min=0, max=65535, help="Port on 127.0.0.1; 0: as before, at first any free one."),
    format: str = typer.Option("auto", help="The transcripts' format."),
    map: list[str] = typer.Option([], "--map", metavar="FIELD=PATH", help="Where a field stands in any other JSON."),
) -> None:
    """Label outcomes and steps of transcripts in a page on this machine, from the keyboard.

    Every action is saved at once; the same command goes on where it was left. LABELS.jsonl holds annotations as `rrm train` (data.annotations) and `rrm eval`
    (--annotations) take them. The page shows neither outcome nor score, nor another rater's labels. With --agreement it compares raters: Krippendorff's alpha and
    Cohen's kappa on outcomes and on steps, with 95 % intervals, and where they disagree.
    """
    if agreement:
        finish(compare_raters(inputs, output, transcripts, format=format, map=map))
        return
    if transcripts:
        raise ConfigError("--transcripts goes with --agreement: transcripts to label are named without it")
    if (choose is None) != (not scores):
        raise ConfigError(
            "--choose N and --scores SCORED.jsonl go together: the judge's scores say which labels tell most"
        )
    from rrm.annotate.label_choice import chosen_path, keep_chosen
    from rrm.annotate.label_journal import open_journal
    from rrm.annotate.label_pool import TranscriptPool
    from rrm.annotate.label_server import Labelling, label_server
    from rrm.cli.estimate_cmd import estimates_of
    from rrm.scoring.label_estimates import read_scored, score_by_digest

    name = rater_of(rater)
    asked_for = ask_of(ask)
    named = categories_of(categories)
    path = output or Path(f"labels-{_file_name(name)}.jsonl")
    refuse_missing(inputs)
    refuse_overlap(inputs, path)
    ready_outputs(path)
    with open_journal(path, name) as journal, ErrorLog(path) as errors:
        rows = read_inputs(inputs, errors, format=format, mapping=mapping_of(map))
        with TranscriptPool(counting(rows, "read"), shuffle) as pool:
            if not len(pool):
                raise RRMError(f"{inputs[0]} holds no transcript that can be read")
            if choose is not None:
                runs = read_scored(scores)
                kinds = {run.digest: run.kind for run in runs}
                keep_chosen(pool, chosen_path(path), score_by_digest(runs), kinds, choose, shuffle or 0)
            labelling = Labelling(pool, journal, asked_for, named)
            with label_server(labelling, port) as server:
                typer.echo(f"label at {server.address}  (Ctrl-C ends)", err=True)
                with suppress(KeyboardInterrupt):  # how it ends
                    server.serve_forever(poll_interval=0.1)
            summary = labelling.summary() | {"unreadable": errors.count, "errors": errors.written_to}
    if choose is not None:
        summary["chosen"] = str(chosen_path(path))
        if summary["done"] >= 2:
            try:
                summary["estimates"] = estimates_of(scores, [path])
            except RRMError as error:  # labels may all be unsure
                log.warning("no estimate: %s", error)
    finish(summary)


def compare_raters(
    files: list[str], output: Path | None, transcripts: list[str], *, format: str, map: list[str]
) -> dict[str, Any]:
    """Compare raters: tables on standard error, everything into `output`; returns the summary."""
    from rrm.annotate.rater_agreement import LabelledContents, compared, known_of, read_raters, strangers, unsure_of

    refuse_missing([*files, *transcripts])
    if output is not None:
        for name in (*files, *transcripts):
            refuse_overlap([name], output)
        ready_outputs(output)
    paths, contents = [Path(name) for name in files], LabelledContents()
    if transcripts:
        contents = known_of(read_inputs(transcripts, None, format=format, mapping=mapping_of(map)))
        if not contents.questions:
            raise RRMError(
                f"--transcripts {', '.join(transcripts)}: no transcript there can be read; rrm check says why"
            )
    labels = read_raters(paths, contents)
    if transcripts and (strange := strangers(labels, contents)):
        say_strange(strange, len(labels), contents, transcripts)
    figures = compared(labels, contents.questions, unsure=unsure_of(paths))
    if figures["apart"]:
        how = (
            "no file of --transcripts has these ids"
            if transcripts
            else "name the transcripts (--transcripts RUNS.jsonl)"
        )
        log.warning(
            "labels of %d ids have a digest in one place and none in another, and were not compared with each other: %s",
            figures["apart"],
            how,
        )
    show_agreement(figures)
    if output is not None:
        with file_when_whole(output) as file:
            json.dump(figures, file, indent=1)
            file.write("\n")
    parted = figures.pop("disagreements")
    return {**figures, "disagreements": len(parted), "output": None if output is None else str(output)}


def say_strange(
    strange: Sequence[Annotation], total: int, contents: LabelledContents, transcripts: Sequence[str]
) -> None:
    """Warn of labels of no transcript that was named; raises `RRMError` where all are."""
    changed = sum(label.trajectory_id in contents.digests for label in strange)
    why = f"{changed} have the id of one whose content is another" if changed else "no id is of one there"
    message = f"{len(strange)} of {total} labels are of no transcript in {', '.join(transcripts)}, e.g. {printable(strange[0].trajectory_id)!r} ({why})"
    if len(strange) == total:
        raise RRMError(f"{message}: name the transcripts that were labelled, or leave --transcripts out")
    log.warning("%s: intervals take each of them for a question of its own", message)


def show_agreement(agreement: dict[str, Any]) -> None:
    """Print the figures and the first disagreements."""
    figures = Table("", "rated by two or more", "same label", "Krippendorff's alpha", "Cohen's kappa", "no label")
    for name, unlabelled in (("outcome", "unsure"), ("steps", "unclear")):
        values = agreement[name]
        kappas = "\n".join(
            f"{' and '.join(map(printable, p['raters']))}: {figure_text(p['kappa'])}" for p in values["pairs"]
        )
        without = "\n".join(
            f"{printable(who)}: {'not known' if n is None else n} {unlabelled}" for who, n in values[unlabelled].items()
        )
        cells = (
            name,
            str(values["units"]),
            figure_text(values["same"]),
            figure_text(values["alpha"]),
            kappas or "–",
            without,
        )
        figures.add_row(*map(Text, cells))
    print_table(figures, stderr=True)
    if not agreement["disagreements"]:
        return
    parted = Table("transcript", "step", "labels")
    for row in agreement["disagreements"][:SHOWN]:
        labels = ", ".join(f"{printable(who)} {label}" for who, label in row["labels"].items())
        parted.add_row(*map(Text, (printable(row["trajectory_id"]), str(row["step"] or "outcome"), labels)))
    print_table(parted, stderr=True)
    if len(agreement["disagreements"]) > SHOWN:
        typer.echo(f"and {len(agreement['disagreements']) - SHOWN} more (-o FILE holds all)", err=True)


def rater_of(name: str | None) -> str:
    """Return the rater's name, by default the login's; raises `ConfigError`."""
    if name is None:
        try:
            name = getpass.getuser()
        except (OSError, KeyError, ImportError) as error:
            raise ConfigError("nobody is logged in here by a name: say --rater NAME") from error
    if not _RATER.fullmatch(name) or not name.strip():
        raise ConfigError(f"--rater {name!r}: a name of up to 64 letters, digits, spaces and . _ @ + -")
    return name


def ask_of(word: str) -> Ask:
    if word not in ("outcome", "steps", "both"):
        raise ConfigError(f"--ask {word!r}: outcome, steps or both")
    return cast("Ask", word)


def categories_of(listed: str | None) -> tuple[str, ...]:
    """Parse `--categories`; raises `ConfigError` for none, or more than there are keys."""
    if listed is None:
        return MISTAKE_KINDS
    names = tuple(dict.fromkeys(" ".join(name.split()) for name in listed.split(",") if name.strip()))
    if not 1 <= len(names) <= MOST_CATEGORIES:
        raise ConfigError(f"--categories names {len(names)}: between 1 and {MOST_CATEGORIES}, a comma between them")
    return names


def _file_name(rater: str) -> str:
    return re.sub(r"[^\w.-]+", "_", rater)
