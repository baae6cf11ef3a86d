"""What one rater said of one transcript, how one action changes it, and the annotation that it makes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rrm.data.annotation import Annotation, Finding, Verdict
from rrm.data.feedback import clear, format_findings
from rrm.prompt.neutralise import neutralise

Outcome = Literal["good", "bad", "unsure"]
"""How the run ended, in the rater's eyes."""
Ask = Literal["outcome", "steps", "both"]
"""What a transcript needs to count as done."""
SCORES: dict[Outcome, float] = {"good": 1.0, "bad": 0.0}
"""Of an outcome that is known; who is unsure gives no score, so that nothing is learned from it."""
RULES = 2
"""Version of what an action does (`changed`), which a journal's lines name so that they do later what they did when they were written. By the first, which
lines without a version were written by, a category left the verdict as it was, also none or good."""
MOST_CHARS = 4000
"""Of a comment."""
CATEGORIES = (
    "repeated action",
    "ignored error",
    "malformed call",
    "wrong tool",
    "wrong reasoning",
    "unsupported claim",
    "result not used",
    "gave up",
    "unsafe",
)
"""What may be wrong with a step, where `--categories` says nothing else."""


class StepSaid(BaseModel):
    """Of one step. A category says what was wrong, so it stands with the verdict bad or unclear alone (but by the first rules: see `RULES`)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    verdict: Verdict | None = None
    category: str | None = None
    comment: str = ""

    @property
    def found(self) -> Verdict | None:
        """The verdict that a label gives: a category alone, as the first rules left it, is unclear."""
        return self.verdict or ("unclear" if self.category else None)

    @property
    def text(self) -> str:
        """Category and comment as a finding's text."""
        return ": ".join(part for part in (self.category, self.comment.strip()) if part)


class Label(BaseModel):
    """Of one transcript; nothing where nothing was said."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    outcome: Outcome | None = None
    comment: str = ""
    steps: dict[int, StepSaid] = Field(default_factory=dict)
    """By the step's number, from 1; steps of which nothing is said have no entry."""

    def done(self, n_steps: int, ask: Ask) -> bool:
        """Whether everything that is asked for was said."""
        steps = all((one := self.steps.get(k)) is not None and one.verdict for k in range(1, n_steps + 1))
        return (ask == "steps" or self.outcome is not None) and (ask == "outcome" or steps)

    @property
    def waiting(self) -> list[int]:
        """Steps with a comment and no verdict: their comments are in no label yet."""
        return [k for k, one in self.steps.items() if one.comment.strip() and not one.found]


class Change(BaseModel):
    """One action of a rater: a field, and what it is to be; None or '' takes back what was said."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    field: Literal["outcome", "comment", "verdict", "category", "step_comment", "rest"]
    """`rest`: the verdict of every step that has none."""
    step: int | None = Field(default=None, ge=1)
    value: str | None = Field(default=None, max_length=MOST_CHARS)


WITH_CATEGORY = ("bad", "unclear")
"""Verdicts of a step that something may be wrong with."""
OF_STEPS = {"verdict": "verdict", "category": "category", "step_comment": "comment"}
"""Fields of a change that speak of one step → the step's field."""


def objection(said: Label, change: Change) -> str | None:
    """Why a rater cannot mean a change; None where she can. (`changed` takes it all the same, and nothing comes of it.)"""
    if change.field == "category" and change.value and change.step is not None:
        one = said.steps.get(change.step)
        if one is not None and one.verdict == "good":
            return f"step {change.step} is good, so nothing was wrong with it: mark it bad or unclear first"
    return None


def changed(said: Label, change: Change, n_steps: int, rules: int = RULES) -> Label:
    """What is said after a change. A category makes a step without a verdict bad; a verdict that goes with none takes it away.

    Args:
        rules: those that the change was made by.

    Raises:
        ValueError: a step that the run does not have, or a value that the field cannot have.
    """
    made: dict[str, Any] = said.model_dump()
    if change.field == "rest":
        for k in range(1, n_steps + 1):
            one = made["steps"].setdefault(k, {})
            one["verdict"] = one.get("verdict") or change.value
    elif change.field in OF_STEPS:
        if change.step is None or change.step > n_steps:
            raise ValueError(f"there is no step {change.step}: the transcript has {n_steps}")
        field = OF_STEPS[change.field]
        empty = "" if field == "comment" else None
        one = made["steps"].setdefault(change.step, {})
        one[field] = change.value or empty
        if rules > 1 and field == "category" and change.value:
            one["verdict"] = one.get("verdict") or "bad"
        if rules > 1 and one.get("verdict") not in WITH_CATEGORY:
            one["category"] = None
    else:
        made[change.field] = change.value or ("" if change.field == "comment" else None)
    found = Label.model_validate(made)
    return found.model_copy(update={"steps": {k: one for k, one in sorted(found.steps.items()) if one != StepSaid()}})


def annotation_of(said: Label, trajectory_id: str, digest: str, rater: str) -> Annotation | None:
    """The label that a training or a measurement reads; None where nothing can be learned from what was said.

    The critique is the comment on the run, then a line for each step that has a verdict and a text. A comment on a step without a verdict is
    no finding: it waits in the journal for one (`Label.waiting`). What a rater copied from a transcript may hold a judge's tags, so texts are neutralised.
    """
    findings = [
        Finding(step=k, verdict=one.found, text=neutralise(one.text)) for k, one in said.steps.items() if one.found
    ]
    lines = format_findings(f for f in clear(findings) if f.text)
    critique = "\n".join(part for part in (neutralise(said.comment.strip()), lines) if part)
    score = SCORES.get(said.outcome) if said.outcome else None
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
