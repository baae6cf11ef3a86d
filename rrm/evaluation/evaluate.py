"""Evaluate a judge: its metrics beside the baselines', with paired bootstrap intervals over questions.

Unscored rows are counted by status and enter only `pair_accuracy_same_turns_failures_half`, where each of their pairs counts one
half. Rankings use the raw score (calibration may flatten differences), Brier and ECE the calibrated one.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rrm.data.feedback import Feedback
from rrm.data.output import file_when_whole
from rrm.data.questions import question_of
from rrm.data.text import transcript_text
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError
from rrm.evaluation.baselines import StepProbabilities, transcript_length
from rrm.evaluation.bootstrap import Interval, Ratio, Statistic, compare, too_few
from rrm.evaluation.metrics import pairs, probability, text
from rrm.evaluation.step_scores import evaluate_step_scores
from rrm.evaluation.steps import evaluate_steps

HEADLINE = "pair_accuracy_same_turns"
NO_LEAK = "pair_accuracy_same_turns_no_leak"
FAILURES_HALF = "pair_accuracy_same_turns_failures_half"


class EvaluationReport(dict[str, Any]):
    """The metrics as a JSON-able dict (undefined values are None), with the keys of `evaluate_feedback`."""

    @property
    def headline(self) -> Interval:
        interval = self["metrics"]["judge"].get(HEADLINE) or {"value": None, "low": None, "high": None}
        return Interval(interval["value"], interval["low"], interval["high"])

    def save(self, path: str | Path) -> None:
        with file_when_whole(Path(path)) as file:
            file.write(json.dumps(self, indent=1, allow_nan=False) + "\n")


def match_feedback(trajectories: Sequence[Trajectory], feedback: Sequence[Feedback]) -> list[Feedback | None]:
    """Return each trajectory's feedback by id or None; raises RRMError for an id that occurs twice."""
    for name, ids in (("trajectories", [t.id for t in trajectories]), ("feedback", [f.id for f in feedback])):
        twice = [i for i, n in Counter(ids).items() if n > 1]
        if twice:
            raise RRMError(f"{len(twice)} ids occur more than once in the {name}, e.g. {twice[0]!r}")
    by_id = {f.id: f for f in feedback}
    matched = [by_id.get(t.id) for t in trajectories]
    if not any(matched):
        raise RRMError(
            f"none of {len(trajectories)} trajectories has feedback (ids like {[t.id for t in trajectories[:1]]} "
            f"against {[f.id for f in feedback[:1]]}): Did you score another file?"
        )
    return matched


def _raw(feedback: Feedback) -> float:
    score = feedback.raw_score if feedback.raw_score is not None else feedback.score
    if score is None:
        raise RRMError(f"row {feedback.id!r} has status scored and no score")
    return score


def _score_statistics(
    raw: np.ndarray,
    probabilities: np.ndarray | None,
    labels: np.ndarray,
    questions: np.ndarray,
    n: int,
    turns: np.ndarray,
) -> dict[str, Statistic]:
    statistics: dict[str, Statistic] = {
        HEADLINE: pairs.pair_parts(raw, labels, questions, n, turns),
        "pair_accuracy_same_question": pairs.pair_parts(raw, labels, questions, n),
        "auroc": probability.Auroc(raw, labels, questions),
        "best_of_n_gain": pairs.best_of_n_parts(raw, labels, questions, n),
    }
    if probabilities is not None:
        statistics["brier"] = probability.brier_parts(probabilities, labels, questions, n)
        statistics["ece"] = probability.CalibrationError(probabilities, labels, questions, n)
    return statistics


def _leaks_outcome(trajectory: Trajectory) -> bool:
    return bool(trajectory.meta.get("outcome_leaks"))


def _check_baselines(baselines: Mapping[str, Any], labels: np.ndarray) -> dict[str, np.ndarray]:
    arrays = {name: np.asarray(scores, dtype=np.float64) for name, scores in baselines.items()}
    for name, scores in arrays.items():
        if scores.shape != labels.shape:
            raise RRMError(f"baseline {name!r} has scores {scores.shape} for rows {labels.shape}")
        if not np.isfinite(scores[np.isfinite(labels)]).all():
            raise RRMError(f"baseline {name!r} has no score for some labelled rows; leave the baseline out")
    return arrays


def _statistics(
    trajectories: Sequence[Trajectory],
    feedback: Sequence[Feedback | None],
    labels: np.ndarray,
    baselines: dict[str, np.ndarray],
) -> tuple[dict[str, dict[str, Statistic]], int]:
    """Make the statistics per scorer (judge first) over the labelled rows, and count their questions."""
    labelled = np.flatnonzero(np.isfinite(labels))
    questions, n = pairs.codes([question_of(trajectories[i]) for i in labelled.tolist()])
    turns = np.array([len(trajectories[i].steps) for i in labelled.tolist()], dtype=np.int64)
    of_labelled = [feedback[i] for i in labelled.tolist()]
    mask = np.array([f is not None and f.status == "scored" for f in of_labelled], dtype=bool)
    scored = [f for f in of_labelled if f is not None and f.status == "scored"]
    raw = np.array([_raw(f) for f in scored])
    y, q, t = labels[labelled][mask], questions[mask], turns[mask]
    open_rows = np.array([not _leaks_outcome(trajectories[i]) for i in labelled.tolist()], dtype=bool)[mask]
    table: dict[str, dict[str, Statistic]] = {"judge": {}}
    if scored:
        calibrated = np.array([f.score if f.score is not None else _raw(f) for f in scored])
        table["judge"] = _score_statistics(raw, calibrated, y, q, n, t)
        table["judge"]["brier_raw"] = probability.brier_parts(raw, y, q, n)
        table["judge"]["ece_raw"] = probability.CalibrationError(raw, y, q, n)
        for name, scores in baselines.items():
            s = scores[labelled][mask]
            in_range = bool(((s >= 0) & (s <= 1)).all())
            table[name] = _score_statistics(s, s if in_range else None, y, q, n, t)
            if not open_rows.all():
                table[name][NO_LEAK] = pairs.pair_parts(s[open_rows], y[open_rows], q[open_rows], n, t[open_rows])
        if not open_rows.all():
            table["judge"][NO_LEAK] = pairs.pair_parts(raw[open_rows], y[open_rows], q[open_rows], n, t[open_rows])
    if len(labelled):
        every = pairs.pair_parts(np.zeros(len(labelled)), labels[labelled], questions, n, turns).denominator
        judged = pairs.pair_parts(raw, y, q, n, t)
        table["judge"][FAILURES_HALF] = pairs.count_unscored_as_half(judged, every)
        for name, scores in baselines.items():
            # A baseline scores every row, so against the conservative line it stands on all pairs.
            all_pairs = pairs.pair_parts(scores[labelled], labels[labelled], questions, n, turns)
            table.setdefault(name, {})[FAILURES_HALF] = all_pairs
    return table, n


def support(statistic: Statistic) -> tuple[int, int]:
    """Count the questions and the rows (or pairs) that a statistic rests on."""
    if isinstance(statistic, Ratio):
        return int(np.count_nonzero(statistic.denominator)), int(statistic.denominator.sum())
    if isinstance(statistic, (probability.Auroc, probability.CalibrationError)):
        return len(np.unique(statistic.questions)), len(statistic.scores)
    raise TypeError(f"no support is known of {type(statistic).__name__}")


def _reliability(feedback: Sequence[Feedback | None], labels: np.ndarray) -> dict[str, Any]:
    rows = [
        (f, y)
        for f, y in zip(feedback, labels.tolist(), strict=True)
        if f and f.status == "scored" and math.isfinite(y)
    ]
    if not rows:
        return {"raw": [], "calibrated": []}
    y = np.array([label for _, label in rows])
    raw = np.array([_raw(f) for f, _ in rows])
    calibrated = np.array([f.score if f.score is not None else _raw(f) for f, _ in rows])
    return {"raw": probability.reliability(raw, y), "calibrated": probability.reliability(calibrated, y)}


def _leaks(trajectories: Sequence[Trajectory], feedback: Sequence[Feedback | None]) -> dict[str, Any]:
    rows = [
        (" ".join(filter(None, (f.trace, f.critique))), t.meta["reference"], t)
        for t, f in zip(trajectories, feedback, strict=True)
        if f is not None and (f.trace or f.critique) and t.meta.get("reference") is not None
    ]
    transcripts = [transcript_text(t) for _, _, t in rows]
    return text.answer_leak_rates([r[0] for r in rows], [r[1] for r in rows], transcripts)


def _length(trajectories: Sequence[Trajectory], feedback: Sequence[Feedback | None]) -> dict[str, Any]:
    rows = [(t, _raw(f)) for t, f in zip(trajectories, feedback, strict=True) if f is not None and f.status == "scored"]
    scores = np.array([score for _, score in rows])
    characters = np.array([transcript_length(t) for t, _ in rows], dtype=np.int64)
    steps = np.array([len(t.steps) for t, _ in rows], dtype=np.int64)
    return {
        "spearman_characters": text.length_correlation(scores, characters),
        "spearman_steps": text.length_correlation(scores, steps),
        "rows": len(rows),
    }


def _reruns(runs: Sequence[Sequence[Feedback | None]]) -> dict[str, Any]:
    scores = [(f.id, _raw(f)) for run in runs for f in run if f is not None and f.status == "scored"]
    return {"runs": len(runs), **text.rerun_variance(np.array([s for _, s in scores]), [i for i, _ in scores])}


def evaluate_feedback(
    trajectories: Sequence[Trajectory],
    feedback: Sequence[Feedback],
    labels: Sequence[float | None] | None = None,
    *,
    baselines: Mapping[str, Sequence[float] | np.ndarray] | None = None,
    step_labels: Sequence[Sequence[Any] | None] | None = None,
    step_baselines: Mapping[str, Sequence[Sequence[Any]]] | None = None,
    step_scores: Mapping[str, StepProbabilities] | None = None,
    step_thresholds: Mapping[str, float] | None = None,
    reruns: Sequence[Sequence[Feedback]] = (),
    resamples: int = 10_000,
    seed: int = 0,
) -> EvaluationReport:
    """Measure a judge's feedback on labelled trajectories.

    Args:
        trajectories: N rows; attempts at a question are grouped by `question_id` (else by the task's text).
        feedback: the judge's rows, matched by id; other ids are counted and left out.
        labels: N labels in [0, 1] or None; by default the outcomes. A pair needs different labels, AUROC splits at 0.5.
        baselines: name → N scores, finite wherever there is a label.
        step_labels: per trajectory one `good | bad | None` a step, or None.
        step_baselines: name → per trajectory one verdict a step (all-bad and shuffled findings are always there).
        step_scores: name → per trajectory one probability of "good" a step, beside the judge's `p_good`.
        step_thresholds: of `judge` and of `step_scores`, fitted on other questions (`step_scores.fit_step_threshold`).
        reruns: the same rows judged again, for the re-run variance.
        resamples: bootstrap resamples of the questions.

    Returns:
        `rows, labelled, scored_labelled, questions, positive_rate, status, unmatched_feedback, pairs, outcome_leak_rows,
        format_validity, answer_leak, length, truncated_rows, reruns, resamples, seed`; `metrics[judge|baseline][metric]` and
        `differences[baseline][metric]` (judge − baseline, paired) as `{value, low, high}`; `reliability[raw|calibrated]` bins;
        `steps` and `step_scores` (None without labels, findings or a `p_good`).

    Raises:
        RRMError: lengths differ, ids repeat, or nothing matches.
    """
    outcomes = [t.outcome for t in trajectories] if labels is None else list(labels)
    if len(outcomes) != len(trajectories):
        raise RRMError(f"{len(outcomes)} labels for {len(trajectories)} trajectories")
    y = np.array([math.nan if label is None else float(label) for label in outcomes])
    if ((y < 0) | (y > 1)).any():
        raise RRMError(f"labels must lie in [0, 1], got {y[(y < 0) | (y > 1)][0]}")
    matched = match_feedback(trajectories, feedback)
    table, n_questions = _statistics(trajectories, matched, y, _check_baselines(baselines or {}, y))
    status = Counter("missing" if f is None else f.status for f in matched)
    labelled = np.isfinite(y)
    scored = np.array([f is not None and f.status == "scored" for f in matched])
    judge: dict[str, Any] = table["judge"]
    report: dict[str, Any] = {
        "rows": len(trajectories),
        "labelled": int(labelled.sum()),
        "scored_labelled": int((labelled & scored).sum()),
        "questions": n_questions,
        "positive_rate": float((y[labelled] >= 0.5).mean()) if labelled.any() else None,
        "status": dict(sorted(status.items())),
        "unmatched_feedback": len(feedback) - sum(f is not None for f in matched),
        "pairs": {
            name: int(judge[name].denominator.sum())
            for name in (HEADLINE, "pair_accuracy_same_question", NO_LEAK, FAILURES_HALF)
            if name in judge
        },
        **compare(table, n_questions, thin=lambda s: too_few(*support(s)), n=resamples, seed=seed),
        "reliability": _reliability(matched, y),
        "steps": evaluate_steps(trajectories, matched, step_labels, step_baselines or {}, resamples, seed),
        "step_scores": evaluate_step_scores(
            trajectories, matched, step_labels, step_scores, thresholds=step_thresholds, resamples=resamples, seed=seed
        ),
        "outcome_leak_rows": sum(map(_leaks_outcome, trajectories)),
        "format_validity": text.format_validity([f for f in matched if f is not None]),
        "answer_leak": _leaks(trajectories, matched),
        "length": _length(trajectories, matched),
        "truncated_rows": sum(f is not None and f.truncated_tokens > 0 for f in matched),
        "reruns": _reruns([matched, *(match_feedback(trajectories, run) for run in reruns)]) if reruns else None,
        "resamples": resamples,
        "seed": seed,
    }
    return EvaluationReport(report)


def why_no_pairs(pairs: Mapping[str, int], questions: Iterable[str], labels: Iterable[float | None]) -> str:
    """Explain why a report (`pairs`) has no pair for its headline, and what to do."""
    by_question: dict[str, list[float]] = defaultdict(list)
    for question, label in zip(questions, labels, strict=True):
        if label is not None:
            by_question[question].append(label)
    several = [values for values in by_question.values() if len(values) > 1]
    if not by_question:
        return "no transcript has a label: say which field has the outcome (--outcome FIELD), or give --annotations"
    if not several:
        return (
            f"each of {len(by_question)} questions has one labelled attempt; attempts at one question share its question_id "
            "(--map question_id=…), or the same task text and none"
        )
    if all(len(set(values)) == 1 for values in several):
        return f"in each of {len(several)} questions with several attempts, all have the same label"
    if pairs.get("pair_accuracy_same_question"):
        return (
            "attempts at one question with different labels have different numbers of agent turns; "
            "pair_accuracy_same_question compares these"
        )
    return "of attempts at one question with different labels, too few have a score"
