"""`autogen`: AutoGen's `TaskResult`, lists of its messages and events, and states from `save_state`.

An agent's name stands on its messages. Fields: https://microsoft.github.io/autogen/stable/reference/python/autogen_agentchat.messages.html.
"""

from __future__ import annotations

import re
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers.base import SourceItem, conversation
from rrm.readers.chat import as_text
from rrm.readers.outcomes import get
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
    *(f"agent_states.{team}{end}.message_thread" for team in MANAGERS for end in ("GroupChatManager", "Orchestrator")),
)
"""Paths of the messages in a result or a state."""
WORDS = ("Message", "Event")
ASKS_USER = "UserInputRequestedEvent"
"""Type of the event that shows a proxy of the user."""
PROXY = re.compile(r"(?:user|human)[ _-]?(?:proxy)?(?:[ _-]?agent)?", re.IGNORECASE)
"""Names of the user, and of proxies that do not show it."""
BESIDE = ("ToolCallSummaryMessage", "ModelClientStreamingChunkEvent", "SelectorEvent", "MemoryQueryEvent", ASKS_USER)
"""Types that repeat others, or that no model is told; they are kept in the meta."""
Message = dict[str, Any]


def sniff(value: Any) -> bool:
    """A list of messages, or an object that holds one under a usual name."""
    return _place(value) is not None if isinstance(value, dict) else _are_messages(value)


def _place(record: Message) -> str | None:
    return next((path for path in PLACES if _are_messages(get(record, path))), None)


def _are_messages(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_message, value))


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(message_type := value.get("type"), str) or "role" in value:
        return False
    return (
        message_type.endswith(WORDS)
        and "content" in value
        and (
            isinstance(value.get("source"), str) or message_type in ("SystemMessage", "FunctionExecutionResultMessage")
        )
    )


def parse(item: SourceItem) -> Trajectory:
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
    meta = {"other_messages": beside} if beside else {}
    return conversation(item, NAME, record, turns.messages, ("id", path.partition(".")[0]), meta=meta)


def _add(turns: Turns, message: Message, agents: set[str], users: set[str]) -> bool:
    """Add one message; return whether it belongs to the conversation."""
    message_type, content, source = message["type"], message["content"], message.get("source")
    usage = message.get("models_usage")
    time = message.get("created_at")
    more: Message = {
        k: v for k, v in (("id", message.get("id")), ("timestamp", time), ("usage", usage)) if v is not None
    }
    more |= {"metadata": message["metadata"]} if message.get("metadata") else {}
    if message_type in BESIDE:
        return False
    if message_type in ("ToolCallExecutionEvent", "FunctionExecutionResultMessage"):
        for result in content if isinstance(content, list) else []:
            if isinstance(result, dict):
                failed = result.get("is_error") is True
                turns.came_back(
                    result.get("content"), result.get("call_id"), result.get("name"), failed=failed, timestamp=time
                )
    elif message_type == "ThoughtEvent":
        turns.thought(as_text(content), name=source, **more)
    elif isinstance(content, list) and content and all(isinstance(c, dict) and "arguments" in c for c in content):
        if message.get("thought"):
            turns.thought(as_text(message["thought"]), name=source)
        turns.agent(name=source, **more)
        for call in content:
            turns.called(call.get("name", ""), call["arguments"], call.get("id"))
    elif message_type == "SystemMessage":
        turns.add_text("system", content)
    elif message_type == "AssistantMessage" or (
        # what another than an agent says at the beginning asks
        source not in users and message_type != "UserMessage" and (turns.messages or source in agents)
    ):
        if message.get("thought"):
            turns.thought(as_text(message["thought"]), name=source)
        turns.said(_content(content), name=source, **more)
        turns.close()
    else:
        turns.add_text("user", _content(content), name=source, **more)
    return True


def _content(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return [
        picture(p["data"], p.get("media_type"))
        if isinstance(p, dict) and isinstance(p.get("data"), str)
        else {"type": "text", "text": as_text(p)}
        for p in content
    ]
