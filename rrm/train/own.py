"""`rrm train --own`: a judge from a user's labelled runs: the one given, calibrated, or its adapter trained further.

runs/own/
  adapter/ (the training's run folder)  calibrated/  trained/ (both judges with maps of the held-out labels)
  metrics.json  judge/ (what `--model` takes: of both the one that orders held-out runs better)
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rrm.config import TrainConfig
from rrm.data.annotation import Annotation
from rrm.data.feedback import read_feedback
from rrm.data.jsonl import read_lines, strict
from rrm.data.localisation import step_labels
from rrm.data.output import folder_when_whole
from rrm.data.questions import question_of
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError, RRMError
from rrm.evaluation.baselines import fit_tfidf, length_scores, out_of_fold
from rrm.evaluation.calibrate import WHAT_TO_DO, CalibrationRows, calibrate_judge, labelled_rows
from rrm.evaluation.evaluate import EvaluationReport, evaluate_feedback
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.calibration import PRIOR_LABELS
from rrm.judge.judge_dir import CALIBRATION_SCORES
from rrm.train.prepare import load_data
from rrm.train.run import train

log = logging.getLogger(__name__)
MIN_LABELLED_TO_TRAIN = 50  # labelled runs below which nothing is trained
MIN_QUESTIONS_TO_TRAIN = 3  # likewise; two of them are held out
CHOSEN = "The judge was chosen by its AUROC on these same runs, so its figures are somewhat too high."
RAW = "All runs are of one question: scores are raw, as maps cannot be measured on other questions."


def own_overrides() -> list[str]:
    """Overrides of the config: four tenths of the questions are held out, and the maps are fitted on these here."""
    import torch

    fast = getattr(torch.cpu, "get_capabilities", dict)().get("amx_bf16")  # matrix units: a third faster
    shares = [
        "data.calibration_share=0.2",
        "data.test_share=0.2",
        "calibration.enabled=false",
        "evaluation.enabled=false",
    ]
    return [*shares, *(["model.dtype=bfloat16"] if fast else [])]


def train_own(config: TrainConfig, against: Path | None = None) -> tuple[EvaluationReport, dict[str, Any]]:
    """Make `judge/`; return its metrics on held-out questions, beside the others', and the CLI's summary.

    Args:
        against: a directory of `rrm calibrate` on the same labels, such as a chat judge's, to compare with.

    Raises:
        RRMError: too few labels, also of runs that all judges scored; they do not rise with the scores of either judge; or
            `against` cannot be read.
    """
    folder, lora = Path(config.output_dir), config.sft.lora
    if lora is None or lora.init is None:
        raise ConfigError("--own goes on from a judge's adapter: name one as sft.lora.init, or leave --config out")
    if (folder / "judge").exists():
        raise ConfigError(f"{folder / 'judge'} is there already: name a new folder with -o")
    rivals = {} if against is None else {f"against:{against.name}": scores_in(against)}
    trajectories, raters = load_data(config)
    base = AgentRRM.from_pretrained(lora.init)
    candidates = {"calibrated": base}  # by the folder that each is calibrated into
    labels = labelled_rows(trajectories, raters, base.settings, "steps")
    _common(labels, rivals)
    calibration_rows, rejected = labels, dict[str, str]()  # all labels, unless some train a judge
    questions = len({question_of(t) for t in trajectories})
    if len(labels.rows) < MIN_LABELLED_TO_TRAIN:
        rejected["trained"] = (
            f"{len(labels.rows)} labelled runs calibrate a judge; training one takes {MIN_LABELLED_TO_TRAIN}"
        )
    elif questions < MIN_QUESTIONS_TO_TRAIN:
        rejected["trained"] = (
            f"runs of {questions} question(s) calibrate a judge; training one takes {MIN_QUESTIONS_TO_TRAIN}"
        )
    else:
        train(config.model_copy(update={"output_dir": str(folder / "adapter")}))
        trained = AgentRRM.from_pretrained(str(folder / "adapter" / "judge"))
        try:
            calibration_rows = labelled_rows(trajectories, raters, trained.settings, "steps")
            candidates["trained"] = trained
        except RRMError as error:
            rejected["trained"] = f"of the held-out runs: {error}"
    for name, judge in candidates.items():
        try:
            if not (folder / name).exists():
                calibrate_judge(judge, calibration_rows, folder / name, mode="steps")
        except ConfigError:
            raise
        except RRMError as error:
            rejected[name] = str(error)
    usable = [name for name in candidates if name not in rejected]
    if not usable:
        raise RRMError(f"no judge: {'; '.join(f'{name}: {reason}' for name, reason in rejected.items())}")
    scores = {name: scores_in(folder / name) for name in usable}
    reports = {name: _measured(name, scores, labels, calibration_rows, raters, folder) for name in usable}
    taken = max(usable, key=lambda name: (_auroc(reports[name]), name == "calibrated"))
    for name in usable:
        if name != taken:
            rejected[name] = (
                f"AUROC {_auroc(reports[name]):.3f} on held-out runs, and {taken} has {_auroc(reports[taken]):.3f}"
            )
    if rivals:  # they may leave fewer rows, and have no part in the choice
        reports = {name: _measured(name, scores | rivals, labels, calibration_rows, raters, folder) for name in usable}
    with folder_when_whole(folder / "judge") as building:
        shutil.copytree(folder / taken, building)
    report = reports[taken]
    is_one_question = len({question_of(t) for t in calibration_rows.rows}) == 1
    report["note"] = " ".join([CHOSEN] * (len(usable) > 1) + [RAW] * is_one_question) or None
    report.save(folder / "metrics.json")
    rows = report["metrics"] | {name: of["metrics"]["judge"] for name, of in reports.items()}
    metrics = {
        who: {key: row[key]["value"] for key in ("auroc", "brier") if key in row}
        for who, row in rows.items()
        if who != "judge"
    }
    return report, {
        "output_dir": str(folder), "judge": str(folder / "judge"), "taken": taken, "not_taken": rejected, "labelled": len(labels.rows),
        "held_out": report["rows"], "questions": report["questions"], "metrics": metrics,
    }  # fmt: skip


def scores_in(folder: Path) -> dict[str, tuple[float, float]]:
    """Return raw and out-of-fold scores by digest of the runs that `rrm calibrate` made a directory with.

    Runs of one question have no out-of-fold score; the raw one stands for it.

    Raises:
        RRMError: it is no such directory, or one that cannot be read.
    """
    if not (folder / CALIBRATION_SCORES).is_file():
        raise RRMError(f"{folder} holds no {CALIBRATION_SCORES}: name a directory that `rrm calibrate` wrote")
    return dict(read_lines(folder / CALIBRATION_SCORES, _digest_and_scores, "a row of `rrm calibrate`"))


def _digest_and_scores(line: str) -> tuple[str, tuple[float, float]]:
    row = strict(line)
    if not isinstance(row, dict) or not {"digest", "raw_score", "out_of_fold"} <= row.keys():
        raise ValueError("it has no digest, raw_score and out_of_fold")
    raw, apart = row["raw_score"], row["out_of_fold"]
    return row["digest"], (float(raw), float(raw if apart is None else apart))


def _common(
    labelled: CalibrationRows, scores: Mapping[str, Container[str]]
) -> tuple[tuple[Trajectory, ...], tuple[float, ...]]:
    """Return the rows that every judge scored, and their labels.

    Raises:
        RRMError: fewer than `PRIOR_LABELS`, or of one class.
    """
    pairs = [
        (t, label)
        for t, label in zip(labelled.rows, labelled.labels, strict=True)
        if all(t.digest in digests for digests in scores.values())
    ]
    good = sum(label >= 0.5 for _, label in pairs)
    if len(pairs) < PRIOR_LABELS or good in (0, len(pairs)):
        has_rival = any(name.startswith("against:") for name in scores)
        raise RRMError(
            f"{', '.join(scores)}: {len(pairs)} of {len(labelled.rows)} labelled runs have a score of each, {good} of them successes, "
            f"and a comparison takes {PRIOR_LABELS} with successes and failures; "
            + ("calibrate that judge on the same logs, or leave --against out" if has_rival else WHAT_TO_DO)
        )
    rows, y = zip(*pairs, strict=True)
    return rows, y


def _auroc(report: EvaluationReport) -> float:
    return report["metrics"]["judge"]["auroc"]["value"] or 0.0


def _measured(
    name: str,
    scores: dict[str, dict[str, tuple[float, float]]],
    labels: CalibrationRows,
    held_out: CalibrationRows,
    raters: dict[str, list[Annotation]],
    folder: Path,
) -> EvaluationReport:
    """Measure one judge on the held-out runs that all have scored, beside the others, TF-IDF and length."""
    rows, y = _common(held_out, scores)
    # Compare raw scores: out-of-fold maps reorder runs. + 1 marks them as no probabilities, so that no Brier score is computed.
    others = {who: [1 + by_digest[t.digest][0] for t in rows] for who, by_digest in scores.items() if who != name}
    baselines: dict[str, Sequence[float] | np.ndarray] = {**others, "length": length_scores(rows)}
    held_out_ids = {t.id for t in held_out.rows}
    learned = [i for i, t in enumerate(labels.rows) if t.id not in held_out_ids]
    try:
        if learned:
            words = fit_tfidf([labels.rows[i] for i in learned], np.array([labels.labels[i] for i in learned]))
            baselines["tfidf"] = words(rows)
        else:
            baselines["tfidf"] = out_of_fold(fit_tfidf, rows, np.array(y))
    except RRMError as error:
        log.warning("%s", error)
    feedback = {f.id: f for f in read_feedback(folder / f"{name}.rows.jsonl")}
    mapped = [
        feedback[t.id].model_copy(update=dict(zip(("raw_score", "score"), scores[name][t.digest], strict=True)))
        for t in rows
    ]
    of_steps = [step_labels(t, raters.get(t.id, ())) for t in rows]
    return evaluate_feedback(rows, mapped, y, baselines=baselines, step_labels=of_steps, resamples=2000)
