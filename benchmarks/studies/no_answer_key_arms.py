"""The arms of the study without an answer key, and the order in which they are run."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.lab_steps import ARMS as STEPS_JUDGES

STUDY = "study"
"""The judge that is copied at the start."""
JUDGE = {
    "weights": "31ec045ed9d07d27b2edf4f706ba055d8fa0e04de7697e18336e6c398e986e5e",
    "settings": "d1d1e8c09e31332d6254857e21d018bbdc56444732de3be7b07eacedc93b9a65",
}
"""SHA-256 of the judge that was named beforehand, the lab's as it is shipped: its weights, and its judge.json (calibration, modes)."""
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
HALF = ("rollout.tasks_per_update=8",)
"""With a second attempt each, as many episodes an update."""
METHODS = ("ppo", "rloo", "reinforce++")
NOISY = (
    "environment.name=benchmarks.studies.noisy_search:NoisySearch",
    "environment.options={flipped: 0.3}",
    "environment.train={hops: [1, 2, 4]}",
    "environment.eval={hops: [1, 2, 3, 4]}",
)
LONG = ("environment.train={hops: [3, 4]}", "environment.eval={hops: [3, 4]}")
"""Tasks of which the policy at the start solves 3 in 100: its first attempts at one nearly always all fail."""
BARE = (*LONG, "environment.options={rewards: {useful: 0.0, repeated: 0.0, malformed: 0.0}}")
FOUND = ("feedback.mode=process", "feedback.process.pay=findings")
GUARDED = (
    *UNLABELLED, *SCORED, *WATCHED, "max_updates=48", "eval.every=4", "guards.kl.max=0.1", "guards.auditor.judge_mode=full",
)  # fmt: skip
FEW_LABELS = ("feedback.score_mode=full", "feedback.max_failure_rate=1")
"""A judge of few labels may write what cannot be read: that is paid as the lowest score, and does not stop a run."""
READ = ("feedback.score_mode=steps", *FEW_LABELS[1:])
"""The same judges, which then write nothing: one prefill says the score."""
LABELS = (100, 1_000, 10_000)
FIELD_TASKS, FIELD_SEEDS = 500, 5
FIELD = ("outcome", "outcome-again", "unified")
"""Compared once more at the end, on more tasks."""


@dataclass(frozen=True)
class Arm:
    """One way to be trained."""

    part: str
    """E1 …; `U`: the field of Reagent-U."""
    options: tuple[str, ...]
    """Overrides of the config `lab`, after `COMMON`."""
    judge: str | None = None
    """Who pays: `STUDY`, a key of `TRAINED`, or a name of `benchmarks.studies.judges`; None: nobody."""
    seeds: int = 5
    offset: int = 0
    """Of its seeds: with another one its runs share nothing with those they are compared with."""
    auditor: str | None = None
    """The second judge, that guards: `STUDY`, or a key of `TRAINED`; None: nobody."""

    def seed(self, number: int) -> int:
        """The training's own seed of its `number`-th run."""
        return number + self.offset

    def number(self, seed: int) -> int:
        """Of the run that has this seed."""
        return seed - self.offset


def _methods() -> dict[str, Arm]:
    """Outcome and judge-only by the other algorithms."""
    found: dict[str, Arm] = {}
    for name in METHODS:
        found[f"{name}-outcome"] = Arm("E1", (f"algorithm={name}",), seeds=3)
        found[f"{name}-judge"] = Arm("E1", (f"algorithm={name}", *UNLABELLED, *SCORED), STUDY, seeds=3)
    return found


def _rows(runs: int) -> tuple[str, ...]:
    """How a judge is trained on so many labelled runs, two scripted ones to three wanderers, as the shipped one's first round."""
    kinds = f"data.generate_options={{transcripts: {runs * 2 // 5}, wanderers: {runs * 3 // 5}, wordings: few}}"
    return (kinds, "data.calibration_share=0.1", "rl.enabled=false", "evaluation.enabled=false", "threads=1")


TRAINED: dict[str, tuple[str, ...]] = {
    **{f"rows-{runs}": _rows(runs) for runs in LABELS},
    "steps": STEPS_JUDGES["steps"],
}
"""Judges that the study trains where an arm needs one: overrides of `rrm train --config lab`."""
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
    "gamed": Arm("E6", (*GUARDED, "feedback.score_mode=score"), "length", auditor=STUDY),
    "honest": Arm("E6", GUARDED, STUDY, auditor="rows-10000"),
    "noisy": Arm("E2", NOISY, seeds=10),
    "noisy+judge": Arm("E2", (*NOISY, *SCORED), STUDY, seeds=10),
    "noisy+overruled": Arm("E2", (*NOISY, "feedback.mode=r", "feedback.score_weight=3"), STUDY),
    "rare": Arm("E4", LONG),
    "rare-c": Arm("E4", (*LONG, *HALF, "feedback.mode=c"), STUDY),
    "bare": Arm("E3", BARE),
    "bare-findings": Arm("E3", (*BARE, *FOUND), STUDY),
    "bare-others": Arm("E3", (*BARE, *FOUND), "others"),
    "bare-labels": Arm("E3", (*BARE, *FOUND), "labels"),
    "bare-steps": Arm("E3", (*BARE, *FOUND, "feedback.process.judge_mode=steps"), "steps"),
    **_methods(),
    "outcome+judge": Arm("E1", SCORED, STUDY),
    "tenth-repeated": Arm("E1", (f"environment.train_tasks={TASKS_PLAYED // 10}",)),
    "tenth+judge-refit": Arm("E1", (*TENTH, *SCORED, "feedback.recalibrate={}"), STUDY),
    **{f"rows-{n}": Arm("E1", (*UNLABELLED, *SCORED, *FEW_LABELS), f"rows-{n}", seeds=3) for n in LABELS},
    **{f"rows-{n}-steps": Arm("E1", (*UNLABELLED, *SCORED, *READ), f"rows-{n}", seeds=3) for n in LABELS},
    "unified": Arm("U", ("feedback.mode=u", *HALF), STUDY, seeds=FIELD_SEEDS),
}  # fmt: skip
RECORDED = {
    "rare-c-distil": Arm("E4", (*LONG, *HALF, "feedback.mode=c", "feedback.distil.weight=0.1"), STUDY),
    "rare-c-distil-1": Arm("E4", (*LONG, *HALF, "feedback.mode=c", "feedback.distil.weight=1"), STUDY, seeds=3),
    "rare-c-context": Arm("E4", (*LONG, *HALF, "feedback.mode=c", "feedback.context.weight=0.1"), STUDY),
}
"""Arms of options that are gone: the record holds their runs, and nothing makes them anew."""
KNOWN = ARMS | RECORDED
SAID = {
    "outcome": "outcomes",
    "outcome-again": "outcomes, other seeds",
    "judge": "judge alone, no outcome",
    "nothing": "neither",
    "tenth+judge": "judge, and a tenth of the outcomes",
    "tenth": "a tenth of the outcomes",
    "tenth-repeated": "outcomes of a tenth as many tasks, ten times over",
    "tenth+judge-refit": "judge refitted on that tenth",
    "outcome+judge": "outcomes and judge",
    "weak": "judge without its trace alone",
    "length": "length as the judge",
    "placebo": "another task's scores",
    "gamed": "length as the judge; guards watch",
    "honest": "judge alone; guards watch",
    "noisy": "outcomes, 30 % of them flipped",
    "noisy+judge": "outcomes, 30 % flipped, and judge",
    "noisy+overruled": "outcomes, 30 % flipped, and three times the judge",
    "rare": "outcomes; three and four hops",
    "rare-c": "as `rare`; second attempts after critiques",
    "rare-c-distil": "as `rare-c`; second attempts learned as first ones",
    "rare-c-distil-1": "the same, at ten times the weight",
    "rare-c-context": "as `rare-c`; critiques learned into first attempts",
    "bare": "outcomes; three and four hops, nothing for searches",
    "bare-findings": "as `bare`, and the judge's findings",
    "bare-others": "as `bare`, and another task's findings",
    "bare-labels": "as `bare`, and the true labels of steps",
    "bare-steps": "as `bare`, and the judge's p(good) of steps",
    **{f"{name}-outcome": f"outcomes, {name.upper()}" for name in METHODS},
    **{f"{name}-judge": f"judge alone, {name.upper()}" for name in METHODS},
    **{f"rows-{n}": f"a judge of {n:,} labelled runs alone" for n in LABELS},
    **{f"rows-{n}-steps": f"the same judge of {n:,}, read and not written" for n in LABELS},
    "unified": "outcomes and judge; second attempts (Reagent-U)",
}
"""By what each is paid, in words."""
STAGES: tuple[tuple[str, ...], ...] = (
    ("outcome", "judge", "nothing"),
    ("tenth+judge", "tenth", "length", "weak", "placebo", "outcome-again"),
    ("gamed", "honest"),
    ("noisy", "noisy+judge", "noisy+overruled"),
    ("rare", "rare-c"),
    ("bare", "bare-findings", "bare-others", "bare-labels", "bare-steps"),
    tuple(_methods()),
    ("outcome+judge", "tenth-repeated", "tenth+judge-refit"),
    tuple(f"rows-{n}" for n in LABELS),
    tuple(f"rows-{n}-steps" for n in LABELS),
    ("unified",),
)
"""What is run, in order: all seeds of a stage before the next, an arm after the other within a seed."""
CHOOSING = "E5"
"""The part that trains nothing; it is measured after the headline."""


def due(wanted: dict[str, int]) -> list[list[tuple[str, int]]]:
    """Stage by stage (arm, number) of the runs wanted, in the order in which they are made: an interrupted study has every arm of
    its stage."""
    found = []
    for stage in STAGES:
        chosen = [arm for arm in stage if arm in wanted]
        numbers = range(max((wanted[arm] for arm in chosen), default=0))
        found.append([(arm, number) for number in numbers for arm in chosen if number < wanted[arm]])
    return found
