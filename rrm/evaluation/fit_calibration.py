"""Fit a judge's maps (`rrm.judge.calibration`) to labelled rows."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from rrm.config import CalibrationMethod, CalibrationSettings
from rrm.data.feedback import Feedback, Mode
from rrm.data.labels import StepTarget
from rrm.data.questions import question_of
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError
from rrm.evaluation.metrics.process import HALF
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.calibration import P_GOOD, Calibration, Calibrator, fit, fit_by_reading, half_of, key_of

logger = logging.getLogger(__name__)
Ask = Callable[[Sequence[Trajectory], Mode], list[Feedback]]
"""Returns the judge's feedback on rows in their order, under its settings at that time."""


def calibrate(
    judge: AgentRRM,
    trajectories: Sequence[Trajectory],
    targets: Sequence[float],
    settings: CalibrationSettings,
    seed: int = 0,
    *,
    judged: dict[Mode, list[Feedback]] | None = None,
    steps: Mapping[str, StepTarget] | None = MappingProxyType({}),
    steps_only: Sequence[Trajectory] = (),
    ask: Ask | None = None,
    prior: Calibration | None = None,
) -> dict[str, Any]:
    """Fit the maps of each configured mode; return what was fitted, by the maps' keys (`key_of`).

    Args:
        judged: receives each mode's feedback on the first rows.
        steps: labelled steps by trajectory id, for mode `steps`; None: the map of single steps and the threshold stay.
        steps_only: further rows, of which only steps are labelled.
        prior: maps to which the labels are added (`rrm.judge.calibration.PRIOR_LABELS`); None: labels alone.
    """
    fitted: dict[str, Any] = {}
    ask = ask or (lambda rows, mode: judge.judge(rows, mode=mode, seed=seed))
    for mode in sorted(settings.modes, key=lambda mode: mode != "steps"):
        if untrained(judge, mode):
            logger.warning("mode %s stays uncalibrated: the judge was trained on no row of it", mode)
            fitted[mode] = {"skipped": "trained on no row of this mode", "rows": 0}
            continue
        if mode == "steps" and steps is not None:
            most = settings.max_rows
            every = [*trajectories[:most], *steps_only[:most]]
            feedback, step_maps = calibrate_steps(judge, every, targets[:most], steps, settings, ask, prior)
            fitted |= step_maps
            if judged is not None:
                judged[mode] = feedback[: len(trajectories[:most])]
            continue
        most = settings.max_rows if mode in ("score", "steps") else settings.sampled_rows
        rows, labels = trajectories[:most], targets[:most]
        feedback = ask(rows, mode)
        if judged is not None:
            judged[mode] = feedback
        in_windows = [judge.in_windows(t, mode) for t in rows]
        fitted |= _fitted_by_reading(judge, mode, rows, feedback, labels, in_windows, settings.method, prior)
    return fitted


def _fitted_by_reading(
    judge: AgentRRM,
    mode: Mode,
    rows: Sequence[Trajectory],
    feedback: Sequence[Feedback],
    labels: Sequence[float | None],
    in_windows: Sequence[bool],
    method: CalibrationMethod,
    prior: Calibration | None,
) -> dict[str, Any]:
    report: dict[str, Any] = {}
    scored = [
        (f.raw_score, y, many, question_of(t))
        for t, f, y, many in zip(rows, feedback, labels, in_windows, strict=True)
        if f.raw_score is not None and y is not None
    ]
    raw, targets, windowed, questions = zip(*scored, strict=True) if scored else ((), (), (), ())
    present = prior and [prior.apply(mode, r, windowed=many) for r, many in zip(raw, windowed, strict=True)]
    fitted = fit_by_reading(raw, targets, windowed, questions, method, present)
    kinds = {many for many, y in zip(in_windows, labels, strict=True) if y is not None} or {False}
    for many in (False, True):
        key = key_of(mode, many)
        judge.settings.calibration.modes.pop(key, None)
        if many in fitted.maps:
            judge.settings.calibration.modes[key] = fitted.maps[many]
            report[key] = fitted.maps[many].model_dump()
        elif many in kinds:
            logger.warning("%s stays uncalibrated: %s", key, fitted.lacking[many])
            report[key] = {"skipped": fitted.lacking[many], "rows": windowed.count(many)}
    return report


def calibrate_steps(
    judge: AgentRRM,
    rows: Sequence[Trajectory],
    targets: Sequence[float],
    steps: Mapping[str, StepTarget],
    settings: CalibrationSettings,
    ask: Ask,
    prior: Calibration | None = None,
) -> tuple[list[Feedback], dict[str, Any]]:
    """Fit mode `steps`; return the feedback, its findings before calibration, and what was fitted.
    Later windows are told the findings of earlier ones. So a first map says which raw probability becomes one half, transcripts
    whose windows would be told something else by it are read again, and the maps are fitted to that."""
    labels = [*targets, *[None] * (len(rows) - len(targets))]
    maps, threshold = judge.settings.calibration.modes, judge.settings.threshold
    old = maps.pop(P_GOOD, None)
    for key in (key_of("steps"), key_of("steps", windowed=True)):
        maps.pop(key, None)
    judge.settings.threshold = HALF  # of raw probabilities, until all is read
    judged = ask(rows, "steps")
    in_windows = [judge.in_windows(t, "steps") for t in rows]
    report = {P_GOOD: _fitted(judge, _step_pairs(rows, judged, steps), settings.method, prior, old)}
    fitted = P_GOOD in maps
    first, then = (maps.pop(P_GOOD), HALF) if fitted else (old, threshold)
    cut = judge.settings.threshold = then if first is None else half_of(first, then)
    again = [i for i, windowed in enumerate(in_windows) if windowed and _turned(judged[i], cut)]
    for i, feedback in zip(again, ask([rows[i] for i in again], "steps"), strict=True):
        judged[i] = feedback
    if fitted and again:
        report[P_GOOD] = _fitted(judge, _step_pairs(rows, judged, steps), settings.method, prior, old)
    if first is not None:
        maps.setdefault(P_GOOD, first)
        step_map = maps[P_GOOD].model_dump()
        report[P_GOOD] = (step_map if fitted else report[P_GOOD] | {"kept": step_map}) | {"read_again": len(again)}
    judge.settings.threshold = then
    report[P_GOOD] |= {"threshold": then}
    return judged, report | _fitted_by_reading(judge, "steps", rows, judged, labels, in_windows, settings.method, prior)


def _step_pairs(
    rows: Sequence[Trajectory], judged: Sequence[Feedback], steps: Mapping[str, StepTarget]
) -> list[tuple[float, float]]:
    return [
        (finding.p_good, float(verdict == "good"))
        for t, feedback in zip(rows, judged, strict=True)
        if t.id in steps
        for finding in feedback.findings
        if finding.p_good is not None and (verdict := steps[t.id].verdicts[finding.step - 1]) is not None
    ]


def _turned(feedback: Feedback, threshold: float) -> bool:
    """Tell whether a step's verdict at one half differs from that at this threshold."""
    return any(f.p_good is not None and (f.p_good < HALF) != (f.p_good < threshold) for f in feedback.findings)


def _fitted(
    judge: AgentRRM,
    pairs: Sequence[tuple[float, float]],
    method: CalibrationMethod,
    prior: Calibration | None,
    old: Calibrator | None,
) -> dict[str, Any]:
    try:
        present = prior and [prior.p_good(raw) for raw, _ in pairs]
        fitted = fit([raw for raw, _ in pairs], [y for _, y in pairs], method, present)
    except RRMError as error:
        logger.warning(
            "%s %s: %s", P_GOOD, "stays uncalibrated" if old is None else "keeps its earlier map and threshold", error
        )
        return {"skipped": str(error), "rows": len(pairs)}
    judge.settings.calibration.modes[P_GOOD] = fitted
    return fitted.model_dump()


def untrained(judge: AgentRRM, mode: Mode) -> bool:
    """Tell whether the judge was trained, but not in this mode."""
    return bool(judge.settings.modes) and mode not in judge.settings.modes


def source_of(rows: Sequence[Feedback]) -> dict[str, str]:
    """Return the `score_source` of the rows where they have one; warn where they have several."""
    counts = Counter(row.judge.score_source for row in rows if row.raw_score is not None and row.judge.score_source)
    if len(counts) > 1:
        names = ", ".join(f"{n} {source}" for source, n in counts.most_common())
        logger.warning("the map is fitted on scores of two kinds (%s): what it is worth on either is not known", names)
    return {"score_source": next(iter(counts))} if len(counts) == 1 else {}
