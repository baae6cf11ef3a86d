"""Plant exactly one mistake of a known kind in a copy of a successful run (docs/labels.md).

The copy is cut after the planted step. Its values come from the run's own results and from other runs of the same tools, so that
its words look like right ones. A counterpart has the same surface where it is right, e.g. a repeat after a time-out.
"""

from __future__ import annotations

import random

from rrm.annotate import planted_calls, planted_claims, planted_instructions
from rrm.annotate.copies import Donors, Operator, Planted, SuccessfulRun
from rrm.data.mistakes import MistakeKind
from rrm.prompt.canonical import canonical_step

__all__ = ["COUNTERPARTS", "OPERATORS", "Donors", "Planted", "SuccessfulRun", "counterpart", "plant"]


def plant(run: SuccessfulRun, mistake: MistakeKind, rng: random.Random) -> Planted | None:
    """Return a copy with one mistake of this kind, or None where the run has no place for it."""
    copy = OPERATORS[mistake](run, rng)
    return None if copy is None or (mistake != "broken_instruction" and _is_own(run, copy)) else copy


def counterpart(run: SuccessfulRun, mistake: MistakeKind, rng: random.Random) -> Planted | None:
    """Return a copy with the same surface where it is right, or None."""
    operator = COUNTERPARTS.get(mistake)
    return None if operator is None else operator(run, rng)


def _is_own(run: SuccessfulRun, copy: Planted) -> bool:
    """Tell whether the copy is a prefix of the run: one that repeats itself has the planted step already."""
    steps = [canonical_step(step) for step in copy.trajectory.steps[copy.known :]]
    own = run.steps[copy.known : copy.known + len(steps)]
    return [(s.action_text, s.return_text) for s in steps] == [(s.action_text, s.return_text) for s in own]


OPERATORS: dict[MistakeKind, Operator] = {
    "irrelevant_call": planted_calls.irrelevant_call,
    "wrong_argument": planted_calls.wrong_argument,
    "malformed_call": planted_calls.malformed_call,
    "repeat": planted_calls.repeat,
    "ignored_error": planted_calls.ignored_error,
    "broken_instruction": planted_instructions.broken_instruction,
    "misread_result": planted_claims.misread_result,
    "invented_result": planted_claims.invented_result,
    "unsupported_claim": planted_claims.unsupported_claim,
    "needless_side_effect": planted_calls.needless_side_effect,
    "wrong_answer": planted_claims.wrong_answer,
    "gave_up_early": planted_claims.gave_up_early,
}
COUNTERPARTS: dict[MistakeKind, Operator] = {
    "repeat": planted_calls.repeat_counterpart,
    "ignored_error": planted_calls.ignored_error_counterpart,
    "broken_instruction": planted_instructions.obeyed_instruction,
    "unsupported_claim": planted_claims.supported_claim,
}
