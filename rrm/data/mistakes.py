"""Kinds of mistakes in a step, for planted mistakes, critiques and failure modes (docs/labels.md)."""

from __future__ import annotations

from typing import Literal, get_args

MistakeKind = Literal[
    "irrelevant_call",
    "wrong_argument",
    "malformed_call",
    "repeat",
    "ignored_error",
    "broken_instruction",
    "misread_result",
    "invented_result",
    "unsupported_claim",
    "needless_side_effect",
    "wrong_answer",
    "gave_up_early",
]
MISTAKE_KINDS: tuple[MistakeKind, ...] = get_args(MistakeKind)

# kinds whose words alone look like those of right steps
MEANING_KINDS: frozenset[MistakeKind] = frozenset(
    {
        "irrelevant_call",
        "wrong_argument",
        "broken_instruction",
        "misread_result",
        "invented_result",
        "unsupported_claim",
        "needless_side_effect",
        "wrong_answer",
    }
)

DESCRIPTIONS: dict[MistakeKind, str] = {
    "irrelevant_call": "calls a tool for something the task does not ask for",
    "wrong_argument": "calls the right tool with a wrong value",
    "malformed_call": "calls a tool that does not exist, or without arguments it needs",
    "repeat": "makes the same call again though nothing has changed",
    "ignored_error": "goes on as if a call that failed had worked",
    "broken_instruction": "breaks an instruction or a policy it was given",
    "misread_result": "says something else than the result it read",
    "invented_result": "states a result that no tool returned",
    "unsupported_claim": "claims a fact or an action that nothing in the run supports",
    "needless_side_effect": "changes something that nobody asked to change",
    "wrong_answer": "ends with an answer that the results contradict",
    "gave_up_early": "gives up though there was more to try",
}
