"""Evaluate a judge's probabilities of steps beside scorers without a judge: position, words, rules.

All scorers stand on the labelled steps with a `p_good`. Only the first error of a run is sought in all its labelled steps: one
that the judge did not read is missed. `mcc_at_half` is at 0.5, the rest at each scorer's own threshold. Abstentions count by
their p_good, unlike in `rrm.evaluation.steps`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rrm.data import localisation
from rrm.data.annotation import Finding
from rrm.data.feedback import Feedback
from rrm.data.localisation import StepLabels
from rrm.data.questions import question_of
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError
from rrm.evaluation.baselines import StepProbabilities, step_scores_of
from rrm.evaluation.bootstrap import JUDGE, Ratio, Statistic, compare, too_few
from rrm.evaluation.metrics import pairs, probability, process
from rrm.judge.abstention import p_good_of_parts


def step_probabilities(findings: Sequence[Finding], n_steps: int) -> list[float | None]:
    """Return p_good of each step, None without a finding; several of a step are joined as parts of it."""
    values: dict[int, list[float]] = defaultdict(list)
    for finding in findings:
        if finding.p_good is not None:
            values[finding.step].append(finding.p_good)
    return [p_good_of_parts(values[step]) if step in values else None for step in range(1, n_steps + 1)]


class LabelledSteps:
    """The labelled steps of runs that the judge was asked to give step probabilities, as flat arrays.
    In reading order: N steps in all (`all_*`), M with a probability. `index`: numbers of `rows` among all; `all_row`, `row`: codes into
    `rows`; `all_step`, `step`: from 0; `all_p`: the judge's probability (NaN without one), `read` (N,) where it gave one."""

    def __init__(
        self,
        trajectories: Sequence[Trajectory],
        feedback: Sequence[Feedback | None],
        labels: Sequence[StepLabels | Sequence[Any] | None],
    ) -> None:
        self.index: list[int] = []
        entries: list[tuple[int, int, bool, float]] = []
        # modes in which steps get probabilities: in others a row without any was not asked for them
        modes = {
            f.judge.mode
            for f in feedback
            if f and f.status == "scored" and any(x.p_good is not None for x in f.findings)
        }
        for i, (t, f, row) in enumerate(zip(trajectories, feedback, labels, strict=True)):
            if f is None or f.judge.mode not in modes or not row:
                continue
            if len(row) != len(t.steps):
                raise ValueError(f"trajectory {t.id!r} has {len(t.steps)} steps and {len(row)} step labels")
            probabilities = step_probabilities(f.findings if f.status == "scored" else (), len(row))
            labelled = [
                (k, v == "bad", np.nan if p is None else p)
                for k, (v, p) in enumerate(zip(row, probabilities, strict=True))
                if v
            ]
            if labelled:
                entries += [(len(self.index), *entry) for entry in labelled]
                self.index.append(i)
        self.rows = [trajectories[i] for i in self.index]
        self.all_row = np.array([e[0] for e in entries], dtype=np.int64)
        self.all_step = np.array([e[1] for e in entries], dtype=np.int64)
        self.all_bad = np.array([e[2] for e in entries], dtype=bool)
        self.all_p = np.array([e[3] for e in entries], dtype=np.float64)
        codes, self.n_questions = pairs.codes([question_of(t) for t in self.rows])
        self.all_questions = codes[self.all_row]
        self.read = ~np.isnan(self.all_p)
        self.row, self.step, self.bad = self.all_row[self.read], self.all_step[self.read], self.all_bad[self.read]
        self.p_good, self.questions = self.all_p[self.read], self.all_questions[self.read]
        self.without_p = int((~self.read).sum())

    def of(self, scores: StepProbabilities) -> np.ndarray:
        """Return (M,) a scorer's probabilities of the steps read; `scores` has one list a trajectory."""
        return self.of_all(scores)[self.read]

    def of_all(self, scores: StepProbabilities) -> np.ndarray:
        places = zip(self.all_row, self.all_step, strict=True)
        return np.array([scores[self.index[r]][k] for r, k in places], dtype=np.float64)

    def statistics(self, all_p: np.ndarray, threshold: float) -> dict[str, Statistic]:
        p_good, questions = all_p[self.read], self.all_questions

        def at(cut: float) -> Statistic:
            table = localisation.confusion(p_good < cut, self.bad, self.questions, self.n_questions)
            return localisation.OfConfusion("mcc", table)

        return {
            "auroc": probability.Auroc(p_good, (~self.bad).astype(np.float64), self.questions),
            "average_precision": process.AveragePrecision(p_good, self.bad, self.questions),
            "mcc": at(threshold),
            "mcc_at_half": at(process.HALF),
            **process.first_errors(
                all_p, self.all_bad, self.all_row, questions, self.n_questions, threshold, self.read
            ),
        }

    def thin(self, statistic: Statistic) -> bool:
        if isinstance(statistic, process.FirstErrorF1):
            return self.thin(statistic.hits) or self.thin(statistic.alarms)
        if isinstance(statistic, Ratio):
            return too_few(int(np.count_nonzero(statistic.denominator)), int(statistic.denominator.sum()))
        return too_few(len(np.unique(self.questions)), len(self.row))


def evaluate_step_scores(
    trajectories: Sequence[Trajectory],
    feedback: Sequence[Feedback | None],
    step_labels: Sequence[StepLabels | Sequence[Any] | None] | None,
    baselines: Mapping[str, StepProbabilities] | None = None,
    *,
    thresholds: Mapping[str, float] | None = None,
    resamples: int = 10_000,
    seed: int = 0,
) -> dict[str, Any] | None:
    """Measure p_good over labelled steps; None where no step has one.
    `baselines`: name → per trajectory one probability a step; `thresholds` of `judge` and of these, fitted on other questions, else 0.5.
    Returns `rows`, `rows_with_errors`, `rows_not_read` and `questions` of all labelled steps; `steps` and `bad_share` of those with a
    probability; `steps_without_p`; `thresholds`; `metrics` and `differences` as in `rrm.evaluation.evaluate`."""
    if step_labels is None:
        return None
    steps = LabelledSteps(trajectories, feedback, step_labels)
    if not len(steps.row):
        return None
    scores = {JUDGE: steps.all_p, "all_bad": np.zeros(len(steps.all_p))}
    for name, values in (baselines or {}).items():
        for i in steps.index:
            if len(values[i]) != len(trajectories[i].steps):
                raise ValueError(
                    f"step baseline {name!r} has {len(values[i])} probabilities for the {len(trajectories[i].steps)} "
                    f"steps of {trajectories[i].id!r}"
                )
        scores[name] = steps.of_all(values)
    chosen = {name: float((thresholds or {}).get(name, process.HALF)) for name in scores}
    table = {name: steps.statistics(p, chosen[name]) for name, p in scores.items()}
    return {
        "rows": len(steps.rows),
        "steps": len(steps.row),
        "questions": steps.n_questions,
        "bad_share": float(steps.bad.mean()),
        "steps_without_p": steps.without_p,
        "rows_with_errors": len(np.unique(steps.all_row[steps.all_bad])),
        "rows_not_read": len(steps.rows) - len(np.unique(steps.row)),
        "thresholds": chosen,
        **compare(table, steps.n_questions, thin=steps.thin, n=resamples, seed=seed),
    }


def fit_step_threshold(
    trajectories: Sequence[Trajectory],
    feedback: Sequence[Feedback | None],
    step_labels: Sequence[StepLabels | Sequence[Any] | None],
) -> process.Threshold:
    """Fit the threshold of p_good with the highest MCC on calibration rows (`process.fit_threshold`)."""
    steps = LabelledSteps(trajectories, feedback, step_labels)
    if not len(steps.row):
        raise RRMError("no labelled step has a p_good: judge the calibration rows in a mode that gives one")
    return process.fit_threshold(steps.p_good, steps.bad)


def baseline_thresholds(
    trajectories: Sequence[Trajectory], labels: Sequence[StepLabels | None], *, seed: int = 0
) -> tuple[dict[str, float], dict[str, str]]:
    """Fit each step baseline's threshold with the highest MCC: name → threshold, name → why there is none."""
    thresholds: dict[str, float] = {}
    baselines, left_out = step_scores_of(trajectories, labels, seed=seed)
    for name, scores in baselines.items():
        steps = [
            (p, verdict == "bad")
            for row, of_row in zip(labels, scores, strict=True)
            for verdict, p in zip(row or (), of_row, strict=True)
            if verdict is not None
        ]
        try:
            thresholds[name] = process.fit_threshold(
                np.array([p for p, _ in steps], dtype=np.float64), np.array([bad for _, bad in steps], dtype=bool)
            ).value
        except RRMError as error:
            left_out[name] = str(error)
    return thresholds, left_out
