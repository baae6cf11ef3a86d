"""Which label is the target: one transcript's outcome and annotations become what a judge is trained towards.

Several annotations of one transcript count as their raters' weights say: the score is the weighted mean, the texts are the
heaviest annotation's that has any, and weigh what that one weighs. Whether outcome or annotation is the target is said in the config
(`data.target`), never guessed, and counted (`LabelCounts`): a label that a rule invented replaces no true outcome unseen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rrm.data.annotation import Annotation, Verdict
from rrm.data.feedback import clear
from rrm.data.localisation import labels_from_annotations
from rrm.data.trajectory import Trajectory

TargetRule = Literal["outcome", "annotation", "blend"]


class MergedAnnotation(Annotation):
    """What the annotations of one transcript say together (`merged`); never written to a file."""

    score_weight: float
    """Of the heaviest whose score is in it."""
    trace_weight: float
    """Of the one whose trace it has."""
    critique_weight: float
    """Of the one whose critique and findings it has."""


@dataclass(frozen=True)
class JudgementTarget:
    """What one transcript's judgement is to be."""

    score: float
    """In [0, 1]."""
    rule: TargetRule
    """What decided the score."""
    weight: float = 1.0
    """Of the score in the loss: 1 for an outcome, the heaviest scoring annotation's for an annotation, between them for a blend.
    A row with text weighs as much as the annotation it comes from."""
    annotation: Annotation | None = None
    """The `merged` annotations, whose trace and critique are the text."""


@dataclass(frozen=True)
class StepTarget:
    """What is known of one transcript's steps."""

    verdicts: tuple[Verdict | None, ...]
    """One entry a step: good, bad, or None where nobody said."""
    weight: float = 1.0
    """Of these labels in the loss: the heaviest annotation's that has findings."""

    @property
    def last(self) -> Verdict | None:
        """The verdict on the last step that has one."""
        return next((v for v in reversed(self.verdicts) if v is not None), None)


@dataclass
class LabelCounts:
    """How many rows each rule decided, and how often annotations and outcomes disagree."""

    rows: int = 0
    outcome: int = 0
    annotation: Counter[str] = field(default_factory=Counter)
    """By annotator (several of one row: their names joined by +)."""
    blend: Counter[str] = field(default_factory=Counter)
    none: int = 0
    both: int = 0
    """Rows with an outcome and an annotation's score."""
    disagree: int = 0
    """Of these: the two stand on different sides of ½."""

    def as_dict(self) -> dict[str, Any]:
        """For a record."""
        return vars(self) | {"annotation": dict(self.annotation), "blend": dict(self.blend)}

    def __str__(self) -> str:
        named = [f"{self.outcome} by their outcome"]
        named += [f"{n} by annotation ({who})" for who, n in sorted(self.annotation.items())]
        named += [f"{n} by a blend with annotation ({who})" for who, n in sorted(self.blend.items())]
        said = f"targets of {self.rows} rows: {', '.join(named)}, {self.none} without a label"
        if not self.both:
            return said
        share = self.disagree / self.both
        return f"{said}; where both are known, annotation and outcome disagree on {self.disagree} of {self.both} rows ({share:.0%})"


def mean_score(annotations: Sequence[Annotation]) -> float | None:
    """The weighted mean Σ wᵢ sᵢ / Σ wᵢ of the scores there are; None without any of weight above 0."""
    scored = [(a.score, a.weight) for a in annotations if a.score is not None and a.weight > 0]
    if not scored:
        return None
    return sum(score * weight for score, weight in scored) / sum(weight for _, weight in scored)


def merged(annotations: Sequence[Annotation]) -> MergedAnnotation | None:
    """One label of several: the mean of the scores, and the texts of one annotation, the heaviest that has any.

    Only what that one lacks, a trace or a critique with its findings, comes from the next that has it. Of equal weights the
    one with more texts counts, then the earliest. `weight` is that of the lightest whose text is in it; `annotator` names those whose scores are in it. Annotations of weight 0 say nothing;
    None where nothing else is left.
    """
    order = sorted((a for a in annotations if a.weight > 0), key=lambda a: (-a.weight, -_texts(a)))
    if not order:
        return None
    tracer = next((a for a in order if a.trace is not None), None)
    critic = next((a for a in order if a.critique is not None), None) or next((a for a in order if a.findings), None)
    parts: dict[str, Any] = {
        "score": mean_score(order),
        "trace": tracer and tracer.trace,
        "critique": critic and critic.critique,
        "findings": critic and critic.findings,
        "weight": min((a.weight for a in (tracer, critic) if a is not None), default=order[0].weight),
    }
    raters = dict.fromkeys(a.annotator for a in annotations if a.score is not None and a.weight > 0)
    parts |= {
        "annotator": "+".join(raters) or order[0].annotator,
        "score_weight": max((a.weight for a in order if a.score is not None), default=parts["weight"]),
        "trace_weight": tracer.weight if tracer else parts["weight"],
        "critique_weight": critic.weight if critic else parts["weight"],
    }
    return MergedAnnotation.model_validate(dict(order[0]) | parts)


def weight_of(annotation: Annotation, part: Literal["score", "trace", "critique"]) -> float:
    """What a part of an annotation weighs; of several merged, what the annotation weighs that the part comes from."""
    return getattr(annotation, f"{part}_weight") if isinstance(annotation, MergedAnnotation) else annotation.weight


def _texts(annotation: Annotation) -> int:
    return (annotation.trace is not None) + (annotation.critique is not None or bool(annotation.findings))


def truth_of(trajectory: Trajectory, annotation: Annotation | None) -> float | None:
    """What a judgement is measured against: the outcome, else the (`merged`) annotation's score, else None."""
    if trajectory.outcome is not None or annotation is None:
        return trajectory.outcome
    return annotation.score


def target_of(
    trajectory: Trajectory, annotation: Annotation | None, rule: TargetRule = "outcome", blend: float = 0.5
) -> JudgementTarget | None:
    """The target of one transcript, or None where it has neither outcome nor annotated score.

    Args:
        annotation: its annotations, `merged`.
        rule: `outcome`: an annotation's score only where there is no outcome; `annotation`: the outcome only where there is
            no annotated score; `blend`: where both are known, blend · outcome + (1 − blend) · score.
        blend: the outcome's share.
    """
    outcome, score = trajectory.outcome, annotation.score if annotation else None
    if outcome is None and score is None:
        return None
    weight = weight_of(annotation, "score") if annotation else 1.0
    if score is not None and (outcome is None or rule == "annotation"):
        return JudgementTarget(score, "annotation", weight, annotation)
    if outcome is not None and score is not None and rule == "blend":
        mixed = blend * outcome + (1.0 - blend) * score
        return JudgementTarget(mixed, "blend", blend + (1.0 - blend) * weight, annotation)
    assert outcome is not None
    return JudgementTarget(outcome, "outcome", 1.0, annotation)


def targets_of(
    trajectories: Sequence[Trajectory],
    annotations: Mapping[str, Annotation],
    rule: TargetRule = "outcome",
    blend: float = 0.5,
) -> tuple[dict[str, JudgementTarget], LabelCounts]:
    """The targets by trajectory id (of those that have one), and what decided them.

    Args:
        annotations: `merged`, by trajectory id.
    """
    found: dict[str, JudgementTarget] = {}
    counts = LabelCounts(rows=len(trajectories))
    for trajectory in trajectories:
        annotation = annotations.get(trajectory.id)
        target = target_of(trajectory, annotation, rule, blend)
        if target is None:
            counts.none += 1
            continue
        found[trajectory.id] = target
        who = annotation.annotator if annotation else ""
        if target.rule == "outcome":
            counts.outcome += 1
        else:
            (counts.annotation if target.rule == "annotation" else counts.blend)[who] += 1
        if trajectory.outcome is not None and annotation is not None and annotation.score is not None:
            counts.both += 1
            counts.disagree += (trajectory.outcome >= 0.5) != (annotation.score >= 0.5)
    return found, counts


def step_targets_of(
    trajectories: Sequence[Trajectory], raters: Mapping[str, Sequence[Annotation]]
) -> dict[str, StepTarget]:
    """The labelled steps by trajectory id, of those of which some step is said to be good or bad: the majority of the raters'
    findings, a tie is bad, as `rrm eval` measures them.

    Args:
        raters: each trajectory's annotations, by its id.
    """
    found: dict[str, StepTarget] = {}
    for trajectory in trajectories:
        annotations = raters.get(trajectory.id, ())
        verdicts = labels_from_annotations(trajectory, annotations)
        if verdicts is not None and any(v is not None for v in verdicts):
            heaviest = max(a.weight for a in annotations if clear(a.findings or ()))
            found[trajectory.id] = StepTarget(tuple(verdicts), heaviest)
    return found
