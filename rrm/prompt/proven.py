"""Mistakes that a rule proves without model or outcome (docs/labels.md).

A call is proven wrong where its result is an error that speaks of the call's form, where its arguments are no JSON and an error came
back, where its tool is not on offer and brought nothing or an error, and where it repeats an earlier call with the same result, nothing
changed in between and the result does not change by itself. `not found`, `permission denied`, a program that is not installed and an error of
the program that a call ran prove nothing, nor does a text that only speaks of errors.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection

from rrm.data.mistakes import MistakeKind
from rrm.data.trajectory import Step, Trajectory
from rrm.prompt.actions import actions_of
from rrm.prompt.actions import changes_state as may_change_state
from rrm.prompt.canonical import CanonicalStep, canonical_step
from rrm.prompt.facts import CODE
from rrm.prompt.failures import error_of, is_transient, told_by_environment

_WRONG_FORM = re.compile(
    r"""missing\ (?:\d+\ )?required | required\ (?:positional\ )?(?:argument|parameter|field|property)\b | unexpected\ keyword\ argument
    | (?:invalid|unknown|unrecognized|unexpected)\ (?:argument|parameter|option|keyword|flag|value|field|format|type|syntax|date)
    | invalid\ json\ (?:argument|parameter|input) | validation\ error
    | must\ be\ (?:one\ of|of\ type|an?\ (?:integer|number|string|list|object|valid)) | is\ not\ of\ type\b
    | is\ not\ a\ valid\ (?:integer|number|string|list|object|boolean|date|time|json|uuid|url|e-?mail|argument|parameter|option|choice|tool)\b
    | (?:unknown|no\ such|invalid|undefined)\ (?:tool|function|command|method|action)\b
    | \b(?:tool|function)\ \S{1,200}+\ (?:does\ not\ exist|is\ not\ (?:available|known|defined))
    | you\ have\ an\ error\ in\ your\ sql\ syntax | unknown\ column | \b(?:Syntax|Indentation)Error\b
    | (?-i::\ [^a-z\s][^\s:]*+:\ command\ not\ found)  # of what can be no program: `The: command not found`
    | unexpected\ EOF\ while | syntax\ error\b | arguments?\ (?:are|is)\ malformed | not\ provided\b""",
    re.IGNORECASE | re.VERBOSE,
)
"""Searched in errors alone."""
_WHOLE = re.compile(
    r"""\d+\ validation\ errors?\ for\ \w | unknown\ column | \w{1,80}+\ must\ be\ one\ of\b(?=[^\n]*+\Z)
    | (?:\w{1,40}+\ ){1,5}?must\ be\ one\ of\ ['"\[]""",
    re.IGNORECASE | re.VERBOSE,
)
"""Results that begin so are errors of the call's form, which `error_of` does not know."""
_NO_SUCH_TOOL = re.compile(
    r"""\b(?:unknown|no\ such|invalid|undefined)\ (?:tool|function|method|action)(?:\ name)?:?\ ["'`]?([\w-]++(?:\.[\w-]++)*+)
    | \b(?:tool|function|method)\ ["'`]?([\w-]++(?:\.[\w-]++)*+)["'`]?\ (?:was\ |is\ )?(?:not\ (?:found|available|known|defined)|unknown|does\ not\ exist)\b
    | (?<![\w.-])([\w-]++(?:\.[\w-]++)*+)["'`]?\ is\ not\ a\ (?:valid|known)\ (?:tool|function)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_PROGRAM = re.compile(r"Traceback \(most recent call last\)|^[^\S\n]*+File \"(?!<)", re.MULTILINE)
"""Marks of an error in a program that was run: the call was well formed."""
_UNFINISHED = re.compile(
    r"\b(?:running|pending|in[ _-]progress|queued|processing|waiting|not (?:yet )?(?:ready|done|finished))\b",
    re.IGNORECASE,
)
"""Marks of a result that changes by itself."""
_HEAD = 400
"""Characters at each end of a result, or of a line, that are searched; a much longer text may speak of errors."""


def call_is_wrong(result: str, tools: Collection[str] = ()) -> bool:
    """Tell whether a tool's result is an error of its call's form; `tools`: names that the step calls."""
    text = result.strip()
    if not text or len(text) >= 4 * _HEAD or _PROGRAM.search(text):
        return False
    if _WHOLE.match(text) or any(name in tools for m in _NO_SUCH_TOOL.finditer(text[:_HEAD]) for name in m.groups()):
        return True
    return any(_WRONG_FORM.search(error) for error in _errors(text))


def _errors(text: str) -> list[str]:
    """Return what of a text is an error: a JSON object whole, else its first line and its last."""
    if text.startswith(("{", "[{")):
        return [text[:_HEAD] + text[-_HEAD:]] if error_of(text) else []
    lines = text.split("\n")
    first = lines[0] if not lines[0].rstrip().endswith(":") else "\n".join(lines[:2])
    return [line[:_HEAD] for line in (first, lines[-1]) if error_of(line)]


def is_malformed(raw: Step, step: CanonicalStep) -> bool:
    """Tell whether the results of a step prove one of its calls malformed."""
    results = [text for label, text in step.returns if label == "result"]
    results += [m.text() for m in raw.observations if m.role == "tool"]  # JSON as it came
    cut = any(call.malformed and str(call.arguments).lstrip().startswith("{") for call in step.calls)
    names = {call.name for call in step.calls}
    return bool(names) and any(call_is_wrong(text, names) or (cut and error_of(text)) for text in results)


def proven_mistakes(trajectory: Trajectory, changes_state: Collection[str] = ()) -> dict[int, MistakeKind]:
    """Return step → the kind of mistake that a rule proves; `changes_state`: tools that allow repeats."""
    names = [name_of(tool) for tool in trajectory.tools or []]
    offered = set[str]() if None in names else set(names)  # a tool without a name may be any
    mistakes: dict[int, MistakeKind] = {}
    latest: dict[str, list[str]] = {}  # calls → what they last returned, since the last change
    repeats = defaultdict[str, list[int]](
        list
    )  # calls → steps that are repeats unless the same calls return something else
    for k, raw in enumerate(trajectory.steps, start=1):
        step = canonical_step(raw)
        results = [text for label, text in step.returns if label == "result"]
        from_user = [text for label, text in step.returns if label == "user" and told_by_environment(text)]
        returned = results + from_user  # an environment without a role of its own speaks as the user
        key = json.dumps([[c.name, c.arguments, c.malformed] for c in step.calls], sort_keys=True, default=str)
        foreign = offered and any(call.name not in offered for call in step.calls if call.name not in CODE)
        wrong = is_malformed(raw, step)
        worked = bool(returned) and not wrong and all(error_of(text) is None for text in returned)  # the tool exists
        if wrong or (foreign and not worked):
            mistakes[k] = "malformed_call"
        elif step.calls and step.returns and latest.get(key) == returned and not any(map(changes_by_itself, returned)):
            mistakes[k] = "repeat"
            repeats[key].append(k)
        elif key in latest and latest[key] != returned:
            for j in repeats.pop(key, ()):
                del mistakes[j]
        if any(map(may_change_state, actions_of(raw))):
            repeats.clear()
        if any(call.name in changes_state for call in step.calls):
            latest.clear()
        latest[key] = returned
        if len(returned) < len(step.returns):
            latest.clear()
            repeats.clear()
    return mistakes


def changes_by_itself(result: str) -> bool:
    """Tell whether a result may differ when its call is made again: a time-out, `running`, `queued`."""
    return is_transient(result) or (len(result) < _HEAD and _UNFINISHED.search(result) is not None)


def name_of(tool: dict) -> str | None:
    function = tool.get("function")
    name = (function if isinstance(function, dict) else tool).get("name")
    return None if name is None else str(name)
