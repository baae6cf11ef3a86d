"""The figures of the study of the guard: curves, cross-fitted parameters, intervals over questions, controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.guard_ways import POLICIES, WAYS, Effect, Run, Way, grid_of, halt, of_sources, shuffled, source_alone
from benchmarks.guard_ways import turns_of_source as by_length
from rrm.data.seeds import derive_seed
from rrm.data.splits import grouped_folds
from rrm.evaluation.bootstrap import Ratio, bootstrap, paired_bootstrap
from rrm.guard.policy import GuardPolicy

ALLOWED = 0.10  # share of good runs that may be stopped
DEFAULT = GuardPolicy().halt_below or 0.0  # `halt_below` where nobody says otherwise
FOLDS, RESAMPLES = 5, 10_000
DRAWS, OTHER_FOLDS = 200, 20  # of the control `shuffled`, and of folds


def figures(runs: Sequence[Run], effect: Effect) -> dict[str, float]:
    """Shares: good and failing runs stopped, tokens and steps saved of each."""
    good = np.array([run.good for run in runs])
    tokens = np.array([sum(run.tokens) for run in runs], dtype=np.float64)
    steps = np.array([len(run.tokens) for run in runs], dtype=np.float64)
    found = {}
    for name, those in (("good", good), ("failing", ~good)):
        found[f"{name}_stopped"] = float(effect.stopped[those].mean())
        found[f"{name}_tokens_saved"] = float(effect.tokens[those].sum() / tokens[those].sum())
        found[f"{name}_steps_saved"] = float(effect.steps[those].sum() / steps[those].sum())
    return {name: round(value, 4) for name, value in found.items()}


def fitted(name: str, way: Way, runs: Sequence[Run], allowed: float = ALLOWED) -> float:
    """The parameter that saves most while it stops at most this share of the good runs."""
    good = [run for run in runs if run.good]
    best = float(grid_of(name)[0])
    for p in map(float, grid_of(name)):
        if way(good, p).stopped.mean() > allowed + 1e-9:
            break
        best = p
    return best


def cross_fitted(
    name: str, way: Way, runs: Sequence[Run], fold: np.ndarray, allowed: float = ALLOWED
) -> tuple[Effect, list[float]]:
    """Each fold at the parameter that fits the others, and these parameters."""
    columns = np.zeros((3, len(runs)))
    parameters = []
    for k in range(FOLDS):
        others = [run for run, f in zip(runs, fold, strict=True) if f != k]
        parameters.append(fitted(name, way, others, allowed))
        inside = np.flatnonzero(fold == k)
        effect = way([runs[i] for i in inside.tolist()], parameters[-1])
        columns[:, inside] = effect.stopped, effect.tokens, effect.steps
    return Effect(*columns), parameters


def measured(runs: Sequence[Run], seed: int) -> dict[str, Any]:
    """Cross-fitted figures with intervals over questions, controls, the guard at its default bound, and what the judge cost."""
    names = sorted({run.question for run in runs})
    code = np.array([names.index(run.question) for run in runs])
    fold = grouped_folds([run.question for run in runs], FOLDS, seed)
    good = np.array([run.good for run in runs])
    sizes = {"tokens": [sum(run.tokens) for run in runs], "steps": [len(run.tokens) for run in runs]}

    def ratio(numerator: np.ndarray, denominator: Sequence[float] | np.ndarray, those: np.ndarray) -> Ratio:
        columns = (np.asarray(values, dtype=np.float64)[those] for values in (numerator, denominator))
        return Ratio(*(np.bincount(code[those], values, len(names)) for values in columns))

    def interval(statistic: Ratio, other: Ratio | None = None) -> dict[str, float | None]:
        """Of a figure, or of its difference to another."""
        how = {"n": RESAMPLES, "seed": seed}
        if other is None:
            return _rounded(bootstrap(statistic, len(names), **how).to_dict())
        return _rounded(paired_bootstrap(statistic, other, len(names), **how).to_dict())

    found: dict[str, dict[str, Any]] = {}
    saved: dict[str, Ratio] = {}
    effects: dict[str, Effect] = {}
    ways = {**WAYS, "source_alone": source_alone(runs), "turns_of_source": by_length(runs)}
    for way, effect_of in ways.items():
        effect, parameters = cross_fitted(way, effect_of, runs, fold)
        effects[way] = effect
        saved[way] = ratio(effect.tokens, sizes["tokens"], ~good)
        statistics = {
            "good_stopped": ratio(effect.stopped, np.ones(len(runs)), good),
            "failing_stopped": ratio(effect.stopped, np.ones(len(runs)), ~good),
            "failing_tokens_saved": saved[way],
            "failing_steps_saved": ratio(effect.steps, sizes["steps"], ~good),
            "good_tokens_saved": ratio(effect.tokens, sizes["tokens"], good),
        }
        found[way] = {"parameters": parameters, **{name: interval(one) for name, one in statistics.items()}}
    rival = max(("turns", "random"), key=lambda way: saved[way].value)
    differences = {way: interval(saved[way], saved[rival]) for way in POLICIES}
    return {
        "primary": {"figure": "failing_tokens_saved, guard - better rival", "rival": rival, **differences["guard"]},
        "cross_fitted": found,
        "differences": differences,
        "guard_minus_source_alone": interval(saved["guard"], saved["source_alone"]),
        "shuffled": against_shuffled(runs, fold, saved["guard"].value, seed),
        "other_folds": other_folds(runs),
        "by_source": by_source(runs, effects),
        "net": net(runs, fold, found["guard"]["parameters"]),
        "by_default": figures(runs, WAYS["guard"](runs, DEFAULT)),
        "at_each_step": at_each_step(runs),
        "judge": cost(runs),
    }


def _rounded(found: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: None if value is None else round(value, 4) for name, value in found.items()}


def against_shuffled(runs: Sequence[Run], fold: np.ndarray, saved: float, seed: int) -> dict[str, Any]:
    """The guard's cross-fitted figures with scores of other runs of the same sources: means and the middle 95 % of draws, and the
    share of draws that save what the guard saves (`saved`)."""
    drawn = []
    for draw in range(DRAWS):
        others = shuffled(runs, derive_seed(seed, "shuffled", draw))
        effect, _ = cross_fitted("guard", WAYS["guard"], others, fold)
        drawn.append(figures(others, effect))
    found: dict[str, Any] = {"draws": DRAWS}
    for name in ("failing_tokens_saved", "good_stopped", "failing_stopped"):
        values = np.array([one[name] for one in drawn])
        low, high = np.quantile(values, [0.025, 0.975])
        found[name] = _rounded({"value": float(values.mean()), "low": float(low), "high": float(high)})
    reach = np.mean([one["failing_tokens_saved"] >= round(saved, 4) for one in drawn])
    return {**found, "share_that_saves_as_much": round(float(reach), 4)}


def other_folds(runs: Sequence[Run]) -> dict[str, Any]:
    """What the drawing of folds makes of guard and turns: the least, mean and most over seeds."""
    rows = []
    for seed in range(OTHER_FOLDS):
        fold = grouped_folds([run.question for run in runs], FOLDS, seed)
        guard, rival = (figures(runs, cross_fitted(way, WAYS[way], runs, fold)[0]) for way in ("guard", "turns"))
        apart = guard["failing_tokens_saved"] - rival["failing_tokens_saved"]
        rows.append((apart, guard["good_stopped"], rival["good_stopped"]))
    found: dict[str, Any] = {"seeds": OTHER_FOLDS}
    names = ("guard_minus_turns", "guard_good_stopped", "turns_good_stopped")
    for name, v in zip(names, zip(*rows, strict=True), strict=True):
        found[name] = {"least": round(min(v), 4), "mean": round(sum(v) / len(v), 4), "most": round(max(v), 4)}
    return found


def by_source(runs: Sequence[Run], effects: Mapping[str, Effect]) -> dict[str, dict[str, Any]]:
    """Of each source: runs, good ones and its share of all failing tokens; of these the share that guard and turns save, and the good
    runs that they stop (in expectation)."""
    good = np.array([run.good for run in runs])
    tokens = np.array([sum(run.tokens) for run in runs], dtype=np.float64)
    found = {}
    for source in of_sources(runs):
        mine = np.array([run.source == source for run in runs])
        failing = tokens[mine & ~good].sum()
        row: dict[str, Any] = {"runs": int(mine.sum()), "good": int((mine & good).sum())}
        row["share_of_failing_tokens"] = round(float(failing / tokens[~good].sum()), 4)
        for way in ("guard", "turns"):
            saved = effects[way].tokens[mine & ~good].sum()
            row[f"{way}_saved"] = round(float(saved / failing), 4) if failing else None
            row[f"{way}_good_stopped"] = round(float(effects[way].stopped[mine & good].sum()), 4)
        found[source] = row
    return found


def net(runs: Sequence[Run], fold: np.ndarray, thresholds: Sequence[float]) -> dict[str, Any]:
    """The tokens that the judge read until the guard, at the bounds that were fitted, halted a run or let it end, beside those saved."""
    read, saved = 0, {True: 0, False: 0}
    for run, k in zip(runs, fold, strict=True):
        signal, patience = POLICIES["guard"]
        end = halt(run.score, GuardPolicy(signal=signal, halt_below=thresholds[int(k)], patience=patience))
        read += sum(run.judge_tokens[:end])
        saved[run.good] += sum(run.tokens[end:]) if end is not None else 0
    return {
        "judge_tokens": read,
        "failing_tokens_saved": saved[False],
        "good_tokens_lost": saved[True],
        "judge_tokens_per_failing_token_saved": round(read / saved[False], 2) if saved[False] else None,
    }


def at_each_step(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """How well the score after step k tells good runs from failing ones, among runs that go on after it: AUROC, ties a half; and over
    pairs of one source alone."""
    found = []
    for k in range(1, 11):
        live = [run for run in runs if len(run.tokens) > k]
        good, failing = ([run for run in live if run.good is wanted] for wanted in (True, False))
        if min(len(good), len(failing)) < 10:
            break
        wins = np.sign(np.subtract.outer([r.score[k - 1] for r in good], [r.score[k - 1] for r in failing])) / 2 + 0.5
        same = np.equal.outer([r.source for r in good], [r.source for r in failing])
        told = {"auroc": round(float(wins.mean()), 4), "same_source": round(float(wins[same].mean()), 4)}
        found.append({"step": k, "good": len(good), "failing": len(failing), **told})
    return found


def cost(runs: Sequence[Run]) -> dict[str, float]:
    """What judging after each step took, for each token of the runs."""
    of_runs = sum(sum(run.tokens) for run in runs)
    tokens, seconds = (sum(sum(getattr(run, name)) for run in runs) for name in ("judge_tokens", "judge_seconds"))
    return {"tokens_per_token": round(tokens / of_runs, 3), "tokens": tokens, "seconds": round(seconds, 1)}


def drawn(runs: Sequence[Run], path: Path) -> None:
    """The curves: failing runs' tokens saved over good runs stopped."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    said = {"guard": "guard (score, patience 2)", "guard_p_good": "guard (p_good, patience 2)"}
    said |= {"turns": "stop after k turns", "random": "stop at random"}
    curves = {way: [figures(runs, WAYS[way](runs, float(p))) for p in grid_of(way)] for way in said}
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.5))
    for axis, what in zip(axes, ("tokens", "steps"), strict=True):
        for way, label in said.items():
            points = curves[way]
            axis.plot([p["good_stopped"] for p in points], [p[f"failing_{what}_saved"] for p in points], label=label)
        axis.axvline(ALLOWED, color="gray", linewidth=0.8, linestyle=":")
        axis.set_xlabel("good runs stopped")
        axis.set_ylabel(f"{what} of failing runs saved")
        axis.axis((0, 1, 0, 1))
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
