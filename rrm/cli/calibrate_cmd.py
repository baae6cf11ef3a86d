"""`rrm calibrate`: a judge's scores as probabilities of success, by some labels of your own."""

from __future__ import annotations

import logging
from enum import StrEnum
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from rrm.cli import finish
from rrm.cli.judge_options import JudgeOptions, with_judge_options
from rrm.cli.paths import beside, check_folder
from rrm.cli.reading import OUTCOME, ErrorLog, mapping_of, read_inputs, refuse_missing, refuse_overlap
from rrm.cli.score_cmd import Modes, chosen_mode, load_judge
from rrm.data.annotation import match, read_annotations
from rrm.judge.card import interval_text
from rrm.readers.base import printable
from rrm.readers.outcomes import refuse_other_scales

log = logging.getLogger(__name__)
console = Console(stderr=True, highlight=False)


class Methods(StrEnum):
    """Maps of raw scores."""

    platt = "platt"
    platt_score = "platt_score"
    isotonic = "isotonic"


@with_judge_options
def command(
    inputs: list[str] = typer.Argument(..., metavar="LABELLED...", help="Files, folders, or - for standard input."),
    output: Path | None = typer.Option(
        None, "-o", "--output", metavar="DIR", help="The new judge's directory. Default: LABELLED.judge."
    ),
    mode: Modes | None = typer.Option(
        None,
        help="The mode whose scores are calibrated, and which DIR then has as its own. Default: the judge's own, full where it "
        "names none.",
        show_default=False,
    ),
    method: Methods | None = typer.Option(
        None,
        help="platt: logistic in the logit of the raw score; platt_score: in the raw score, for grades; isotonic: makes ties. "
        "Default: as the judge's own map, platt_score for a model that was never trained to judge.",
        show_default=False,
    ),
    samples: int = typer.Option(1, min=1, help="Judgements per transcript; the score is their mean."),
    annotations: Path | None = typer.Option(
        None,
        metavar="FILE",
        help="Annotations: labels of runs without an outcome, and of steps; JSON lines, or a table with a header (id,label).",
    ),
    prefixes: bool = typer.Option(
        False,
        "--prefixes",
        help="Cut each run at a step, and calibrate a chat model on runs that go on: for rrm guard.",
    ),
    agreement: float | None = typer.Option(
        None,
        min=0.51,
        max=0.999,
        metavar="SHARE",
        help="Also give each run a verdict (good, bad, unsure) of which this share agrees with people, with 90 % confidence.",
    ),
    seed: int = typer.Option(0, help="Of the judge, the folds and the bootstrap."),
    resamples: int = typer.Option(1000, min=100, help="Bootstrap resamples of the questions."),
    overwrite: bool = typer.Option(
        False, "--overwrite", help="Judge everything again, dropping DIR.rows.jsonl; DIR itself is never written over."
    ),
    format: str = typer.Option("auto", help="The transcripts' format."),
    map: list[str] = typer.Option([], "--map", metavar="FIELD=PATH", help="Where a field stands in any other JSON."),
    outcome: str | None = OUTCOME,
    *,
    judge: JudgeOptions,
) -> None:
    """Calibrate a judge on labelled transcripts: a trained one, a server's model, or one with criteria.

    The map that the judge has counts as 20 labels beside yours; fewer than 20, or of one outcome alone, are refused.
    DIR is a judge's directory with the new maps: rrm score --model DIR gives calibrated scores. The label is the outcome, or the mean
    score of the annotations where there is none. Transcripts of questions that the judge was trained on are left out. What the maps are
    worth is measured out of fold, by question. A killed run goes on when the same command is given again: no row is asked for twice.
    Exit code 1: lines could not be read, or the judge failed on some rows.
    """
    from rrm.evaluation.calibrate import calibrate_judge, check_new, labelled_rows
    from rrm.judge.judge_dir import JudgeSettings
    from rrm.scoring.unsupported_media import unsupported_media

    output = output or beside(inputs, ".judge")
    reading: dict[str, Any] = {"format": format, "mapping": mapping_of(map), "outcome": outcome}
    paths = [*inputs, *([str(annotations)] if annotations else [])]
    refuse_missing(paths)
    refuse_overlap(paths, output)
    check_new(output)
    check_folder(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    with ErrorLog(output) as errors:
        everything = list(read_inputs(inputs, errors, **reading))
    refuse_other_scales(everything)
    matched = match(everything, read_annotations(annotations) if annotations else [])
    if complaint := matched.complaint():
        log.warning("%s: %s; they are not used", annotations, complaint)
    labelled_rows(everything, matched.by_id, JudgeSettings(), "score")  # too few are told before anything is loaded
    loaded = load_judge(judge)
    chosen: Any = chosen_mode(mode, loaded, Modes.full)
    labelled = labelled_rows(everything, matched.by_id, loaded.settings, chosen)
    record = calibrate_judge(
        loaded,
        labelled,
        output,
        mode=chosen,
        method=method.value if method else None,
        samples=samples,
        seed=seed,
        resamples=resamples,
        overwrite=overwrite,
        prefixes=prefixes,
        agreement=agreement,
    )
    show(record)
    failed = record["statuses"].get("judge_error", 0)
    if failed:
        log.warning(
            "%d transcripts ended in judge_error (%s) and are not in the maps; without %s the same command asks for these alone again",
            failed,
            printable(str(record["first_error"])),
            output,
        )
    fields = {k: v for k, v in record.items() if k != "judge"}
    fields["unsupported_media"] = unsupported_media(
        [*labelled.rows, *labelled.steps_only], warn=False
    )  # of which `score_file` has warned
    summary = {"output": str(output), **fields, "unreadable": errors.count, "errors": errors.written_to}
    finish(summary, [("judge", str(output)), ("use it", f"rrm score LOGS --model {output}")])
    if errors.count or failed:
        raise typer.Exit(1)


def map_text(fitted: dict[str, Any]) -> str:
    """A fitted map in one line, or why there is none."""
    if "skipped" in fitted:
        return f"{'the earlier one' if 'kept' in fitted else 'none'}, {fitted['skipped']}"
    if fitted["method"] == "isotonic":
        return f"isotonic, {len(fitted['x'])} thresholds, {fitted['rows']} labels"
    reads = "raw" if fitted["reads"] == "score" else "logit(raw)"
    return f"p = sigmoid({fitted['a']:.3f} · {reads} {fitted['b']:+.3f}), {fitted['rows']} labels"


def promise_text(promised: dict[str, Any]) -> str:
    """A promise of agreement in one line, or why there is none."""
    if "skipped" in promised:
        return f"none, {promised['skipped']}"
    least = promised["least_sure"]
    return (
        f"good from {least:.3f} on, bad from {1 - least:.3f} down, else unsure: at least {promised['agreement']:.0%} agree with people "
        f"({promised['confidence']:.0%} confidence); {promised['coverage']:.0%} of {promised['labels']} labelled runs have one, "
        f"{promised['agreed']:.0%} of these agree"
    )


def show(record: dict[str, Any]) -> None:
    """Print what was fitted and what it is worth, on standard error."""
    labels = ", ".join(f"{n} {source}" for source, n in record["labels"].items())
    console.print(
        f"{record['rows']} rows of {record['questions']} questions, {record['positive']:.0%} of success; labels: {labels}",
        markup=False,
    )
    for name in ("ece", "brier", "auroc"):
        if record["before"] is not None:
            before, after, gap = (interval_text(record[k][name]) for k in ("before", "after", "difference"))
            console.print(
                f"{name:>6} out of fold: {before} before, {after} after, difference {gap}", markup=False, soft_wrap=True
            )
    for key, fitted in record["maps"].items():
        console.print(f"map of {key}: {map_text(fitted)}", markup=False, soft_wrap=True)
    if "outside" in (domain := record["domain"]):
        console.print(
            f"{domain['outside_before']} of {domain['rows']} rows were outside what the judge was measured on, now {domain['outside']}",
            markup=False,
            soft_wrap=True,
        )
    if (promised := record["promise"]) is not None:
        console.print(f"verdicts on runs: {promise_text(promised)}", markup=False, soft_wrap=True)
    for point in record["interval"] or ():
        console.print(
            f"  raw {point['raw']:.3f} means {point['score']:.3f} [{point['low']:.3f}, {point['high']:.3f}]",
            markup=False,
        )
