"""How early a guard stops failing runs, how many good ones it stops wrongly, and what that saves.

    python -m benchmarks.guard                # scores every prefix with the shipped default judge (kept in runs/guard), then the record
    python -m benchmarks.guard --limit 2      # two runs a source: a look
    python -m benchmarks.guard --minutes 60   # what can be judged in an hour; the next call goes on from there
    python -m benchmarks.guard --from RECORD  # every figure again from a record's raw rows: nothing is judged

Runs: questions of `benchmarks/splits/default_judge.json`'s test part that the judge was not trained on, with a known outcome and at
least three steps, drawn one a question at a time and blind to outcomes (`LIMITS` a source). Each prefix that ends with a step is
judged as the guard does (mode `steps`, keys and values kept). A stop after the last step is none. `tokens` are those of the agent's
turns and of what came back, by the judge's tokenizer; what is saved is what the run would have added after the stop.

Rivals, both allowed the same share of good runs: `turns`, stop whatever runs longer than k (a fractional k: that share of the
runs goes on to the next one); `random`, stop after each step with one probability (in expectation).

Primary figure, written down before the study was run: share of failing runs' tokens saved by `GuardPolicy(signal="score",
patience=2)` at a threshold that stops at most 10 % of good runs, minus the same of the better rival. All three take their parameter
from the other four of five folds of questions. Predicted: 0.03, with an interval that holds 0; the judge's AUROC on whole runs is 0.73,
and less is known early. Beside it: patience 1, and `p_good` of the latest step as the signal.

Controls, all added after the first run of the study. The runs are of thirteen sources, and what tells them apart would pass for a
judgement of runs:

- `shuffled`: the guard, where each run has the scores of another run of its source (cut to its length, or their last one repeated):
  what is left of its figures is what it knows of sources. Many draws.
- `source_alone` stops runs after their first step by how often the other runs of their source fail, which no guard is told, and
  earlier than a guard of patience 2 can.
- `turns_of_source`: stop what runs longer than so many times the median length of its source.

Intervals are over questions, at the folds and parameters as they were drawn and fitted; `other_folds` has the primary figure at others.

Writes benchmarks/results/guard.json (curves, cross-fitted figures with intervals over questions, raw rows) and guard.png. `commit` is what
judged, `computed` what made the figures of it.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import record
from benchmarks.default_judge import sources
from benchmarks.default_judge.drawing import named, spread
from benchmarks.default_judge.mixture import by_part, load_split
from benchmarks.default_judge.sources import Example
from rrm.evaluation.bootstrap import Ratio, bootstrap, paired_bootstrap
from rrm.folds import grouped_folds
from rrm.guard.policy import GuardPolicy, Signal, Watch
from rrm.jsonl import append_line, read_lines
from rrm.prompt.rendering import agent_text, observation_text
from rrm.provenance import environment
from rrm.questions import met_before, question_of
from rrm.seeds import derive_seed
from rrm.trajectory import Trajectory

LIMITS = {"mint/": 10, "mint_more/": 10, "": 24}
"""Runs of a source at most, by the beginning of its name."""
LEAST_STEPS = 3
ALLOWED = 0.10
"""Share of good runs that may be stopped."""
FOLDS, RESAMPLES = 5, 10_000
DRAWS, OTHER_FOLDS = 200, 20
"""Of the control `shuffled`, and of folds."""
GRID: dict[str, np.ndarray] = {
    "guard": np.round(np.arange(0.0, 1.0001, 0.01), 2),
    "turns": np.round(np.arange(1.0, 31.0, 0.05), 2),
    "random": np.round(np.arange(0.0, 1.0001, 0.005), 3),
    "turns_of_source": np.round(np.arange(0.3, 4.0001, 0.02), 2),
}
"""Parameters: a threshold, turns, a probability, times the median."""
POLICIES: dict[str, tuple[Signal, int]] = {
    "guard": ("score", 2),
    "guard_patience_1": ("score", 1),
    "guard_p_good": ("p_good", 2),
    "guard_p_good_patience_1": ("p_good", 1),
}
"""`guard` is the primary one."""


@dataclass(frozen=True)
class Run:
    """One run and what the judge said after each of its steps."""

    id: str
    source: str
    question: str
    good: bool
    tokens: list[int]
    """That each step added."""
    score: list[float]
    p_good: list[float]
    judge_tokens: list[int]
    judge_seconds: list[float]

    @property
    def left(self) -> np.ndarray:
        """(n,) tokens that come after each step."""
        return sum(self.tokens) - np.cumsum(self.tokens)


@dataclass(frozen=True)
class Effect:
    """What one setting does to some runs, an entry a run; expectations where it draws."""

    stopped: np.ndarray
    tokens: np.ndarray
    """Saved."""
    steps: np.ndarray
    """Saved."""


# ---- which runs, and what the judge says of their prefixes -----------------------------------------------------------------


def chosen(data: Path, keys: Sequence[str], seed: int, limit: int | None) -> list[Example]:
    """The runs, sources taking turns, so that a part of them is a draw as well."""
    rows = by_part(sources.load(data), load_split())["test"]
    rows = [r for r in rows if r.trajectory.outcome is not None and len(r.trajectory.steps) >= LEAST_STEPS]
    met = set(met_before(keys, (r.trajectory for r in rows)))
    found = []
    for source, its in named([r for r in rows if r.trajectory.id not in met]).items():
        most = next(n for start, n in LIMITS.items() if source.startswith(start))
        drawn = spread(its, most if limit is None else min(limit, most), derive_seed(seed, source))
        found += [(place / len(drawn), source, row) for place, row in enumerate(drawn)]
    return [row for _, _, row in sorted(found, key=lambda one: one[:2])]


def judged(rows: Sequence[Example], judge: Any, kept: Path, minutes: float) -> list[Run]:
    """Each run with what the judge says after each step; what an earlier run of this study judged is read from `kept`, and none is begun
    after so many minutes."""
    from rrm.judge.following import Follower

    done = {row["id"]: Run(**row) for row in read_lines(kept, json.loads, "a judged run")} if kept.exists() else {}
    began = time.monotonic()
    for number, row in enumerate(rows, 1):
        trajectory = row.trajectory
        if trajectory.id not in done and time.monotonic() - began < 60.0 * minutes:
            follower = Follower(judge)
            run = _judged(row, judge, follower)
            follower.close()
            append_line(kept, json.dumps(vars(run)))
            done[trajectory.id] = run
            print(f"{number}/{len(rows)} {run.source} {time.monotonic() - began:.0f} s", flush=True)
    return [done[row.trajectory.id] for row in rows if row.trajectory.id in done]


def _judged(row: Example, judge: Any, follower: Any) -> Run:
    whole = row.trajectory
    score, p_good, tokens, seconds = list[float](), list[float](), list[int](), list[float]()
    for prefix in prefixes(whole):
        before, began = judge.engine.counters.prefilled, time.perf_counter()
        feedback = follower.judge(prefix)
        seconds.append(round(time.perf_counter() - began, 4))
        tokens.append(judge.engine.counters.prefilled - before)
        score.append(round(feedback.score, 6))
        p_good.append(round(feedback.findings[-1].p_good, 6))
    encode = judge.prompter.encode
    added = [len(encode(f"{agent_text(s.message)}\n{observation_text(s)}")) for s in whole.steps]
    assert whole.outcome is not None
    return Run(whole.id, row.source, question_of(whole), whole.outcome >= 0.5, added, score, p_good, tokens, seconds)


def prefixes(whole: Trajectory) -> list[Trajectory]:
    """The run as it stood after each step."""
    ends = [step.message_index + 1 + len(step.observations) for step in whole.steps]
    return [whole.model_copy(update={"messages": whole.messages[:end], "outcome": None}) for end in ends]


# ---- what each way of stopping does ----------------------------------------------------------------------------------------


def guarded(signal: Signal, patience: int) -> Callable[[Sequence[Run], float], Effect]:
    """The guard at a threshold, replayed over the judge's words."""

    def effect(runs: Sequence[Run], threshold: float) -> Effect:
        policy = GuardPolicy(signal=signal, halt_below=threshold, patience=patience)
        at = [halt(getattr(run, signal), policy) for run in runs]
        return _stopped(runs, [{k: 1.0} if k is not None else {} for k in at])

    return effect


def halt(signals: Sequence[float], policy: GuardPolicy) -> int | None:
    """The first step, from 1, after which the guard halts; None: it lets the run end."""
    watch = Watch()
    for step, signal in enumerate(signals, 1):
        watch = watch.after(signal, policy)
        if watch.action(policy) == "halt":
            return step
    return None


def turns(runs: Sequence[Run], most: float) -> Effect:
    """Stop what runs longer than so many turns."""
    k, share = int(most), most - int(most)
    return _stopped(runs, [{k: 1.0 - share, k + 1: share} for _ in runs])


def at_random(runs: Sequence[Run], p: float) -> Effect:
    """Stop after each step with this probability."""
    return _stopped(runs, [{k: p * (1.0 - p) ** (k - 1) for k in range(1, len(run.tokens) + 1)} for run in runs])


def _stopped(runs: Sequence[Run], chances: Sequence[Mapping[int, float]]) -> Effect:
    """Of each run, step → the chance that it is stopped after it; after the last one there is nothing to stop."""
    rows = []
    for run, chance in zip(runs, chances, strict=True):
        n, left = len(run.tokens), run.left
        live = {k: p for k, p in chance.items() if k < n}
        rows.append(
            (
                sum(live.values()),
                sum(p * left[k - 1] for k, p in live.items()),
                sum(p * (n - k) for k, p in live.items()),
            )
        )
    return Effect(*(np.array(column, dtype=np.float64) for column in zip(*rows, strict=True)))


def source_alone(every: Sequence[Run]) -> Way:
    """Stop after the first step where the source's other runs are good less often than the threshold says."""
    good, all_of = Counter(run.source for run in every if run.good), Counter(run.source for run in every)

    def effect(runs: Sequence[Run], threshold: float) -> Effect:
        rates = [(good[run.source] - run.good) / max(all_of[run.source] - 1, 1) for run in runs]
        return _stopped(runs, [{1: 1.0} if rate < threshold else {} for rate in rates])

    return effect


def turns_of_source(every: Sequence[Run]) -> Way:
    """Stop what runs longer than so many times the median length of its source's runs."""
    lengths = {s: [len(run.tokens) for run in its] for s, its in of_sources(every).items()}
    middle = {source: float(np.median(its)) for source, its in lengths.items()}

    def effect(runs: Sequence[Run], times: float) -> Effect:
        return _stopped(runs, [{max(math.ceil(times * middle[run.source] - 1e-9), 1): 1.0} for run in runs])

    return effect


def of_sources(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of each source."""
    return {source: [run for run in runs if run.source == source] for source in sorted({run.source for run in runs})}


def shuffled(runs: Sequence[Run], seed: int) -> list[Run]:
    """The runs, each with the scores of another one of its source: cut to its length, or their last one repeated. A source's only run
    keeps its own."""
    rng = np.random.default_rng(seed)
    given: dict[str, list[float]] = {}
    for its in of_sources(runs).values():
        order = [its[i] for i in rng.permutation(len(its))]
        for run, other in zip(order, [*order[1:], order[0]], strict=True):
            n = len(run.tokens)
            given[run.id] = [*other.score, *[other.score[-1]] * n][:n]
    return [replace(run, score=given[run.id]) for run in runs]


Way = Callable[[Sequence[Run], float], Effect]
WAYS: dict[str, Way] = {
    **{name: guarded(*how) for name, how in POLICIES.items()},
    "turns": turns,
    "random": at_random,
}


def grid_of(way: str) -> np.ndarray:
    """The parameters that are tried, from the one that stops least."""
    grid = GRID.get(way, GRID["guard"])
    return grid[::-1] if way in ("turns", "turns_of_source") else grid


def curve(name: str, way: Way, runs: Sequence[Run]) -> list[dict[str, float]]:
    """The figures at each parameter, on the same runs."""
    return [{"parameter": float(p), **figures(runs, way(runs, float(p)))} for p in grid_of(name)]


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
        effect = way([runs[i] for i in inside], parameters[-1])
        columns[:, inside] = effect.stopped, effect.tokens, effect.steps
    return Effect(*columns), parameters


# ---- the record ------------------------------------------------------------------------------------------------------------


def measured(runs: Sequence[Run], seed: int) -> dict[str, Any]:
    """Curves, cross-fitted figures with intervals over questions, controls, and what the judge cost: all that can be made again from the
    raw rows."""
    names = sorted({run.question for run in runs})
    code = np.array([names.index(run.question) for run in runs])
    fold = grouped_folds([run.question for run in runs], FOLDS, seed)
    good = np.array([run.good for run in runs])
    sizes = {"tokens": [sum(run.tokens) for run in runs], "steps": [len(run.tokens) for run in runs]}

    def ratio(numerator: np.ndarray, denominator: Sequence[float] | np.ndarray, those: np.ndarray) -> Ratio:
        """Over questions."""
        sums = [
            np.bincount(code[those], np.asarray(values, dtype=np.float64)[those], len(names))
            for values in (numerator, denominator)
        ]
        return Ratio(*sums)

    found: dict[str, dict[str, Any]] = {}
    saved: dict[str, Ratio] = {}
    effects: dict[str, Effect] = {}
    ways = {**WAYS, "source_alone": source_alone(runs), "turns_of_source": turns_of_source(runs)}
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
        found[way] = {
            "parameters": parameters,
            **{
                name: _interval(bootstrap(s, len(names), n=RESAMPLES, seed=seed).to_dict())
                for name, s in statistics.items()
            },
        }
    rival = max(("turns", "random"), key=lambda way: saved[way].value)
    differences = {
        way: _interval(paired_bootstrap(saved[way], saved[rival], len(names), n=RESAMPLES, seed=seed).to_dict())
        for way in POLICIES
    }
    return {
        "primary": {"figure": "failing_tokens_saved, guard - better rival", "rival": rival, **differences["guard"]},
        "cross_fitted": found,
        "differences": differences,
        "guard_minus_source_alone": _interval(
            paired_bootstrap(saved["guard"], saved["source_alone"], len(names), n=RESAMPLES, seed=seed).to_dict()
        ),
        "shuffled": against_shuffled(runs, fold, saved["guard"].value, seed),
        "other_folds": other_folds(runs),
        "by_source": by_source(runs, effects),
        "net": net(runs, fold, found["guard"]["parameters"]),
        "curves": {name: curve(name, way, runs) for name, way in ways.items()},
        "at_each_step": at_each_step(runs),
        "judge": cost(runs),
    }


def _interval(found: Mapping[str, float | None]) -> dict[str, float | None]:
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
        found[name] = _interval({"value": float(values.mean()), "low": float(low), "high": float(high)})
    reach = np.mean([one["failing_tokens_saved"] >= round(saved, 4) for one in drawn])
    return {**found, "share_that_saves_as_much": round(float(reach), 4)}


def other_folds(runs: Sequence[Run]) -> dict[str, Any]:
    """What the drawing of folds makes of guard and turns: the least, mean and most over seeds."""
    rows = []
    for seed in range(OTHER_FOLDS):
        fold = grouped_folds([run.question for run in runs], FOLDS, seed)
        guard, rival = (figures(runs, cross_fitted(way, WAYS[way], runs, fold)[0]) for way in ("guard", "turns"))
        rows.append(
            {
                "guard_minus_turns": guard["failing_tokens_saved"] - rival["failing_tokens_saved"],
                "guard_good_stopped": guard["good_stopped"],
                "turns_good_stopped": rival["good_stopped"],
            }
        )
    of = {name: [row[name] for row in rows] for name in rows[0]}
    spans = {
        name: {"least": round(min(v), 4), "mean": round(sum(v) / len(v), 4), "most": round(max(v), 4)}
        for name, v in of.items()
    }
    return {"seeds": OTHER_FOLDS, **spans}


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


def drawn(found: Mapping[str, Any], path: Path) -> None:
    """The curves: failing runs' tokens saved over good runs stopped."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    said = {
        "guard": "guard (score, patience 2)",
        "guard_p_good": "guard (p_good, patience 2)",
        "turns": "stop after k turns",
        "random": "stop at random",
    }
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.5))
    for axis, what in zip(axes, ("tokens", "steps"), strict=True):
        for way, label in said.items():
            points = found["curves"][way]
            axis.plot([p["good_stopped"] for p in points], [p[f"failing_{what}_saved"] for p in points], label=label)
        axis.axvline(ALLOWED, color="gray", linewidth=0.8, linestyle=":")
        axis.set_xlabel("good runs stopped")
        axis.set_ylabel(f"{what} of failing runs saved")
        axis.set_xlim(0, 1)
        axis.set_ylim(0, 1)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    """Judge what is not judged, and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, default=sources.DATA)
    parser.add_argument("--work", type=Path, default=Path("runs/guard"))
    parser.add_argument("--limit", type=int, help="runs of a source at most")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run after so many")
    parser.add_argument("--dtype", default="bfloat16", help="of the judge's weights")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--from", type=Path, dest="source", metavar="RECORD", help="a record whose rows are taken")
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS / "guard.json")
    args = parser.parse_args()
    made, runs = judged_anew(args) if args.source is None else kept_of(args.source)
    computed = {"command": record.command("guard"), "commit": record.commit()}
    found = measured(runs, made["draw"]["seed"])
    record.write(args.output, {**made, "computed": computed, **found, "rows": [vars(run) for run in runs]})
    drawn(found, args.output.with_suffix(".png"))
    print(json.dumps({"output": args.output.name, "runs": len(runs), "primary": found["primary"]}))


MADE = ("command", "commit", "environment", "judged_by", "draw", "drawn")
"""What a record says of how its rows were made."""


def kept_of(path: Path) -> tuple[dict[str, Any], list[Run]]:
    """How a record's rows were made, and these."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        made, runs = {key: found[key] for key in MADE if key in found}, rows_of(found)
        made["draw"]["seed"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{path}: no record of this study with its rows ({type(error).__name__}: {error})") from error
    return {**made, **counts(runs)}, runs


def rows_of(found: Mapping[str, Any]) -> list[Run]:
    """A record's raw rows."""
    return [Run(**row) for row in found["rows"]]


def counts(runs: Sequence[Run]) -> dict[str, Any]:
    """How many runs there are, and of what."""
    return {
        "runs": len(runs),
        "questions": len({run.question for run in runs}),
        "good": sum(run.good for run in runs),
        "sources": {source: len(its) for source, its in of_sources(runs).items()},
    }


def judged_anew(args: argparse.Namespace) -> tuple[dict[str, Any], list[Run]]:
    """Judge what is not judged; how that was done, and the runs."""
    import torch

    from rrm.judge.agent_rrm import AgentRRM

    torch.set_num_threads(args.threads)
    judge = AgentRRM.from_pretrained(dtype=args.dtype)
    rows = chosen(args.data, judge.settings.training_questions, args.seed, args.limit)
    kept = args.work / f"prefixes_{(judge.model_hash or 'judge')[:12]}_{args.dtype}.jsonl"
    runs = judged(rows, judge, kept, args.minutes)
    made = {
        "command": record.command("guard"),
        "commit": record.commit(),
        "environment": environment(),
        "judged_by": judge.describe(),
        "draw": {"limits": LIMITS, "limit": args.limit, "least_steps": LEAST_STEPS, "seed": args.seed, "folds": FOLDS},
        "drawn": len(rows),
    }
    return {**made, **counts(runs)}, runs


if __name__ == "__main__":
    main()
