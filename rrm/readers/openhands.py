"""`openhands`: OpenHands' event logs, a list or a record's `history`, `events` or `trajectory`.

Both kinds: those up to 0.62 (`action` and `observation`, joined by `cause`) and the SDK's (`kind: ActionEvent`, …). The calls of one reply
of the model's are one message. Events that say nothing to the model (state changes, pauses) stay in `meta["other_events"]`.
"""

from __future__ import annotations

from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers.base import SourceItem, make, own_id, without
from rrm.readers.chat import as_text, tool_call, tool_list
from rrm.readers.outcomes import RunOutcome, find_outcome
from rrm.readers.swe_agent import ENVIRONMENT, question_of

NAME = "openhands"
MARKS = (
    "history[].source|events[].source|trajectory[].source|[].source",
    "history[].action|events[].kind|[].kind|[].action",
)
HOLDERS = ("history", "events", "trajectory")
SDK = frozenset(
    [
        "SystemPromptEvent",
        "MessageEvent",
        "ActionEvent",
        "ObservationEvent",
        "UserRejectObservation",
        "AgentErrorEvent",
        "CondensationSummaryEvent",
        "Condensation",
        "CondensationRequest",
        "PauseEvent",
        "InterruptEvent",
        "ConversationStateUpdateEvent",
        "ConversationErrorEvent",
        "TokenEvent",
        "HookExecutionEvent",
        "LLMCompletionLogEvent",
        "ACPToolCallEvent",
    ]
)
QUIET = frozenset(["change_agent_state", "agent_state_changed", "null", "condensation", "condensation_request"])
"""Events up to 0.62 that say nothing to the model."""
NO_ARGUMENT = ("thought", "confirmation_state", "security_risk")
Object = dict[str, Any]


def is_event(value: Any) -> bool:
    """One event of either kind."""
    if not isinstance(value, dict) or not isinstance(value.get("source"), str | None) or "messages" in value:
        return False
    if isinstance(value.get("kind"), str) and value["kind"] in SDK:
        return "id" in value and "source" in value
    act, observed = isinstance(value.get("action"), str), isinstance(value.get("observation"), str)
    placed = "source" in value or ("id" in value and ("timestamp" in value or "cause" in value))
    return (act != observed) and ("args" if act else "content") in value and placed


def _events(value: Any) -> tuple[str, list[Any]] | None:
    """Return (key, events), key '' for a bare list; a history of pairs (old logs) is flattened."""
    if isinstance(value, list):
        flat = [e for pair in value for e in pair] if value and all(isinstance(p, list) for p in value) else value
        return ("", flat) if flat and all(map(is_event, flat[:3])) else None
    for key in HOLDERS if isinstance(value, dict) else ():
        if isinstance(value.get(key), list) and (located := _events(value[key])) is not None:
            return key, located[1]
    return None


def sniff(value: Any) -> bool:
    """Events at the beginning of a list, or of one that a record holds."""
    return _events(value) is not None


def parse(item: SourceItem) -> Trajectory:
    located = _events(item.value)
    if located is None:
        raise ValueError(f"no list of events, alone or under {', '.join(HOLDERS)}")
    log = _Log()
    for k, event in enumerate(located[1]):
        if not isinstance(event, dict):
            raise ValueError(f"event {k} must be an object, got {type(event).__name__}")
        log.add(event, k)
    record = item.value if isinstance(item.value, dict) else {}
    meta = without(record, located[0]) | ({"other_events": log.others} if log.others else {})
    if "lines" in item.context:
        meta["lines"] = item.context["lines"]
    name = own_id(record, "instance_id", "id", "conversation_id") or item.context.get("id")
    question, outcome = question_of(name), _outcome(record)
    return make(item, NAME, log.messages, meta=meta, id=name, question_id=question, outcome=outcome, tools=log.tools)


def _outcome(record: Object) -> RunOutcome | None:
    """Return the record's outcome, or its evaluation report's; a score there means something else."""
    if (outcome := find_outcome(record)) is not None:
        return outcome
    for path in (("report",), ("test_result",), ("test_result", "report")):
        node: Any = record
        for key in path:
            node = node.get(key) if isinstance(node, dict) else None
        if isinstance(node, dict) and isinstance(node.get("resolved"), bool):
            return RunOutcome(float(node["resolved"]), ".".join((*path, "resolved")))
    return None


class _Log:
    """Builds messages from events."""

    def __init__(self) -> None:
        self.messages: list[Object] = []
        self.others: list[Object] = []
        self.tools: list[Object] | None = None
        self._calls: dict[int | str | None, tuple[str, str]] = {}
        """An action's event id -> its call's id and name."""
        self._open: tuple[str, Object] | None = None
        """The model's open reply: its id and message."""

    def add(self, event: Object, k: int) -> None:
        if isinstance(event.get("kind"), str) and event["kind"] in SDK:
            self._sdk(event)
        elif isinstance(event.get("action"), str):
            self._action(event, k)
        elif isinstance(event.get("observation"), str):
            self._observation(event)
        else:
            self.others.append(event)

    def _say(self, role: str, content: Any, event: Object, **more: Any) -> Object:
        message = {"role": role, "content": content, **{key: v for key, v in more.items() if v is not None}}
        if isinstance(stamp := event.get("timestamp"), str):
            message["timestamp"] = stamp
        self.messages.append(message)
        return message

    # ---- up to 0.62

    def _action(self, event: Object, k: int) -> None:
        action, args = event["action"], event["args"] if isinstance(event.get("args"), dict) else {}
        spoken = event.get("source") == "agent"
        if action == "system":
            self.tools = tool_list(args.get("tools")) or self.tools
            self._say("system", _text(args.get("content")), event)
        elif action == "message":
            urls = args.get("image_urls") or args.get("images_urls")
            content: Any = _text(args.get("content"))
            if isinstance(urls, list) and urls:
                pictures = ({"type": "image_url", "image_url": {"url": as_text(u)}} for u in urls)
                content = [{"type": "text", "text": content}, *pictures]
            self._open = None
            self._say("assistant" if spoken else "user", content, event, file_urls=args.get("file_urls"))
        elif not spoken or action in QUIET:
            self.others.append(event)
        else:
            self._asked(event, args, k)

    def _asked(self, event: Object, args: Object, k: int) -> None:
        """Add an action, with the model's own reply where the log holds it."""
        metadata = event.get("tool_call_metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        number = metadata.get("tool_call_id")
        number = number if isinstance(number, str) else f"event_{event.get('id', k)}"
        name = as_text(metadata.get("function_name") or event["action"])
        if (key := _key(event.get("id"))) is not None:
            self._calls[key] = (number, name)
        response = metadata.get("model_response")
        reply_id = response.get("id") if isinstance(response, dict) else None
        same = self._open[1] if self._open is not None and self._open[0] == reply_id else {}
        if any(call.get("id") == number for call in same.get("tool_calls", ())):
            return
        reply = _reply(response)
        calls = (
            [tool_call(c) for c in reply.get("tool_calls") or ()] if isinstance(reply.get("tool_calls"), list) else []
        )
        if not any(call.get("id") == number for call in calls):
            arguments = {key: v for key, v in args.items() if key not in NO_ARGUMENT and v is not None}
            calls = [*calls, {"name": name, "arguments": arguments, "id": number}]
        text = _text(reply.get("content")) or _text(args.get("thought"))
        thought = reply.get("reasoning_content")
        message = self._say("assistant", text or None, event, tool_calls=calls, llm_metrics=event.get("llm_metrics"))
        if thought is not None:
            message["reasoning_content"] = as_text(thought)
        self._open = (reply_id, message) if isinstance(reply_id, str) else None

    def _observation(self, event: Object) -> None:
        observation, content = event["observation"], _text(event.get("content"))
        extras = event.get("extras")
        if observation in QUIET or (observation == "recall" and not content):
            self.others.append(event)
            return
        call = self._calls.get(_key(event.get("cause")))
        answered = (
            {"name": ENVIRONMENT if observation == "error" else observation}
            if call is None
            else dict(zip(_ANSWER, call, strict=True))
        )
        message = self._say("tool", content, event, extras=extras or None, **answered)
        if observation == "error":
            message["is_error"] = True

    # ---- the SDK

    def _sdk(self, event: Object) -> None:
        event_type = event["kind"]
        if event_type == "ActionEvent":
            self._acted(event)
            return
        if event_type == "SystemPromptEvent":
            parts = [p for p in (event.get("system_prompt"), event.get("dynamic_context")) if p is not None]
            self._say("system", _parts(parts), event)
            listed = event["tools"] if isinstance(event.get("tools"), list) else []
            self.tools = [_tool(t) for t in listed if isinstance(t, dict)] or self.tools
        elif event_type == "MessageEvent" and isinstance(event.get("llm_message"), dict):
            llm_message = event["llm_message"]
            role = "assistant" if event.get("source") == "agent" else "user"
            content = _parts(_list(llm_message.get("content")) + _list(event.get("extended_content")))
            message = self._say(role, content, event, sender=event.get("sender"))
            if llm_message.get("reasoning_content") is not None:
                message["reasoning_content"] = as_text(llm_message["reasoning_content"])
        elif event_type == "ObservationEvent":
            observation = event.get("observation")
            fields = observation if isinstance(observation, dict) else {"content": observation}
            rest = {k: v for k, v in fields.items() if k not in ("content", "kind", "is_error")}
            content = fields["content"] if "content" in fields else as_text(rest)
            message = self._say(
                "tool", _parts(_list(content) + _list(event.get("extended_content"))), event, **_answer(event)
            )
            message |= {"is_error": True} if fields.get("is_error") is True else {}
            message |= {"extras": rest} if rest and "content" in fields else {}
        elif event_type == "UserRejectObservation":
            self._say("tool", f"Action rejected: {_text(event.get('rejection_reason'))}", event, **_answer(event))
        elif event_type == "AgentErrorEvent":
            self._say("tool", _text(event.get("error")), event, is_error=True, **_answer(event))
        elif event_type == "CondensationSummaryEvent":
            self._say("user", _text(event.get("summary")), event, name="condenser")
        elif event_type == "ACPToolCallEvent":
            call = {
                "name": _text(event.get("title")),
                "arguments": event.get("raw_input"),
                "id": event.get("tool_call_id"),
            }
            self._say("assistant", None, event, tool_calls=[tool_call(call)])
            if event.get("raw_output") is not None or event.get("content") is not None:
                self._say("tool", as_text(event.get("raw_output") or event.get("content")), event, **_answer(event))
        else:
            self.others.append(event)
            return
        self._open = None

    def _acted(self, event: Object) -> None:
        """Add a call; calls of one reply are one message."""
        raw = event["tool_call"] if isinstance(event.get("tool_call"), dict) else {}
        call = tool_call({k: v for k, v in raw.items() if k != "origin"})
        call["name"] = call["name"] or _text(event.get("tool_name"))
        if "id" not in call and event.get("tool_call_id") is not None:
            call["id"] = as_text(event["tool_call_id"])
        if not raw and isinstance(event.get("action"), dict):
            call["arguments"] = {k: v for k, v in event["action"].items() if k != "kind"}
        reply = event.get("llm_response_id")
        thought = _parts(_list(event.get("thought")))
        if self._open is not None and self._open[0] == reply and not thought:
            self._open[1]["tool_calls"].append(call)
            return
        message = self._say("assistant", thought or None, event, tool_calls=[call])
        if event.get("reasoning_content") is not None:
            message["reasoning_content"] = as_text(event["reasoning_content"])
        self._open = (reply, message) if isinstance(reply, str) else None


_ANSWER = ("tool_call_id", "name")


def _answer(event: Object) -> Object:
    """Return the call that an SDK event answers."""
    names = {"tool_call_id": event.get("tool_call_id"), "name": event.get("tool_name")}
    return {k: as_text(v) for k, v in names.items() if v is not None} or {"name": ENVIRONMENT}


def _reply(response: Any) -> Object:
    """The message of a chat completion."""
    choices = response.get("choices") if isinstance(response, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    return message if isinstance(message, dict) else {}


def _key(value: Any) -> int | str | None:
    return value if isinstance(value, int | str) else None


def _text(value: Any) -> str:
    return "" if value is None else as_text(value)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _parts(raw: list[Any]) -> str | list[Object]:
    """Read the SDK's parts; texts alone become one text."""
    parts: list[Object] = []
    for content_part in raw:
        if isinstance(content_part, dict) and isinstance(content_part.get("text"), str):
            parts.append({"type": "text", "text": content_part["text"]})
        elif isinstance(content_part, dict) and isinstance(content_part.get("image_urls"), list):
            parts += [{"type": "image_url", "image_url": {"url": as_text(u)}} for u in content_part["image_urls"]]
        else:
            parts.append({"type": "text", "text": as_text(content_part)})
    texts = [p["text"] for p in parts if p["type"] == "text"]
    return "\n".join(texts) if len(texts) == len(parts) else parts


def _tool(raw: Object) -> Object:
    """A tool's definition, whose parameters the log does not hold."""
    function = {"name": _text(raw.get("name") or raw.get("title") or raw.get("kind"))}
    function |= {"description": raw["description"]} if isinstance(raw.get("description"), str) else {}
    return {"type": "function", "function": function}
