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

from rrm.data.annotation import Finding, Verdict
from rrm.data.feedback import Feedback


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
