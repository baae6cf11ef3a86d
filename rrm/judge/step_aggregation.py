"""What is said of the parts of a step becomes what is said of the step: the worst part decides.

A step that is longer than a window is read in parts, and each is judged (`rrm.prompt.windows`). What is wrong with a step stands
somewhere in it; the parts around it look sound, and a mean, or the last part's word, would let them outvote the one that shows the
fault. So p_good of a step is the lowest of its parts', and a step is bad where one part is. A part has its chance of a false alarm,
so steps in many parts have more of them; calibration and threshold are fitted on these minima, as they are used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from rrm.data.annotation import Finding, Verdict


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
