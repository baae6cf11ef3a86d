"""RL in the lab: algorithms, masks, process rewards and a second environment, over seeds, beside the baselines.

    python -m benchmarks.studies.rl_lab --arms ppo,grpo,rloo,reinforce++ --seeds 5 --parallel 2
    python -m benchmarks.studies.rl_lab --collect          # only write the results from the runs that are done

Every (arm, seed) is a `reagent train` of its own in runs/rl_lab/<arm>/seed<k>, one thread each, and is not repeated once it
is done; a run that was stopped continues. Writes benchmarks/results/rl_lab.json and rl_lab.png. An arm without runs here keeps
what the results file says of it, with the command and machine that measured it; all arms start from the shipped policy, whose
hash is recorded.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import record
from benchmarks.studies.study import begin, call, hops_of, parse, training_command, two_way_interval
from reagent.lab.shipped import lab_policy_folder
from rrm.data.provenance import environment

CALCULATOR = [
    "environment.name=calculator",
    "environment.train={hops: [2, 3]}",
    "environment.eval={hops: [2, 3, 4, 5]}",
]
NO_PROCESS = ["environment.options={rewards: {useful: 0.0, repeated: 0.0, malformed: 0.0}}", "loss.credit=episode"]
ARMS: dict[str, list[str]] = {
    "ppo": ["algorithm=ppo"],
    "grpo": ["algorithm=grpo"],
    "rloo": ["algorithm=rloo"],
    "reinforce++": ["algorithm=reinforce++"],
    "ppo-no-advantage-mask": ["algorithm=ppo", "loss.advantage_mask=false"],
    "ppo-no-masks": ["algorithm=ppo", "loss.advantage_mask=false", "loss.action_mask=false"],
    "grpo-no-masks": ["algorithm=grpo", "loss.advantage_mask=false", "loss.action_mask=false"],
    "ppo-no-process": ["algorithm=ppo", *NO_PROCESS],
    "grpo-no-process": ["algorithm=grpo", *NO_PROCESS],
    "ppo-calculator": ["algorithm=ppo", *CALCULATOR],
    "grpo-calculator": ["algorithm=grpo", *CALCULATOR],
}
SEEDS = {"ppo-calculator": 3, "grpo-calculator": 3}
"""Five for all others."""
ALGORITHMS = ("ppo", "grpo", "rloo", "reinforce++")
BASELINES = ("tool_call", "naive_rag", "direct")


def run_arm(runs: Path, arm: str, seed: int, extra: list[str]) -> None:
    """One training, unless it is done. Its seconds are those of the last continuation."""
    folder = runs / arm / f"seed{seed}"
    if (folder / "done.json").is_file():
        return
    start = time.monotonic()
    call(
        ["train", "--config", "lab", "policy.base=lab", *ARMS[arm], f"seed={seed}", f"output_dir={folder}", *extra],
        folder.with_suffix(".log"),
    )
    done = {"seconds": round(time.monotonic() - start, 1), "commit": record.commit()}
    (folder / "done.json").write_text(json.dumps(done) + "\n")


def run_baseline(runs: Path, kind: str) -> None:
    """Build (or take) a baseline's policy and evaluate it on the held-out tasks of both environments."""
    folder = runs / "baselines" / kind
    folder.mkdir(parents=True, exist_ok=True)
    policy = folder / "policy"
    if kind != "tool_call" and not (policy / "card.json").is_file():
        call(["lab", "build", "-o", str(policy), "--kind", kind], folder / "build.log")
    chosen = [] if kind == "tool_call" else ["--policy", str(policy)]
    for name, overrides in (("search", []), ("calculator", CALCULATOR)):
        target = folder / f"{name}.json"
        if target.is_file() or (name == "calculator" and kind != "tool_call"):
            continue
        call(
            ["eval", "--config", "lab", "policy.base=lab", *chosen, "-o", str(target), *overrides],
            folder / f"{name}.log",
        )


def policy_hash() -> str:
    """SHA-256 of the shipped base policy's weights."""
    return json.loads((lab_policy_folder() / "card.json").read_text())["sha256"]


def collect_arm(folders: list[Path]) -> dict[str, Any]:
    """The last held-out evaluation of each seed, pooled."""
    evaluations = [json.loads((f / "eval.jsonl").read_text().splitlines()[-1]) for f in folders]
    done = [json.loads((f / "done.json").read_text()) for f in folders]
    return pool(evaluations) | {
        "seeds": len(folders),
        "episodes": evaluations[0]["episodes"],
        "updates": evaluations[0]["update"] + 1,
        "curve": curve_of(folders),
        "seconds": [d["seconds"] for d in done],
        "commit": ", ".join(sorted({d.get("commit") or "unknown" for d in done})),
    }


def pool(evaluations: list[dict[str, Any]]) -> dict[str, Any]:
    """Success with intervals over seeds × tasks, overall and by hop count."""
    tasks = sorted(evaluations[0]["by_task"])
    hops = sorted(int(h) for h in evaluations[0]["success_by_hops"])
    table = np.array([[e["by_task"][t] for t in tasks] for e in evaluations])
    of = np.array([hops_of(t, hops) for t in tasks])
    return {
        "success": two_way_interval(table, within=(0, 1)),
        "success_by_hops": {str(h): two_way_interval(table[:, of == h], within=(0, 1)) for h in hops},
        **{k: float(np.mean([e[k] for e in evaluations])) for k in ("turns", "malformed", "tool_calls", "reward")},
    }


def curve_of(folders: list[Path]) -> dict[str, Any]:
    """Training success by update: `episodes` (U,) and `success` (seeds, U)."""
    found = [[json.loads(line) for line in (f / "metrics.jsonl").read_text().splitlines()] for f in folders]
    return {
        "episodes": [row["episodes"] for row in found[0]],
        "success": [[round(row["episode/success"], 4) for row in rows] for rows in found],
    }


def plot(arms: dict[str, Any], target: Path) -> None:
    """Training success over episodes, mean over seeds with the range between them."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(7, 4))
    for name, arm in arms.items():
        y = np.array(arm["curve"]["success"])
        smooth = np.array([np.convolve(row, np.ones(5) / 5, mode="valid") for row in y])
        x = np.array(arm["curve"]["episodes"])[4:]
        (line,) = axis.plot(x, smooth.mean(0), label=name)
        axis.fill_between(x, smooth.min(0), smooth.max(0), alpha=0.15, color=line.get_color())
    axis.set_xlabel("episodes")
    axis.set_ylabel("success on training tasks (5-update mean)")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(target, dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    args, seeds = parse(parser, "rl_lab", ARMS, SEEDS)
    begin(args.runs, overrides=args.overrides, policy=policy_hash())
    if not args.collect:
        with ThreadPoolExecutor(args.parallel) as pool_:
            jobs = [pool_.submit(run_baseline, args.runs, kind) for kind in BASELINES]
            # seeds outermost: an interrupted study has every arm
            for seed in range(max(seeds.values())):
                due = [arm for arm in seeds if seed < seeds[arm]]
                jobs += [pool_.submit(run_arm, args.runs, arm, seed, args.overrides) for arm in due]
            for job in jobs:
                job.result()
    made = {
        "command": training_command("rl_lab"),
        "environment": environment(),
        "policy": policy_hash(),
    }
    found: dict[str, Any] = {"baselines": {}, "arms": {}}
    if args.output.is_file():
        found |= {k: v for k, v in json.loads(args.output.read_text()).items() if k in found}
    for kind in BASELINES:
        for path in sorted((args.runs / "baselines" / kind).glob("*.json")):
            if path.stem in ("search", "calculator"):
                of = found["baselines"].setdefault(path.stem, {})
                of[kind] = pool([json.loads(path.read_text())]) | {"made": made}
    for arm in ARMS:
        done = [p.parent for p in sorted((args.runs / arm).glob("seed*/done.json"))]
        if done:
            found["arms"][arm] = collect_arm(done) | {"made": made}
    found["arms"] = {arm: found["arms"][arm] for arm in ARMS if arm in found["arms"]}
    record.write(args.output, made | found)
    plot({a: found["arms"][a] for a in ALGORITHMS if a in found["arms"]}, args.output.with_suffix(".png"))
    for name, row in [*found["baselines"].get("search", {}).items(), *found["arms"].items()]:
        s = row["success"]
        print(f"{name:24s} {s['value']:.3f} [{s['low']:.3f}, {s['high']:.3f}]  " + "  ".join(
            f"{h}: {v['value']:.2f}" for h, v in row["success_by_hops"].items()))  # fmt: skip
    print(json.dumps({"arms": len(found["arms"]), "output": str(args.output)}))


if __name__ == "__main__":
    main()
