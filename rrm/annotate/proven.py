"""Mistakes that a rule proves from the page alone: no model, no outcome (docs/labels.md).

A call is proven wrong where its result reports the call itself as wrong (a missing or invalid argument, bad syntax), where its tool is
none of those on offer, and where it repeats an earlier call with the same result and nothing changed in between. `not found` and
`permission denied` prove nothing: the call may have been right.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from rrm.annotators.failures import is_transient
from rrm.data.mistakes import MistakeKind
from rrm.prompt.canonical import CanonicalStep, canonical_step
from rrm.trajectory import Trajectory

_CALL_IS_WRONG = re.compile(
    r"""missing\ (?:\d+\ )?required | required\ (?:positional\ )?(?:argument|parameter|field|property)\b | unexpected\ keyword\ argument
    | (?:invalid|unknown|unrecognized|unexpected)\ (?:argument|parameter|option|keyword|flag|value|field|format|type|syntax|date)
    | must\ be\ (?:one\ of|of\ type|an?\ (?:integer|number|string|list|object|valid)) | is\ not\ (?:a\ valid|of\ type)\b | validation\ error
    | (?:unknown|no\ such|invalid|undefined)\ (?:tool|function|command|method|action)\b
    | you\ have\ an\ error\ in\ your\ sql\ syntax | unknown\ column | \b(?:Syntax|Indentation|Name|Type)Error\b | not\ a\ valid\ tool
    | unexpected\ EOF\ while | syntax\ error\b | command\ not\ found | arguments?\ (?:are|is)\ malformed | not\ provided\b""",
    re.IGNORECASE | re.VERBOSE,
)
_HEAD = 400
"""Characters of a result in which it says what was wrong with the call; a longer one is a text that may speak of errors."""


def call_is_wrong(result: str) -> bool:
    """Whether a tool's result says that the call itself was wrong."""
    text = result.strip()
    return len(text) < 4 * _HEAD and bool(_CALL_IS_WRONG.search(text[:_HEAD] + text[-_HEAD:]))


def proven_mistakes(trajectory: Trajectory, changes_state: Collection[str] = ()) -> dict[int, MistakeKind]:
    """Step → the kind of mistake a rule proves it to be.

    Args:
        changes_state: names of tools that change state: after one of them a call may be made again.
    """
    steps = [canonical_step(step) for step in trajectory.steps]
    known = {_name_of(tool) for tool in trajectory.tools or []}
    found: dict[int, MistakeKind] = {}
    for k, step in enumerate(steps, start=1):
        if (step.calls and any(label == "result" and call_is_wrong(text) for label, text in step.returns)) or (
            known and any(call.name not in known for call in step.calls if not _is_code(call.name))
        ):
            found[k] = "malformed_call"
        elif _repeats(steps, k - 1, changes_state):
            found[k] = "repeat"
    return found


def _name_of(tool: dict) -> str:
    function = tool.get("function")
    return str((function if isinstance(function, dict) else tool).get("name", "?"))


def _is_code(name: str) -> bool:
    return name in ("python", "bash", "code", "sql")


def _repeats(steps: Sequence[CanonicalStep], at: int, changes_state: Collection[str]) -> bool:
    """Whether a step's calls were made before, with the same results, and nothing changed since."""
    step = steps[at]
    if not step.calls or not step.returns:
        return False
    for before in range(at - 1, -1, -1):
        earlier = steps[before]
        if earlier.calls == step.calls:
            texts = [text for label, text in earlier.returns if label == "result"]
            return texts == [text for label, text in step.returns if label == "result"] and not any(
                map(is_transient, texts)
            )
        if any(label == "user" for label, _ in earlier.returns) or any(c.name in changes_state for c in earlier.calls):
            return False
    return False
