"""Planted mistakes: exactly one mistake in a copy of a run that succeeded, its kind, step and critique known (docs/labels.md).

`plant` takes one kind and returns the copy, cut after the planted step, or None where the run offers no place for it. What surrounds a
planted step is the run's own; values come from the run's own results and from other runs of the same tools, so that the words of a
planted step look like those of right ones. `counterpart` makes the same surface where it is right: a call repeated after a time-out, an
instruction that is obeyed, an action that is claimed and was made.
"""

from __future__ import annotations

import random

from rrm.annotate import planted_calls, planted_claims, planted_instructions
from rrm.annotate.copies import Donors, Operator, Planted, SuccessfulRun
from rrm.data.mistakes import MistakeKind
from rrm.prompt.canonical import canonical_step

__all__ = ["COUNTERPARTS", "OPERATORS", "Donors", "Planted", "SuccessfulRun", "counterpart", "plant"]


def plant(run: SuccessfulRun, kind: MistakeKind, rng: random.Random) -> Planted | None:
    """A copy with one mistake of this kind, or None where the run has no place for it."""
    made = OPERATORS[kind](run, rng)
    return None if made is None or (kind != "broken_instruction" and _is_own(run, made)) else made


def counterpart(run: SuccessfulRun, kind: MistakeKind, rng: random.Random) -> Planted | None:
    """The same surface where it is right, or None."""
    operator = COUNTERPARTS.get(kind)
    return None if operator is None else operator(run, rng)


def _is_own(run: SuccessfulRun, made: Planted) -> bool:
    """Whether the copy is a prefix of the run: a run that repeats itself has the planted step already."""
    steps = [canonical_step(step) for step in made.trajectory.steps[made.known :]]
    own = run.steps[made.known : made.known + len(steps)]
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
