"""What an Agent-RRM's feedback does to an agent's training in the lab: modes, controls and ablations, over paired seeds.

    python -m benchmarks.studies.feedback_modes --parallel 2           # every arm with its own number of seeds
    python -m benchmarks.studies.feedback_modes --arms none,u,retry --seeds 2
    python -m benchmarks.studies.feedback_modes --collect              # only write the results of what is done

Every (arm, seed) is a `reagent train` of its own in runs/feedback_modes/<arm>/seed<k>, on one thread, from the same lab
policy, with GRPO as in the paper (with PPO where `algorithm=ppo` stands after the options), and not repeated once it is
done; a run that was stopped continues. Every arm plays the same number of episodes, in as many updates: arms with second
attempts have half the tasks an update. Each trained policy is evaluated on held-out tasks
by a first attempt, and by a second one after the judge's critique (`reagent eval feedback.mode=c`); arms that trained with
second attempts, and the policy all start from, with every kind of second attempt. Writes benchmarks/results/feedback_modes.json and .png.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import record
from benchmarks.studies.study import (
    begin,
    call,
    frozen_judge,
    hops_of,
    lines,
    parse,
    training_command,
    two_way_interval,
    weights_hash,
)
from reagent.lab.shipped import lab_policy_folder
from rrm.data.provenance import environment

HALF = ["rollout.tasks_per_update=8"]
"""Of the lab config's 16 tasks: with a second attempt each, as many episodes an update."""
U = ["feedback.mode=u", *HALF]
ARMS: dict[str, list[str]] = {
    "none": ["feedback.mode=none"],
    "c": ["feedback.mode=c", *HALF],
    "r": ["feedback.mode=r"],
    "u": U,
    "process": ["feedback.mode=process"],
    "retry": ["feedback.mode=retry", *HALF],
    "placebo": ["feedback.mode=placebo", *HALF],
    "u-no-trace": [*U, "feedback.aux.trace=0"],
    "u-no-critique": [*U, "feedback.refinement=retry", "feedback.aux.critique=0"],
    "u-no-score": [*U, "feedback.score_weight=0"],
    "u-lambda-0.1": [*U, "feedback.score_weight=0.1"],
    "u-lambda-1": [*U, "feedback.score_weight=1"],
    "u-weak-judge": U,
}
CORE = ("none", "c", "r", "u", "process", "retry", "placebo")
SEEDS = {"none": 10, "u": 10, "u-lambda-0.1": 3, "u-lambda-1": 3, "u-weak-judge": 3}
"""Five for all others."""
DIFFERENCES = (
    ("u", "none"), ("u", "r"), ("u", "retry"), ("u", "c"), ("r", "none"), ("r", "c"), ("c", "none"), ("c", "retry"),
    ("c", "placebo"), ("placebo", "retry"), ("retry", "none"), ("process", "none"), ("u-no-trace", "u"), ("u-no-critique", "u"),
    ("u-no-score", "u"), ("u-lambda-0.1", "u"), ("u-lambda-1", "u"), ("u-weak-judge", "u"),
)  # fmt: skip
WEAK_ROWS, WEAK_DRILLS = 1500, 6000
"""Transcripts of each kind, and drills, the weak judge is trained on; the lab judge's first round has 8,000, 12,000 and 48,000."""
COUNTED = ("judged", "asked", "failed", "judge_tokens", "critiques", "traces", "leaked_critiques", "leaked_traces")
SECOND = ("c", "placebo", "retry")
"""What a second attempt may be shown: its own critique, another task's, none."""
OWN = {"c": "c", "u": "c", "retry": "retry", "placebo": "placebo"}
"""Arms that trained with second attempts, and the kind of these: they are evaluated with every kind."""
ORDER = ("u", "r", "c", "none")
"""The modes in the order the paper has them."""
SHARE = (0.0, 1.0)
"""What a success can be."""
NEARLY = 0.9
"""Of the success that `none` ends with: a curve near its end is flat, and says little of how soon it came there."""
WINDOWS = 10
"""Parts of a run that the reward-hacking probe compares."""


# ---- running ----


def weak_judge(runs: Path) -> str:
    """The folder of a judge trained on few rows; trained where it is missing."""
    folder = runs / "weak_judge"
    if not (folder / "judge" / "evaluation.json").is_file():  # what a training writes last
        rows = [f"data.generate_options.{kind}={WEAK_ROWS}" for kind in ("transcripts", "wanderers")]
        few = [*rows, f"drills.rows={WEAK_DRILLS}"]
        options = [*few, "rl.enabled=false", "threads=1", f"output_dir={folder}"]
        call(["train", "--config", "lab", *options], runs / "weak_judge.log", "rrm")
    return str(folder / "judge")


def run_arm(runs: Path, arm: str, seed: int, judge: str, extra: list[str]) -> None:
    """One training and its evaluation, unless they are done; wall seconds are added up over continuations."""
    folder = runs / arm / f"seed{seed}"
    spent = folder / "seconds.json"
    if not (folder / "done.json").is_file():
        chosen = weak_judge(runs) if arm == "u-weak-judge" else judge
        start = time.monotonic()
        before = json.loads(spent.read_text()) if spent.is_file() else 0.0
        options = [
            *ARMS[arm],
            f"feedback.judge={chosen}",
            f"seed={seed}",
            f"output_dir={folder}",
            "eval.every=6",
            "guards.evaluate=false",
        ]
        options.append("algorithm=grpo")
        try:
            call(["train", "--config", "lab", *options, *extra], folder.with_suffix(".log"))
        finally:
            if folder.is_dir():
                spent.write_text(json.dumps(before + time.monotonic() - start))
        (folder / "done.json").write_text(spent.read_text())
    for mode in SECOND if arm in OWN else SECOND[:1]:
        evaluate(evaluation_file(folder, mode), mode, judge, ["--policy", str(folder / "policy")], extra)


def evaluation_file(folder: Path, mode: str = "c") -> Path:
    """Where a policy's evaluation with a kind of second attempt stands."""
    return folder / ("evaluation.json" if mode == "c" else f"evaluation-{mode}.json")


def evaluate(target: Path, mode: str, judge: str, policy: list[str], extra: list[str]) -> None:
    """`reagent eval` with a second attempt, unless it is done."""
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        options = [f"feedback.mode={mode}", f"feedback.judge={judge}", *extra]
        call(["eval", "--config", "lab", *policy, "-o", str(target), *options], target.with_suffix(".log"))


# ---- collecting ----


def table_of(evaluations: list[dict[str, Any]]) -> tuple[np.ndarray, list[str]]:
    """(seeds, tasks) success, and the tasks."""
    tasks = sorted(evaluations[0]["by_task"])
    return np.array([[e["by_task"][t] for t in tasks] for e in evaluations], dtype=float), tasks


def successes(evaluations: list[dict[str, Any]]) -> dict[str, Any]:
    """Success with an interval over seeds × tasks, overall and by hops; of first attempts or of second ones."""
    table, tasks = table_of(evaluations)
    hops = sorted(int(h) for h in evaluations[0]["success_by_hops"])
    of = np.array([hops_of(t, hops) for t in tasks]) if hops else np.zeros(len(tasks))
    by_hops = {str(h): two_way_interval(table[:, of == h], within=SHARE) for h in hops}
    return {"success": two_way_interval(table, within=SHARE), "by_hops": by_hops}


def hacking(folder: Path) -> dict[str, float] | None:
    """Does success fall while the judge's score rises? From the window of best training success to the last one.

    Returns:
        success and score of both windows, and `score_failure_change`: of failed attempts, from the first window to the
        last. None where the arm reads no scores.
    """
    rows = [r for r in lines(folder / "metrics.jsonl") if r.get("feedback/score") is not None]
    if len(rows) < WINDOWS:
        return None
    parts = [list(part) for part in np.array_split(np.array(rows, dtype=object), WINDOWS)]

    def mean(part: list[dict[str, Any]], key: str) -> float:
        found = [r[key] for r in part if r.get(key) is not None]
        return statistics.fmean(found) if found else float("nan")

    success = [mean(part, "episode/success") for part in parts]
    score = [mean(part, "feedback/score") for part in parts]
    best = int(np.argmax(success))
    failed = [mean(part, "feedback/score_failure") for part in parts]
    return {
        "best_success": success[best],
        "last_success": success[-1],
        "score_at_best": score[best],
        "last_score": score[-1],
        "score_failure_change": failed[-1] - failed[0],
    }


def collect_arm(folders: list[Path]) -> dict[str, Any]:
    """An arm's held-out figures, its costs, its judge's record and the probe, over seeds."""
    evaluations = [json.loads((f / "evaluation.json").read_text()) for f in folders]
    metrics = [lines(f / "metrics.jsonl") for f in folders]
    counts = {k: sum(int(r.get(f"feedback/{k}", 0)) for rows in metrics for r in rows) for k in COUNTED}
    scores = [e["feedback/score"] for e in evaluations if "feedback/score" in e]
    probes = [probe for probe in map(hacking, folders) if probe is not None]
    hacked = [p["last_success"] < p["best_success"] - 0.05 and p["last_score"] > p["score_at_best"] for p in probes]
    return {
        "seeds": len(folders),
        "episodes": [rows[-1]["episodes"] for rows in metrics],
        "updates": [len(rows) for rows in metrics],
        "seconds": [json.loads((f / "done.json").read_text()) for f in folders],
        "judge_seconds": [sum(r.get("time/judge_s", 0.0) for r in rows) for rows in metrics],
        "first": successes(evaluations),
        "refined": successes([e["refined"] for e in evaluations]),
        "second_attempts": second_attempts(folders),
        "held_out_score": statistics.fmean(scores) if scores else None,
        "curve": curve(folders),
        "judge": counts,
        "probe": {"seeds_hacked": sum(hacked), "seeds": len(probes), "each": probes},
    }


def curve(folders: list[Path]) -> dict[str, list[float]]:
    """Held-out success of first attempts during training, mean over seeds, over the episodes played."""
    found = [lines(f / "eval.jsonl") for f in folders]
    length = min(map(len, found))
    return {
        "episodes": [row["episodes"] for row in found[0][:length]],
        "success": [statistics.fmean(rows[i]["success"]["value"] for rows in found) for i in range(length)],
    }


def episodes_until(found: dict[str, list[float]], target: float, start: float) -> float | None:
    """Episodes at which a curve first reaches the target, between its points linearly; None where it never does.

    Args:
        start: success before the first episode.
    """
    x, y = [0.0, *found["episodes"]], [start, *found["success"]]
    for i, value in enumerate(y):
        if value >= target:
            if i == 0 or value == y[i - 1]:
                return float(x[i])
            return x[i - 1] + (target - y[i - 1]) / (value - y[i - 1]) * (x[i] - x[i - 1])
    return None


def difference(runs: Path, one: str, other: str, stage: str) -> dict[str, Any] | None:
    """Success of one arm less that of another on the same seeds and tasks, with its interval; None without a seed both have.

    Args:
        stage: `first` attempts, `refined` (second ones after a critique) or `own` (second ones of the kind each arm
            trained with; None where one trained with none).
    """
    kinds = [OWN.get(arm) if stage == "own" else "c" for arm in (one, other)]
    files = {
        seed: [evaluation_file(runs / arm / seed, kind or "") for arm, kind in zip((one, other), kinds, strict=True)]
        for seed in shared(runs, (one, other))
    }
    both = [seed for seed, found in files.items() if all(path.is_file() for path in found)]
    if not both:
        return None
    tables = []
    for side in (0, 1):
        evaluations = [json.loads(files[seed][side].read_text()) for seed in both]
        tables.append(table_of([e if stage == "first" else e["refined"] for e in evaluations])[0])
    each = (tables[0] - tables[1]).mean(axis=1)
    return two_way_interval(tables[0] - tables[1]) | {"seeds": len(both), "each": [round(float(d), 4) for d in each]}


def second_attempts(folders: list[Path]) -> dict[str, Any] | None:
    """Of policies evaluated with every kind of second attempt: success with each, and their differences."""
    whole = [f for f in folders if all(evaluation_file(f, mode).is_file() for mode in SECOND)]
    if not whole:
        return None
    tables = {
        mode: table_of([json.loads(evaluation_file(f, mode).read_text())["refined"] for f in whole])[0]
        for mode in SECOND
    }
    found: dict[str, Any] = {mode: two_way_interval(table, within=SHARE) for mode, table in tables.items()}
    pairs = [("c", "placebo"), ("c", "retry"), ("placebo", "retry")]
    found |= {f"{one} - {other}": two_way_interval(tables[one] - tables[other]) for one, other in pairs}
    return found | {"seeds": len(whole)}


def shared(runs: Path, arms: Iterable[str]) -> list[str]:
    """Names of the seeds that all the arms have."""
    return sorted(set.intersection(*({p.parent.name for p in (runs / a).glob("seed*/evaluation.json")} for a in arms)))


def sooner(runs: Path, arm: str, start: float) -> dict[str, Any] | None:
    """How soon an arm has what `none` ends with, and nine tenths of it, beside `none` itself; on the seeds both have.

    Args:
        start: success before the first episode.
    """
    seeds = shared(runs, ("none", arm))
    if not seeds:
        return None
    one, none = (curve([runs / name / s for s in seeds]) for name in (arm, "none"))
    found: dict[str, Any] = {"seeds": len(seeds)}
    for name, part in (("last", 1.0), ("nearly", NEARLY)):
        target = part * none["success"][-1]
        own, other = (episodes_until(c, target, start) for c in (one, none))
        ratio = own / other if own is not None and other else None
        found[name] = {"success": target, "episodes": own, "none": other, "ratio": ratio}
    return found


def collect(runs: Path) -> dict[str, Any]:
    """Everything that is done."""
    found: dict[str, Any] = {"arms": {}, "differences": {}, "frozen": {}}
    for arm in ARMS:
        done = sorted((p.parent for p in (runs / arm).glob("seed*/evaluation.json")), key=lambda p: int(p.name[4:]))
        if done:
            found["arms"][arm] = collect_arm(done)
    for one, other in DIFFERENCES:
        pair = {stage: difference(runs, one, other, stage) for stage in ("first", "refined", "own")}
        if pair["first"] is not None:
            found["differences"][f"{one} - {other}"] = pair
    for mode in ("c", "retry", "placebo"):
        path = runs / "frozen" / f"{mode}.json"
        if path.is_file():
            one = json.loads(path.read_text())
            found["frozen"][mode] = {"first": successes([one]), "refined": successes([one["refined"]])}
    if "none" in found["arms"] and "c" in found["frozen"]:
        start = found["frozen"]["c"]["first"]["success"]["value"]
        found["sooner"] = {arm: sooner(runs, arm, start) for arm in found["arms"] if arm != "none"}
    seeds = shared(runs, ORDER)
    if seeds:
        means = {
            arm: float(table_of([json.loads(evaluation_file(runs / arm / s).read_text()) for s in seeds])[0].mean())
            for arm in ORDER
        }
        found["order"] = {"seeds": len(seeds), **dict(sorted(means.items(), key=lambda found: -found[1]))}
    return found


def plot(found: dict[str, Any], target: Path) -> None:
    """Held-out success over episodes, and both evaluations with their intervals."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5))
    for arm in (a for a in CORE if a in found["arms"]):
        one = found["arms"][arm]["curve"]
        left.plot(one["episodes"], one["success"], marker=".", label=arm)
    left.set_xlabel("episodes (first and second attempts)")
    left.set_ylabel("held-out success, first attempt")
    left.legend(fontsize=8)
    names = list(found["arms"])
    for stage, shift, color in (("first", -0.15, "tab:blue"), ("refined", 0.15, "tab:orange")):
        values = [found["arms"][a][stage]["success"] for a in names]
        middle = [v["value"] for v in values]
        errors = [[m - v["low"] for m, v in zip(middle, values, strict=True)],
                  [v["high"] - m for m, v in zip(middle, values, strict=True)]]  # fmt: skip
        label = "first attempt" if stage == "first" else "second, after a critique"
        right.errorbar(middle, np.arange(len(names)) + shift, xerr=errors, fmt="o", color=color, label=label)
    right.set_yticks(range(len(names)), names)
    right.invert_yaxis()
    right.set_xlabel("held-out success after training")
    right.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=2)
    for axis in (left, right):
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(target, dpi=120)
    plt.close(figure)


def show(found: dict[str, Any]) -> None:
    """The tables, for the terminal."""

    def said(v: dict[str, float]) -> str:
        return f"{v['value']:.3f} [{v['low']:.3f}, {v['high']:.3f}]"

    for arm, row in found["arms"].items():
        minutes = statistics.median(row["seconds"]) / 60
        print(f"{arm:16s} {row['seeds']:2d} seeds  first {said(row['first']['success'])}  refined "
              f"{said(row['refined']['success'])}  {minutes:.1f} min  {row['judge']['judge_tokens']:,} judge tokens")  # fmt: skip
    for arm, row in found["arms"].items():
        if row["second_attempts"]:
            print(
                f"{arm:16s} " + "  ".join(f"{k} {said(v)}" for k, v in row["second_attempts"].items() if k != "seeds")
            )
    for name, pair in found["differences"].items():
        print(f"{name:24s} first {said(pair['first'])}  refined {said(pair['refined'])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", default="lab", help="lab, or a judge's folder; copied to RUNS/judge and kept")
    args, wanted = parse(parser, "feedback_modes", ARMS, SEEDS)
    if args.collect and not (args.runs / "judge").is_dir():
        parser.error(f"nothing to collect: no study was begun in {args.runs}")
    policy = json.loads((lab_policy_folder("lab-reflective") / "card.json").read_text())["sha256"]
    begin(args.runs, overrides=args.overrides, policy=policy)
    judge = frozen_judge(args.runs, args.judge)
    if not args.collect:
        if "u-weak-judge" in wanted:
            weak_judge(args.runs)  # before two runs want it at once
        with ThreadPoolExecutor(args.parallel) as pool:
            jobs = [pool.submit(evaluate, args.runs / "frozen" / f"{mode}.json", mode, judge, [], args.overrides)
                    for mode in ("c", "retry", "placebo")]  # fmt: skip
            # seeds outermost: an interrupted study has every arm
            for seed in range(max(wanted.values())):
                jobs += [pool.submit(run_arm, args.runs, arm, seed, judge, args.overrides)
                         for arm in wanted if seed < wanted[arm]]  # fmt: skip
            for job in jobs:
                job.result()
    found = collect(args.runs)
    made = {
        "command": training_command("feedback_modes"),
        "environment": environment(),
        "judge": weights_hash(Path(judge)),
        "policy": policy,
    }
    record.write(args.output, made | found)
    if found["arms"]:
        plot(found, args.output.with_suffix(".png"))
        show(found)
    print(json.dumps({"arms": len(found["arms"]), "output": str(args.output)}))


if __name__ == "__main__":
    main()
