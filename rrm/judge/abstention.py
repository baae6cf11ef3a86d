"""Abstention: where a judge gives no verdict on a step, and says `unsure`.

| why | of which steps | what else of the row |
|---|---|---|
| the transcript is outside what the judge was measured on (`rrm.judge.domain`) | all | no trace, no critique |
| the calibrated p_good lies within the judge's `unsure_band` | this one | the critique has no line on it |

p_good and the score stay as they are. What later windows are told of a step follows from p_good and the threshold alone, so that
they do not depend on whether a judge abstains.

A step that is longer than a window is read in parts, and the worst part decides: what is wrong stands somewhere in it, and the sound parts
around would outvote it. Such steps have more chances of a false alarm; calibration and threshold are fitted on these minima.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field

from rrm.data.annotation import Finding, Verdict
from rrm.data.feedback import Feedback, Mode


@dataclass(frozen=True)
class VerdictRule:
    """Makes a verdict of a calibrated p_good."""

    threshold: float = 0.5
    """Good from here on."""
    unsure_band: tuple[float, float] | None = None
    """Unsure strictly between these two; None: never."""

    def __call__(self, p_good: float) -> Verdict:
        if self.unsure_band is not None and self.unsure_band[0] < p_good < self.unsure_band[1]:
            return "unsure"
        return "good" if p_good >= self.threshold else "bad"


class AgreementPromise(BaseModel):
    """From which score on a run gets a verdict, so that verdicts agree with people (`rrm calibrate --agreement`)."""

    mode: Mode
    """Of the scores that it is about."""
    agreement: float = Field(gt=0.5, lt=1)
    """Least share of verdicts that agree with people."""
    confidence: float = Field(gt=0, lt=1)
    """Probability that the promise holds, over the draw of labels."""
    least_sure: float = Field(ge=0.5, le=1)
    """How sure a score p is of good or bad, max(p, 1 − p), from which a verdict is given."""
    coverage: float
    """Share of the labelled runs that have a verdict."""
    agreed: float
    """Share of these that agree."""
    labels: int


def run_verdict(feedback: Feedback) -> Verdict | None:
    """The verdict on a whole run; None without a score or a promise."""
    score, least = feedback.score, feedback.judge.least_sure
    if score is None or least is None:
        return None
    if feedback.abstains or max(score, 1 - score) < least:
        return "unsure"
    return "good" if score >= 0.5 else "bad"


def abstain(feedback: Feedback) -> None:
    """Take back, in place, what a row says of single steps: its transcript is outside what the judge was measured on."""
    feedback.findings = [f.model_copy(update={"verdict": "unsure", "text": ""}) for f in feedback.findings]
    feedback.trace = feedback.critique = None


def p_good_of_parts(parts: Iterable[float]) -> float:
    """The probability that a step is good, of its parts' (at least one)."""
    return min(parts)


def is_bad_of_parts(verdicts: Collection[Verdict]) -> bool | None:
    """Whether a step is bad, of what is said of its parts; None where nothing clear is."""
    clear = {verdict for verdict in verdicts if verdict in ("good", "bad")}
    return "bad" in clear if clear else None


def findings_of_parts(findings: Sequence[Finding]) -> list[Finding]:
    """What counts of the findings on one step: those that say that a part is bad, all where none does."""
    return [finding for finding in findings if finding.verdict == "bad"] or list(findings)
