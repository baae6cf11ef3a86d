"""`rrm annotate`: make training labels from transcripts."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import typer

from rrm.cli import STOPPED, finish
from rrm.cli.judge_options import OF_SERVERS, JudgeOptions, option_of, with_judge_options
from rrm.cli.reading import OUTCOME, ErrorLog, begun, check_paths, counting, mapping_of, read_inputs
from rrm.cli.score_cmd import Modes
from rrm.engines.cost import CostTracker
from rrm.errors import ConfigError, SpendingLimit

log = logging.getLogger(__name__)
OF_PLANTED = ("--runs-output", "--kinds", "--changes-state")


class Annotators(StrEnum):
    given = "given"
    rules = "rules"
    llm = "llm"
    self = "self"
    planted = "planted"


@with_judge_options
def command(
    inputs: list[str] = typer.Argument(..., metavar="IN...", help="Files, folders, or - for standard input."),
    output: Path = typer.Option(..., "-o", "--output", metavar="ANN.jsonl", help="One line per annotation, appended."),
    annotator: Annotators = typer.Option(
        ...,
        help="given: labels in the data; rules: programmatic checks; llm: a chat model; self: the judge itself; planted: mistakes put into copies of runs that succeeded.",
    ),
    field: list[str] = typer.Option(
        [], "--field", metavar="NAME=PATH", help="given: where score, trace, critique, findings or annotator stand."
    ),
    trace: bool = typer.Option(True, help="given: write a neutral trace of each step where the data has none."),
    max_words: int = typer.Option(25, min=5, help="given: longest text of a finding."),
    samples: int = typer.Option(4, "--samples", min=1, help="self: judgements of each transcript."),
    keep: int = typer.Option(1, min=1, help="self: most judgements kept of a transcript."),
    mode: Modes = typer.Option(Modes.full, help="self: what the judge writes."),
    seed: int = typer.Option(0, help="Each transcript's seed derives from this and its id (planted: its content)."),
    runs_output: Path | None = typer.Option(None, metavar="RUNS.jsonl", help="planted: one line per copy, appended."),
    kinds: str | None = typer.Option(None, metavar="KIND,…", help="planted: kinds of mistakes; default: all."),
    per_run: int = typer.Option(2, min=1, help="planted: most copies of a run, each with another kind."),
    changes_state: str | None = typer.Option(None, metavar="TOOL,…", help="planted: tools that change something."),
    format: str = typer.Option("auto", help="The transcripts' format."),
    map: list[str] = typer.Option([], "--map", metavar="FIELD=PATH", help="Where a field stands in any other JSON."),
    outcome: str | None = OUTCOME,
    strict: bool = typer.Option(False, "--strict", help="Stop at the first line that cannot be read."),
    overwrite: bool = typer.Option(False, "--overwrite", help="Drop ANN's lines and annotate everything again."),
    *,
    judge: JudgeOptions,
) -> None:
    """Make training labels: findings, critique, trace and process score for each transcript.

    A killed run goes on where it stopped when the same command is given again; what brought no annotation is tried again
    then. `--model` is an openai:BASE_URL#model for llm, any judge for self. Exit code 1: some lines could not be read, the
    model's reply was of no use for some transcripts, or there is no annotation at all. Exit code 4: --max-cost was reached in this
    run, and transcripts are left.
    """
    from rrm.annotate.output import LabelledDigests
    from rrm.data.output import RowFile
    from rrm.scoring.unsupported_media import Unshown

    check_paths(inputs, output, None)
    reading: dict[str, Any] = {"format": format, "mapping": mapping_of(map), "outcome": outcome}
    if annotator is Annotators.planted:
        from rrm.cli.annotate_planted import Planting, write

        if judge.given:
            raise ConfigError(f"--annotator planted asks no model: leave out {', '.join(judge.given)}")
        planting = Planting(runs_output, names_of(kinds), per_run, seed, names_of(changes_state))
        return write(inputs, output, planting, reading, strict=strict, overwrite=overwrite)
    if others := [name for name, value in zip(OF_PLANTED, (runs_output, kinds, changes_state), strict=True) if value]:
        raise ConfigError(f"{', '.join(others)}: for --annotator planted alone")
    counts = Counter[str]()
    options: dict[str, Any] = {}
    if annotator is Annotators.llm:
        options = {"seed": seed, "temperature": judge.temperature or 0.0}
    elif annotator is Annotators.self:
        options = {"seed": seed, "temperature": 1.0 if judge.temperature is None else judge.temperature}
        judge = replace(judge, temperature=None)  # its own way to sample
        options |= {"k": samples, "keep": keep, "mode": mode.value}
    elif annotator is Annotators.given:
        options = {"fields": _fields(field), "with_trace": trace, "max_words": max_words}
    stopped: str | None = None
    unshown = Unshown()
    with ErrorLog(output) as errors:
        rows = read_inputs(inputs, errors, strict=strict, **reading)
        if annotator is Annotators.self and (rows := begun(rows)) is None:
            log.error("there is no annotation: 0 transcripts were read")
            nothing = dict.fromkeys(("transcripts", "annotations", "resumed", "repeated"), 0)
            summary = {"command": "annotate", "annotator": annotator.value, "output": str(output), **nothing}
            finish({**summary, "unreadable": errors.count, "errors": errors.written_to})
            raise typer.Exit(1)
        made_by, annotate, purse = _open(annotator, judge, options, counts)
        made_by |= {"outcome": outcome}
        with RowFile.open(output, made_by, overwrite=overwrite) as out:
            labelled = LabelledDigests(out)
            try:
                labelled.append(annotate(labelled.unlabelled(unshown.counted(counting(rows, "annotating")))))
            except SpendingLimit as limit:
                stopped = str(limit)
                log.warning("stopped: %s", stopped)
            except KeyboardInterrupt:
                log.warning(
                    "interrupted: what was annotated is kept in %s; run the same command again to go on", output
                )
                raise
    useless = sum(counts[status] for status in ("unparsable", "truncated", "too_long", "judge_error"))
    finish(
        {
            "command": "annotate",
            "annotator": annotator.value,
            "output": str(output),
            "transcripts": labelled.read,
            "annotations": labelled.written,
            "resumed": labelled.resumed,
            "repeated": labelled.repeated,
            **dict(sorted(counts.items())),
            "unsupported_media": None if annotator is Annotators.given else unshown.report(),
            "usage": None if purse is None else purse.usage.model_dump(),
            "stopped": stopped,
            "unreadable": errors.count,
            "errors": errors.written_to,
        }
    )
    if stopped is not None:
        raise typer.Exit(STOPPED)
    nothing = not labelled.written and not labelled.resumed
    if nothing:
        why = (
            ", ".join(f"{n} {result}" for result, n in sorted(counts.items()) if n)
            or f"{labelled.read} transcripts were read"
        )
        log.error("there is no annotation: %s", why)
    if errors.count or useless or nothing:
        raise typer.Exit(1)


def names_of(text: str | None) -> tuple[str, ...]:
    """`a, b` → `("a", "b")`."""
    return tuple(dict.fromkeys(name for item in (text or "").split(",") if (name := item.strip())))


def _fields(pairs: list[str]) -> dict[str, str] | None:
    from rrm.train.given_labels import FIELDS

    for pair in pairs:
        name, _, path = pair.partition("=")
        if name not in FIELDS or not path:
            raise ConfigError(f"--field {pair!r}: write NAME=PATH with NAME one of {', '.join(FIELDS)}")
    return dict(pair.split("=", 1) for pair in pairs) or None


def _open(
    annotator: Annotators, judge: JudgeOptions, options: dict[str, Any], counts: Counter[str]
) -> tuple[dict[str, Any], Any, CostTracker | None]:
    """Return what decides the annotations, the function that makes them, and its costs; loads the model."""
    made_by = {"annotator": annotator.value, **options}
    if annotator in (Annotators.given, Annotators.rules) and judge.given:
        raise ConfigError(f"--annotator {annotator.value} asks no model: leave out {', '.join(judge.given)}")
    if annotator is Annotators.given:
        from rrm.train import given_labels as given

        return made_by, lambda rows: given.annotate(rows, counts=counts, **options), None
    if annotator is Annotators.rules:
        from rrm.prompt import rules

        return made_by | {"rules": rules.VERSION}, lambda rows: rules.annotate(rows, counts=counts), None
    if annotator is Annotators.llm:
        from rrm.annotate import llm
        from rrm.engines.openai import OpenAIEngine
        from rrm.engines.server_options import public
        from rrm.prompt.rendering import PROMPT_VERSION

        model = judge.model or ""
        if not model.startswith("openai:"):
            raise ConfigError(f"--annotator llm needs --model openai:BASE_URL#model, got {judge.model!r}")
        budgets = {"transcript_tokens": judge.transcript_tokens, "max_new_tokens": judge.max_new_tokens}
        options |= {name: value for name, value in budgets.items() if value is not None}
        foreign = {"--model", "--transcript-tokens", "--max-new-tokens", "--timeout", "--concurrency"}
        foreign |= {option_of(name) for name in OF_SERVERS}
        if others := [name for name in judge.given if name not in foreign]:
            raise ConfigError(f"--annotator llm takes no {', '.join(others)}")
        engine = OpenAIEngine.from_spec(model, **judge.served)
        model = public(model)
        made_by |= {"model": model, "prompt_version": PROMPT_VERSION, **budgets, **engine.options.deciding}
        return made_by, lambda rows: llm.annotate(rows, engine, model=model, counts=counts, **options), engine.purse
    from rrm.annotate import self_

    if judge.max_cost is not None:
        raise ConfigError(
            "--max-cost is for --annotator llm; several judgements of a transcript are not kept before all are there"
        )
    loaded = judge.load()
    made_by |= loaded.describe()
    return (
        made_by,
        lambda rows: self_.annotate(rows, loaded, model=loaded.model, counts=counts, **options),
        loaded.purse,
    )
