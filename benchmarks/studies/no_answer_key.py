"""Where a reasoning reward model earns its place: agents trained, and attempts chosen, without an answer key.

    python -m benchmarks.studies.no_answer_key --parallel 2            # every arm, the headline's first
    python -m benchmarks.studies.no_answer_key --only E1               # or E2, …, E5 (choosing), U (the field)
    python -m benchmarks.studies.no_answer_key --arms outcome,judge,nothing --seeds 3
    python -m benchmarks.studies.no_answer_key --collect               # only write the results of what is done
    python -m benchmarks.studies.no_answer_key --keep                  # what the record holds already is not made again

Every (arm, seed) is a training of its own in runs/no_answer_key/<arm>/seed<k>, on one thread, from the same lab policy, with
GRPO on 24 updates of 64 episodes as in the config `lab`, and not repeated once it is done; a run that was stopped continues. With --keep
the record itself stands for the folders of the runs it holds, which may be on another machine; each says the commits that made it.
The judge is copied at the start and kept. Held-out success is measured on 200 tasks after every sixth update. Writes
benchmarks/results/no_answer_key.json and .png; the arms stand in `no_answer_key_arms`, the figures in `no_answer_key_figures`.

**Written down before an arm was run** (but for try-outs of two updates; single runs of the headline on an earlier commit were known:
judge-only 0.695 to 0.790, outcomes 0.70, no outcome 0.14). Primary figure: held-out success after the last update, as the ratio of judge-only to full
outcomes over ten seeds, with a bootstrap interval over seeds and tasks (both arms of a seed resampled together). For the field
of Reagent-U (item 6) it is the area under the learning curve over episodes. Bars are those of the issue (`make bars SET=answerless`):

| | what | wanted | expected |
|---|---|---|---|
| E1 | judge-only over full outcomes, GRPO | ≥ 0.9 | 0.98 |
| E1 | judge-only against no outcome, and against length as the judge | above, intervals apart | 0.72 against 0.15 and 0.2 |
| E1 | a tenth of the outcomes and the judge, over full outcomes | ≥ 0.9 | 0.98 |
| E1 | judge-only over full outcomes, PPO, RLOO, REINFORCE++, three seeds each | ≥ 0.9 | 0.95 |
| E2 | 30 % of the training grades flipped, evaluated clean: of what that costs, `noisy+judge` regains, ten seeds; a cost that is not seen shows nothing | ≥ half, and more than none | 0.9 of 0.08 |
| E3 | three and four hops without built-in process rewards: findings − outcome alone | aim 0.05 | +0.2; true labels +0.3, steps +0.15 |
| E4 | where the policy at the start solves 3 in 100: `rare-c-distil` (an option that is gone) − outcome alone | aim 0.05 | +0.05 |
| E5 | one of eight attempts: the judge − majority, − the better of longest and shortest | above 0 | +0.2, +0.04 |
| E6 | a judge that likes length, 48 updates: guards fire before two evaluations running are 0.05 below the best | 4 of 5 of those that fell | 5, by drift |
| E6 | the same guards on the study's judge (`honest`): runs in which one fires that counts | ≤ 1 of 5 | 0, but length and kl, which then do not count |
| U | the field, area under the curve: `unified` − `outcome` | reported | −0.02 |

Expected besides: a judge that has nothing to say (`placebo`: scores of other tasks' attempts) ends where it started or below
(0.25); the judge without its trace (`weak`, mode `score`) between that and the judge (0.5). A tenth of the outcomes alone learns
slowly (0.45); a tenth as many tasks played ten times over (`tenth-repeated`) is the rival that matters, as whoever has few labels
would do that (0.65). Two arms of the same kind with other seeds (`outcome-again`) differ by less than 0.03. The study is judged by a
judge trained on the lab's labels by construction: the labels it has had stand in the record (`judge_trained_on`), and `rows-…`
are judges trained on 100, 1,000 and 10,000 labelled runs (and 48,000 drills, which are no runs).

A λ of 1 everywhere, so that λ·s stands where the outcome's 1 stood. The environment's process rewards (a search that found something)
are paid in every arm but those of E3, and tell nobody the answer. `nothing` is paid these alone. An episode of a task without a label
earns nothing known where no judge is asked, and is left out of the update. In E2 `noisy+overruled` has λ = 3: the judge's word outweighs the
grade whichever way that fell. In E3 `bare-others` is paid for what was found of other tasks' attempts, `bare-labels` for the truth. In E4 arms
with second attempts have half the tasks an update. E6 counts when a guard would have stopped a run; all go on to the end (guards change
nothing that is learned), with guards.kl.max=0.1, not tuned, and the study's judge as auditor. Only runs whose success fell count, and three
must: a guard that fires where nothing falls is a false alarm. Success has fallen where it is below an earlier stretch beyond chance
(`reagent.train.drop_detector`) and two evaluations running are 0.05 below that. `honest` has the same options but the study's judge in full, and the judge of
10,000 labelled runs as auditor; a guard that fires in more than one of its runs counts nowhere. E5 chooses among attempts of the policy at
the start, sampled as in training; on real attempts it reads what `benchmarks.default_judge.evaluate` recorded, and must be ahead on every task
that has eight attempts, answers that can be voted on and a success of a tenth by chance. The field compares
`outcome`, `outcome-again` and the paper's Reagent-U on five seeds, on 500 tasks at the end and 200 on the way.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.record import interval
from benchmarks.studies.no_answer_key_arms import (
    ARMS,
    CHOOSING,
    COMMON,
    FIELD,
    FIELD_SEEDS,
    FIELD_TASKS,
    JUDGE,
    KNOWN,
    LONG,
    STUDY,
    TRAINED,
    due,
)
from benchmarks.studies.no_answer_key_figures import HEADLINE, RUNS, collect, plot
from benchmarks.studies.study import (
    Job,
    begin,
    call,
    frozen_judge,
    judge_hashes,
    parse,
    run_all,
    train_once,
    training_command,
)
from reagent.lab.shipped import lab_policy_folder
from rrm.data.provenance import environment
from rrm.judge.judge_dir import load_settings

PARTS = (*sorted({arm.part for arm in ARMS.values()}), CHOOSING)
STARTS: dict[str, tuple[str, ...]] = {
    "start": (),
    "start-long": LONG,
    "start-field": (f"environment.eval_tasks={FIELD_TASKS}",),
}
"""Evaluations of the policy that all start from: of the lab's held-out tasks, of those of three and four hops, of the field's."""
CHOSEN = ("eval.samples=16", "eval.temperature=0.7")
"""Of part E5: sixteen attempts a task, sampled as in training."""
LAB = ("train", "--config", "lab")


@dataclass(frozen=True)
class Study:
    """A folder of runs, and what all of them share."""

    runs: Path
    judge: str
    """The folder of the judge as it was copied."""
    extra: tuple[str, ...] = ()
    """Overrides of every training and evaluation."""
    _locks: dict[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))

    @staticmethod
    def anywhere() -> Study:
        """The study as records name it, whose folder of runs is `RUNS` (`no_answer_key_figures.without_runs`)."""
        return Study(Path(RUNS), f"{RUNS}/judge")

    def folder(self, arm: str, number: int) -> Path:
        """Of an arm's run."""
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
        """One training, unless it is done."""
        folder, judge = self.folder(name, number), ARMS[name].judge
        for needed in (judge, ARMS[name].auditor):
            if needed in TRAINED:
                self.train_judge(str(needed))
        shipped = judge is None or judge == STUDY or judge in TRAINED
        module, arguments = ("reagent", LAB) if shipped else ("benchmarks.studies.judges", (str(judge),))
        with self._locks[f"{name}/{number}"]:
            train_once(folder, self.options(name, number), folder.with_suffix(".log"), module, arguments)

    def train_judge(self, name: str) -> None:
        """A judge of the study's own, unless it is done."""
        folder = self.judge_folder(name).parent
        with self._locks[name]:
            train_once(folder, self.options_of_judge(name), folder.with_suffix(".log"), "rrm", LAB)

    def take_judge(self, name: str, source: Path) -> None:
        """A copy in the place of a judge that the study would train, unless it is there.

        Raises:
            SystemExit: another one is there.
        """
        folder, done = self.judge_folder(name), self.judge_folder(name).parent / "done.json"
        taken = judge_hashes(Path(frozen_judge(folder.parent, str(source))))
        if taken != judge_hashes(source):
            raise SystemExit(f"{folder} is another judge than {source}: leave that out, or choose another --runs")
        if not done.is_file():
            done.write_text(json.dumps({"copied": True, "judge": taken}) + "\n")

    def evaluate(self, target: Path, options: Iterable[str], arguments: Sequence[str] = ()) -> None:
        """`reagent eval`, unless it is done."""
        if not target.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            given = [*arguments, "-o", str(target), *options, *self.extra]
            call(["eval", "--config", "lab", *given], target.with_suffix(".log"))

    def choose(self) -> None:
        """Part E5 in the lab: one of up to sixteen attempts of the policy at the start is chosen."""
        judged = (*CHOSEN, f"feedback.judge={self.judge}")
        attempts = ["--transcripts", str(self.runs / "choose.jsonl")]
        self.evaluate(self.runs / "choose.json", judged, ["--choose", "all", *attempts])

    def evaluate_field(self, arm: str, number: int) -> None:
        """A trained policy on the field's tasks, once it is trained: the last training may still be running when its turn comes."""
        self.train(arm, number)
        folder = self.folder(arm, number)
        self.evaluate(folder / "field.json", STARTS["start-field"], ["--policy", str(folder / "policy")])

    def jobs(self, wanted: dict[str, int], choose: bool, have: Collection[tuple[str, int]] = ()) -> list[Job]:
        """What is to be done, in order.

        Args:
            have: runs, as (arm, number), that are recorded and not made again.
        """
        found: list[Job] = [partial(self.evaluate, self.runs / f"{name}.json", STARTS[name]) for name in STARTS]
        for stage in due(wanted):
            stage = [one for one in stage if one not in have]
            asked = (judge for arm, _ in stage for judge in (ARMS[arm].judge, ARMS[arm].auditor))
            judges = dict.fromkeys(str(judge) for judge in asked if judge in TRAINED)
            found += [partial(self.train_judge, name) for name in judges]
            found += [partial(self.train, arm, number) for arm, number in stage]
            if choose:
                found.append(self.choose)
                choose = False
        if "unified" in wanted and set(FIELD) <= set(wanted):
            fewest = min(FIELD_SEEDS, *(wanted[arm] for arm in FIELD))
            field = [(arm, number) for number in range(fewest) for arm in FIELD if (arm, number) not in have]
            found += [partial(self.evaluate_field, arm, number) for arm, number in field]
        return found


def kept(record_: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """A record without the runs made with other options than their arm has by now; what made it joins its `earlier`.

    Args:
        facts: what all runs share: overrides, policy, judge.

    Raises:
        SystemExit: the record is of another study.
    """
    if other := sorted(key for key, value in facts.items() if record_.get(key) != value):
        raise SystemExit(f"--keep: the record is of another {', '.join(other)}: choose another --output")
    study, arms = Study.anywhere(), {}
    for name, arm in record_["arms"].items():
        known = KNOWN.get(name)
        mine = [
            run for run in arm["runs"] if known and run["options"] == study.options(name, known.number(run["seed"]))
        ]
        arms[name] = arm | {"runs": mine}
    made, before = {key: record_[key] for key in ("command", "commit", "environment")}, record_.get("earlier", [])
    return record_ | {"arms": arms, "earlier": [*before, *([made] if made not in before else [])]}


def made_before(record_: dict[str, Any], field: bool) -> set[tuple[str, int]]:
    """The runs of a record, as (arm, number), that need not be made again.

    Args:
        field: whether part U is to be measured: of its arms' first `FIELD_SEEDS` runs that needs the policies, which no record holds.
    """
    held = {
        (name, KNOWN[name].number(run["seed"])): "field" in run
        for name, arm in record_["arms"].items()
        for run in arm["runs"]
    }
    return {
        (name, number)
        for (name, number), measured in held.items()
        if measured or not (field and name in FIELD and number < FIELD_SEEDS)
    }


def hashes(judge: str) -> dict[str, Any]:
    """Of the weights that all runs share."""
    return {
        "policy": json.loads((lab_policy_folder("lab-reflective") / "card.json").read_text())["sha256"],
        "judge": judge_hashes(Path(judge)),
    }


def trained_on(judge: Path) -> dict[str, Any]:
    """The labelled runs and drills that the study's judge was trained on, round by round (its card.json), and what it says itself."""
    card = judge / "card.json"
    configs = json.loads(card.read_text())["configs"] if card.is_file() else []
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
    parser.add_argument("--judge", default="lab", help="lab, or a judge's folder; copied to RUNS/judge and kept")
    parser.add_argument(
        "--steps-judge",
        type=Path,
        help="of mode steps (runs/lab_steps/judge), for trying out; without it one is trained so",
    )
    parser.add_argument("--only", choices=PARTS, help="the arms of one part")
    parser.add_argument(
        "--keep", action="store_true", help="the runs that --output holds, instead of making them again"
    )
    args, wanted = parse(parser, "no_answer_key", ARMS, {name: arm.seeds for name, arm in ARMS.items()})
    choose = args.only == CHOOSING or (args.only is None and set(wanted) == set(ARMS))
    if args.only:
        others = FIELD if args.only == "U" else ()
        wanted = {arm: seeds for arm, seeds in wanted.items() if ARMS[arm].part == args.only or arm in others}
    args.runs.mkdir(parents=True, exist_ok=True)
    judge = str(Path(frozen_judge(args.runs, args.judge)).resolve())
    if args.judge == "lab" and judge_hashes(Path(judge)) != JUDGE:
        raise SystemExit(
            f"{judge} is not the judge that was named beforehand (JUDGE in no_answer_key_arms): name it there first"
        )
    facts = {"overrides": args.overrides, **hashes(judge)}
    begin(args.runs, **facts)
    earlier = kept(json.loads(args.output.read_text()), facts) if args.keep else {"arms": {}}
    have = made_before(earlier, "unified" in wanted)
    study = Study(args.runs.resolve(), judge, tuple(args.overrides))
    if args.steps_judge:
        study.take_judge("steps", args.steps_judge)
    choose = choose and "lab" not in earlier.get("choosing", {})
    if not args.collect:
        run_all(study.jobs(wanted, choose, have), args.parallel)
    made = {
        "command": training_command("no_answer_key"),
        "commit": record.commit(),
        "environment": environment(),
        **facts,
        "judge_trained_on": trained_on(Path(judge)),
    }
    found = collect(study.runs, earlier)
    made["earlier"] = earlier.get("earlier", [])
    record.write(args.output, made | found)
    if set(HEADLINE) & found["arms"].keys():
        plot(found, args.output.with_suffix(".png"))
    for name, arm in found["arms"].items():
        print(
            f"{name:20s} {len(arm['runs']):2d} seeds  {interval(arm['success'])}  {statistics.median(arm['minutes']):.1f} min"
        )
    for name, one in [*found["ratios"].items(), *found["differences"].items()]:
        print(f"{name:36s} {interval(one)}  {one['seeds']} seeds")
    print(
        json.dumps(
            {"output": str(args.output), "arms": {name: len(arm["runs"]) for name, arm in found["arms"].items()}}
        )
    )


if __name__ == "__main__":
    main()
