"""The metric modules, loaded by path as people load them, give the numbers of `rrm eval` on the same rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import evaluate
import numpy as np
import pytest
from evaluate import config
from evaluated_rows import judged, run

import rrm.evaluation.metrics
from rrm.data.annotation import Finding
from rrm.data.feedback import Feedback
from rrm.data.text import transcript_text
from rrm.data.trajectory import Trajectory
from rrm.evaluation.baselines import transcript_length
from rrm.evaluation.evaluate import HEADLINE, EvaluationReport, evaluate_feedback

FOLDER = Path(rrm.evaluation.metrics.__file__).parent
MODULES = sorted(path.stem for path in FOLDER.glob("*.py") if "_base.LocalMetric" in path.read_text(encoding="utf-8"))
Row = tuple[Trajectory, Feedback]


def rows() -> list[Row]:
    """Sixty attempts at twelve questions: some fail, some are not judged, some critiques give the answer away."""
    rng = np.random.default_rng(0)
    found: list[Row] = []
    for i in range(60):
        name, steps = f"r{i}", int(rng.integers(1, 4))
        answer = "yes" if i % 5 == 0 else "Oslo"
        trajectory = run(
            name, f"q{i % 12}", float(rng.random() < 0.5), steps=steps, say="hm " * (i % 7), reference=answer
        )
        if i % 10 == 9:
            found.append((trajectory, judged(name, None, status="unparsable" if i % 20 == 9 else "judge_error")))
            continue
        score = round(float(rng.random()), 1)
        p_good = [round(float(rng.random()), 1) for _ in range(steps)]
        findings = [Finding(step=k, verdict="bad" if p < 0.6 else "good", p_good=p) for k, p in enumerate(p_good, 1)]
        critique = "Yes, Oslo." if i % 4 == 0 else "Search again."
        said = judged(
            name, round(score**2, 3), raw=score, trace="so", critique=critique, findings=findings[: (i + 1) % 3]
        )
        found.append((trajectory, said))
    return found


def step_labels(given: list[Row]) -> list[list[str]]:
    return [["bad" if (k + i) % 3 else "good" for k, _ in enumerate(t.steps)] for i, (t, _) in enumerate(given)]


def rerun(given: list[Row]) -> list[Feedback]:
    """Judged again: a little higher."""
    return [f if f.score is None else f.model_copy(update={"raw_score": (f.raw_score or 0) + 0.05}) for _, f in given]


@pytest.fixture(scope="module")
def given() -> list[Row]:
    return rows()


@pytest.fixture(scope="module")
def report(given: list[Row]) -> EvaluationReport:
    trajectories, feedback = [t for t, _ in given], [f for _, f in given]
    return evaluate_feedback(
        trajectories, feedback, step_labels=step_labels(given), reruns=[rerun(given)], resamples=20
    )


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """Loads a module by its path, without the hub."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "HF_EVALUATE_OFFLINE", True)
        patch.setattr(config, "HF_MODULES_CACHE", str(tmp_path_factory.mktemp("modules")))
        yield lambda name: evaluate.load(str(FOLDER / f"{name}.py"))


def columns(given: list[Row]) -> dict[str, dict[str, Any]]:
    """Per module the inputs that hold the rows `rrm eval` computes the same number from."""
    scored = [(t, f) for t, f in given if f.status == "scored"]
    raw, labels = [f.raw_score for _, f in scored], [t.outcome for t, _ in scored]
    calibrated = [f.score for _, f in scored]
    questions = [t.question_id for t, _ in scored]
    turns = [len(t.steps) for t, _ in scored]
    again = [f for f in rerun(given) if f.status == "scored"]
    said = [
        ({v.step: v.verdict for v in f.findings}.get(k + 1, "good"), label)
        for (_, f), row in zip(given, step_labels(given), strict=True)
        if f.status == "scored"
        for k, label in enumerate(row)
    ]
    sure_of = [  # a labelled step without a finding was not read, nor was any of a run that could not be judged
        ({v.step: v.p_good for v in f.findings if f.status == "scored"}.get(k, math.nan), label, f.id)
        for (_, f), row in zip(given, step_labels(given), strict=True)
        for k, label in enumerate(row, 1)
    ]
    written = [(t, f) for t, f in given if f.trace or f.critique]
    ranked, sure = {"predictions": raw, "references": labels}, {"predictions": calibrated, "references": labels}
    return {
        "pair_accuracy": {**ranked, "question_ids": questions, "turns": turns},
        "best_of_n": {**ranked, "question_ids": questions},
        "auroc": ranked,
        "brier": sure,
        "ece": sure,
        "length_correlation": {"predictions": raw, "lengths": [transcript_length(t) for t, _ in scored]},
        "format_validity": {"predictions": [f.model_dump_json() for _, f in given]},
        "answer_leak": {
            "predictions": [f"{f.trace} {f.critique}" for _, f in written],
            "references": [t.meta["reference"] for t, _ in written],
            "transcripts": [transcript_text(t) for t, _ in written],
        },
        "rerun_variance": {
            "predictions": [*raw, *(f.raw_score for f in again)],
            "ids": [*(f.id for _, f in scored), *(f.id for f in again)],
        },
        "step_localisation": {"predictions": [s for s, _ in said], "references": [label for _, label in said]},
        "step_ranking": {
            "predictions": [p for p, _, _ in sure_of],
            "references": [label for _, label, _ in sure_of],
            "run_ids": [run_id for _, _, run_id in sure_of],
        },
    }


def reported(report: EvaluationReport) -> dict[str, dict[str, Any]]:
    """What `rrm eval` says, under the names the modules give it."""
    judge, reruns = report["metrics"]["judge"], dict(report["reruns"])
    assert reruns.pop("runs") == 2
    steps = {name: value["value"] for name, value in report["steps"]["metrics"]["judge"].items()}
    ranked = {name: value["value"] for name, value in report["step_scores"]["metrics"]["judge"].items()}
    assert ranked.pop("mcc_at_half") == ranked["mcc"]
    return {
        "pair_accuracy": {"pair_accuracy": judge[HEADLINE]["value"], "pairs": report["pairs"][HEADLINE]},
        "best_of_n": {"best_of_n_gain": judge["best_of_n_gain"]["value"]},
        "auroc": {"auroc": judge["auroc"]["value"]},
        "brier": {"brier": judge["brier"]["value"]},
        "ece": {"ece": judge["ece"]["value"]},
        "length_correlation": {"spearman": report["length"]["spearman_characters"]},
        "format_validity": {"format_validity": report["format_validity"]},
        "answer_leak": report["answer_leak"],
        "rerun_variance": reruns,
        "step_localisation": {**steps, "steps": report["steps"]["steps"]},
        "step_ranking": {**ranked, "steps": report["step_scores"]["steps"]},
    }


@pytest.mark.parametrize("name", MODULES)
def test_a_module_gives_the_number_of_rrm_eval(
    name: str, given: list[Row], report: EvaluationReport, load: Any
) -> None:
    wanted = reported(report)[name]
    found = load(name).compute(**columns(given)[name])
    assert {key: found[key] for key in wanted} == pytest.approx(wanted, abs=1e-12)
    assert None not in wanted.values()


def test_without_matching_turns_it_is_the_other_pair_accuracy(
    given: list[Row], report: EvaluationReport, load: Any
) -> None:
    found = load("pair_accuracy").compute(**columns(given)["pair_accuracy"], match_turns=False)
    assert found["pair_accuracy"] == report["metrics"]["judge"]["pair_accuracy_same_question"]["value"]


def test_there_is_a_module_for_every_metric_and_no_other() -> None:
    names = {
        name: module.removeprefix("rrm.evaluation.metrics.") for name, module in rrm.evaluation.metrics.FILES.items()
    }
    assert sorted(names.values()) == MODULES
    for name in names:
        assert getattr(rrm.evaluation.metrics, name).__name__ == name
