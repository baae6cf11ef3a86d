"""`react`: Thought / Action / Observation, as one text or as messages (FireAct, KnowAgent, LangChain).

Also ALFWorld's console form, where the agent's lines start with `>`. Few-shot examples in front of the actual question
become the system message. An action `name[argument]` becomes a tool call; text that does not parse stays text.
"""

from __future__ import annotations

import re
from typing import Any

from rrm.data.jsonl import strict
from rrm.data.trajectory import Trajectory
from rrm.readers.base import SourceItem, make, own_id, text_field, without
from rrm.readers.chat import agent_message, is_chat, text_of
from rrm.readers.messages import chat_messages
from rrm.readers.outcomes import find_outcome

NAME = "react"
FIELDS = (
    "traj",
    "trajectory",
    "transcript",
    "scratchpad",
    "completion",
    "response",
    "output",
    "generated_text",
    "text",
    "prompt",
)
CONTINUES = ("completion", "response", "output", "generated_text")
"""Fields that hold only the text after `prompt`."""
LABEL = re.compile(
    r"^[ \t]*(Thought|ActionPath|Action Input|Action|Observation|Final Answer)[ \t]*+(?:\d++[ \t]*+)?+:", re.MULTILINE
)
ACTS = re.compile(r"^[ \t]*(?:Action|Final Answer)[ \t]*+(?:\d++[ \t]*+)?+:", re.MULTILINE)
QUESTION = re.compile(r"^[ \t]*Question[ \t]*+(?:\d++[ \t]*+)?+:[ \t]*+", re.MULTILINE)
EXAMPLES_END = re.compile(r"^.*END OF EXAMPLES.*$", re.MULTILINE)
ALPACA = ("### Instruction:\n", "\n### Response:\n")
CONSOLE = re.compile(r"^> ?\S", re.MULTILINE)
CONSOLE_TASK = re.compile(r"[Yy]our task is to:?\s*(.+)")
OBSERVATION = re.compile(r"^\s*+Observation[ \t]*+(?:\d++[ \t]*+)?+:[ \t]*+")
CALL = re.compile(r"([A-Za-z_][\w .-]{0,60}?)\s*+(?:\[(.*)\]|\((.*)\))\s*+(?:\.\s*+)?+", re.DOTALL)


def _is_react(text: str) -> bool:
    labels = LABEL.search(text) is not None and ACTS.search(text) is not None
    return labels or (CONSOLE.search(text) is not None and CONSOLE_TASK.search(text) is not None)


def _source(value: Any) -> tuple[tuple[str, ...], str | list[Any] | None]:
    """Return (fields used, the text or messages) of a ReAct record."""
    if isinstance(value, str):
        return (), value if _is_react(value) else None
    if not isinstance(value, dict):
        return (), None
    for key in FIELDS:
        content = value.get(key)
        if isinstance(content, str) and _is_react(content):
            prompt = value.get("prompt")
            if key in CONTINUES and isinstance(prompt, str) and prompt.strip():
                return (key, "prompt"), f"{prompt.rstrip()}\n{content.lstrip()}"
            return (key,), content
        if (
            isinstance(content, list)
            and is_chat(content)
            and any(m.get("role") == "assistant" and LABEL.search(text_of(m.get("content"))) for m in content)
        ):
            return (key,), content
    return (), None


def sniff(value: Any) -> bool:
    """A text (or messages under `traj`) with Thought and Action lines, or an ALFWorld console."""
    return _source(value)[1] is not None


def parse(item: SourceItem) -> Trajectory:
    used, source = _source(item.value)
    if source is None:
        raise ValueError(f"no Thought/Action text under {', '.join(FIELDS)}")
    record = item.value if isinstance(item.value, dict) else {}
    recorded = text_field(record, "question", "query", "task")
    question_id = own_id(record, "question_id")
    labels: tuple[str, ...] = ()
    if isinstance(source, list):
        messages, question = _from_chat(source)
    elif LABEL.search(source) is None:
        messages, question = _from_console(source)
        question_id = question_id or own_id(record, "name")
        labels = ("result",)  # KnowAgent's ALFWorld files; elsewhere a result is an answer
    else:
        messages, question = from_text(source, recorded)
    task = recorded or question
    meta = without(
        record, *used, "id", "question_id", *[k for k in ("question", "query", "task") if record.get(k) == task]
    )
    if isinstance(meta.get("traj_by_line"), list) and "\n".join(map(str, meta["traj_by_line"])) == source:
        del meta["traj_by_line"]  # the same text again, line by line
    meta = {k: v for k, v in meta.items() if not (k == "prompt" and v in ("", []))}
    if item.key is not None:
        meta["key"] = item.key
    outcome = find_outcome(record, *labels)
    return make(item, NAME, messages, meta=meta, id=own_id(record), task=task, question_id=question_id, outcome=outcome)


def _from_chat(raw: list[Any]) -> tuple[list[dict[str, Any]], str]:
    """Read messages whose assistant turns are Thought/Action text and whose observations are user turns."""
    messages = list[dict[str, Any]]()
    calls = 0
    for message in chat_messages(raw, "traj"):
        text = text_of(message["content"])
        if message["role"] == "assistant" and LABEL.search(text) and not message.get("tool_calls"):
            parsed = turns(text, calls)
            messages += parsed
            calls += sum(len(m.get("tool_calls", ())) for m in parsed)
        elif message["role"] in ("user", "tool") and (label := OBSERVATION.match(text)):
            messages.append(_observation(text[label.end() :], messages))
        else:
            messages.append(message)
    return messages, next((text_of(m["content"]) for m in messages if m["role"] == "user"), "")


def from_text(text: str, task: str | None) -> tuple[list[dict[str, Any]], str]:
    """Split one text into instructions with examples, the question, and the run."""
    prefix, begun, rest = text.partition(ALPACA[0])
    question, answered, run = rest.partition(ALPACA[1])
    if begun and answered:
        question = question.rstrip("\n")
    else:
        start, question_at = _question_span(text, task)
        label = LABEL.search(text, question_at)
        run_at = label.start() if label else len(text)
        prefix, question, run = text[:start], text[question_at:run_at], text[run_at:]
    question = question.strip()
    prelude = [{"role": "system", "content": prefix.strip()}] if prefix.strip() else []
    return [*prelude, {"role": "user", "content": question or task or ""}, *turns(run)], question


def _question_span(text: str, task: str | None) -> tuple[int, int]:
    """Return (start of the question's line, start of its text), after examples; the known one where given."""
    ends = list(EXAMPLES_END.finditer(text))
    after = ends[-1].end() if ends else 0
    questions = [m for m in QUESTION.finditer(text, after)]
    if task is not None:
        questions = [m for m in questions if text.startswith(task.strip(), m.end())] or questions
    if not questions:
        return after, after
    chosen = questions[0] if ends else questions[-1]  # without an end marker the examples are questions too
    return chosen.start(), chosen.end()


def turns(text: str, calls_before: int = 0) -> list[dict[str, Any]]:
    """Split Thought/Action/Observation text into messages; a turn ends at an observation."""
    labels = list(LABEL.finditer(text))
    lead = text[: labels[0].start()] if labels else text
    texts, calls = [lead.strip()] if lead.strip() else list[str](), list[dict[str, Any]]()
    messages = list[dict[str, Any]]()
    count = calls_before
    for i, label in enumerate(labels):
        end = labels[i + 1].start() if i + 1 < len(labels) else len(text)
        label_name, body = label.group(1), text[label.end() : end].strip()
        call = None
        if label_name == "Observation":
            messages += _assistant(texts, calls)
            messages.append(_observation(body, messages))
            texts, calls = [], []
            continue
        if label_name == "Action":
            input_label = labels[i + 1] if i + 1 < len(labels) and labels[i + 1].group(1) == "Action Input" else None
            is_name = bool(body) and len(body) <= 100 and "\n" not in body  # its arguments follow under `Action Input`
            call = action(body) if input_label is None else {"name": body} if is_name else None
        elif label_name == "Action Input" and calls and "arguments" not in calls[-1]:
            calls[-1]["arguments"] = _arguments(body)
            continue
        if call is None:
            texts.append(text[label.start() : end].strip())
        else:
            count += 1
            calls.append(call | {"id": f"call_{count}"})
    return messages + _assistant(texts, calls)


def _assistant(texts: list[str], calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return agent_message("\n".join(texts), calls=calls)


def _observation(text: str, before: list[dict[str, Any]]) -> dict[str, Any]:
    """A tool result that answers the last call of the message before it."""
    calls = before[-1].get("tool_calls") if before and before[-1]["role"] == "assistant" else None
    answered = {"tool_call_id": calls[-1]["id"], "name": calls[-1]["name"]} if calls else {}
    return {"role": "tool", "content": text.strip(), **answered}


def action(text: str) -> dict[str, Any] | None:
    """Parse `search[x]`, `search(x)` or a JSON `{"name"|"action"|"tool", …}` as a call; else None."""
    if text.startswith("{"):
        parsed = _arguments(text)
        name = parsed.pop("name", None) or parsed.pop("action", None) or parsed.pop("tool", None)
        if not isinstance(name, str):
            return None
        arguments = next((parsed[k] for k in ("arguments", "action_input", "args", "input") if k in parsed), parsed)
        return {"name": name, "arguments": arguments if isinstance(arguments, dict) else {"input": arguments}}
    match = CALL.fullmatch(text)
    if match is None:
        return None
    arguments = match.group(2) if match.group(2) is not None else match.group(3)
    key = "answer" if match.group(1).lower() in ("finish", "answer") else "input"
    return {"name": match.group(1), "arguments": {key: arguments}}


def _arguments(text: str) -> dict[str, Any]:
    try:
        parsed = strict(text)
    except (ValueError, RecursionError):
        return {"input": text}
    return parsed if isinstance(parsed, dict) else {"input": text}


def _from_console(text: str) -> tuple[list[dict[str, Any]], str]:
    """Read ALFWorld: lines after `>` are thoughts and commands, the rest is the world's answer."""
    first = CONSOLE.search(text)
    start = first.start() if first else len(text)
    intro, task = text[:start].strip(), CONSOLE_TASK.search(text[:start])
    messages: list[dict[str, Any]] = [{"role": "user", "content": intro}]
    thoughts, calls, heard = list[str](), list[dict[str, Any]](), list[str]()
    count = 0
    for line in text[start:].splitlines():
        if not line.startswith(">"):
            heard.append(line)
            continue
        if any(h.strip() for h in heard):
            messages += _assistant(thoughts, calls)
            messages.append(_observation("\n".join(heard), messages))
            thoughts, calls = [], []
        heard = []
        if re.match(r"> ?(think|actionpath)\b", line, re.IGNORECASE):
            thoughts.append(line[1:].strip())
        else:
            count += 1
            calls.append({"name": "act", "arguments": {"command": line[1:].strip()}, "id": f"call_{count}"})
    messages += _assistant(thoughts, calls)
    if any(h.strip() for h in heard):
        messages.append(_observation("\n".join(heard), messages))
    return messages, task.group(1).strip() if task else intro
