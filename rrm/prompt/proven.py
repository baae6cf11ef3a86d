"""Mistakes that a rule proves without model or outcome (docs/labels.md).

A call is proven wrong where its result reports the call itself as wrong, where its tool is not on offer and brought nothing or an
error, and where it repeats an earlier call with the same result and nothing changed in between. `not found`, `permission denied`
and an error of the program that a call ran prove nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection

from rrm.data.mistakes import MistakeKind
from rrm.data.trajectory import Trajectory
from rrm.prompt.canonical import canonical_step
from rrm.prompt.facts import CODE
from rrm.prompt.failures import error_of, is_transient, told_by_environment

_CALL_IS_WRONG = re.compile(
    r"""missing\ (?:\d+\ )?required | required\ (?:positional\ )?(?:argument|parameter|field|property)\b | unexpected\ keyword\ argument
    | (?:invalid|unknown|unrecognized|unexpected)\ (?:argument|parameter|option|keyword|flag|value|field|format|type|syntax|date)
    | must\ be\ (?:one\ of|of\ type|an?\ (?:integer|number|string|list|object|valid)) | is\ not\ (?:a\ valid|of\ type)\b | validation\ error
    | (?:unknown|no\ such|invalid|undefined)\ (?:tool|function|command|method|action)\b
    | \b(?:tool|function)\ \S{1,200}+\ (?:does\ not\ exist|is\ not\ (?:available|known|defined))
    | you\ have\ an\ error\ in\ your\ sql\ syntax | unknown\ column | \b(?:Syntax|Indentation)Error\b | not\ a\ valid\ tool
    | unexpected\ EOF\ while | syntax\ error\b | command\ not\ found | arguments?\ (?:are|is)\ malformed | not\ provided\b""",
    re.IGNORECASE | re.VERBOSE,
)
_PROGRAM = re.compile(r"Traceback \(most recent call last\)|^[^\S\n]*+File \"(?!<)", re.MULTILINE)
"""Marks of an error in a program that was run: the call was well formed."""
_HEAD = 400
"""Characters at each end of a result that are searched; a much longer text may speak of errors."""


def call_is_wrong(result: str) -> bool:
    """Tell whether a tool's result says that the call itself was wrong."""
    text = result.strip()
    wrong = len(text) < 4 * _HEAD and _CALL_IS_WRONG.search(text[:_HEAD] + text[-_HEAD:])
    return bool(wrong) and not _PROGRAM.search(text)


def proven_mistakes(trajectory: Trajectory, changes_state: Collection[str] = ()) -> dict[int, MistakeKind]:
    """Return step → the kind of mistake that a rule proves; `changes_state`: tools that allow repeats."""
    names = [name_of(tool) for tool in trajectory.tools or []]
    offered = set[str]() if None in names else set(names)  # a tool without a name may be any
    mistakes: dict[int, MistakeKind] = {}
    latest: dict[str, list[str]] = {}  # calls → what they last returned, since the last change
    for k, step in enumerate(map(canonical_step, trajectory.steps), start=1):
        results = [text for label, text in step.returns if label == "result"]
        from_user = [text for label, text in step.returns if label == "user" and told_by_environment(text)]
        returned = results + from_user  # an environment without a role of its own speaks as the user
        key = json.dumps([[c.name, c.arguments, c.malformed] for c in step.calls], sort_keys=True, default=str)
        foreign = offered and any(call.name not in offered for call in step.calls if call.name not in CODE)
        wrong = any(map(call_is_wrong, results))
        worked = bool(returned) and not wrong and all(error_of(text) is None for text in returned)  # the tool exists
        if (step.calls and wrong) or (foreign and not worked):
            mistakes[k] = "malformed_call"
        elif step.calls and step.returns and latest.get(key) == returned and not any(map(is_transient, returned)):
            mistakes[k] = "repeat"
        if any(call.name in changes_state for call in step.calls):
            latest.clear()
        latest[key] = returned
        if len(returned) < len(step.returns):
            latest.clear()
    return mistakes


def name_of(tool: dict) -> str | None:
    function = tool.get("function")
    name = (function if isinstance(function, dict) else tool).get("name")
    return None if name is None else str(name)
