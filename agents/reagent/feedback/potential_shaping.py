"""Φ, what a judge thinks of an attempt as far as it has come: after each turn, from what stands there and nothing later.

Two ways, by the judge's mode:

    steps      the lowest p_good so far, of the verdict slots of ONE prefill of the whole attempt. The slot of step k reads the
               steps up to k alone (`rrm.judge.steps`), so it says of the prefix what it says of the whole. It speaks of steps, and
               not of how the run will end: that slot stands once, behind the last step.
    the others the score of each prefix, judged as a run of its own: a judgement a turn, and with turns of like length (K + 1)/2
               times the tokens of one reading. Any judge can, and it is a true score; but a judge of finished runs reads
               unfinished ones.

An attempt is as good as its worst step so far, so one good step after a ruined one earns nothing back.
"""

from __future__ import annotations

from collections.abc import Sequence

from reagent.feedback.base import as_judged
from reagent.rollout.episode import Episode
from rrm.data.annotation import Finding
from rrm.data.trajectory import Trajectory
from rrm.evaluation.step_scores import step_probabilities


def prefixes(episode: Episode) -> list[Trajectory]:
    """The attempt after each turn but the last, with what the environment answered it, as the judge is shown it."""
    whole = as_judged(episode)
    asked = len(whole.messages) - len(episode.own_messages)
    starts = [i for i, m in enumerate(whole.messages) if i >= asked and m.role == "assistant"]
    return [whole.model_copy(update={"messages": whole.messages[:at]}) for at in starts[1:]]


def lowest_so_far(findings: Sequence[Finding], turns: int) -> list[float]:
    """Φ after each turn but the last: the lowest p_good of the turns so far, finding step k being of turn k; 0 up to the first turn
    of which there is one. A turn on which the judge abstains leaves Φ as it was."""
    known = step_probabilities([f for f in findings if f.verdict != "unsure"], turns)[:-1]
    lowest: list[float | None] = []
    for p in known:
        before = lowest[-1] if lowest else None
        lowest.append(p if before is None else before if p is None else min(before, p))
    return forward_fill(lowest)


def forward_fill(scores: Sequence[float | None]) -> list[float]:
    """Φ where it is not known after a turn: what it was before; 0 at the start. Still nothing but what the prefix says."""
    found: list[float] = []
    for score in scores:
        found.append(score if score is not None else found[-1] if found else 0.0)
    return found
