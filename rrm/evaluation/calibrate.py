"""`rrm calibrate`: write a judge's directory whose scores are calibrated to given labels.

    DIR/                    a judge's directory (`rrm.judge.judge_dir`): `judge.json` with the maps, weights where they are local
    DIR/calibration.json    the maps, their labels, and how good they are out of fold
    DIR/calibration.jsonl   the rows used: id, digest, question (hashed), label and its source, raw score, score out of fold
    DIR.rows.jsonl          the judge's rows, written as they come: a killed run asks for none of them again

DIR appears whole or not at all, and only where nothing was.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from rrm.config import CalibrationMethod, CalibrationSettings
from rrm.data.annotation import Annotation
from rrm.data.feedback import Feedback, Mode
from rrm.data.labels import StepTarget, merged, step_targets_of, truth_of
from rrm.data.output import folder_when_whole
from rrm.data.questions import question_key, question_of, seen_in_training
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError, RRMError
from rrm.evaluation.calibrating import (
    CalibrationInterval,
    OutOfFold,
    band,
    before_and_after,
    no_order,
    not_better,
    out_of_fold,
)
from rrm.evaluation.fit_calibration import Ask, calibrate, source_of, untrained
from rrm.evaluation.promised_agreement import LEAST_LABELS, promise
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.calibration import PRIOR_LABELS, Calibration, Isotonic, check_enough, key_of
from rrm.judge.card import CALIBRATION, calibrated_section, served_card, with_section
from rrm.judge.domain import FILE as DOMAIN
from rrm.judge.domain import widened
from rrm.judge.judge_dir import (
    CALIBRATION_RECORD,
    CALIBRATION_SCORES,
    JudgeSettings,
    calibrated_questions,
    load_settings,
)
from rrm.judge.prefixes import of_prefixes, of_unfinished, prefix_of
from rrm.readers.base import printable
from rrm.scoring.run import judge_into

log = logging.getLogger(__name__)
WHAT_TO_DO = "label more runs (rrm label), or go on with the judge as it is"
WIDE = 0.25


@dataclass(frozen=True)
class CalibrationRows:
    rows: list[Trajectory]
    labels: list[float]
    sources: list[str]
    """`outcome:FIELD` or `annotation:WHO` of each label."""
    steps: dict[str, StepTarget] = field(default_factory=dict)
    steps_only: list[Trajectory] = field(default_factory=list)
    """Further rows, of which only steps are labelled."""
    unlabelled: int = 0
    trained_on: list[str] = field(default_factory=list)


def labelled_rows(
    trajectories: Sequence[Trajectory], raters: Mapping[str, Sequence[Annotation]], settings: JudgeSettings, mode: Mode
) -> CalibrationRows:
    """Select the labelled rows of questions that the judge was not trained on; `raters` by trajectory id."""
    met = set(seen_in_training(settings.training_questions, trajectories))
    rows, labels, sources = list[Trajectory](), list[float](), list[str]()
    rest, left_out = list[Trajectory](), list[str]()
    for t in trajectories:
        annotation = merged(raters.get(t.id, ()))
        truth = truth_of(t, annotation)
        if truth is None:
            rest.append(t)
        elif t.id in met:
            left_out.append(t.id)
        else:
            rows.append(t)
            labels.append(truth)
            sources.append(_source(t, annotation))
    if left_out:
        log.warning(
            "%d of %d labelled transcripts are of questions that this judge was trained on (e.g. %r): they are left out",
            len(left_out),
            len(left_out) + len(rows),
            left_out[0],
        )
    try:
        check_enough(np.array(labels), PRIOR_LABELS)
    except RRMError as error:
        why = [
            f"{len(rest)} transcripts have no label (--outcome FIELD or --annotations FILE says where it is; rrm check lists fields that may be one)"
        ]
        why = (why if rest else []) + ([f"{len(left_out)} are of questions it was trained on"] if left_out else [])
        raise type(error)("; ".join([str(error), *why, WHAT_TO_DO])) from error
    steps = step_targets_of([t for t in [*rows, *rest] if t.id not in met], raters) if mode == "steps" else {}
    steps_only = [t for t in rest if t.id in steps]
    return CalibrationRows(rows, labels, sources, steps, steps_only, len(rest) - len(steps_only), left_out)


def _source(trajectory: Trajectory, annotation: Annotation | None) -> str:
    if trajectory.outcome is None:
        return f"annotation:{annotation.annotator if annotation else '?'}"
    return f"outcome:{(trajectory.source and trajectory.source.outcome_field) or 'outcome'}"


def check_new(folder: Path) -> None:
    """Raise ConfigError for a folder that holds anything."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ConfigError(f"{folder} is there already, and nothing is written over: name a new folder with -o")


class CachedJudge:
    """The judge's feedback, stored in files beside the new directory, so that nothing is asked twice."""

    def __init__(self, judge: AgentRRM, folder: Path, how: Mapping[str, Any]) -> None:
        self.judge, self.folder, self.how = judge, folder, how
        self.passes = 0

    def path(self, number: int) -> Path:
        return self.folder.with_name(f"{self.folder.name}.rows{number if number > 1 else ''}.jsonl")

    def __call__(self, rows: Sequence[Trajectory], mode: Mode) -> list[Feedback]:
        self.passes += 1
        settings = {"threshold": self.judge.settings.threshold} if mode == "steps" else {}
        first = self.passes == 1  # of all rows: later ones are of some of them
        return judge_into(
            self.path(self.passes), self.judge, rows, mode=mode, settings=settings, warn=first, **self.how
        )


@dataclass(frozen=True)
class Scored:
    rows: list[Trajectory]
    labels: np.ndarray
    sources: list[str]
    raw: np.ndarray
    windowed: list[bool]
    before: np.ndarray
    """Scores by the judge's earlier maps; raw ones where it had none."""

    @property
    def questions(self) -> list[str]:
        return [question_of(t) for t in self.rows]


def calibrate_judge(
    judge: AgentRRM,
    labelled: CalibrationRows,
    folder: Path,
    *,
    mode: Mode,
    method: CalibrationMethod | None = None,
    samples: int = 1,
    seed: int = 0,
    resamples: int = 1000,
    overwrite: bool = False,
    prefixes: bool = False,
    agreement: float | None = None,
) -> dict[str, Any]:
    """Fit a judge's maps to labels and write its directory; return the content of `calibration.json`.

    The judge's own map counts as `PRIOR_LABELS` labels beside the user's; the grades of a chat model without a map do not.

    Args:
        method: None: that of the judge's map; without one `platt` of a trained judge, else `platt_score`.
        overwrite: judge all rows again, dropping stored ones.
        prefixes: fit on runs that are cut at a step: a chat model's judge of unfinished runs, for a guard.
        agreement: give verdicts on whole runs of which at least this share agrees with people; None: give none.

    Raises:
        ConfigError: the folder holds something, or the mode is not the judge's.
        RRMError: too few rows with a score, one class, or scores that do not rise with the labels; nothing is written.
    """
    check_new(folder)
    judge.abilities.check(mode)
    if untrained(judge, mode):
        raise ConfigError(
            f"{judge.model} was trained in {', '.join(judge.settings.modes)}, not in {mode}: choose one by --mode"
        )
    if prefixes:
        rows = [prefix_of(t, seed) for t in labelled.rows]
        judge, labelled = of_unfinished(judge), replace(labelled, rows=rows, steps={}, steps_only=[])
    elif of_prefixes(judge.settings):
        raise ConfigError(
            f"{judge.model} is calibrated for runs that go on: calibrate it with --prefixes, or the model itself"
        )
    old = judge.settings
    judge.settings = old.model_copy(deep=True)
    chosen = method or _method_of(old, mode)
    how = {"samples": samples, "seed": seed, "overwrite": overwrite}
    ask, feedback = CachedJudge(judge, folder, how), dict[Mode, list[Feedback]]()
    prior = _prior_of(old, mode, chosen)
    maps = _fit(judge, labelled, mode, chosen, ask, feedback, prior)
    of_rows = feedback[mode]
    statuses = dict(sorted(Counter(f.status for f in of_rows).items()))
    failed = next((f for f in of_rows if f.status == "judge_error"), None)
    first = failed or next((f for f in of_rows if f.status != "scored"), None)
    fitted = [key for key in (key_of(mode), key_of(mode, True)) if "skipped" not in maps.get(key, {"skipped": ""})]
    if not fitted:
        reason = next(maps[k]["skipped"] for k in (key_of(mode), key_of(mode, True)) if k in maps)
        raise RRMError(
            f"nothing to calibrate: {reason} (of {len(of_rows)} labelled rows: {_counts(statuses)}"
            + (f"; the first {first.status}: {printable(str(first.reason))}" if first else "")
            + f"); rows are in {ask.path(1)}"
        )
    scored = _scored(judge, old, labelled, of_rows, mode)
    try:
        check_enough(scored.labels, PRIOR_LABELS)
    except RRMError as error:
        raise type(error)(f"of {len(of_rows)} labelled rows: {_counts(statuses)}; {error}; {WHAT_TO_DO}") from error
    present = None if prior is None else scored.before
    apart = out_of_fold(scored.raw, scored.labels, scored.windowed, scored.questions, chosen, seed, present)
    known_before = len(seen_in_training(calibrated_questions(judge.folder), scored.rows))
    worth = _worth(scored, apart, chosen, present, known_before=known_before, seed=seed, resamples=resamples)
    judge.settings.promise = None
    promised = None if agreement is None else _promise(judge.settings, scored, apart, mode, agreement)
    facts = {
        "rows": len(scored.rows),
        "questions": len(set(scored.questions)),
        "positive": float(np.mean(scored.labels >= 0.5)),
    }
    facts |= {"labels": dict(Counter(scored.sources)), "method": chosen, "samples": samples, "seed": seed}
    facts |= {"prefixes": True} if prefixes else {}
    facts |= {"prior_labels": 0 if prior is None else PRIOR_LABELS}
    record = {
        "mode": mode, "domain": _widen(judge, scored.rows, folder.name, worth["no_order"]), "first_error": failed and failed.reason, **facts,
        "judge": judge.describe() | {"agent-rrm": version("agent-rrm")}, "statuses": statuses,
        "left_out": {"unlabelled": labelled.unlabelled, "trained_on": len(labelled.trained_on)},
        "maps": maps, **worth, "promise": promised,
    }  # fmt: skip
    for key in fitted:
        of_key = [
            f for f, t in zip(of_rows, labelled.rows, strict=True) if key == key_of(mode, judge.in_windows(t, mode))
        ]
        judge.settings.calibrated_on[key] = facts | source_of(of_key)
    judge.settings.default_mode = mode
    if judge.prompter is None:
        judge.settings.request = judge.asked.deciding
    if judge.prompter is None and judge.folder is None:
        judge.settings.name = folder.name
    check_new(folder)  # hours may have passed
    _write(judge, folder, record, scored, apart)
    return record


def _promise(
    settings: JudgeSettings, scored: Scored, apart: OutOfFold | None, mode: Mode, agreement: float
) -> dict[str, Any]:
    """Set `settings.promise` where the labels allow one; return it, or why not."""
    questions = len(set(scored.questions))
    if apart is None or questions < LEAST_LABELS:
        return {"skipped": f"a promise takes labels of {LEAST_LABELS} questions, and there are {questions}"}
    settings.promise = promise(apart.scores, scored.labels, scored.questions, mode, agreement)
    if settings.promise is None:
        return {"skipped": f"these labels do not show that any verdicts agree with people in {agreement:.0%} of runs"}
    return settings.promise.model_dump()


def _widen(judge: AgentRRM, rows: Sequence[Trajectory], name: str, no_order: str | None) -> dict[str, Any]:
    """Widen the judge's domain to the calibration rows; count how many were and are outside."""
    if judge.domain is None:
        return {"skipped": f"the judge has no {DOMAIN}: it marks no transcript"}
    counts = {"rows": len(rows), "outside_before": sum(judge.domain.flag(t)[0] for t in rows)}
    if no_order:
        log.warning(
            "transcripts like these stay as far outside what the judge was measured on as they were: %s", no_order
        )
        return {"skipped": no_order, **counts}
    judge.domain = widened(judge.domain, rows, name)
    return {**counts, "outside": sum(judge.domain.flag(t)[0] for t in rows)}


def _method_of(settings: JudgeSettings, mode: Mode) -> CalibrationMethod:
    current = settings.calibration.modes.get(mode) or settings.calibration.modes.get(key_of(mode, True))
    if current is None:
        return "platt" if settings.modes else "platt_score"
    if isinstance(current, Isotonic):
        return "isotonic"
    return "platt_score" if current.reads == "score" else "platt"


def _prior_of(settings: JudgeSettings, mode: Mode, method: CalibrationMethod) -> Calibration | None:
    """Return the maps that labels are added to; None for a chat model's grades without a map."""
    keys = settings.calibration.modes.keys() & {key_of(mode), key_of(mode, True)}
    return settings.calibration if keys or method != "platt_score" else None


def _fit(
    judge: AgentRRM,
    labelled: CalibrationRows,
    mode: Mode,
    method: CalibrationMethod,
    ask: Ask,
    feedback: dict[Mode, list[Feedback]],
    prior: Calibration | None,
) -> dict[str, Any]:
    every = max(len(labelled.rows), len(labelled.steps_only))
    settings = CalibrationSettings(method=method, modes=[mode], max_rows=every, sampled_rows=every)
    before = dict(judge.settings.calibration.modes)
    steps = labelled.steps if mode == "steps" and _both_verdicts(labelled.steps) else None
    if labelled.steps and steps is None:
        log.warning("fewer than %d labelled steps, or all alike: the map of single steps stays as it was", PRIOR_LABELS)
    fitted = calibrate(
        judge, labelled.rows, labelled.labels, settings, judged=feedback, steps=steps, steps_only=labelled.steps_only, ask=ask,
        prior=prior,
    )  # fmt: skip
    kinds = Counter(key_of(mode, judge.in_windows(t, mode)) for t in labelled.rows)
    for key in (key_of(mode), key_of(mode, True)):
        if key in before and key not in judge.settings.calibration.modes and kinds[key] < 10:
            judge.settings.calibration.modes[key] = before[key]
    return fitted


def _both_verdicts(steps: Mapping[str, StepTarget]) -> bool:
    verdicts = Counter(v for target in steps.values() for v in target.verdicts if v is not None)
    return verdicts.total() >= PRIOR_LABELS and len(verdicts) > 1


def _scored(
    judge: AgentRRM, old: JudgeSettings, labelled: CalibrationRows, feedback: Sequence[Feedback], mode: Mode
) -> Scored:
    indices = [i for i, f in enumerate(feedback) if f.raw_score is not None]
    rows = [labelled.rows[i] for i in indices]
    raw = np.array([feedback[i].raw_score for i in indices], dtype=np.float64)
    windowed = [judge.in_windows(t, mode) for t in rows]
    before = partial(old.calibration.apply, mode)
    return Scored(
        rows,
        np.array([labelled.labels[i] for i in indices]),
        [labelled.sources[i] for i in indices],
        raw,
        windowed,
        np.array([before(float(r), windowed=w) for r, w in zip(raw, windowed, strict=True)]),
    )


def _worth(
    scored: Scored,
    apart: OutOfFold | None,
    method: CalibrationMethod,
    present: np.ndarray | None,
    *,
    known_before: int,
    seed: int,
    resamples: int,
) -> dict[str, Any]:
    labels, questions = scored.labels, scored.questions
    if known_before:
        log.warning(
            "%d of %d rows are of questions that the judge's earlier maps were fitted on: `before` flatters these",
            known_before,
            len(labels),
        )
    report: dict[str, Any] = {
        "before": None,
        "after": None,
        "difference": None,
        "no_order": None,
        "folds": None,
        "rows_of_folds_without_map": 0,
    }
    if apart is None:
        log.warning("all rows are attempts at one question: what the maps are worth on others cannot be measured")
    else:
        report |= before_and_after(scored.raw, scored.before, apart, labels, questions, resamples=resamples, seed=seed)
        report |= {"folds": apart.folds, "rows_of_folds_without_map": apart.without_map}
        report["no_order"] = no_order(report["before"], float(np.mean(labels >= 0.5))) or None
        for message in (report["no_order"], not_better(report["difference"])):
            if message:
                log.warning("%s", message)
    interval = band(scored.raw, labels, questions, method, resamples=resamples, seed=seed, present=present)
    report |= {
        "interval": None if interval is None else interval.points,
        "widest": None if interval is None else interval.widest,
    }
    report |= {"falling": None if interval is None else interval.falling}
    if interval is None or interval.widest > WIDE:
        log.warning("%s", how_few(len(labels), int((labels >= 0.5).sum()), len(set(questions)), interval))
    return report


def how_few(rows: int, good: int, questions: int, interval: CalibrationInterval | None) -> str:
    counts = f"{rows} labels ({good} of success) of {questions} questions"
    if interval is None:
        return f"{counts} are too few for an interval: more than a tenth of the draws of as many questions has one outcome alone"
    worst = max(interval.points, key=lambda point: point["high"] - point["low"])
    text = (
        f"{counts} leave the calibrated score uncertain by up to {interval.widest:.2f}: e.g. a raw {worst['raw']:.2f} means "
        f"{worst['score']:.2f} [{worst['low']:.2f}, {worst['high']:.2f}]"
    )
    return (
        f"{text}; in {interval.falling:.0%} of the draws scores fall as labels rise"
        if interval.falling > 0.01
        else text
    )


def _write(judge: AgentRRM, folder: Path, record: dict[str, Any], scored: Scored, apart: OutOfFold | None) -> None:
    with folder_when_whole(folder) as building:
        judge.save_pretrained(building)
        if judge.domain is not None:
            judge.domain.save(building)
        (building / CALIBRATION_RECORD).write_text(
            json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8"
        )
        with open(building / CALIBRATION_SCORES, "w", encoding="ascii") as out:
            for i, t in enumerate(scored.rows):
                row = {"id": t.id, "digest": t.digest, "question": question_key(t), "label": scored.labels[i]}
                row |= {
                    "label_from": scored.sources[i],
                    "raw_score": float(scored.raw[i]),
                    "windowed": scored.windowed[i],
                }
                out.write(json.dumps(row | {"out_of_fold": None if apart is None else float(apart.scores[i])}) + "\n")
        card = building / "README.md"
        own = card.read_text(encoding="utf-8") if card.is_file() else served_card(load_settings(building))  # as saved
        card.write_text(with_section(own, CALIBRATION, calibrated_section(record)), encoding="utf-8")


def _counts(statuses: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {status}" for status, n in statuses.items())
