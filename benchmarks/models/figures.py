"""The figures of a step judge from its scores: what stands at the paths that `benchmarks/bars/judge.py` reads.

good        p ≥ 0.5, p = σ(a d + b) of the log-odds d by a map that was fitted on the calibration part of the *other* folds
intervals   95 %, over keys (customers, templates, questions); differences are paired
plants      the threshold at 0.10 false alarms is that of the fold's own good steps
balanced    in every source good and bad steps weigh the same, and so do the sources
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.bars.judge import CLAIMED
from benchmarks.models.scores import Scored
from rrm.data.localisation import OfConfusion, confusion
from rrm.data.mistakes import MEANING_KINDS
from rrm.errors import RRMError
from rrm.evaluation.bootstrap import JUDGE, Ratio, Statistic, bootstrap, compare, too_few
from rrm.evaluation.metrics.pairs import codes
from rrm.evaluation.metrics.probability import Auroc, CalibrationError, equal_mass_bins
from rrm.evaluation.metrics.process import first_errors
from rrm.judge.calibration import P_GOOD, Platt, fit

ALARMS = 0.10
"""False alarms of good steps at which the recall of planted mistakes is measured."""
LABELS, REPEATS = 30, 20
"""Labels of a source, and how often they are drawn."""
NEAR = 0.10
"""By which the lengths of two runs of a pair differ at most."""
EXACT = ("tau", "workbench")
LEAST = 5
"""Of each class, that a source must have to be weighed."""
OUTCOME = "steps"
"""Key of the map of outcomes, the score of mode `steps`."""
Figures = dict[str, Any]


@dataclass(frozen=True)
class Fold:
    """Scores of one file of rows, and the judge's maps; None: the log-odds are taken as they are."""

    scored: Scored
    maps: Mapping[str, Any] | None = None

    def p(self, rows: Scored, key: str = P_GOOD) -> np.ndarray:
        """(N,) calibrated probabilities of good, or with `OUTCOME` of success."""
        known = (self.maps or {}).get("modes", {}).get(key) or {"a": 1.0, "b": 0.0}
        return 1 / (1 + np.exp(-(known["a"] * rows.odds + known["b"])))

    @property
    def band(self) -> tuple[float, float]:
        """Between these two the judge is unsure."""
        low, high = (self.maps or {}).get("unsure_band") or (0.5, 0.5)
        return low, high


def balanced(rows: Scored) -> np.ndarray:
    """(N,) weights: each source with `LEAST` of both classes sums to 1, half of it good; 0 in the others."""
    names, y = rows.column("source"), rows.labels
    weights = np.zeros(len(rows))
    for name in np.unique(names):
        sides = [(names == name) & (y == label) for label in (0, 1)]
        if min(int(side.sum()) for side in sides) >= LEAST:
            for side in sides:
                weights[side] = 0.5 / side.sum()
    return weights


def _platt(rows: Scored) -> Platt:
    """σ(a d + b) by logistic regression on balanced rows.

    Raises:
        SystemExit: no source has both classes, or scores fall as labels rise.
    """
    from sklearn.linear_model import LogisticRegression

    weights = balanced(rows)
    if not weights.any():
        raise SystemExit("no source has enough labels of both classes to fit a map")
    model = LogisticRegression(C=1e4).fit(rows.odds[:, None], rows.labels, sample_weight=weights * len(rows))
    a, b = float(model.coef_[0, 0]), float(model.intercept_[0])
    if a <= 0:
        raise SystemExit(f"scores fall as labels rise (slope {a:.3f}): the judge has learned nothing usable")
    return Platt(a=a, b=b, rows=int((weights > 0).sum()))


def fit_maps(rows: Scored, coverage: float) -> Figures:
    """The maps of verdicts and outcomes, as a judge's directory has them, and the band that leaves `coverage` of the steps sure."""
    steps, outcomes = rows.known(), rows.known(steps=False)
    verdict, outcome = _platt(steps), _platt(outcomes)
    p, weights = Fold(rows, {"modes": {P_GOOD: verdict.model_dump()}}).p(steps), balanced(steps)
    order = np.argsort(np.abs(p - 0.5), kind="stable")
    width = float(np.abs(p - 0.5)[order][np.searchsorted(np.cumsum(weights[order]) / weights.sum(), 1 - coverage)])
    return {
        "modes": {P_GOOD: verdict.model_dump(), OUTCOME: outcome.model_dump()},
        "unsure_band": [round(0.5 - width, 4), round(0.5 + width, 4)],
    }


def _auroc(scores: np.ndarray, rows: Scored, resamples: int, seed: int) -> Figures:
    """AUROC of label 1 over 0, with its interval over keys."""
    of, n = codes(rows.column("key").tolist())
    said = bootstrap(Auroc(scores, rows.labels, of), max(n, 1), n=resamples, seed=seed) if len(rows) else None
    found = {"value": None} if said is None else said.unless(too_few(n, len(rows))).to_dict()
    return {**found, "good": int(rows.labels.sum()), "bad": int((1 - rows.labels).sum()) if len(rows) else 0, "keys": n}


def steps(fold: Fold, resamples: int, seed: int) -> Figures:
    """Verdicts on a fold's steps beside its rivals, and first errors."""
    rows = fold.scored.known()
    of, n = codes(rows.column("key").tolist())
    bad = rows.labels == 0
    said = {JUDGE: fold.p(rows), "always_good": np.ones(len(rows))}
    said |= {name: rows.column(name).astype(np.float64) for name in ("position", "tfidf")}
    table = {
        who: {"auroc": Auroc(p, rows.labels, of), "error_f1": OfConfusion("f1_bad", confusion(p < 0.5, bad, of, n))}
        for who, p in said.items()
    }
    thin = too_few(n, len(rows))
    found = compare(table, n, thin=lambda _: thin, n=resamples, seed=seed)
    runs, _ = codes(rows.column("run").tolist())
    whole = np.flatnonzero(rows.column("whole"))
    whole = whole[np.lexsort((rows.column("step")[whole], runs[whole]))]
    firsts = first_errors(said[JUDGE][whole], bad[whole], runs[whole], of[whole], n, 0.5)
    share = {k: bootstrap(firsts[k], n, n=resamples, seed=seed).to_dict() for k in ("first_error", "false_alarms")}
    alarms = {k: None if v is None else 1 - v for k, v in share["false_alarms"].items()}
    rivals = {who: {k: v["value"] for k, v in said.items()} for who, said in found["metrics"].items() if who != JUDGE}
    by_source = {name: _auroc(fold.p(mine), mine, 200, seed) for name, mine in rows.by("source").items()}
    return {
        **found["metrics"][JUDGE],
        **{f"minus_{who}": said for who, said in found["differences"].items()},
        "rivals": rivals,
        "first_error": share["first_error"],
        "none_claimed": {"value": alarms["value"], "low": alarms["high"], "high": alarms["low"]},
        "bad_share": float(bad.mean()),
        "auroc_by_source": by_source,
    }


def _threshold(good: np.ndarray) -> float:
    """The highest value below which at most `ALARMS` of the good steps' (N ≥ 1) scores lie."""
    return float(np.sort(good)[int(ALARMS * len(good))])


def plants(folds: Mapping[str, Fold]) -> Figures:
    """Recall of planted mistakes at `ALARMS` false alarms, kind by kind: the mean over the folds that have the kind."""
    hits: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for fold in folds.values():
        good = fold.scored.known().where(fold.scored.known().labels == 1)
        limit, words = _threshold(good.odds), _threshold(good.column("tfidf_planted"))
        for kind, rows in fold.scored.known(planted=True).by("kind").items():
            bad, right, said = rows.where(rows.labels == 0), rows.where(rows.labels == 1), hits[kind]
            said["judge"] += [] if not len(bad) else [float((bad.odds < limit).mean())]
            said["tfidf"] += [] if not len(bad) else [float((bad.column("tfidf_planted") < words).mean())]
            said["rules"] += [] if not len(bad) else [float(bad.column("rule").mean())]
            said["counterpart_alarms"] += [] if not len(right) else [float((right.odds < limit).mean())]
            said["n"].append(len(bad))
    kinds = {
        kind: {"n": int(sum(said.pop("n"))), "meaning": kind in MEANING_KINDS, **{k: _mean(v) for k, v in said.items()}}
        for kind, said in sorted(hits.items())
    }
    meaning = [said for said in kinds.values() if said["meaning"]]
    mean = {who: _mean([said[who] for said in meaning if said[who] is not None]) for who in ("judge", "tfidf", "rules")}
    return {"mean_recall_at_10": mean["judge"], "tfidf": mean["tfidf"], "rules": mean["rules"], "per_kind": kinds}


def _mean(values: Sequence[float]) -> float | None:
    return round(float(np.mean(values)), 4) if values else None


def _beside(rows: Scored, resamples: int, seed: int) -> Figures:
    """AUROC of the judge and of TF-IDF."""
    said = {"auroc": rows.odds, "tfidf": rows.column("tfidf").astype(np.float64)}
    return {name: _auroc(scores, rows, resamples, seed) for name, scores in said.items()}


def calls(folds: Mapping[str, Fold], home: Fold | None, resamples: int, seed: int) -> Figures:
    """State-changing calls against references, by source, left out and at home."""
    held = [("abroad", fold) for fold in folds.values()] + ([("home", home)] if home else [])
    found: Figures = {}
    for where, fold in held:
        rows = fold.scored.known()
        for source in EXACT:
            mine = rows.where([x["source"] == source and x["exact"] for x in rows.lines])
            found |= {f"{source}_{where}": _beside(mine, resamples, seed)} if len(mine) else {}
    return found


def false_success(folds: Mapping[str, Fold], resamples: int, seed: int) -> Figures:
    """Outcomes of runs whose last message says that the task is done, by source; TF-IDF reads that message."""
    found: Figures = {}
    for fold in folds.values():
        rows = fold.scored.known(steps=False)
        for source in CLAIMED:
            mine = rows.where([x["source"] == source and x["claims"] for x in rows.lines])
            found |= {source: _beside(mine, resamples, seed)} if len(mine) else {}
    return found


def outcome_pairs(folds: Mapping[str, Fold], resamples: int, seed: int, least: int = 20) -> Figures:
    """Share of pairs (success, failure) of one source, lengths within `NEAR`, that the score orders rightly; ties ½. The mean of sources
    with `least` pairs; keys of the runs that succeeded are drawn."""
    parts, by_source = list[tuple[list[str], np.ndarray, np.ndarray]](), dict[str, Any]()
    for fold in folds.values():
        for source, rows in fold.scored.known(steps=False).by("source").items():
            size, y, d = rows.column("chars").astype(np.float64), rows.labels, rows.odds
            near = np.abs(size[:, None] - size) < NEAR * np.maximum(size[:, None], size)
            pairs = (y[:, None] > y) & near
            wins = pairs * ((d[:, None] > d) + 0.5 * (d[:, None] == d))
            if pairs.sum() >= least:
                parts.append((rows.column("key").tolist(), wins.sum(axis=1), pairs.sum(axis=1)))
                by_source[source] = {"value": float(wins.sum() / pairs.sum()), "pairs": int(pairs.sum())}
    if not parts:
        return {"value": None}
    of, n = codes([key for keys, _, _ in parts for key in keys])
    cuts = np.cumsum([len(keys) for keys, _, _ in parts])[:-1]
    shares = [
        Ratio(*(np.bincount(at, sums, minlength=n) for sums in (wins, pairs)))
        for at, (_, wins, pairs) in zip(np.split(of, cuts), parts, strict=True)
    ]

    def mean(counts: np.ndarray) -> np.ndarray:
        values = np.stack([share(counts) for share in shares])
        seen = np.isfinite(values)
        total = np.where(seen, values, 0.0).sum(axis=0)
        return np.divide(total, seen.sum(axis=0), out=np.full(len(counts), np.nan), where=seen.any(axis=0))

    return {**bootstrap(mean, n, n=resamples, seed=seed).to_dict(), "by_source": by_source}


def weighted_ece(p: np.ndarray, y: np.ndarray, weights: np.ndarray) -> float:
    """Σ over ten bins of |Σ w (p − y)|, over Σ w; the bins are of equal mass in rows."""
    gaps = np.bincount(equal_mass_bins(p), weights * (p - y))
    return float(np.abs(gaps).sum() / weights.sum())


def after_labels(folds: Sequence[Fold], seed: int) -> float | None:
    """ECE after `LABELS` labels of each source, of as few keys as hold them, the present map counting as its prior: that of all sources'
    other keys together, the mean of the draws."""
    rng, errors = np.random.default_rng(seed), list[float]()
    for _ in range(REPEATS):
        p, y = list[np.ndarray](), list[np.ndarray]()
        for fold in folds:
            for rows in fold.scored.known().by("source").values():
                of, n = codes(rows.column("key").tolist())
                order = np.argsort(rng.permutation(n)[of], kind="stable")[:LABELS]
                rest = rows.where(~np.isin(of, of[order]))
                if len(order) < LABELS or len(rest) < LABELS:
                    continue
                raw, present = 1 / (1 + np.exp(-rows.odds[order])), fold.p(rows)[order]
                try:
                    known = fit(raw.tolist(), rows.labels[order].tolist(), "platt", present.tolist())
                    mapped = np.array([known(1 / (1 + math.exp(-d))) for d in rest.odds.tolist()])
                except RRMError:
                    mapped = fold.p(rest)  # labels of one class, or a slope that falls: the map stays
                p.append(mapped)
                y.append(rest.labels)
        if p:
            together, labels = np.concatenate(p), np.concatenate(y)
            error: Statistic = CalibrationError(together, labels, np.zeros(len(labels), dtype=np.int64), 1)
            errors.append(float(error(np.ones((1, 1)))[0]))
    return _mean(errors)


def calibration(folds: Mapping[str, Fold], seed: int) -> Figures:
    """Balanced ECE of sure steps and their share, over all folds' sources; the same with the domain; ECE after some labels."""
    parts, by_fold = list[tuple[np.ndarray, ...]](), dict[str, Any]()
    for name, fold in folds.items():
        rows, (low, high) = fold.scored.known(), fold.band
        p = fold.p(rows)
        sure = (p <= low) | (p >= high)
        parts.append((p, rows.labels, balanced(rows), sure, sure & rows.column("inside")))
        by_fold[name] = _covered(*parts[-1][:4])
    p, y, weights, sure, default = (np.concatenate(column) for column in zip(*parts, strict=True))
    said = _covered(p, y, weights, default)
    return {
        **_covered(p, y, weights, sure),
        "default_coverage": said["coverage"],
        "default_risk": said["risk"],
        "ece_after_30": after_labels(list(folds.values()), seed),
        "by_fold": by_fold,
    }


def _covered(p: np.ndarray, y: np.ndarray, weights: np.ndarray, kept: np.ndarray) -> Figures:
    """ECE and share of wrong verdicts of the steps that are kept, and their share; all balanced."""
    total, w = weights.sum(), weights * kept
    if not w.sum():
        return {"ece_balanced": None, "coverage": 0.0, "risk": None}
    rows = np.flatnonzero(w)
    wrong = float(w @ ((p >= 0.5) != (y == 1)) / w.sum())
    ece = weighted_ece(p[rows], y[rows], w[rows])
    return {"ece_balanced": round(ece, 4), "coverage": round(float(w.sum() / total), 4), "risk": round(wrong, 4)}


def sanity(fold: Fold) -> Figures:
    """Recall, false alarms and flawless runs without a bad verdict; the same of constants and rules; recall of each kind."""
    rows = fold.scored.known()
    bad, runs = rows.labels == 0, rows.column("run")
    flawed = {run for run, is_bad in zip(runs, bad, strict=True) if is_bad}
    flawless = sorted(set(runs.tolist()) - flawed)

    def said(alarm: np.ndarray) -> Figures:
        alarmed = set(runs[alarm].tolist())
        clean = sum(run not in alarmed for run in flawless)
        return {
            "recall": round(float(alarm[bad].mean()), 4),
            "false_alarms": round(float(alarm[~bad].mean()), 4),
            "flawless_clean": clean,
        }

    alarm = fold.p(rows) < 0.5
    limit = _threshold(rows.odds[~bad])
    kinds = defaultdict(list)
    for line, is_bad, hit in zip(rows.lines, bad, alarm, strict=True):
        if is_bad:
            kinds[line["kind"]].append(bool(hit))
    never = np.zeros(len(rows), dtype=bool)
    constants = {"always_good": never, "always_bad": ~never, "rules": rows.column("rule").astype(bool)}
    of, n = codes(runs.tolist())
    return {
        **said(alarm),
        "constants": {name: said(which) for name, which in constants.items()},
        "per_kind": {kind: f"{sum(hits)} of {len(hits)}" for kind, hits in sorted(kinds.items())},
        "recall_at_10": round(float((rows.odds[bad] < limit).mean()), 4),
        "auroc": round(float(Auroc(rows.odds, rows.labels, of)(np.ones((1, n)))[0]), 4),
        "flawless": len(flawless),
    }


def sizes(rows: Scored) -> Figures:
    """Runs, keys, and labelled steps, planted ones and outcomes of a file."""
    parts = {"steps": rows.known(), "planted": rows.known(planted=True), "outcomes": rows.known(steps=False)}
    named = {f"{what}s": len(set(rows.column(what).tolist())) for what in ("run", "key")}
    return {**named, **{f"{name}_{y}": int((part.labels == y).sum()) for name, part in parts.items() for y in (0, 1)}}


def all_figures(held: Mapping[str, Fold], *, resamples: int, seed: int) -> Figures:
    """Every figure that the files at hand give."""
    folds = {name: fold for name, fold in held.items() if name not in ("home", "sanity")}
    found: Figures = {"calls": calls(folds, held.get("home"), resamples, seed)}
    if folds:
        found |= {
            "folds": {name: steps(fold, resamples, seed) for name, fold in folds.items()},
            "plants": plants(folds),
            "false_success": false_success(folds, resamples, seed),
            "outcome_pairs": outcome_pairs(folds, resamples, seed),
            "calibration": calibration(folds, seed),
        }
    if "sanity" in held:
        found["sanity"] = sanity(held["sanity"])
    return found
