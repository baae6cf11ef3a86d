"""Read an agent's actions from OpenAI tool calls or from the conventions agents write in plain text.

Text conventions: `<execute>code</execute>` (MINT), `Action: tool[input]` and `Action Input:` (ReAct), `<search>q</search>`,
query tags, `<tool_call>{json}</tool_call>`, `<function_call>[send(to="x")]</function_call>` (AgentDojo), fenced Python,
`> go to shelf 1` (ALFWorld), and the answers of `rrm.prompt.answers`. An unclosed tag or unparsable JSON makes the action malformed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import Literal

from rrm.data.trajectory import Step, ToolCall, Trajectory
from rrm.prompt.answers import ANSWER_CALLS, ANSWER_TAGS, stated_answer

ActionKind = Literal["call", "code", "answer"]

_BLOCKS: tuple[tuple[ActionKind, str, re.Pattern[str]], ...] = (
    ("code", "code", re.compile(r"<execute>(.*?)(</execute>|\Z)", re.DOTALL)),
    ("code", "code", re.compile(r"```(?:python|py|bash|sh)\n(.*?)(```|\Z)", re.DOTALL)),
    ("call", "search", re.compile(r"<search>(.*?)(</search>|\Z)", re.DOTALL)),
    ("call", "search", re.compile(r"<\|begin_of_query\|>(.*?)(<\|end_of_query\|>|\Z)", re.DOTALL)),
    *(("answer", "answer", re.compile(rf"<{tag}>(.*?)(</{tag}>|\Z)", re.DOTALL)) for tag in ANSWER_TAGS),
)
_EMPTY_ANSWER = re.compile(rf"<({'|'.join(ANSWER_TAGS)})>\s*+</\1>")
_TOOL_CALL = re.compile(r"<tool_call>(.*?)(</tool_call>|\Z)", re.DOTALL)
_FUNCTION_CALLS = re.compile(r"<function_call>\s*+\[\s*+((\w[\w.]*+)\s*+\(.*?)(</function_call>|\Z)", re.DOTALL)
_CALL = re.compile(r"(\w[\w.]*+)\s*+\((.*)\)", re.DOTALL)
# strings (to the end, where unclosed), brackets and commas: by these a list of calls is split
_IN_CALLS = re.compile(r"""\"(?:\\.|[^"\\])*+\\?(?:"|\Z)|'(?:\\.|[^'\\])*+\\?(?:'|\Z)|[()\[\]{},]""", re.DOTALL)
_REACT = re.compile(
    r"^Action(?: \d+)?:[ \t]*+([A-Za-z_][\w.-]*+(?:[ ]++[\w.-]++)*+)[ \t]*+\[(.*?)\][ \t]*+$", re.MULTILINE
)
_REACT_INPUT = re.compile(
    r"^Action(?: \d+)?:[ \t]*([A-Za-z_][\w.-]*)[ \t]*\nAction Input(?: \d+)?:[ \t]*(.*)$", re.MULTILINE
)
_ALFWORLD = re.compile(
    r"^>[ \t]*((?:go to|take|put|open|close|use|clean|heat|cool|examine|look|inventory)\b.*)$", re.MULTILINE
)

# begins a call's result; behind an agent's own call, in its own message, the result is made up
RESULT = re.compile(
    r"<(?:tool_response|tool_result|tool_output|execution_result|observation|information)\b|<\|observation\|>|<｜tool▁outputs?▁begin｜>"
    r"|^[ \t]*+Observation(?: \d{1,3})?[ \t]*+:",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True)
class Action:
    """One action of a step. `text`: the call's arguments, the code, or the answer, whitespace normalised."""

    kind: ActionKind
    name: str
    text: str
    malformed: bool = False
    raw: str = field(default="", compare=False)  # with line breaks and indentation; empty for a native call
    span: tuple[int, int] = field(default=(0, 0), compare=False)  # in the message's text, from opening to closing mark

    @property
    def key(self) -> tuple[str, str, str]:
        # equal for two actions that do the same
        return (self.kind, self.name.lower(), self.text if self.kind == "code" else self.text.lower())


def _squeeze(text: str) -> str:
    return " ".join(text.split())


def _from_tool_call(call: ToolCall) -> Action:
    if isinstance(call.arguments, str):
        return Action("call", call.name, _squeeze(call.arguments), malformed=True)
    if call.name.lower() in ANSWER_CALLS and len(call.arguments) == 1:
        return Action("answer", call.name, _squeeze(str(next(iter(call.arguments.values())))))
    return Action("call", call.name, json.dumps(call.arguments, sort_keys=True, ensure_ascii=False))


def _from_tagged_json(body: str, closed: bool) -> Action:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return Action("call", "tool", _squeeze(body), malformed=True)
    arguments = value.get("arguments", {})
    if not isinstance(arguments, dict):
        return Action("call", value["name"], _squeeze(str(arguments)), malformed=True)
    return Action(
        "call", value["name"], json.dumps(arguments, sort_keys=True, ensure_ascii=False), malformed=not closed
    )


def _from_calls(body: str, name: str, closed: bool) -> list[Action]:
    """Parse `read(id=1), send(to="a")]`, one action a call; one malformed action of `name` if that fails."""
    texts, depth, start, end = list[str](), 0, 0, None
    for m in _IN_CALLS.finditer(body):
        sign = m[0]
        if sign in (",", "]") and depth == 0:
            texts.append(body[start : m.start()].strip())
            start = m.end()
            if sign == "]":
                end = m.end()
                break
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
    texts = texts[:-1] if texts and not texts[-1] else texts  # a comma behind the last
    calls = [_CALL.fullmatch(text) for text in texts]
    if not closed or end is None or body[end:].strip() or not all(calls):
        return [Action("call", name, _squeeze(body), malformed=True)]
    return [Action("call", call[1], _squeeze(call[0])) for call in calls if call]


def actions_in(text: str) -> list[Action]:
    collected: list[Action] = []

    def add(m: re.Match[str], raw: str, *actions: Action) -> None:
        collected.extend(replace(action, raw=raw, span=m.span()) for action in actions)

    for action_kind, name, pattern in _BLOCKS:
        for m in pattern.finditer(text):
            add(m, m[1], Action(action_kind, name, _squeeze(m[1]), malformed=not m[2]))
    for m in _TOOL_CALL.finditer(text):
        add(m, m[1], _from_tagged_json(m[1], bool(m[2])))
    for m in _FUNCTION_CALLS.finditer(text):
        add(m, m[1], *_from_calls(m[1], m[2], bool(m[3])))
    for pattern in (_REACT, _REACT_INPUT):
        for m in pattern.finditer(text):
            action_kind: ActionKind = "answer" if m[1].lower() in ANSWER_CALLS else "call"
            add(m, m[2], Action(action_kind, m[1].strip(), _squeeze(m[2])))
    for m in _ALFWORLD.finditer(text):
        add(m, m[1], Action("call", m[1].split()[0], _squeeze(m[1])))
    if any(action.kind != "answer" for action in collected):  # an empty `<final_answer>` beside a call is none
        collected = [action for action in collected if action.kind != "answer" or action.text or action.malformed]
    return sorted(collected, key=lambda action: action.span[0])


def actions_of(step: Step) -> list[Action]:
    if step.message.tool_calls:
        return [_from_tool_call(call) for call in step.message.tool_calls]
    return actions_in(step.message.text())


# verbs of tools that change what later calls find: files, records, a page, the time
_CHANGES = re.compile(
    r"add|append|apply|assign|book|buy|cancel|change|checkout|clean|click|close|commit|cool|copy|create|delete|"
    r"deploy|drop|edit|enable|disable|exchange|fill|forward|go|goto|heat|insert|install|kill|launch|login|logout|"
    r"make|merge|mkdir|modify|move|mv|navigate|next|open|order|patch|pay|place|post|previous|press|put|push|rebase|"
    r"remove|rename|replace|reply|reset|restart|return|rm|save|schedule|scroll|send|set|sleep|start|stop|submit|"
    r"swap|switch|take|toggle|touch|transfer|type|undo|uninstall|update|upload|use|wait|write"
)
_READS = re.compile(r"check|describe|fetch|find|get|list|lookup|query|read|search|show|status|view")
_READS_TOO = re.compile(
    _READS.pattern + r"|browse|calculate|calculator|count|grep|load|retrieve|weather|wiki(?:pedia)?"
)
_RUNS = re.compile(r"bash|code|command|exec|execute|interpreter|ipython|python|run|shell|sql|terminal")
_WORDS = re.compile(r"[A-Z]?[a-z]++|[A-Z]++(?![a-z])")
_CODE_CHANGES = re.compile(
    r"""(?:^|[;"\n]|\\n)[ \t]*+(?:(?:def|class|del|export|cd|mv|rm|cp|mkdir|touch|tee|patch|make|chmod|kill|sleep)\b
    |[\w.,\[\]]{1,80}+[ \t]*+[-+*/%|&]?=(?!=))|\bsed\ -i|\bgit\ (?:add|apply|commit|checkout|reset|stash|merge|pull|rebase)\b
    |\b(?:pip3?|npm|apt(?:-get)?)\ i(?:nstall)?\b|[^-=<>\s]\s>>?\s?[\w./~$]|\.(?:write\w*+|append|insert|update|pop|remove|extend|save|to_csv)\(
    |\b(?:insert\ into|update\ \w++\ set|delete\ from|create\ table|drop\ table|alter\ table)\b""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)


def changes_state(action: Action) -> bool:
    """Tell from an action's tool name, or from its code, if it may change what later calls find."""
    words = [word.lower() for word in _WORDS.findall(action.name)]

    def says(verbs: re.Pattern[str]) -> bool:
        return any(verbs.fullmatch(word) for word in words)

    if action.kind == "code" or says(_RUNS):
        return _CODE_CHANGES.search(action.raw or action.text) is not None
    return action.kind == "call" and not says(_READS) and says(_CHANGES)


def only_reads(action: Action) -> bool:
    """Tell from an action's tool name, or from its code, if it changes nothing; False where the name does not say."""
    words = [word.lower() for word in _WORDS.findall(action.name)]
    reads = action.kind == "code" or any(pattern.fullmatch(word) for pattern in (_RUNS, _READS_TOO) for word in words)
    return reads and not changes_state(action)


def makes_up_result(step: Step) -> bool:
    """Tell if the message continues, behind a call of its own, with the result of that call."""
    text = step.message.text()
    if step.message.tool_calls:  # here only tags count: `Observation:` may be a thought
        return any(m[0].startswith("<") for m in RESULT.finditer(text))
    calls = [action for action in actions_in(text) if action.kind != "answer" and not action.malformed]
    return bool(calls) and RESULT.search(text, calls[0].span[1]) is not None


def observation_text(step: Step) -> str:
    """The step's results without the `Observation:` label and the environment's count of steps left."""
    text = "\n".join(m.text() for m in step.observations)
    text = re.sub(r"^\s*Observation(?: \d+)?:[ \t]*\n?", "", text)
    text = re.sub(r"You have \d+ steps? left.*?$", "", text, flags=re.MULTILINE)
    return text.replace("You should take the last step to propose a solution.", "").strip()


def final_answer(trajectory: Trajectory) -> tuple[int, str] | None:
    """The last proposed answer as (step number, text), empty ones apart; None without one.

    Where no step marks its answer, a last message that only talks, and that nothing answers, is the answer.
    """
    steps = trajectory.steps
    for step in reversed(steps):
        answers = [a.text for a in actions_of(step) if a.kind == "answer" and a.text]
        if answers:
            return step.index, answers[-1]
    if steps and not steps[-1].message.tool_calls and not steps[-1].observations:
        text = _EMPTY_ANSWER.sub("", steps[-1].message.text()).strip()
        return (steps[-1].index, stated_answer(text) or _squeeze(text)) if text and not actions_in(text) else None
    return None
