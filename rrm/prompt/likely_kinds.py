"""Name the likely kind of a step that is a mistake, for judges that say `bad` and not why (docs/failures.md).

The first of these that holds: a rule proves the kind (`rrm.prompt.proven`); the call was made since the last change; the step
gives up; an instruction names its tool or value; the step before failed; then by what is new in its call or its words.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from rrm.data.mistakes import MistakeKind
from rrm.data.text import content_words
from rrm.data.trajectory import Trajectory
from rrm.prompt.actions import actions_of, changes_state
from rrm.prompt.canonical import CanonicalStep, canonical_step
from rrm.prompt.facts import plain_word, values_in_step, words_in
from rrm.prompt.failures import error_of
from rrm.prompt.proven import proven_mistakes

_INSTRUCTION = re.compile(
    r"\b(?:never|not|only|before|unless|until|at most|no more|not more|without|must|off[- ]limits|leave|forbidden|avoid|"
    r"constraint|always|first)\b|n't\b",
    re.IGNORECASE,
)
_GIVES_UP = re.compile(
    r"\b(?:(?:can ?not|can't|could not|couldn't|(?:un|not )able to|do not|don't|did not|didn't) (?:\w+ )?(?:find|determine|answer|know|"
    r"solve|provide|complete|help|have enough|proceed)|not enough information|give up|(?:does not|doesn't) seem (?:to be )?possible|"
    r"i will stop)\b",
    re.IGNORECASE,
)
_CLAIM = re.compile(
    r"\b(?:(?:i|we)(?:'ve| have)(?: \w+)? \w+ed|(?:has|have) been|(?:is|are) done|gone through|successfully|sent|booked|cancell?ed|updated)\b",
    re.IGNORECASE,
)
_BAN = re.compile(r"\b(?:must|limit|maximum|at most|do not|don't|never|must not|avoid|only)\b", re.IGNORECASE)
_SENTENCES = re.compile(r"(?<=[.!?])\s|\n")
STEM = 5
"""Letters by which a step's words are compared with an instruction's."""
FAMILIAR = 0.25
"""Share of a call's words that stood before, from which the call is taken to be the right one with a wrong value."""


def likely_kinds(trajectory: Trajectory, bad: Collection[int]) -> dict[int, MistakeKind]:
    """Return step → likely kind of each step in `bad`. Time is linear in the run's length."""
    proven = proven_mistakes(trajectory)
    context = _Context(trajectory)
    kinds: dict[int, MistakeKind] = {}
    for k, raw in enumerate(trajectory.steps, start=1):
        step = canonical_step(raw)
        changes = any(map(changes_state, actions_of(raw)))
        if k in bad:
            kinds[k] = proven.get(k) or _kind(step, context, changes)
        context.add(step, changes)
    return kinds


class _Context:
    """Texts, calls and results before a step."""

    def __init__(self, trajectory: Trajectory) -> None:
        head = "\n".join([trajectory.task, *(m.text() for m in trajectory.prelude)])
        self.instructions = [s for s in _SENTENCES.split(head) if _INSTRUCTION.search(s)]
        self.instructed = set[str]().union(*map(words_in, self.instructions))
        self.topics = [(_stems(s), bool(_BAN.search(s))) for s in self.instructions]
        self.known, self.familiar = words_in(head), content_words(head)
        self.calls, self.tools = set[str](), set[str]()
        self.failed = self.has_results = False

    def add(self, step: CanonicalStep, changes: bool) -> None:
        returned = "\n".join(text for _, text in step.returns)
        self.known |= words_in(returned)
        self.familiar |= content_words(f"{returned}\n{step.thought}")
        self.calls = (set() if changes else self.calls) | {call.text for call in step.calls}
        self.failed = any(label == "result" and error_of(text) for label, text in step.returns)
        self.has_results |= bool(step.returns)


def _kind(step: CanonicalStep, before: _Context, changes: bool) -> MistakeKind:
    spoken = step.answer if step.answer is not None else step.thought
    acts = bool(step.calls) or (step.answer is None and any(label == "result" for label, _ in step.returns))
    if any(call.malformed for call in step.calls):
        return "malformed_call"
    if any(call.text in before.calls for call in step.calls):
        return "repeat"
    if not acts and _GIVES_UP.search(spoken):
        return "gave_up_early"
    in_call = [plain_word(value) for value in values_in_step(replace(step, answer=None))] if acts else []
    named = {call.name.lower() for call in step.calls} | {value for value in in_call if len(value) > 1}
    if acts and (named & before.instructed or _touches(step, before)):
        return "broken_instruction"
    if before.failed:
        return "ignored_error"
    stated_values = [plain_word(value) for value in values_in_step(replace(step, calls=(), answer=None))]
    invents = any(value not in before.known for value in stated_values)
    if acts:
        new = sum(value not in before.known for value in in_call)
        if changes:
            return "needless_side_effect" if new * 5 > len(in_call) else "wrong_argument"
        if invents and not new:
            return "misread_result" if before.has_results else "invented_result"
        words = content_words(" ".join(call.text for call in step.calls) or step.thought)
        return "wrong_argument" if len(words & before.familiar) >= FAMILIAR * len(words) else "irrelevant_call"
    if _CLAIM.search(spoken):
        return "unsupported_claim"
    return "invented_result" if invents and not before.has_results else "wrong_answer"


def _touches(step: CanonicalStep, before: _Context) -> bool:
    """Tell whether the step's words are those of an instruction."""
    words = _stems(" ".join([step.thought, *(call.text for call in step.calls)]))
    return any(len(words & topic) >= (1 if ban else 2) for topic, ban in before.topics)


def _stems(text: str) -> set[str]:
    return {word[:STEM] for word in content_words(text)}
