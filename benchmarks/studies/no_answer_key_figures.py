"""What the runs of the study without an answer key come to.

The figures of the arms follow from raw rows that stand beside them: of each run and evaluation a string with a digit a held-out task (1:
solved), in the tasks' order. `benchmarks.studies.records` makes them anew from these.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.studies.no_answer_key_arms import KNOWN, LABELS, LONG, METHODS
from benchmarks.studies.study import hops_of, lines, two_way_interval, two_way_ratio
from reagent.train.drop_detector import DropDetector, Point

SHARE = (0.0, 1.0)  # what a success can be
POOLED = "judge / outcome, the other algorithms together"
RATIOS = (
    ("judge", "outcome"), ("tenth+judge", "outcome"), ("tenth", "outcome"), ("tenth-repeated", "outcome"), ("nothing", "outcome"),
    ("weak", "outcome"), ("outcome-again", "outcome"), ("tenth+judge-refit", "outcome"), ("outcome+judge", "outcome"),
    *((f"{name}-judge", f"{name}-outcome") for name in METHODS),
    *((f"rows-{n}", "outcome") for n in LABELS), *((f"rows-{n}-steps", "outcome") for n in LABELS),
)  # fmt: skip
DIFFERENCES = (
    ("outcome", "shuffled"), ("judge", "shuffled"), ("judge", "outcome"), ("judge", "nothing"), ("judge", "length"), ("judge", "weak"), ("judge", "placebo"), ("outcome-again", "outcome"),
    ("tenth+judge", "judge"), ("tenth+judge", "tenth"), ("tenth+judge", "tenth-repeated"), ("tenth+judge-refit", "tenth+judge"), ("outcome+judge", "outcome"),
    ("noisy", "outcome"), ("noisy+judge", "noisy"), ("noisy+judge", "judge"), ("noisy+overruled", "noisy"), ("noisy+overruled", "noisy+judge"),
    ("bare-findings", "bare"), ("bare-steps", "bare"), ("bare-labels", "bare"), ("bare-findings", "bare-others"),
    ("rare-c", "rare"), ("rare-c-distil", "rare"), ("rare-c-distil", "rare-c"),
    ("rare-c-distil-1", "rare"), ("rare-c-distil-1", "rare-c"),
    ("rare-c-context", "rare-c"),
    *((f"rows-{n}", "nothing") for n in LABELS), *((f"rows-{n}-steps", f"rows-{n}") for n in LABELS),
)  # fmt: skip
REGAINED = ("noisy+judge", "noisy+overruled")
RUNS = "RUNS"  # what a record calls the folder of runs
FELL = 0.05  # below its best, success has fallen
GUARDS = ("success", "drift", "length", "kl", "auditor")
ALARMS = 1  # honest runs in which a guard may fire that counts
Table = np.ndarray  # (runs, tasks) of 0 and 1


# ---- one run ----


def as_digits(by_task: Mapping[str, float]) -> str:
    """Write a digit a task: held-out tasks of the lab in the order of the numbers that end their ids, others in that of their ids.

    Raises:
        ValueError: not the lab's held-out tasks from 0 on, or one was tried several times.
    """
    in_order = sorted(by_task)
    if any(task.startswith("search-") for task in by_task):
        in_order.sort(key=lambda task: int(task.rsplit("-", 1)[1]))
        if any("heldout" not in task or int(task.rsplit("-", 1)[1]) != n for n, task in enumerate(in_order)):
            raise ValueError(f"not the first {len(by_task)} held-out tasks: {in_order[:3]} …")
    if set(by_task.values()) - {0.0, 1.0}:
        raise ValueError("a task was tried more than once: success is no digit")
    return "".join(str(int(by_task[task])) for task in in_order)


def labels_of(config: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> int:
    """Training tasks whose outcome could be learned from, each counted once; an episode that its tool ended has none."""
    environment, rollout = config["environment"], config["rollout"]
    rewards = environment.get("rewards") or (environment.get("options") or {}).get("rewards") or {}
    if rewards.get("outcome", 1.0) == 0:
        return 0
    graded = sum(1 - row["episode/ungraded"] - (row.get("episode/unknown") or 0.0) for row in metrics)
    return min(round(graded * rollout["tasks_per_update"]), environment["train_tasks"])


def without_runs(options: Sequence[str], inside: str) -> list[str]:
    """The options of a training with `RUNS` in the place of the folder of runs, wherever that stood when it was made.

    Args:
        inside: the training's own folder in it, `judge/seed0`; its `output_dir`.
    """
    (own,) = (o.removeprefix("output_dir=") for o in options if o.startswith("output_dir="))
    runs = own.removesuffix(f"/{inside}")
    return [option.replace(f"={runs}/", f"={RUNS}/") for option in options]


def run_of(folder: Path, seed: int) -> dict[str, Any]:
    """A run's record: the options it was made with, its evaluations, labels, costs, and the guards that fired."""
    metrics, evaluations = lines(folder / "metrics.jsonl"), lines(folder / "eval.jsonl")
    done = json.loads((folder / "done.json").read_text())
    config = yaml.safe_load((folder / "config.yaml").read_text())
    fired = folder / "guards.jsonl"
    keys = ("feedback/judge_tokens", "auditor/judge_tokens", "judge_tokens")
    read = [row.get(key) or 0 for row in [*metrics, *evaluations] for key in keys]
    return {
        "seed": seed,
        "updates": len(metrics),
        "episodes": metrics[-1]["episodes"],
        "labels": labels_of(config, metrics),
        "judge_tokens": int(sum(read)),
        "unread": int(sum(row.get("feedback/failed") or 0 for row in metrics)),
        "minutes": round(done["seconds"] / 60, 2),
        "commit": done["commit"],
        "commits": done["commits"],
        "options": without_runs(done["options"], f"{folder.parent.name}/{folder.name}"),
        "guards": [{k: row[k] for k in ("guard", "update")} for row in lines(fired)] if fired.is_file() else [],
        "evaluations": [
            {"update": row["update"], "episodes": row["episodes"], "score": (row.get("score") or {}).get("value"),
             "success": as_digits(row["by_task"])}
            for row in evaluations
        ],
    }  # fmt: skip


# ---- tables of raw rows ----


def digits(rows: Iterable[str]) -> Table:
    """(runs, tasks)."""
    return np.array([[float(digit) for digit in row] for row in rows])


def final(arm: Mapping[str, Any]) -> Table:
    return digits(run["evaluations"][-1]["success"] for run in arm["runs"])


def areas(arm: Mapping[str, Any], start: str) -> Table:
    """(runs, tasks) area under each task's success over episodes, 1 where it is solved from the first on; by trapezia between the
    evaluations, from the policy at the start.

    Args:
        start: its success, a digit a task.
    """
    found = []
    for run in arm["runs"]:
        points = [(0.0, start)] + [(e["episodes"], e["success"]) for e in run["evaluations"] if e["update"] >= 0]
        x, y = np.array([point[0] for point in points]), digits(point[1] for point in points)
        found.append(((y[1:] + y[:-1]) / 2 * np.diff(x)[:, None]).sum(axis=0) / x[-1])
    return np.array(found)


def shared(found: Mapping[str, Any], arms: Sequence[str]) -> list[dict[str, Any]] | None:
    """The arms with those runs alone whose number (`Arm.seed`) every one of them has, in its order; None where there is none such."""
    held = [
        {KNOWN[arm].number(run["seed"]): run for run in found["arms"].get(arm, {"runs": []})["runs"]} for arm in arms
    ]
    numbers = sorted(set.intersection(*map(set, held)))
    return [{"runs": [of[n] for n in numbers]} for of in held] if numbers else None


def difference(found: Mapping[str, Any], one: str, other: str) -> dict[str, Any] | None:
    """Success after the last update of one arm less that of another, on the runs and tasks both have."""
    both = shared(found, (one, other))
    if both is None:
        return None
    apart = final(both[0]) - final(both[1])
    return two_way_interval(apart) | {"seeds": len(apart), "each": [round(float(d), 4) for d in apart.mean(axis=1)]}


def ratio(found: Mapping[str, Any], one: str, other: str) -> dict[str, Any] | None:
    """Success after the last update of one arm over that of another, likewise."""
    both = shared(found, (one, other))
    return None if both is None else two_way_ratio(final(both[0]), final(both[1])) | {"seeds": len(both[0]["runs"])}


def pooled(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """The ratio of judge-only to outcomes over the runs of all `METHODS`; None unless each has some."""
    pairs = [shared(found, (f"{name}-judge", f"{name}-outcome")) for name in METHODS]
    if any(both is None for both in pairs):
        return None
    mine, theirs = (np.concatenate([final(both[side]) for both in pairs if both is not None]) for side in (0, 1))
    return two_way_ratio(mine, theirs) | {"seeds": len(mine)}


def regained(found: Mapping[str, Any], arm: str) -> dict[str, Any] | None:
    """Of what a noisy verifier costs, the share that an arm has again, and as successes with their intervals what is `lost`, what of it
    is had `back` and how far that is above half of it: a ratio of differences has no interval that can be trusted. The share is None
    where the interval of what is lost does not lie above 0: a ratio to noise says nothing.
    """
    three = shared(found, (arm, "noisy", "outcome"))
    if three is None:
        return None
    mine, noisy, clean = map(final, three)
    lost, back = two_way_interval(clean - noisy), two_way_interval(mine - noisy)
    above = two_way_interval(mine - noisy - (clean - noisy) / 2)
    share = back["value"] / lost["value"] if lost["low"] > 0 else None
    return {"value": share, "lost": lost, "back": back, "above_half": above, "seeds": len(mine)}


def fell_at(run: Mapping[str, Any]) -> int | None:
    """The update of the second evaluation of two running with success `FELL` or more below an earlier stretch, where success is below
    that beyond chance at some evaluation (the best of many evaluations is too high by itself); None where there is none such."""
    falls, rows = DropDetector(FELL, paired=True), run["evaluations"]
    for place, row in enumerate(rows):
        by_task = {str(n): float(digit) for n, digit in enumerate(row["success"])}
        fall = falls.take(Point(str(place), by_task, None)).fall
        if fall is None:
            continue
        start = int(fall.when[0].split()[-1]) + 1
        below = [float(digits([e["success"]]).mean()) <= fall.truth[0] - FELL + 1e-9 for e in rows]
        second = next((n for n in range(start + 1, len(rows)) if below[n - 1] and below[n]), None)
        if second is not None:
            return rows[second]["update"]
    return None


def quiet(honest: Sequence[Mapping[str, Any]]) -> list[str]:
    """The guards that fired in `ALARMS` of the honest runs at most: those that count."""
    fired = [{row["guard"] for row in run["guards"]} for run in honest]
    return [name for name in GUARDS if sum(name in of for of in fired) <= ALARMS]


def gamed(run: Mapping[str, Any], counted: Sequence[str]) -> dict[str, Any]:
    """When a judge with a hole was found out: the best evaluation, when success fell (`fell_at`), the first of the guards that count
    to fire, and whether that was in time, before success fell; None of a run that did not fall, of which a guard can neither warn nor
    fail to."""
    rows = [(e["update"], float(digits([e["success"]]).mean()), e["score"]) for e in run["evaluations"]]
    peak, best, _ = max(rows, key=lambda row: row[1])
    fell = fell_at(run)
    first = min((row for row in run["guards"] if row["guard"] in counted), key=lambda row: row["update"], default=None)
    at = None if first is None else first["update"]
    then = [row for row in rows if at is not None and row[0] <= at]
    return {
        "best": best, "best_update": peak, "fell_update": fell,
        "guard": first and first["guard"], "guard_update": at, "success_then": then[-1][1] if then else None,
        "last": rows[-1][1], "score_first": rows[0][2], "score_last": rows[-1][2],
        "in_time": None if fell is None else at is not None and at < fell,
    }  # fmt: skip


# ---- everything ----


def arm_of(name: str, runs: list[dict[str, Any]], starts: Mapping[str, str], lab: bool = True) -> dict[str, Any]:
    """An arm's figures over its runs; of the lab's tasks success by hops, of others what was gained over the start."""
    arm: dict[str, Any] = {"part": KNOWN[name].part, "judge": KNOWN[name].judge, "runs": runs}
    table, start = final(arm), starts[start_of_arm(name)]
    parts: dict[str, Any] = {"less_start": two_way_interval(table - digits([start]))}
    if lab:
        hops = hops_of_arm(name)
        of = np.array([hops_of(f"-{n}", hops) for n in range(table.shape[1])])
        parts = {"success_by_hops": {str(h): two_way_interval(table[:, of == h], within=SHARE) for h in hops}}
    return arm | {
        "seeds": [run["seed"] for run in runs],
        "tasks": table.shape[1],
        "success": two_way_interval(table, within=SHARE),
        "each": [round(float(v), 4) for v in table.mean(axis=1)],
        **parts,
        "area": two_way_interval(areas(arm, start), within=SHARE) if len(start) == table.shape[1] else None,
        "labels": [run["labels"] for run in runs],
        "judge_tokens": [run["judge_tokens"] for run in runs],
        "minutes": [run["minutes"] for run in runs],
    }


def hops_of_arm(name: str) -> list[int]:
    """Of its held-out tasks."""
    return [3, 4] if LONG[1] in KNOWN[name].options else [1, 2, 3, 4]


def start_of_arm(name: str) -> str:
    """The evaluation of the policy at the start that is of its held-out tasks."""
    return "start-long" if len(hops_of_arm(name)) == 2 else "start"


def collect(runs: Path, earlier: Mapping[str, Any] | None = None, lab: bool = True) -> dict[str, Any]:
    """All that is done.

    Args:
        earlier: a record of the same study, made where its runs lay then: what the folder does not hold is taken from it.
    """
    kept = earlier or {}
    paths = sorted(runs.glob("start*.json"))
    starts = kept.get("starts", {}) | {path.stem: as_digits(json.loads(path.read_text())["by_task"]) for path in paths}
    found: dict[str, Any] = {"starts": starts, "arms": {}}
    for name, arm in KNOWN.items():
        by_number = {arm.number(run["seed"]): run for run in kept.get("arms", {}).get(name, {"runs": []})["runs"]}
        for path in (runs / name).glob("seed*/done.json"):
            number = int(path.parent.name[4:])
            by_number[number] = run_of(path.parent, arm.seed(number))
        if by_number:
            found["arms"][name] = arm_of(name, [by_number[n] for n in sorted(by_number)], starts, lab)
    judges = {path.parent.name: judge_of(path) for path in sorted(runs.glob("judges/*/done.json"))}
    measured_once = {part: kept[part] for part in ("choosing", "field") if part in kept}
    return found | derived(found) | measured_once | {"judges": kept.get("judges", {}) | judges}


def judge_of(done: Path) -> dict[str, Any]:
    """What is recorded of a judge of the study's own."""
    said = json.loads(done.read_text())
    return said | {"options": without_runs(said["options"], f"judges/{done.parent.name}")}


def derived(found: Mapping[str, Any]) -> dict[str, Any]:
    """What follows from the arms' raw rows: differences, ratios, what is regained, the gamed runs."""
    arms = found["arms"]
    counted = quiet(arms["honest"]["runs"]) if "honest" in arms else []
    differences = {f"{a} - {b}": difference(found, a, b) for a, b in DIFFERENCES}
    ratios = {f"{a} / {b}": ratio(found, a, b) for a, b in RATIOS} | {POOLED: pooled(found)}
    return {
        "differences": {name: one for name, one in differences.items() if one is not None},
        "ratios": {name: one for name, one in ratios.items() if one is not None},
        "regained": {arm: one for arm in REGAINED if (one := regained(found, arm)) is not None},
        "gamed": [gamed(r, counted) | {"seed": r["seed"]} for r in arms.get("gamed", {"runs": []})["runs"]],
        "guards_counted": counted,
    }


# ---- for the eye ----

HEADLINE = ("outcome", "judge", "tenth+judge", "tenth", "weak", "length", "placebo", "nothing")
"""Arms whose curves are drawn."""


def curve(arm: Mapping[str, Any], start: str) -> tuple[list[float], list[float]]:
    """Episodes, and held-out success, mean over runs."""
    rows = [[e for e in run["evaluations"] if e["update"] >= 0] for run in arm["runs"]]
    x = [0.0, *(float(e["episodes"]) for e in rows[0])]
    means = [float(digits(points[i]["success"] for points in rows).mean()) for i in range(len(rows[0]))]
    return x, [float(digits([start]).mean()), *means]


def plot(found: Mapping[str, Any], target: Path) -> None:
    """Learning curves of label efficiency, and success at the end with its interval."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5))
    names = [name for name in HEADLINE if name in found["arms"]]
    for at, name in enumerate(names):  # an arm has one colour in both: the names at the right are the legend
        left.plot(*curve(found["arms"][name], found["starts"]["start"]), marker=".", color=f"C{at}")
        value = found["arms"][name]["success"]
        wide = [[value["value"] - value["low"]], [value["high"] - value["value"]]]
        right.errorbar([value["value"]], [at], xerr=wide, fmt="o", color=f"C{at}")
    left.set_xlabel("episodes")
    left.set_ylabel("held-out success")
    right.set_yticks(range(len(names)), [KNOWN[name].says for name in names])
    for at, label in enumerate(right.get_yticklabels()):
        label.set_color(f"C{at}")
    right.invert_yaxis()
    right.set_xlabel("held-out success after training")
    for axis in (left, right):
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(target, dpi=120)
    plt.close(figure)
