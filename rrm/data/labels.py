"""Targets: one transcript's outcome and annotations become what a judge is trained towards."""

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
    """Several annotations of one transcript, `merged`; never written to a file."""

    score_weight: float
    trace_weight: float
    critique_weight: float


@dataclass(frozen=True)
class JudgementTarget:
    score: float  # in [0, 1]
    rule: TargetRule
    # 1 for an outcome, the heaviest scoring annotation's for an annotation, a mean of the two for a blend
    weight: float = 1.0
    annotation: Annotation | None = None  # `merged`; its trace and critique are the text


@dataclass(frozen=True)
class StepTarget:
    verdicts: tuple[Verdict | None, ...]  # one a step; None: unlabelled
    weight: float = 1.0  # of the heaviest annotation that has findings

    @property
    def last(self) -> Verdict | None:
        return next((v for v in reversed(self.verdicts) if v is not None), None)


@dataclass
class LabelCounts:
    """Rows by the rule that decided their target, and disagreements of annotations and outcomes."""

    rows: int = 0
    outcome: int = 0
    annotation: Counter[str] = field(default_factory=Counter)  # by annotator, several names joined by +
    blend: Counter[str] = field(default_factory=Counter)
    none: int = 0
    both: int = 0  # rows with an outcome and an annotated score
    disagree: int = 0  # of these: on different sides of ½

    def as_dict(self) -> dict[str, Any]:
        return vars(self) | {"annotation": dict(self.annotation), "blend": dict(self.blend)}

    def __str__(self) -> str:
        named = [f"{self.outcome} by their outcome"]
        named += [f"{n} by annotation ({who})" for who, n in sorted(self.annotation.items())]
        named += [f"{n} by a blend with annotation ({who})" for who, n in sorted(self.blend.items())]
        text = f"targets of {self.rows} rows: {', '.join(named)}, {self.none} without a label"
        if not self.both:
            return text
        share = self.disagree / self.both
        return f"{text}; where both are known, annotation and outcome disagree on {self.disagree} of {self.both} rows ({share:.0%})"


def mean_score(annotations: Sequence[Annotation]) -> float | None:
    """Σ wᵢ sᵢ / Σ wᵢ over annotated scores; None where no weight is above 0."""
    scored = [(a.score, a.weight) for a in annotations if a.score is not None and a.weight > 0]
    if not scored:
        return None
    return sum(score * weight for score, weight in scored) / sum(weight for _, weight in scored)


def merged(annotations: Sequence[Annotation]) -> MergedAnnotation | None:
    """Merge annotations: the weighted mean score, and the texts of the heaviest annotation.

    A trace or a critique (with findings) that it lacks comes from the next one. Ties: more texts, then earlier. `weight` is
    that of the lightest text's annotation, `annotator` names those who scored. Weight 0 is ignored; None where nothing is left.
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


def weight_of(annotation: Annotation, name: Literal["score", "trace", "critique"]) -> float:
    return getattr(annotation, f"{name}_weight") if isinstance(annotation, MergedAnnotation) else annotation.weight


def _texts(annotation: Annotation) -> int:
    return (annotation.trace is not None) + (annotation.critique is not None or bool(annotation.findings))


def truth_of(trajectory: Trajectory, annotation: Annotation | None) -> float | None:
    """The value a judgement is measured against: the outcome, else the (`merged`) annotation's score."""
    if trajectory.outcome is not None or annotation is None:
        return trajectory.outcome
    return annotation.score


def target_of(
    trajectory: Trajectory, annotation: Annotation | None, rule: TargetRule = "outcome", blend: float = 0.5
) -> JudgementTarget | None:
    """Return one transcript's target; None with neither outcome nor annotated score.

    Args:
        annotation: `merged`.
        rule: `outcome`: the annotated score only without an outcome; `annotation`: the reverse; `blend`: where there are both,
            blend · outcome + (1 − blend) · score.
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
    """Return the targets by trajectory id, and counts of their rules.

    Args:
        annotations: `merged`, by trajectory id.
    """
    targets: dict[str, JudgementTarget] = {}
    counts = LabelCounts(rows=len(trajectories))
    for trajectory in trajectories:
        annotation = annotations.get(trajectory.id)
        target = target_of(trajectory, annotation, rule, blend)
        if target is None:
            counts.none += 1
            continue
        targets[trajectory.id] = target
        who = annotation.annotator if annotation else ""
        if target.rule == "outcome":
            counts.outcome += 1
        else:
            (counts.annotation if target.rule == "annotation" else counts.blend)[who] += 1
        if trajectory.outcome is not None and annotation is not None and annotation.score is not None:
            counts.both += 1
            counts.disagree += (trajectory.outcome >= 0.5) != (annotation.score >= 0.5)
    return targets, counts


def step_targets_of(
    trajectories: Sequence[Trajectory], raters: Mapping[str, Sequence[Annotation]]
) -> dict[str, StepTarget]:
    """Return step labels by trajectory id: the majority of the raters' findings, a tie is bad."""
    targets: dict[str, StepTarget] = {}
    for trajectory in trajectories:
        annotations = raters.get(trajectory.id, ())
        verdicts = labels_from_annotations(trajectory, annotations)
        if verdicts is not None and any(v is not None for v in verdicts):
            heaviest = max(a.weight for a in annotations if clear(a.findings or ()))
            targets[trajectory.id] = StepTarget(tuple(verdicts), heaviest)
    return targets
