"""The arms of the study without an answer key, stage by stage as they are run."""

from __future__ import annotations

from dataclasses import dataclass

STUDY = "study"  # the judge that is copied at the start
JUDGE = {
    "weights": "31ec045ed9d07d27b2edf4f706ba055d8fa0e04de7697e18336e6c398e986e5e",
    "settings": "d1d1e8c09e31332d6254857e21d018bbdc56444732de3be7b07eacedc93b9a65",
}
"""SHA-256 of the judge that was named beforehand, the lab's as it is shipped: its weights, and its judge.json (calibration, modes)."""
COMMON = ("algorithm=grpo", "eval.every=6", "guards.evaluate=false")
SCORED = ("feedback.mode=r", "feedback.score_weight=1")  # paid λ·s, λ = 1, beside what is graded
UNLABELLED = ("environment.label_share=0",)
TENTH = ("environment.label_share=0.1",)
WATCHED = ("guards.evaluate=true",)
"""The judge reads evaluations, too: what its guards say of an honest judge are false alarms."""
TASKS_PLAYED = 24 * 16  # by a run; a tenth of them is 38
HALF = ("rollout.tasks_per_update=8",)  # with a second attempt each, as many episodes an update
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


@dataclass(frozen=True)
class Arm:
    """One way to be trained."""

    part: str  # E1 …; `U`: the field of Reagent-U
    says: str  # by what it is paid, in words
    options: tuple[str, ...]  # overrides of the config, after `COMMON`
    judge: str | None = None
    """Who pays: `STUDY`, a key of `TRAINED`, or a name of `benchmarks.studies.judges`; None: nobody."""
    seeds: int = 5
    offset: int = 0  # of its seeds: with another one its runs share nothing with those they are compared with
    auditor: str | None = None  # the second judge, that guards: `STUDY`, or a key of `TRAINED`; None: nobody

    def seed(self, number: int) -> int:
        """Give the training's own seed of its `number`-th run."""
        return number + self.offset

    def number(self, seed: int) -> int:
        """Give the number of the run that has this seed."""
        return seed - self.offset


def _methods() -> dict[str, Arm]:
    """Outcome and judge-only by the other algorithms."""
    arms: dict[str, Arm] = {}
    for name in METHODS:
        arms[f"{name}-outcome"] = Arm("E1", f"outcomes, {name.upper()}", (f"algorithm={name}",), seeds=3)
        options = (f"algorithm={name}", *UNLABELLED, *SCORED)
        arms[f"{name}-judge"] = Arm("E1", f"judge alone, {name.upper()}", options, STUDY, seeds=3)
    return arms


def _rows(runs: int) -> tuple[str, ...]:
    """How a judge is trained on so many labelled runs, two scripted ones to three wanderers, as the shipped one's first round."""
    kinds = f"data.generate_options={{transcripts: {runs * 2 // 5}, wanderers: {runs * 3 // 5}, wordings: few}}"
    return (kinds, "data.calibration_share=0.1", "rl.enabled=false", "evaluation.enabled=false", "threads=1")


TRAINED: dict[str, tuple[str, ...]] = {f"rows-{runs}": _rows(runs) for runs in LABELS} | {
    "steps": (
        "model.base=agents/reagent/lab/assets/judge", "model.options={}", "threads=1", "transcript_tokens=800", "drills.rows=0",
        "rl.enabled=false", "data.generate_options={transcripts: 2400, wanderers: 2400, wordings: many}", "seed=11", "sft.short_first_share=1",
        "sft.learning_rate=1.0e-3", "calibration.modes=[steps]", "evaluation.enabled=false", "sft.mix={score: 0, critique: 0, full: 0, steps: 1}",
        "sft.epochs=2",
    )
}  # fmt: skip
"""Judges that the study trains where an arm needs one: overrides of `rrm train --config lab`."""
STAGES: tuple[dict[str, Arm], ...] = (
    {
        "outcome": Arm("E1", "outcomes", (), seeds=10),
        "judge": Arm("E1", "judge alone, no outcome", (*UNLABELLED, *SCORED, *WATCHED), STUDY, seeds=10),
        "nothing": Arm("E1", "neither", ("environment.options={rewards: {outcome: 0.0}}",), seeds=10),
    },
    {
        "tenth+judge": Arm("E1", "judge, and a tenth of the outcomes", (*TENTH, *SCORED), STUDY),
        "tenth": Arm("E1", "a tenth of the outcomes", TENTH),
        "length": Arm("E1", "length as the judge", (*UNLABELLED, *SCORED, "feedback.score_mode=score"), "length"),
        "weak": Arm("E1", "judge without its trace alone", (*UNLABELLED, *SCORED, "feedback.score_mode=score"), STUDY),
        "placebo": Arm("E1", "another task's scores", (*UNLABELLED, *SCORED), "others"),
        "outcome-again": Arm("E1", "outcomes, other seeds", (), offset=100),
        "shuffled": Arm("E1", "outcomes, dealt anew in each group", ("feedback.mode=shuffled",)),
    },
    {
        "gamed": Arm("E6", "length as the judge; guards watch", (*GUARDED, "feedback.score_mode=score"), "length", auditor=STUDY),
        "honest": Arm("E6", "judge alone; guards watch", GUARDED, STUDY, auditor="rows-10000"),
    },
    {
        "noisy": Arm("E2", "outcomes, 30 % of them flipped", NOISY, seeds=10),
        "noisy+judge": Arm("E2", "outcomes, 30 % flipped, and judge", (*NOISY, *SCORED), STUDY, seeds=10),
        "noisy+overruled": Arm("E2", "outcomes, 30 % flipped, and three times the judge", (*NOISY, "feedback.mode=r", "feedback.score_weight=3"), STUDY),
    },
    {
        "rare": Arm("E4", "outcomes; three and four hops", LONG),
        "rare-c": Arm("E4", "as `rare`; second attempts after critiques", (*LONG, *HALF, "feedback.mode=c"), STUDY),
    },
    {
        "bare": Arm("E3", "outcomes; three and four hops, nothing for searches", BARE),
        "bare-findings": Arm("E3", "as `bare`, and the judge's findings", (*BARE, *FOUND), STUDY),
        "bare-others": Arm("E3", "as `bare`, and another task's findings", (*BARE, *FOUND), "others"),
        "bare-labels": Arm("E3", "as `bare`, and the true labels of steps", (*BARE, *FOUND), "labels"),
        "bare-steps": Arm("E3", "as `bare`, and the judge's p(good) of steps", (*BARE, *FOUND, "feedback.process.judge_mode=steps"), "steps"),
    },
    _methods(),
    {
        "outcome+judge": Arm("E1", "outcomes and judge", SCORED, STUDY),
        "tenth-repeated": Arm("E1", "outcomes of a tenth as many tasks, ten times over", (f"environment.train_tasks={TASKS_PLAYED // 10}",)),
        "tenth+judge-refit": Arm("E1", "judge refitted on that tenth", (*TENTH, *SCORED, "feedback.recalibrate={}"), STUDY),
    },
    {f"rows-{n}": Arm("E1", f"a judge of {n:,} labelled runs alone", (*UNLABELLED, *SCORED, *FEW_LABELS), f"rows-{n}", seeds=3) for n in LABELS},
    {f"rows-{n}-steps": Arm("E1", f"the same judge of {n:,}, read and not written", (*UNLABELLED, *SCORED, *READ), f"rows-{n}", seeds=3) for n in LABELS},
    {"unified": Arm("U", "outcomes and judge; second attempts (Reagent-U)", ("feedback.mode=u", *HALF), STUDY)},
)  # fmt: skip
"""What is run, in order: all seeds of a stage before the next, an arm after the other within a seed."""
ARMS = {name: arm for stage in STAGES for name, arm in stage.items()}
SECOND = (*LONG, *HALF, "feedback.mode=c")
RECORDED = {
    "rare-c-distil": Arm("E4", "as `rare-c`; second attempts learned as first ones", (*SECOND, "feedback.distil.weight=0.1"), STUDY),
    "rare-c-distil-1": Arm("E4", "the same, at ten times the weight", (*SECOND, "feedback.distil.weight=1"), STUDY, seeds=3),
    "rare-c-context": Arm("E4", "as `rare-c`; critiques learned into first attempts", (*SECOND, "feedback.context.weight=0.1"), STUDY),
}  # fmt: skip
"""Arms of options that are gone: the record holds their runs, and nothing makes them anew."""
KNOWN = ARMS | RECORDED


def due(wanted: dict[str, int]) -> list[list[tuple[str, int]]]:
    """List (arm, number) of the runs wanted, stage by stage: an interrupted study has every arm of its stage."""
    stages = []
    for stage in STAGES:
        chosen = [arm for arm in stage if arm in wanted]
        numbers = range(max((wanted[arm] for arm in chosen), default=0))
        stages.append([(arm, number) for number in numbers for arm in chosen if number < wanted[arm]])
    return stages
