"""Abstention: verdict `unsure` where a judge takes no side on a step; p_good and score stay.

Outside the judge's domain (`rrm.judge.domain`): all steps, and the row loses trace and critique. Calibrated p_good within
`unsure_band`: that step, and the critique loses its line. Later windows see marks of p_good and the threshold alone. A step
longer than a window is read in parts and its worst part decides; calibration and threshold are fitted on these minima.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field

from rrm.data.annotation import Finding, Verdict
from rrm.data.feedback import Feedback, Mode

SURE = 0.75  # a score from here on, or from 1 − this down, contradicts verdicts


@dataclass(frozen=True)
class VerdictRule:
    threshold: float = 0.5  # good from here on
    unsure_band: tuple[float, float] | None = None  # unsure strictly between these two; None: never

    def __call__(self, p_good: float) -> Verdict:
        if self.unsure_band is not None and self.unsure_band[0] < p_good < self.unsure_band[1]:
            return "unsure"
        return "good" if p_good >= self.threshold else "bad"


class AgreementPromise(BaseModel):
    """Score certainty from which a run gets a verdict (`rrm calibrate --agreement`)."""

    mode: Mode  # of these scores
    agreement: float = Field(gt=0.5, lt=1)  # least share of verdicts that agree with people
    confidence: float = Field(gt=0, lt=1)  # probability that the promise holds, over the draw of labels
    least_sure: float = Field(ge=0.5, le=1)  # a verdict needs max(p, 1 − p) of the score p to be at least this
    coverage: float  # share of the labelled runs with a verdict
    agreed: float  # share of these that agree
    labels: int


def run_verdict(feedback: Feedback) -> Verdict | None:
    # None without a score or a promise
    score, least = feedback.score, feedback.judge.least_sure
    if score is None or least is None:
        return None
    if feedback.abstains or max(score, 1 - score) < least:
        return "unsure"
    return "good" if score >= 0.5 else "bad"


def contradiction(feedback: Feedback) -> str | None:
    """Say where a sure score and the verdicts on all steps (mode `steps`) do not fit; None where they may."""
    score, verdicts = feedback.score, [f.verdict for f in feedback.findings if f.p_good is not None]
    if score is None or not verdicts or "unsure" in verdicts:
        return None
    if score <= 1 - SURE and all(verdict == "good" for verdict in verdicts):
        return f"contradiction: the score is {score:.2f}, and no step is bad"
    if score >= SURE and (verdicts[-1] == "bad" or 2 * verdicts.count("bad") > len(verdicts)):
        return f"contradiction: the score is {score:.2f}, and {verdicts.count('bad')} of {len(verdicts)} verdicts are bad, the last is {verdicts[-1]}"
    return None


def abstain(feedback: Feedback) -> None:
    """Blank a row's verdicts, trace and critique in place."""
    feedback.findings = [f.model_copy(update={"verdict": "unsure", "text": ""}) for f in feedback.findings]
    feedback.trace = feedback.critique = None


def p_good_of_parts(parts: Iterable[float]) -> float:
    return min(parts)


def is_bad_of_parts(verdicts: Collection[Verdict]) -> bool | None:
    """Return whether any part is bad; None where no verdict is clear."""
    clear = {verdict for verdict in verdicts if verdict in ("good", "bad")}
    return "bad" in clear if clear else None


def findings_of_parts(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that call a part bad, or all where none does."""
    return [finding for finding in findings if finding.verdict == "bad"] or list(findings)
