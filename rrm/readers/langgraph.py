"""`langgraph`: LangGraph's streams, one per file: `astream_events`, or chunks of `stream`.

Modes `updates` and `values`, alone or with their mode. Events of models and tools are joined as in `otel`. Updates are the run's messages
in order; of values, which repeat earlier messages, the last is. A subgraph's namespace is its own run. States alone are read by
`langchain`. Forms: https://docs.langchain.com/oss/python/langgraph/streaming.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers.base import SourceItem, make, own_id
from rrm.readers.chat import as_text
from rrm.readers.langchain import is_messages, message_of
from rrm.readers.left import PARENT
from rrm.readers.spans import Conversation, ModelSpan, ToolRun, assemble, subagent, with_subagents

NAME = "langgraph"
MARKS = ("event=on_chat_model_end|event=on_chain_end|event", "data.output|data.input", "run_id")
OVER_FOLDER = False
MODES = ("values", "updates", "messages", "custom", "debug", "tasks", "checkpoints")
Message = dict[str, Any]


def sniff(value: Any) -> bool:
    """Match an event, or a chunk with its mode, or whose only fields are nodes with messages."""
    return _is_event(value) or _chunk(value) is not None


def _is_event(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("event"), str):
        return False
    return value["event"].startswith("on_") and isinstance(value.get("data"), dict) and "run_id" in value


def _chunk(value: Any) -> tuple[tuple[str, ...], str, Any] | None:
    """(namespace, mode, data) of a stream's chunk; None for anything else."""
    space: tuple[str, ...] = ()
    if isinstance(value, list) and len(value) == 3 and isinstance(value[0], list):
        space, value = tuple(map(as_text, value[0])), value[1:]
    if isinstance(value, list) and len(value) == 2 and value[0] in MODES:
        return space, as_text(value[0]), value[1]
    if isinstance(value, dict) and value.get("type") in MODES and "data" in value and "ns" in value:
        names = value["ns"]
        return (tuple(map(as_text, names)) if isinstance(names, list) else (), as_text(value["type"]), value["data"])
    if (
        isinstance(value, dict)
        and value
        and all(isinstance(v, dict) and _is_update(_messages(v)) for v in value.values())
    ):
        return space, "updates", value
    return None


def _is_update(messages: list[Any]) -> bool:
    """Return whether a node may have written them: a state begins with the user or the system."""
    return bool(messages) and as_text(messages[0].get("type", "")).lower().startswith(("ai", "tool", "constructor"))


def _messages(update: Any) -> list[Any]:
    """The messages in a node's update or a state."""
    messages = update.get("messages") if isinstance(update, dict) else None
    messages = [messages] if isinstance(messages, dict) else messages
    return messages if isinstance(messages, list) and is_messages(messages) else []


def gather(items: Iterable[SourceItem]) -> Iterator[SourceItem | ReadError]:
    """Yield the runs of a file's stream: one per root event, or one per chunks' namespace."""
    runs: dict[tuple[str, ...], SourceItem] = {}
    for item in items:
        if _is_event(item.value):
            above = item.value.get("parent_ids")
            name: tuple[str, ...] = (
                "event",
                as_text(above[0] if isinstance(above, list) and above else item.value["run_id"]),
            )
        elif (chunk := _chunk(item.value)) is not None:
            name = ("chunk", *chunk[0])
        else:
            yield ReadError(item.path, item.line, f"neither an event nor a chunk of a stream (format {NAME})")
            continue
        run = runs.setdefault(name, SourceItem([], item.path, item.line, context={"name": name}))
        run.value.append(item.value)
    for name, run in runs.items():
        run.context.update(lines=len(run.value), lines_of="trace")
        if name[0] == "event":
            yield from with_subagents(run, name[1], _of_events)
        else:
            yield run


def parse(item: SourceItem) -> Trajectory:
    name = item.context["name"]
    return _events(item, name[1]) if name[0] == "event" else _chunks(item, name[1:])


def _of_events(item: SourceItem) -> Conversation:
    """Return the conversations of a stream of events, by the order of their beginnings and ends."""
    calls, runs, depth = list[ModelSpan](), list[ToolRun](), dict[str, int]()
    tools = {as_text(e["run_id"]) for e in item.value if e["event"].startswith("on_tool")}
    for index, event in enumerate(item.value):
        data, number = event["data"], as_text(event["run_id"])
        depth.setdefault(number, index)
        if event["event"] == "on_chat_model_end":
            wrote = [message_of(data["output"], "data.output")] if is_messages([data.get("output")]) else []
            above = event.get("parent_ids")
            inside = isinstance(above, list) and bool(tools & set(map(as_text, above)))
            calls.append(ModelSpan(_read(data.get("input")), wrote, float(depth[number]), inside))
        elif event["event"] in ("on_tool_end", "on_tool_error"):
            runs.append(_tool_run(event, float(depth[number])))
    return assemble(calls, runs)


def _read(inputs: Any) -> list[Message]:
    """Return a model's input messages, from a list or a batch of one list."""
    messages = inputs.get("messages") if isinstance(inputs, dict) else inputs
    if isinstance(messages, list) and len(messages) == 1 and isinstance(messages[0], list):
        messages = messages[0]
    return (
        [message_of(m, "data.input") for m in messages] if isinstance(messages, list) and is_messages(messages) else []
    )


def _tool_run(event: Message, start: float) -> ToolRun:
    data, failed = event["data"], event["event"] == "on_tool_error"
    output = data.get("error") if failed else data.get("output")
    message = message_of(output) if is_messages([output]) else {}
    number = message.get("tool_call_id", data.get("tool_call_id"))
    return ToolRun(
        as_text(event.get("name", "")),
        number if isinstance(number, str) else None,
        data.get("input"),
        message.get("content", output),
        failed or bool(message.get("is_error")),
        start,
    )


def _events(item: SourceItem, root: str) -> Trajectory:
    conversation = item.context.get("found") or _of_events(item)
    if not conversation.messages:
        raise ValueError("no message in a stream's events: only `on_chat_model_end` and `on_tool_end` hold them whole")
    behind, more = subagent(item, conversation)
    meta = {"run_id": root, "events": dict(Counter(e["event"] for e in item.value))} | more
    thread = next(
        (t for e in item.value if isinstance(m := e.get("metadata"), dict) and (t := own_id(m, "thread_id"))), None
    )
    meta |= {"lines": item.context["lines"]} | ({"thread_id": thread} if thread else {})
    return make(item, NAME, conversation.messages, meta=meta, id=root + behind)


def _chunks(item: SourceItem, space: tuple[str, ...]) -> Trajectory:
    """Read a stream's messages, each once: by its id, else where a later state repeats it."""
    messages = dict[str, Message]()
    modes, state = Counter[str](), dict[str, Any]()
    for chunk in item.value:
        parsed = _chunk(chunk)
        if parsed is None:
            raise ValueError("a line is no chunk of a stream")
        _, mode, data = parsed
        modes[mode] += 1
        if mode == "values" and isinstance(data, dict):
            state = {k: v for k, v in data.items() if k != "messages"}
        updates = (
            [data] if mode == "values" else list(data.values()) if mode == "updates" and isinstance(data, dict) else []
        )
        for update in updates:
            for k, raw in enumerate(_messages(update)):
                message = message_of(raw, "messages")
                position = f"{len(messages)}" if mode == "updates" else f"{k}"
                messages[as_text(message.get("id") or f"at {position}")] = message
    parent = {PARENT: {"namespace": list(space)}} if space else {}
    meta = {"modes": dict(modes), "lines": item.context["lines"], **parent} | ({"state": state} if state else {})
    return make(item, NAME, list(messages.values()), meta=meta)
