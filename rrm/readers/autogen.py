"""`autogen`: AutoGen's messages: a `TaskResult` or a list of agents' messages and events, and the states that `save_state` gives.

An agent's name stands on its messages. Fields: https://microsoft.github.io/autogen/stable/reference/python/autogen_agentchat.messages.html.
"""

from __future__ import annotations

import re
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers.base import SourceItem, first_user_text, make, own_id, text_field, without
from rrm.readers.chat import as_text
from rrm.readers.outcomes import find_outcome, get
from rrm.readers.turns import Turns, picture

NAME = "autogen"
MARKS = (
    "messages[].source|[].source|llm_context.messages[].source",
    "stop_reason|[].models_usage|messages[].models_usage|llm_context",
)
MANAGERS = ("RoundRobin", "Selector", "Swarm", "MagenticOne")
PLACES = (
    "messages",
    "llm_context.messages",
    "message_thread",
    *(f"agent_states.{kind}{of}.message_thread" for kind in MANAGERS for of in ("GroupChatManager", "Orchestrator")),
)
"""Where a result or a state keeps its messages."""
WORDS = ("Message", "Event")
ASKS_USER = "UserInputRequestedEvent"
"""The kind by which a proxy of the user shows that it is one."""
PROXY = re.compile(r"(?:user|human)[ _-]?(?:proxy)?(?:[ _-]?agent)?", re.IGNORECASE)
"""Names of the user, and of proxies that do not show it."""
BESIDE = ("ToolCallSummaryMessage", "ModelClientStreamingChunkEvent", "SelectorEvent", "MemoryQueryEvent", ASKS_USER)
"""Kinds that say again what others say, or that no model is told; they are kept in the meta."""
Message = dict[str, Any]


def sniff(value: Any) -> bool:
    """A list of messages, or an object that holds one under a usual name."""
    return _place(value) is not None if isinstance(value, dict) else _are_messages(value)


def _place(record: Message) -> str | None:
    return next((path for path in PLACES if _are_messages(get(record, path))), None)


def _are_messages(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_message, value))


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(kind := value.get("type"), str) or "role" in value:
        return False
    return (
        kind.endswith(WORDS)
        and "content" in value
        and (isinstance(value.get("source"), str) or kind in ("SystemMessage", "FunctionExecutionResultMessage"))
    )


def parse(item: SourceItem) -> Trajectory:
    """One task's messages, or an agent's context."""
    record = item.value if isinstance(item.value, dict) else {"messages": item.value}
    if (path := _place(record)) is None:
        raise ValueError(f"no list of AutoGen's messages at {', '.join(PLACES)}")
    listed = get(record, path)
    agents = {m["source"] for m in listed if m["type"] in ("AssistantMessage", "ToolCallRequestEvent", "ThoughtEvent")}
    users = {m["source"] for m in listed if m["type"] == ASKS_USER}
    users |= {name for m in listed if isinstance(name := m.get("source"), str) and PROXY.fullmatch(name)} - agents
    turns, beside = Turns(), list[Message]()
    for message in listed:
        if not _add(turns, message, agents, users):
            beside.append(message)
    head = path.partition(".")[0]
    rest = {k: v for k, v in record.items() if k != head}
    return make(
        item,
        NAME,
        turns.messages,
        meta=without(rest, "id") | ({"other_messages": beside} if beside else {}),
        id=own_id(record),
        task=text_field(record, "question") or first_user_text(turns.messages),
        outcome=find_outcome(record),
    )


def _add(turns: Turns, message: Message, agents: set[str], users: set[str]) -> bool:
    """Add one message; whether it belongs to the conversation."""
    kind, content, source = message["type"], message["content"], message.get("source")
    usage = message.get("models_usage")
    time = message.get("created_at")
    more: Message = {
        k: v for k, v in (("id", message.get("id")), ("timestamp", time), ("usage", usage)) if v is not None
    }
    more |= {"metadata": message["metadata"]} if message.get("metadata") else {}
    if kind in BESIDE:
        return False
    if kind in ("ToolCallExecutionEvent", "FunctionExecutionResultMessage"):
        for result in content if isinstance(content, list) else []:
            if isinstance(result, dict):
                failed = result.get("is_error") is True
                turns.came_back(
                    result.get("content"), result.get("call_id"), result.get("name"), failed=failed, timestamp=time
                )
    elif kind == "ThoughtEvent":
        turns.thought(as_text(content), name=source, **more)
    elif isinstance(content, list) and content and all(isinstance(c, dict) and "arguments" in c for c in content):
        if message.get("thought"):
            turns.thought(as_text(message["thought"]), name=source)
        turns.agent(name=source, **more)
        for call in content:
            turns.called(call.get("name", ""), call["arguments"], call.get("id"))
    elif kind == "SystemMessage":
        turns.add_text("system", content)
    elif kind == "AssistantMessage" or (
        source not in users and kind != "UserMessage" and not _asks(turns, source, agents)
    ):
        if message.get("thought"):
            turns.thought(as_text(message["thought"]), name=source)
        turns.said(_content(content), name=source, **more)
        turns.close()
    else:
        turns.add_text("user", _content(content), name=source, **more)
    return True


def _asks(turns: Turns, source: Any, agents: set[str]) -> bool:
    """Whether what another than an agent says begins the conversation."""
    return not turns.messages and source not in agents


def _content(content: Any) -> Any:
    """A text, or texts and pictures."""
    if not isinstance(content, list):
        return content
    return [_part(part) for part in content]


def _part(part: Any) -> Message:
    if isinstance(part, dict) and isinstance(part.get("data"), str):
        return picture(part["data"], part.get("media_type"))
    return {"type": "text", "text": as_text(part)}
