"""Where a reasoning reward model earns its place: agents trained, and attempts chosen, without an answer key.

    python -m benchmarks.studies.no_answer_key --parallel 2            # every arm, the headline's first
    python -m benchmarks.studies.no_answer_key --only E1
    python -m benchmarks.studies.no_answer_key --arms outcome,judge,nothing --seeds 3

Every (arm, seed) is a training of its own in runs/no_answer_key/<arm>/seed<k>, on one thread, from the same lab policy, with
GRPO on 24 updates of 64 episodes as in the config `lab`, and not repeated once it is done; a run that was stopped continues.
The judge is copied at the start and kept. Held-out success is measured on 200 tasks after every sixth update.

**Written down before anything was run.** Primary figure: held-out success after the last update, as the ratio of judge-only to full
outcomes over ten seeds, with a bootstrap interval over seeds and tasks (both arms of a seed resampled together). For the field
of Reagent-U (item 6) it is the area under the learning curve over episodes. Bars are those of the issue (benchmarks/accept_6.py):

| | what | wanted | expected |
|---|---|---|---|
| E1 | judge-only over full outcomes, GRPO | ≥ 0.9 | 0.98 |
| E1 | judge-only against no outcome, and against length as the judge | above, intervals apart | 0.72 against 0.15 and 0.2 |
| E1 | a tenth of the outcomes and the judge, over full outcomes | ≥ 0.9 | 0.98 |
| E1 | judge-only over full outcomes, PPO, RLOO, REINFORCE++, three seeds each | ≥ 0.9 | 0.95 |

Expected besides: a judge that has nothing to say (`placebo`: scores of other tasks' attempts) ends where it started or below
(0.25); the judge without its trace (`weak`, mode `score`) between that and the judge (0.5). A tenth of the outcomes alone learns
slowly (0.45); the same tenth of the tasks played ten times over (`tenth-repeated`) is the rival that matters, as whoever has few labels
would do that (0.65). Two arms of the same kind with other seeds (`outcome-again`) differ by less than 0.03. The study is judged by a
judge trained on the lab's labels by construction: the labels it has had stand in the record (`judge.trained_on`), and `rows-…`
are judges trained on 100, 1,000 and 10,000 labelled runs (and 48,000 drills, which are no runs).

A λ of 1 everywhere, so that λ·s stands where the outcome's 1 stood. The environment's process rewards (a search that found something)
are paid in every arm, and tell nobody the answer. `nothing` is paid these alone. An episode of a task without a label earns nothing
known where no judge is asked, and is left out of the update.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.studies.study import begin, call, frozen_judge, parse
from reagent.lab.shipped import lab_policy_folder

STUDY = "study"
"""The judge that is copied at the start."""
COMMON = ("algorithm=grpo", "eval.every=6", "guards.evaluate=false")
SCORED = ("feedback.mode=r", "feedback.score_weight=1")
"""Paid λ·s, λ = 1, beside what is graded."""
UNLABELLED = ("environment.label_share=0",)
TENTH = ("environment.label_share=0.1",)
WATCHED = ("guards.evaluate=true",)
"""The judge reads evaluations, too: what its guards say of an honest judge are false alarms."""
NO_OUTCOME = ("environment.options={rewards: {outcome: 0.0}}",)
TASKS_PLAYED = 24 * 16
"""By a run; a tenth of them is 38."""
METHODS = ("ppo", "rloo", "reinforce++")


@dataclass(frozen=True)
class Arm:
    """One way to be trained."""

    part: str
    """E1 … E6."""
    options: tuple[str, ...]
    """Overrides of the config `lab`, after `COMMON`."""
    judge: str | None = None
    """Who pays: `STUDY`, or a name of `benchmarks.studies.judges`; None: nobody."""
    seeds: int = 5
    offset: int = 0
    """Of its seeds: with another one its runs share nothing with those they are compared with."""

    def seed(self, number: int) -> int:
        """The training's own seed of its `number`-th run."""
        return number + self.offset


def _methods() -> dict[str, Arm]:
    """Outcome and judge-only by the other algorithms."""
    found: dict[str, Arm] = {}
    for name in METHODS:
        found[f"{name}-outcome"] = Arm("E1", (f"algorithm={name}",), seeds=3)
        found[f"{name}-judge"] = Arm("E1", (f"algorithm={name}", *UNLABELLED, *SCORED), STUDY, seeds=3)
    return found


ARMS: dict[str, Arm] = {
    "outcome": Arm("E1", (), seeds=10),
    "judge": Arm("E1", (*UNLABELLED, *SCORED, *WATCHED), STUDY, seeds=10),
    "nothing": Arm("E1", NO_OUTCOME, seeds=10),
    "tenth+judge": Arm("E1", (*TENTH, *SCORED), STUDY),
    "tenth": Arm("E1", TENTH),
    "length": Arm("E1", (*UNLABELLED, *SCORED, "feedback.score_mode=score"), "length"),
    "weak": Arm("E1", (*UNLABELLED, *SCORED, "feedback.score_mode=score"), STUDY),
    "placebo": Arm("E1", (*UNLABELLED, *SCORED), "others"),
    "outcome-again": Arm("E1", (), offset=100),
    "outcome+judge": Arm("E1", SCORED, STUDY),
    "tenth-repeated": Arm("E1", (f"environment.train_tasks={TASKS_PLAYED // 10}",)),
    "tenth+judge-refit": Arm("E1", (*TENTH, *SCORED, "feedback.recalibrate={}"), STUDY),
    **_methods(),
}
STAGES: tuple[tuple[str, ...], ...] = (
    ("outcome", "judge", "nothing"),
    ("tenth+judge", "tenth", "length", "weak", "placebo", "outcome-again"),
    ("outcome+judge", "tenth-repeated", "tenth+judge-refit"),
    tuple(_methods()),
)
"""What is run, in order: all seeds of a stage before the next, an arm after the other within a seed."""


@dataclass(frozen=True)
class Study:
    """A folder of runs, and what all of them share."""

    runs: Path
    judge: str
    """The folder of the judge as it was copied."""
    extra: tuple[str, ...] = ()
    """Overrides of every training."""

    def folder(self, arm: str, number: int) -> Path:
        """Of an arm's run."""
        return self.runs / arm / f"seed{number}"

    def options(self, name: str, number: int) -> list[str]:
        """The overrides of an arm's run, in full."""
        arm = ARMS[name]
        paid_by = [f"feedback.judge={self.judge}"] if arm.judge is not None else []
        own = [f"seed={arm.seed(number)}", f"output_dir={self.folder(name, number)}"]
        return [*COMMON, *arm.options, *paid_by, *own, *self.extra]

    def train(self, name: str, number: int) -> None:
        """One training, unless it is done; wall seconds are added up over continuations."""
        folder, judge = self.folder(name, number), ARMS[name].judge
        if (folder / "done.json").is_file():
            return
        spent = folder.with_suffix(".seconds")
        folder.parent.mkdir(parents=True, exist_ok=True)
        before = float(spent.read_text()) if spent.is_file() else 0.0
        options, log, start = self.options(name, number), folder.with_suffix(".log"), time.monotonic()
        try:
            if judge in (None, STUDY):
                call(["train", "--config", "lab", *options], log)
            else:
                call([str(judge), *options], log, "benchmarks.studies.judges")
        finally:
            spent.write_text(str(before + time.monotonic() - start))
        done = {"seconds": float(spent.read_text()), "commit": record.commit(), "options": options}
        (folder / "done.json").write_text(json.dumps(done) + "\n")

    def begin_at(self) -> None:
        """Evaluate the policy that all start from, unless it is done."""
        target = self.runs / "start.json"
        if not target.is_file():
            call(["eval", "--config", "lab", "-o", str(target), *self.extra], target.with_suffix(".log"))


def due(wanted: dict[str, int]) -> list[tuple[str, int]]:
    """(arm, number) of the runs wanted, in the order in which they are made: an interrupted study has every arm of its stage."""
    found = []
    for stage in STAGES:
        chosen = [arm for arm in stage if arm in wanted]
        for number in range(max((wanted[arm] for arm in chosen), default=0)):
            found += [(arm, number) for arm in chosen if number < wanted[arm]]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", default="lab", help="lab, or a judge's folder; copied to RUNS/judge and kept")
    parser.add_argument("--only", help="E1 …: the arms of one part")
    args, wanted = parse(parser, "no_answer_key", ARMS, {name: arm.seeds for name, arm in ARMS.items()})
    if args.only:
        wanted = {arm: seeds for arm, seeds in wanted.items() if ARMS[arm].part == args.only}
        if not wanted:
            parser.error(f"no arm of {args.only}; there are {', '.join(sorted({arm.part for arm in ARMS.values()}))}")
    args.runs.mkdir(parents=True, exist_ok=True)
    judge = frozen_judge(args.runs, args.judge)
    begin(args.runs, overrides=args.overrides, **hashes(judge))
    study = Study(args.runs.resolve(), str(Path(judge).resolve()), tuple(args.overrides))
    if not args.collect:
        with ThreadPoolExecutor(args.parallel) as pool:
            jobs = [pool.submit(study.begin_at)]
            jobs += [pool.submit(study.train, arm, number) for arm, number in due(wanted)]
            for job in jobs:
                job.result()
    done = {arm: len([*(args.runs / arm).glob("seed*/done.json")]) for arm in ARMS}
    print(json.dumps({"runs": str(args.runs), "done": done}))


def hashes(judge: str) -> dict[str, Any]:
    """Of the weights that all runs share."""
    return {
        "policy": json.loads((lab_policy_folder("lab-reflective") / "card.json").read_text())["sha256"],
        "judge": hashlib.sha256((Path(judge) / "model.safetensors").read_bytes()).hexdigest(),
    }


if __name__ == "__main__":
    main()
