"""`rrm eval`: measure a judge on labelled transcripts, beside the baselines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rrm.cli import finish
from rrm.cli.eval_tables import show, summary
from rrm.cli.judge_options import JudgeOptions, with_judge_options
from rrm.cli.paths import beside
from rrm.cli.reading import OUTCOME, ErrorLog, check_paths, mapping_of, read_inputs
from rrm.cli.score_cmd import Modes, chosen_mode, load_judge
from rrm.data.annotation import Annotation, match, read_annotations
from rrm.data.extras import needs
from rrm.data.feedback import Feedback
from rrm.data.labels import merged, truth_of
from rrm.data.questions import question_of, seen_in_training
from rrm.data.splits import apply_split, load_split
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError, RRMError
from rrm.readers.base import printable
from rrm.readers.outcomes import refuse_other_scales
from rrm.scoring.row_matching import feedback_rows, match_rows

if TYPE_CHECKING:
    import numpy as np

    from rrm.judge.agent_rrm import AgentRRM
    from rrm.judge.judge_dir import JudgeSettings

log = logging.getLogger(__name__)
Labels = list[float | None]


@with_judge_options
def command(
    inputs: list[str] = typer.Argument(..., metavar="LABELLED...", help="Files, folders, or - for standard input."),
    output: Path | None = typer.Option(
        None, "-o", "--output", metavar="METRICS.json", help="Where the metrics go. Default: LABELLED.metrics.json."
    ),
    feedback: list[Path] = typer.Option(
        [], help="Rows of `rrm score` instead of judging now; further files are re-runs of the same rows."
    ),
    mode: Modes | None = typer.Option(
        None,
        help="score: ranks and calibration only; steps: steps too; critique, full: steps and text too. Default: the judge's "
        "own, score where it names none.",
        show_default=False,
    ),
    samples: int = typer.Option(1, min=1, help="Judgements per transcript; the score is their mean."),
    reruns: int = typer.Option(0, min=0, help="Judge again this often with other seeds, for the re-run variance."),
    split: Path | None = typer.Option(
        None, metavar="SPLIT.json", help='Question ids by part: {"train": […], "test": […]}.'
    ),
    part: str = typer.Option("test", help="The split's part to evaluate."),
    train_part: str = typer.Option(
        "train", help="The split's part the baselines learn from; without --split: 5 folds."
    ),
    annotations: Path | None = typer.Option(
        None,
        metavar="FILE",
        help="Annotations: labels of runs without an outcome, and of steps; JSON lines, or a table with a header (id,label).",
    ),
    plot: Path | None = typer.Option(None, metavar="RELIABILITY.png", help="Also draw the reliability diagram."),
    seed: int = typer.Option(0, help="Of the judge, the folds, the bootstrap and the shuffled findings."),
    resamples: int = typer.Option(10_000, min=100, help="Bootstrap resamples of the questions."),
    overwrite: bool = typer.Option(False, "--overwrite", help="Judge everything again, dropping METRICS.rows.jsonl."),
    format: str = typer.Option("auto", help="The transcripts' format."),
    map: list[str] = typer.Option([], "--map", metavar="FIELD=PATH", help="Where a field stands in any other JSON."),
    outcome: str | None = OUTCOME,
    *,
    judge: JudgeOptions,
) -> None:
    """Measure a judge: ranking inside questions, calibration, step localisation, format and leaks, with 95 % intervals.

    Attempts are compared with attempts at the same question (question_id), so give several attempts at each. The label is
    the outcome, or the mean score of the annotations where there is none. Intervals are bootstrapped over questions.
    Judgements go to METRICS.rows.jsonl as they are made, so a killed run goes on when the same command is given again.
    Exit code 1: lines could not be read, some rows have no feedback because it is missing or the judge failed on them, or
    no row has a score.
    """
    from rrm.evaluation.baselines import step_scores_of
    from rrm.evaluation.evaluate import HEADLINE, evaluate_feedback, why_no_pairs
    from rrm.scoring.unsupported_media import unsupported_media

    if feedback and (judge.given or reruns):
        options = ", ".join([*judge.given, *(["--reruns"] if reruns else [])])
        raise ConfigError(f"--feedback brings its own judgements: leave out {options}")
    output = output or beside(inputs, ".metrics.json")
    reading: dict[str, Any] = {"format": format, "mapping": mapping_of(map), "outcome": outcome}
    files = [*inputs, *(str(p) for p in feedback), *(str(p) for p in (split, annotations) if p is not None)]
    if plot is not None:
        needs("plots", "--plot", "matplotlib")
    for target in (output, plot):
        check_paths(files, target, None)
    with ErrorLog(output) as errors:
        everything = list(read_inputs(inputs, errors, **reading))
    refuse_other_scales(everything)
    matched = match(everything, read_annotations(annotations) if annotations else [])
    labelled = matched.by_id
    if complaint := matched.complaint():
        log.warning("%s: %s; they are not used", annotations, complaint)
    test, train = split_rows(everything, split, part, train_part)
    if not test:
        raise RRMError(f"nothing to evaluate: {why_empty(len(everything), split, part, errors)}")
    labels, steps = labels_of(test, labelled), step_labels_of(test, labelled)
    if reruns == 0 and len(feedback) < 2 and not has_label(labels, steps):
        raise RRMError(f"nothing to measure on: {why_no_label(len(test), annotations)}")
    loaded, strays = None, (0,)
    if feedback:
        runs, strays = zip(*(feedback_of(path, everything) for path in feedback), strict=True)
    else:
        loaded = load_judge(judge)
        how = {"mode": chosen_mode(mode, loaded, Modes.score), "samples": samples, "overwrite": overwrite}
        runs = [judge_rows(loaded, test, output, i, seed=seed + i, **how) for i in range(1 + reruns)]
    baselines, left_out = score_baselines(test, labels, train, labels_of(train, labelled) if train else [], seed)
    step_scores: dict[str, Any] = {}
    thresholds: dict[str, float] = {}
    if any(f.p_good is not None for row in runs[0] for f in row.findings):
        learned = step_labels_of(train, labelled) if train is not None else ()
        step_scores, missing = step_scores_of(test, steps, train, learned, seed=seed)
        left_out |= {f"{name} of steps": why for name, why in missing.items()}
        thresholds = step_thresholds_of(loaded.settings if loaded else None, runs[0], train, learned, seed)
    report = evaluate_feedback(
        test,
        runs[0],
        labels,
        baselines=baselines,
        step_labels=steps,
        step_baselines=position_baseline(test, steps, train, labelled, seed),
        step_scores=step_scores,
        step_thresholds=thresholds,
        reruns=runs[1:],
        resamples=resamples,
        seed=seed,
    )
    report["unmatched_feedback"] += strays[0]
    report["baselines_left_out"] = left_out
    report["seen_in_training"] = warn_of_training_questions(loaded.settings if loaded else None, runs[0], test)
    report["seen_in_calibration"] = warn_of_calibration(loaded.folder if loaded else None, runs[0], test)
    report["outside"] = outside_by_source(test, runs[0])
    report["judge"] = runs[0][0].judge.model_dump() if runs[0] else None
    report.save(output)
    if plot is not None:
        from rrm.evaluation.reliability_plot import plot_reliability

        plot_reliability(report["reliability"], plot)
    pairs = report["pairs"]
    show(report, None if pairs.get(HEADLINE) else why_no_pairs(pairs, [question_of(t) for t in test], labels))
    failed = report["status"].get("judge_error", 0) + report["status"].get("missing", 0)
    if not report["status"].get("scored"):
        failed = failed or len(test)
        first = next((f"{f.status}: {f.reason}" for f in runs[0] if f.score is None), "no feedback")
        log.error("no transcript has a usable score, so nothing was measured; the first: %s", printable(first))
    unshown = (
        {}
        if loaded is None
        else {
            "unsupported_media": unsupported_media(test, warn=False, sees=getattr(loaded, "images", None) is not None)
        }
    )  # of which `score_file` has warned
    rest = {"unreadable": errors.count, "errors": errors.written_to, "output": str(output)}
    finish(summary(report) | unshown | rest, [("metrics", str(output))])
    if errors.count or failed:
        raise typer.Exit(1)


def why_empty(count: int, split: Path | None, part: str, errors: ErrorLog) -> str:
    """Say why there is no transcript to evaluate."""
    if not count:
        return f"no transcript could be read; what was wrong stands in {errors.written_to}"
    return f"none of {count} transcripts is of a question in the part {part!r} of {split}"  # without one, all are


def has_label(labels: Labels, steps: Sequence[Any]) -> bool:
    """Tell whether any transcript or step has a label."""
    return any(y is not None for y in labels) or any(
        verdict is not None for verdicts in steps for verdict in verdicts or ()
    )


def why_no_label(rows: int, annotations: Path | None) -> str:
    """Say where labels can come from, where there are none."""
    unmatched = "" if annotations is None else f", and {annotations} has none of them either"
    return (
        f"none of {rows} transcripts has a label{unmatched}. A label is the outcome (--outcome FIELD says which field holds it; rrm check lists "
        "fields that may) or an annotation's score or findings (--annotations FILE: JSON lines, as rrm annotate writes them, or a table id,label). "
        "Only --reruns, or several --feedback, need none"
    )


def judge_rows(judge: AgentRRM, rows: Sequence[Trajectory], output: Path, run: int, **how: Any) -> list[Feedback]:
    """Judge through a file of rows beside the metrics, with which a killed run goes on."""
    from rrm.scoring.run import judge_into

    path = output.with_suffix(f".rows{run + 1 if run else ''}.jsonl")
    return judge_into(path, judge, rows, warn=run == 0, **how)


def feedback_of(path: Path, rows: Sequence[Trajectory]) -> tuple[list[Feedback], int]:
    """Return the feedback on transcripts, under their ids here, and the number of rows of none of them.

    Raises:
        ReadError, RRMError: as `rrm.scoring.row_matching.feedback_rows` and `match_rows`.
    """
    file_rows = feedback_rows(path)
    matched = zip(rows, match_rows(file_rows, rows, path), strict=True)
    feedback = [f.model_copy(update={"id": t.id}) for t, f in matched if f is not None]
    return feedback, len(file_rows.strays)


def warn_of_training_questions(
    settings: JudgeSettings | None, feedback: Sequence[Feedback], rows: Sequence[Trajectory]
) -> int | None:
    """Count, with a warning, rows of questions the judge was trained on; None: not recorded.

    Rows name their judge: where that is a directory that exists, its own record counts.
    """
    from rrm.engines.shipped_judges import FILE
    from rrm.judge.judge_dir import load_settings

    folder = Path(feedback[0].judge.model) if feedback else None
    if settings is None and folder is not None and (folder / FILE).is_file():
        settings = load_settings(folder)
    if settings is None or not settings.training_questions:
        return None
    return _warn_of_met(settings.training_questions, rows, "trained on", "the figures flatter it")


def warn_of_calibration(folder: Path | None, feedback: Sequence[Feedback], rows: Sequence[Trajectory]) -> int | None:
    """Count, with a warning, rows of questions that `rrm calibrate` fitted on; None: none are recorded."""
    from rrm.judge.judge_dir import calibrated_questions

    questions = calibrated_questions(folder or (Path(feedback[0].judge.model) if feedback else None))
    if not questions:
        return None
    return _warn_of_met(questions, rows, "calibrated on", "ECE and Brier score flatter it")


def _warn_of_met(questions: Iterable[str], rows: Sequence[Trajectory], how: str, so: str) -> int:
    """Count, with a warning, rows of questions that the judge knows."""
    met = seen_in_training(questions, rows)
    if met:
        text = "%d of %d transcripts are of questions this judge was %s (e.g. %s): %s"
        log.warning(text, len(met), len(rows), how, printable(met[0]), so)
    return len(met)


def outside_by_source(rows: Sequence[Trajectory], feedback: Sequence[Feedback]) -> dict[str, dict[str, float]] | None:
    """Return shares of rows `out_of_domain` by `meta.source` ('' where there is none); None: no row says."""
    flags = {f.id: f.out_of_domain for f in feedback if f.out_of_domain is not None}
    by_source: dict[str, list[bool]] = {}
    for t in rows:
        if t.id in flags:
            source = t.meta.get("source")
            by_source.setdefault(source if isinstance(source, str) else "", []).append(flags[t.id])
    return {
        name: {"share": sum(m) / len(m), "outside": sum(m), "rows": len(m)} for name, m in sorted(by_source.items())
    } or None


def split_rows(
    rows: list[Trajectory], split: Path | None, part: str, train_part: str
) -> tuple[list[Trajectory], list[Trajectory] | None]:
    """Split rows by question id, into those to evaluate and those baselines learn from (None: no split).

    Rows of the split's `held_out_agents` teach neither baselines nor judges.
    """
    if split is None:
        return rows, None
    if part == train_part:
        raise ConfigError(f"--part and --train-part are both {part!r}: baselines would learn what they are measured on")
    parts = apply_split(rows, load_split(split, (part, train_part)), learned=train_part)
    return parts[part], parts[train_part]


def labels_of(rows: Sequence[Trajectory], annotations: dict[str, list[Annotation]]) -> Labels:
    """Return each row's label (`rrm.data.labels.truth_of`), None where nothing is known."""
    return [truth_of(row, merged(annotations.get(row.id, ()))) for row in rows]


def step_labels_of(rows: Sequence[Trajectory], annotations: dict[str, list[Annotation]]) -> list[Any]:
    """Return each row's step labels (`rrm.data.localisation.step_labels`), None where there are none."""
    from rrm.data.localisation import step_labels

    return [step_labels(t, annotations.get(t.id, [])) for t in rows]


def step_thresholds_of(
    settings: JudgeSettings | None,
    feedback: Sequence[Feedback],
    train: list[Trajectory] | None,
    learned: Sequence[Any],
    seed: int,
) -> dict[str, float]:
    """Return thresholds of verdicts on steps that no measured row decided; without one, 0.5 is used.

    The judge's: of its rows, else of its settings. A baseline's: of the training part.
    """
    from rrm.evaluation.bootstrap import JUDGE
    from rrm.evaluation.step_scores import baseline_thresholds

    thresholds: dict[str, float] = {}
    if train is not None:
        thresholds, none = baseline_thresholds(train, learned, seed=seed)
        for name, why in none.items():
            log.warning("%s of steps is measured at one half: %s", name, why)
    values = sorted({f.judge.threshold for f in feedback if f.judge.threshold is not None})
    if len(values) > 1:
        log.warning(
            "the rows' verdicts on steps were made at several thresholds (%s): they are measured at one half",
            ", ".join(f"{threshold:.3g}" for threshold in values),
        )
    elif values:
        thresholds[JUDGE] = values[0]
    elif settings is not None:
        thresholds[JUDGE] = settings.threshold
    return thresholds


def score_baselines(
    test: list[Trajectory], labels: Labels, train: list[Trajectory] | None, train_labels: Labels, seed: int
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Score baselines learned on the training part, else out of fold; also why any was left out."""
    import numpy as np

    from rrm.evaluation.baselines import LEARNED, length_scores, out_of_fold

    result, left_out = {"length": length_scores(test)}, {}
    labelled = np.array([y is not None for y in labels], dtype=bool)
    for name, fit in LEARNED.items():
        scores = np.full(len(test), np.nan)
        try:
            if train is None:
                rows = [t for t, y in zip(test, labels, strict=True) if y is not None]
                scores[labelled] = out_of_fold(fit, rows, np.array([y for y in labels if y is not None]), seed=seed)
            else:
                rows = [t for t, y in zip(train, train_labels, strict=True) if y is not None]
                scores = fit(rows, np.array([y for y in train_labels if y is not None]))(test)
        except RRMError as error:
            left_out[name] = str(error)
        else:
            result[name] = scores
    return result, left_out


def position_baseline(
    test: list[Trajectory],
    steps: list[Any],
    train: list[Trajectory] | None,
    annotations: dict[str, list[Annotation]],
    seed: int,
) -> dict[str, list[Any]]:
    """Predict the majority verdict at each step position, learned as other baselines; {} without labels."""
    from rrm.evaluation.baselines import across_folds, position_verdicts

    def fit(_: object, learned: Sequence[Any]) -> Callable[[Sequence[Trajectory]], list[Any]]:
        verdicts = position_verdicts(learned)
        return lambda rows: [verdicts(len(t.steps)) for t in rows]

    if train is not None:
        learned = step_labels_of(train, annotations)
        return {"position_only": fit(train, learned)(test)} if any(learned) else {}
    having = [i for i, labels in enumerate(steps) if labels]
    try:
        predicted = across_folds(fit, [test[i] for i in having], [steps[i] for i in having], seed=seed)
    except RRMError:
        return {}  # fewer than five labelled questions: no majority to learn, the table simply lacks the line
    by_row = dict(zip(having, predicted, strict=True))
    return {"position_only": [by_row.get(i, ["bad"] * len(t.steps)) for i, t in enumerate(test)]}
