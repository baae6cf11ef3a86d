"""Where a reasoning reward model earns its place: agents that learn by outcomes, by a judge, by both, or by neither.

    python -m benchmarks.studies.no_answer_key --parallel 2            # every arm in the lab, the headline's first
    python -m benchmarks.studies.no_answer_key --only E1               # or E2, E3, E4, E6, U (the field of Reagent-U)
    python -m benchmarks.studies.no_answer_key --arms outcome,judge,nothing --seeds 3
    python -m benchmarks.studies.no_answer_key --config FILE --judge JUDGE --runs RUNS --output RECORD feedback.score_mode=steps
    python -m benchmarks.studies.no_answer_key --collect               # only write the results of what is done
    python -m benchmarks.studies.no_answer_key --keep                  # what the record holds already is not made again

Every (arm, seed) is a training of its own in RUNS/<arm>/seed<k>, on one thread, by GRPO from the policy that the config names, and not
repeated once it is done; a run that was stopped continues. With --keep the record itself stands for the folders of the runs it holds. The
judge is copied at the start and kept. Held-out success is measured on the same tasks in each. With --config it is the study of another
policy on tasks of its own: `LEARNING`, paid by outcomes, by outcomes on other
seeds (A/A), by outcomes dealt anew in each group, by the judge alone, and by both; overrides that all runs share stand behind the options.

Primary figure: held-out success after the last update, judge-only over outcomes, on the same seeds and tasks. What was expected of the
lab's arms was written down before they ran (docstring of commit 85fd7148, which also chose among attempts, E5); bars: `make bars SET=answerless`.

λ is 1, so that λ·s stands where the outcome's 1 stood. The lab's process rewards (a search that found something) are paid in every arm but
those of E3, and tell nobody the answer; `nothing` is paid these alone. E2 flips 30 % of the training grades; `noisy+overruled` has λ = 3. In E3
`bare-others` is paid for what was found of other tasks' attempts, `bare-labels` for the truth; in E4 the policy solves 3 in 100 at the start, and arms
with second attempts have half the tasks an update. E6 counts when a guard would have stopped a run; all go on to the end. Only runs whose
success fell count: below an earlier stretch beyond chance (`reagent.train.drop_detector`), and two evaluations running 0.05 below that. `honest` has the
same guards beside the study's judge; a guard that fires in more than one of its runs counts nowhere.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.record import interval
from benchmarks.studies.no_answer_key_arms import ARMS, COMMON, JUDGE, KNOWN, LONG, STUDY, TRAINED, due
from benchmarks.studies.no_answer_key_figures import HEADLINE, RUNS, collect, plot, start_of_arm
from benchmarks.studies.study import ROOT, Job, begin, call, frozen_judge, judge_hashes, run_all, train_once
from reagent.lab.shipped import SHIPPED, lab_policy_folder
from reagent.train.config import load_agent_config
from rrm.data.provenance import environment
from rrm.judge.judge_dir import content_hash, load_settings

PARTS = tuple(sorted({arm.part for arm in ARMS.values()}))
LEARNING = ("outcome", "outcome-again", "shuffled", "judge", "outcome+judge")
STARTS: dict[str, tuple[str, ...]] = {"start": (), "start-long": LONG}
"""Evaluations of the policy that all start from: of the config's held-out tasks, and of the lab's of three and four hops."""


@dataclass(frozen=True)
class Study:
    """A folder of runs, and what all of them share."""

    runs: Path
    judge: str  # the folder of the judge as it was copied
    extra: tuple[str, ...] = ()  # overrides of every training and evaluation
    config: str = "lab"  # a shipped config, or a file
    _locks: dict[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))

    @staticmethod
    def anywhere(extra: Sequence[str] = ()) -> Study:
        """The study as records name it, whose folder of runs is `RUNS` (`no_answer_key_figures.without_runs`)."""
        return Study(Path(RUNS), f"{RUNS}/judge", tuple(extra))

    def folder(self, arm: str, number: int) -> Path:
        return self.runs / arm / f"seed{number}"

    def judge_folder(self, name: str) -> Path:
        """Of a judge that the study trains."""
        return self.runs / "judges" / name / "judge"

    def options(self, name: str, number: int) -> list[str]:
        """The overrides of an arm's run, in full."""
        arm = KNOWN[name]
        judge = str(self.judge_folder(arm.judge)) if arm.judge in TRAINED else self.judge
        paid_by = [f"feedback.judge={judge}"] if arm.judge is not None else []
        second = str(self.judge_folder(arm.auditor)) if arm.auditor in TRAINED else self.judge
        guarded = [f"guards.auditor.judge={second}"] if arm.auditor is not None else []
        own = [f"seed={arm.seed(number)}", f"output_dir={self.folder(name, number)}"]
        return [*COMMON, *arm.options, *paid_by, *guarded, *own, *self.extra]

    def options_of_judge(self, name: str) -> list[str]:
        """The overrides of the training of a judge of the study's own, in full."""
        base = [f"model.base={self.judge}"] if name == "steps" else []
        return [*TRAINED[name], *base, f"output_dir={self.judge_folder(name).parent}"]

    def train(self, name: str, number: int) -> None:
        folder, judge = self.folder(name, number), ARMS[name].judge
        for needed in (judge, ARMS[name].auditor):
            if needed in TRAINED:
                self.train_judge(str(needed))
        module, arguments = "reagent", ["train", "--config", self.config]
        if judge is not None and judge != STUDY and judge not in TRAINED:
            module, arguments = "benchmarks.studies.judges", [judge, "--config", self.config]
        with self._locks[f"{name}/{number}"]:
            train_once(folder, self.options(name, number), folder.with_suffix(".log"), module, arguments)

    def train_judge(self, name: str) -> None:
        """A judge of the study's own, unless it is done."""
        folder = self.judge_folder(name).parent
        with self._locks[name]:
            options = self.options_of_judge(name)
            train_once(folder, options, folder.with_suffix(".log"), "rrm", ("train", "--config", "lab"))

    def evaluate_start(self, name: str) -> None:
        """`reagent eval` of the policy at the start, unless it is done."""
        target = self.runs / f"{name}.json"
        if not target.is_file():
            options = ["-o", str(target), *STARTS[name], *self.extra]
            call(["eval", "--config", self.config, *options], target.with_suffix(".log"))

    def jobs(self, wanted: Mapping[str, int], have: Collection[tuple[str, int]] = ()) -> list[Job]:
        """What is to be done, in order.

        Args:
            have: runs, as (arm, number), that are recorded and not made again.
        """
        starts = dict.fromkeys(map(start_of_arm, wanted))
        jobs: list[Job] = [partial(self.evaluate_start, name) for name in starts]
        for stage in due(dict(wanted)):
            left = [one for one in stage if one not in have]
            asked = (judge for arm, _ in left for judge in (ARMS[arm].judge, ARMS[arm].auditor))
            judges = dict.fromkeys(str(judge) for judge in asked if judge in TRAINED)
            jobs += [partial(self.train_judge, name) for name in judges]
            jobs += [partial(self.train, arm, number) for arm, number in left]
        return jobs


def kept(record_: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """A record without the runs made with other options than their arm has by now; what made it joins its `earlier`.

    Args:
        facts: what all runs share: overrides, policy, judge.

    Raises:
        SystemExit: the record is of another study.
    """
    if other := sorted(key for key, value in facts.items() if record_.get(key) != value):
        raise SystemExit(f"--keep: the record is of another {', '.join(other)}: choose another --output")
    study, arms = Study.anywhere(facts["overrides"]), {}
    for name, arm in record_["arms"].items():
        known = KNOWN.get(name)
        runs = arm["runs"] if known else []
        arms[name] = arm | {"runs": [r for r in runs if r["options"] == study.options(name, known.number(r["seed"]))]}
    made, before = {key: record_[key] for key in ("command", "commit", "environment")}, record_.get("earlier", [])
    return record_ | {"arms": arms, "earlier": [*before, *([made] if made not in before else [])]}


def made_before(record_: dict[str, Any]) -> set[tuple[str, int]]:
    """The runs of a record, as (arm, number), that need not be made again."""
    return {(name, KNOWN[name].number(run["seed"])) for name, arm in record_["arms"].items() for run in arm["runs"]}


def policy_hash(base: str) -> str:
    """SHA-256 of a policy that all runs share; the name of one that lies on the hub."""
    if base in SHIPPED:
        return json.loads((lab_policy_folder(base) / "card.json").read_text())["sha256"]
    return content_hash(Path(base)) if Path(base).is_dir() else base


def trained_on(judge: Path) -> dict[str, Any]:
    """The labelled runs and drills that a judge of the lab was trained on, round by round (its card.json), and what it says itself."""
    card = judge / "card.json"
    configs = json.loads(card.read_text()).get("configs", []) if card.is_file() else []
    rounds = []
    for config in configs:
        data = config["data"]
        options = data.get("generate_options") or {k.removeprefix("lab_"): v for k, v in data.items()}
        runs = {k: options.get(k, 0) for k in ("transcripts", "wanderers")}
        rounds.append({"labelled_runs": sum(runs.values()), **runs, "drills": config["drills"]["rows"]})
    whole = sum(one["labelled_runs"] for one in rounds)
    return {"labelled_runs": whole, "rounds": rounds, "last": load_settings(judge).trained_on}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="a.b=c for every training and evaluation")
    parser.add_argument("--config", default="lab", help="of the trainings: a shipped one, or a file")
    parser.add_argument("--judge", default="lab", help="a judge's name or folder; copied to RUNS/judge and kept")
    parser.add_argument("--only", choices=PARTS, help="the arms of one part")
    parser.add_argument("--arms", help=f"all, of another config {', '.join(LEARNING)}")
    parser.add_argument("--seeds", type=int, help="of every arm, in place of its own number")
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "no_answer_key")
    parser.add_argument("--output", type=Path, default=record.RESULTS / "no_answer_key.json")
    parser.add_argument("--collect", action="store_true", help="run nothing")
    parser.add_argument("--keep", action="store_true", help="the runs that --output holds are not made again")
    args = parser.parse_args()
    lab = args.config == "lab"
    chosen = args.arms.split(",") if args.arms else list(ARMS if lab else LEARNING)
    if unknown := set(chosen) - set(ARMS):
        parser.error(f"no arm {', '.join(sorted(unknown))}; there are {', '.join(ARMS)}")
    wanted = {arm: args.seeds or ARMS[arm].seeds for arm in chosen if args.only in (None, ARMS[arm].part)}
    args.runs.mkdir(parents=True, exist_ok=True)
    judge = Path(frozen_judge(args.runs, args.judge)).resolve()
    if args.judge == "lab" and judge_hashes(judge) != JUDGE:
        raise SystemExit(
            f"{judge} is not the judge named beforehand (JUDGE in no_answer_key_arms): name it there first"
        )
    policy = policy_hash(load_agent_config(args.config, args.overrides).policy.base)
    facts = {"overrides": args.overrides, "policy": policy, "judge": judge_hashes(judge)}
    facts |= {} if lab else {"config": args.config}
    begin(args.runs, **facts)
    earlier = kept(json.loads(args.output.read_text()), facts) if args.keep else {"arms": {}}
    study = Study(args.runs.resolve(), str(judge), tuple(args.overrides), args.config)
    if not args.collect:
        run_all(study.jobs(wanted, made_before(earlier)), args.parallel)
    made = {
        "command": record.command("studies.no_answer_key").replace(" --collect", ""),
        "commit": record.commit(),
        "environment": environment(),
        **facts,
        "judge_trained_on": trained_on(judge),
        "earlier": earlier.get("earlier", []),
    }
    found = collect(study.runs, earlier, lab)
    record.write(args.output, made | found)
    if set(HEADLINE) & found["arms"].keys():
        plot(found, args.output.with_suffix(".png"))
    for name, arm in found["arms"].items():
        minutes = statistics.median(arm["minutes"])
        print(f"{name:20s} {len(arm['runs']):2d} seeds  {interval(arm['success'])}  {minutes:.1f} min")
    for name, one in [*found["ratios"].items(), *found["differences"].items()]:
        print(f"{name:36s} {interval(one)}  {one['seeds']} seeds")
    runs = {name: len(arm["runs"]) for name, arm in found["arms"].items()}
    print(json.dumps({"output": str(args.output), "arms": runs}))


if __name__ == "__main__":
    main()
