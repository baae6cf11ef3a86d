"""Compare two judges on the transcripts that both scored: their agreement, and each against outcomes.

Differences are B − A, paired, with 95 % intervals over questions. Scores of `rrm rank` are relative to the other attempts at a
question: of such a judge there are only figures within questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rrm.data.feedback import Feedback, clear
from rrm.evaluation.bootstrap import JUDGE, Ratio, Statistic, bootstrap, compare, too_few
from rrm.evaluation.metrics import pairs, probability

RESAMPLES = 2000
HALF = 0.5
"""A score from here on calls a run good."""
WITHIN = ("pair_accuracy_same_turns", "pair_accuracy_same_question")
METRICS = {
    "pair_accuracy_same_turns": "Pair accuracy, same question and number of steps",
    "pair_accuracy_same_question": "Pair accuracy, same question",
    "auroc": "AUROC",
    "brier": "Brier score (0 is best)",
}


@dataclass(frozen=True)
class ComparedTranscript:
    question: str
    steps: int
    outcome: float | None
    first: Feedback
    second: Feedback | None
    """None where the second judge has no row of it."""


def compare_judges(rows: Sequence[ComparedTranscript], *, seed: int = 0) -> dict[str, Any]:
    """Compute the figures of the page.

    `relative`: whether each judge's scores are; `both`, `only_first`, `only_second`, `neither`: transcripts by who scored them;
    `difference` (mean of B − A), `same_side` (share on one side of a half) and `spearman`, unless one is relative; `steps`: verdicts on
    the same step, and `same` of them; `outcomes`: both judges' figures by metric.
    """
    scored = [row for row in rows if _scored(row.first) and row.second is not None and _scored(row.second)]
    firsts = sum(_scored(row.first) for row in rows)
    seconds = sum(row.second is not None and _scored(row.second) for row in rows)
    report: dict[str, Any] = {
        "names": [_name(next(iter(rows)).first), next((_name(r.second) for r in rows if r.second is not None), "")]
        if rows
        else ["", ""],
        "relative": [any(r.first.rank for r in rows), any(r.second is not None and r.second.rank for r in rows)],
        "both": len(scored),
        "only_first": firsts - len(scored),
        "only_second": seconds - len(scored),
        "neither": len(rows) - firsts - seconds + len(scored),
        "steps": _step_verdicts(rows),
    }
    if not scored:
        return report
    a, b = np.array([r.first.score for r in scored], float), np.array([_score(r.second) for r in scored], float)
    questions, n = pairs.codes([r.question for r in scored])
    ones = np.bincount(questions, minlength=n).astype(float)

    def mean(values: np.ndarray) -> dict[str, Any]:
        ratio = Ratio(np.bincount(questions, values, minlength=n), ones)
        return bootstrap(ratio, n, n=RESAMPLES, seed=seed).unless(too_few(n, len(scored))).to_dict()

    if not any(report["relative"]):
        report["difference"] = mean(b - a)
        report["same_side"] = mean(((a >= HALF) == (b >= HALF)).astype(float))
        report["spearman"] = _spearman(a, b)
    report["outcomes"] = _against_outcomes(scored, a, b, seed, WITHIN if any(report["relative"]) else tuple(METRICS))
    return report


def _against_outcomes(
    scored: Sequence[ComparedTranscript], a: np.ndarray, b: np.ndarray, seed: int, metrics: Sequence[str]
) -> dict[str, Any] | None:
    from rrm.evaluation.evaluate import support

    labelled = np.array([row.outcome is not None for row in scored])
    if not labelled.any():
        return None
    rows = [row for row in scored if row.outcome is not None]
    y = np.array([row.outcome for row in rows], float)
    turns = np.array([row.steps for row in rows], dtype=np.int64)
    q, n = pairs.codes([row.question for row in rows])

    def statistics(scores: np.ndarray) -> Mapping[str, Statistic]:
        statistic: dict[str, Statistic] = {
            "pair_accuracy_same_turns": pairs.pair_parts(scores, y, q, n, turns),
            "pair_accuracy_same_question": pairs.pair_parts(scores, y, q, n),
            "auroc": probability.Auroc(scores, y, q),
            "brier": probability.brier_parts(scores, y, q, n),
        }
        return {name: statistic[name] for name in metrics}

    table = {JUDGE: statistics(b[labelled]), "first": statistics(a[labelled])}
    figures = compare(table, n, thin=lambda statistic: too_few(*support(statistic)), n=RESAMPLES, seed=seed)
    lines = [
        {
            "name": title,
            "first": figures["metrics"]["first"][key],
            "second": figures["metrics"][JUDGE][key],
            "difference": figures["differences"]["first"][key],
        }
        for key, title in METRICS.items()
        if key in metrics and figures["metrics"]["first"][key]["value"] is not None
    ]
    return {"rows": len(rows), "questions": n, "lines": lines}


def _step_verdicts(rows: Sequence[ComparedTranscript]) -> dict[str, int]:
    """Count steps on which both give a verdict, and the same one; the first finding on a step counts."""
    both = same = 0
    for row in rows:
        first, second = _verdicts(row.first), _verdicts(row.second) if row.second is not None else {}
        shared = first.keys() & second.keys()
        both += len(shared)
        same += sum(first[step] == second[step] for step in shared)
    return {"both": both, "same": same}


def _verdicts(feedback: Feedback) -> dict[int, str]:
    verdicts: dict[int, str] = {}
    for finding in clear(feedback.findings):
        verdicts.setdefault(finding.step, finding.verdict)
    return verdicts


def _spearman(a: np.ndarray, b: np.ndarray) -> float | None:
    """Compute the rank correlation, ties at their mean rank; None where one judge's scores are constant."""

    def ranks(values: np.ndarray) -> np.ndarray:
        _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
        return (np.cumsum(sizes) - (sizes + 1) / 2)[group]

    x, y = ranks(a), ranks(b)
    return float(np.corrcoef(x, y)[0, 1]) if x.std() > 0 and y.std() > 0 else None


def _scored(feedback: Feedback) -> bool:
    return feedback.score is not None


def _score(feedback: Feedback | None) -> float:
    if feedback is None or feedback.score is None:
        raise ValueError("only transcripts that both judges scored are compared")
    return feedback.score


def _name(feedback: Feedback | None) -> str:
    return "" if feedback is None else f"{feedback.judge.model}, {feedback.judge.mode} mode"
