"""One rater's label of one transcript, how an action changes it, and its annotation."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rrm.data.annotation import Annotation, Finding, Verdict
from rrm.data.feedback import clear, format_findings
from rrm.prompt.neutralise import neutralise

Outcome = Literal["good", "bad", "unsure"]
Ask = Literal["outcome", "steps", "both"]
"""Parts that a transcript needs to count as done."""
SCORES: dict[Outcome, float] = {"good": 1.0, "bad": 0.0}
"""Score of a known outcome; an unsure one gives none."""
RULES = 2
"""Version of `changed` in a journal's lines; by version 1 (none named) a category kept the verdict."""
MOST_CHARS = 4000


class StepSaid(BaseModel):
    """Label of one step. A category needs the verdict bad or unclear (but not under rules 1: see `RULES`)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    verdict: Verdict | None = None
    category: str | None = None
    comment: str = ""

    @property
    def found(self) -> Verdict | None:
        """The verdict for an annotation: a category alone (rules 1) is unclear."""
        return self.verdict or ("unclear" if self.category else None)

    @property
    def text(self) -> str:
        return ": ".join(text for text in (self.category, self.comment.strip()) if text)


class Label(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    outcome: Outcome | None = None
    comment: str = ""
    steps: dict[int, StepSaid] = Field(default_factory=dict)
    """Step's number, from 1 → its label; only labelled steps."""

    def done(self, n_steps: int, ask: Ask) -> bool:
        steps = all((step := self.steps.get(k)) is not None and step.verdict for k in range(1, n_steps + 1))
        return (ask == "steps" or self.outcome is not None) and (ask == "outcome" or steps)

    @property
    def waiting(self) -> list[int]:
        """Steps with a comment and no verdict: their comments are in no annotation yet."""
        return [k for k, step in self.steps.items() if step.comment.strip() and not step.found]


class Change(BaseModel):
    """One action of a rater: a field and its new value; None or '' clears it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    field: Literal["outcome", "comment", "verdict", "category", "step_comment", "rest"]
    """`rest`: the verdict of every step that has none."""
    step: int | None = Field(default=None, ge=1)
    value: str | None = Field(default=None, max_length=MOST_CHARS)


WITH_CATEGORY = ("bad", "unclear")
OF_STEPS = {"verdict": "verdict", "category": "category", "step_comment": "comment"}
"""Fields of a change to one step → the step's field."""


def objection(label: Label, change: Change) -> str | None:
    """Explain why a rater cannot mean a change; None where she can."""
    if change.field == "category" and change.value and change.step is not None:
        step = label.steps.get(change.step)
        if step is not None and step.verdict == "good":
            return f"step {change.step} is good, so nothing was wrong with it: mark it bad or unclear first"
    return None


def changed(label: Label, change: Change, n_steps: int, rules: int = RULES) -> Label:
    """Apply a change. A category makes a step without a verdict bad; a good verdict clears the category.
    `rules`: version by which the change was made. Raises ValueError for a step or value that cannot be."""
    fields: dict[str, Any] = label.model_dump()
    if change.field == "rest":
        for k in range(1, n_steps + 1):
            step = fields["steps"].setdefault(k, {})
            step["verdict"] = step.get("verdict") or change.value
    elif change.field in OF_STEPS:
        if change.step is None or change.step > n_steps:
            raise ValueError(f"there is no step {change.step}: the transcript has {n_steps}")
        field = OF_STEPS[change.field]
        empty = "" if field == "comment" else None
        step = fields["steps"].setdefault(change.step, {})
        step[field] = change.value or empty
        if rules > 1 and field == "category" and change.value:
            step["verdict"] = step.get("verdict") or "bad"
        if rules > 1 and step.get("verdict") not in WITH_CATEGORY:
            step["category"] = None
    else:
        fields[change.field] = change.value or ("" if change.field == "comment" else None)
    new = Label.model_validate(fields)
    return new.model_copy(update={"steps": {k: step for k, step in sorted(new.steps.items()) if step != StepSaid()}})


def annotation_of(label: Label, trajectory_id: str, digest: str, rater: str) -> Annotation | None:
    """Make the annotation of a label, with texts neutralised; None where nothing can be learned from it."""
    findings = [
        Finding(step=k, verdict=step.found, text=neutralise(step.text)) for k, step in label.steps.items() if step.found
    ]
    lines = format_findings(f for f in clear(findings) if f.text)
    critique = "\n".join(text for text in (neutralise(label.comment.strip()), lines) if text)
    score = SCORES.get(label.outcome) if label.outcome else None
    if score is None and not findings and not critique:
        return None
    return Annotation(
        trajectory_id=trajectory_id,
        digest=digest,
        score=score,
        critique=critique or None,
        findings=findings or None,
        annotator=rater,
        kind="human",
    )
