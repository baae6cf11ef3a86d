"""Locate request and answer in a logged model call, and read both as chat messages.

Bodies of four APIs are known: Chat Completions, Responses, Anthropic's Messages and Bedrock's Converse, told apart by their fields (a
proxy may ask in one and answer in another). Records: a pair under usual names, LiteLLM's payload (`messages` beside `response`),
Bedrock's invocation logs, lines of OpenAI's and Anthropic's batches (a request or an answer alone, joined by `custom_id`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rrm.data.secrets import REMOVED
from rrm.readers import anthropic, bedrock, event_streams
from rrm.readers.anthropic import anthropic_tools, unblock
from rrm.readers.base import own_id
from rrm.readers.chat import as_text, chat_message, is_chat, text_of, tool_list
from rrm.readers.jsontext import parse_json
from rrm.readers.messages import chat_messages
from rrm.readers.response_items import ItemReader, as_items, is_items, response_tools

PAIRS = (
    ("request", "response"),
    ("request_body", "response_body"),
    ("input", "output"),
    ("inputs", "output"),
    ("body", "response"),
)
"""Names of a request and its answer in one record."""
HALVES = (("body", "response"), ("params", "result"))
"""The same in lines of batches, where a line has a `custom_id` and one of the two."""
ENVELOPES = ("inputBodyJson", "outputBodyJson")
"""Fields of the two bodies in Bedrock's invocation logs."""
ASKED = ("messages", "input", "prompt", "instructions", "system", "tools", "toolConfig")
"""Fields of a request that become messages and tools; the others stay in meta."""
ANSWERED = ("choices", "output", "content", "role", "message")
IDS = ("conversationid", "threadid", "sessionid", "traceid")
"""Ends of id names that calls may share, lower case without signs; the most particular first."""
TIMES = ("endTime", "end_time", "response_created_at", "completed_at", "timestamp", "created_at")
SECRETS = ("authorization", "api-key", "api_key", "apikey", "cookie")
"""Parts of the names of secret headers."""
KEYS = ("api_key", "apikey", "authorization")
"""Names of fields that are secrets outside headers, too."""
Message = dict[str, Any]


@dataclass
class LoggedCall:
    """One call, or in a batch's file half of one."""

    record: dict[str, Any]
    line: int | None
    request: list[Message] | None
    """None: the line holds the answer alone."""
    reply: list[Message]
    """Empty where the call failed, or the line holds the request alone."""
    tools: list[dict[str, Any]] | None
    meta: dict[str, Any]
    body: dict[str, Any] = field(default_factory=dict)
    """The answer out of its envelopes; empty where it is no object."""
    ids: dict[str, str] = field(default_factory=dict)
    """Name of a field that calls may share -> its value; names as `IDS` has them."""
    response_id: str | None = None
    previous_id: str | None = None
    conversation: str | None = None
    """Id of a conversation that the server keeps: each request then holds only new messages."""
    unordered: str | None = None
    """The reason why its place in that conversation is unknown."""
    lines: int = 1

    @property
    def custom_id(self) -> str | None:
        return own_id(self.record, "custom_id")

    def answer(self, other: LoggedCall) -> None:
        """Take the answer from the line that holds it alone."""
        self.reply, self.lines = other.reply, self.lines + other.lines
        self.body = other.body
        self.record, self.meta = {**self.record, **other.record}, {**self.meta, **other.meta}
        self.response_id, self.previous_id = other.response_id, self.previous_id or other.previous_id


def locate(record: Any) -> tuple[str | None, str | None] | None:
    """Return the field names of request and answer; `.` is the record itself, None a missing half.

    None for a record that is no call. Cheap, and never raises.
    """
    if not isinstance(record, dict) or record.get("object") == "response":
        return None
    for request_key, answer_key in PAIRS:
        bare = request_key == "request" or "body" in request_key  # others also name a data set's columns
        if answer_key in record and is_request(body := _body(record.get(request_key))):
            answer = _body(record[answer_key])
            talk = body.get("messages") if isinstance(body, dict) else body  # to which a plain text may be the answer
            if is_answer(answer) or (bare and not answer) or (isinstance(answer, str) and is_chat(talk)):
                return None if not bare and "messages" in record else (request_key, answer_key)
    if "response" in record and is_request({"messages": record.get("messages")}):
        answer = _body(record["response"])
        failed = "call_type" in record and (isinstance(answer, str) or not answer)  # LiteLLM's payload of a failed call
        return (".", "response") if is_answer(answer) or failed else None
    if "custom_id" in record:
        for request_key, answer_key in HALVES:
            if is_request(_body(record.get(request_key))):
                return request_key, answer_key if is_answer(_body(record.get(answer_key))) else None
            if is_answer(_body(record.get(answer_key))):
                return None, answer_key
    return None


def _body(raw: Any) -> Any:
    """Unwrap a field: take it out of its HTTP envelope, parse JSON text, join a stream.

    A stream that cannot be joined stays as it is.
    """
    for _ in range(3):
        if event_streams.is_stream(raw):
            try:
                raw = event_streams.join(raw)
            except (ValueError, RecursionError):
                return raw
        elif isinstance(raw, str) and raw.lstrip()[:1] in ("{", "["):
            try:
                raw = parse_json(raw)
            except (ValueError, RecursionError):
                return raw
        elif isinstance(raw, dict) and "body" in raw and "messages" not in raw and "choices" not in raw:
            raw = raw["body"] if raw["body"] is not None or "error" not in raw else {"error": raw["error"]}
        elif isinstance(raw, dict) and (envelope := next((k for k in ENVELOPES if k in raw), None)):
            raw = raw[envelope]
        elif isinstance(raw, dict) and raw.get("type") == "succeeded" and isinstance(raw.get("message"), dict):
            raw = raw["message"]
        else:
            break
    return raw


def is_request(body: Any) -> bool:
    """A body with messages, items or (beside a model) an input or a prompt; or the bare list."""
    if not isinstance(body, dict):
        return is_chat(body) or is_items(body)
    if is_chat(body.get("messages")) or is_items(body.get("messages")):
        return True
    prompt = body.get("input", body.get("prompt"))
    return (isinstance(prompt, str) and "model" in body) or is_chat(body.get("input")) or is_items(body.get("input"))


def is_answer(body: Any) -> bool:
    """Match a completion, response, message, list of either, error, or a stream that cannot be joined."""
    if event_streams.is_stream(body):
        return True
    if not isinstance(body, dict):
        return is_chat(body) or is_items(body)
    choices, output = body.get("choices"), body.get("output")
    if bedrock.reply_of(body) is not None:
        return True
    if isinstance(choices, list) and choices and all(isinstance(c, dict) for c in choices):
        return "message" in choices[0] or "text" in choices[0]
    if body.get("object") == "response" or is_items(output) or is_chat(output):
        return isinstance(output, list)
    return body.get("error") is not None or (isinstance(body.get("role"), str) and "content" in body)


def read_call(record: Any, line: int | None) -> LoggedCall:
    """One record as a call.

    Raises:
        ValueError: no call, or one whose messages cannot be read.
    """
    if (keys := locate(record)) is None:
        raise ValueError(
            "no request with its answer in a form of Chat Completions, Responses, Anthropic's Messages or Bedrock's Converse"
        )
    request_key, answer_key = keys
    body = record if request_key == "." else _body(record.get(request_key)) if request_key else None
    answer = _body(record.get(answer_key)) if answer_key else None
    body = body if isinstance(body, dict) or body is None else {"messages": body}
    meta = {
        k: v for k, v in record.items() if k not in ("outcome", "meta", *keys, *(ASKED if request_key == "." else ()))
    }
    meta = _without_secrets(meta | (record["meta"] if isinstance(record.get("meta"), dict) else {}))
    if request_key not in (".", None) and body is not None:
        meta["request"] = _envelope(record[request_key], body, ASKED)
    if answer_key is not None:
        meta["response"] = _envelope(record[answer_key], answer, ANSWERED) | _rest(answer)
    reply = _reply(answer)
    _stamp(reply, record)
    answer = answer if isinstance(answer, dict) else {}
    call = LoggedCall(
        record,
        line,
        None if body is None else _request(body),
        reply,
        _tools(record, body or {}),
        {k: v for k, v in meta.items() if v not in (None, {}, [])},
        answer,
        ids=dict(_ids(record, body or {})),
        response_id=own_id(answer) if answer.get("object") == "response" else None,
        previous_id=own_id(answer, "previous_response_id") or own_id(body or {}, "previous_response_id"),
    )
    talk = answer.get("conversation") or (body or {}).get("conversation")
    call.conversation = own_id(talk) if isinstance(talk, dict) else talk if isinstance(talk, str) else None
    return call


def _request(body: dict[str, Any]) -> list[Message]:
    key = next((k for k in ("messages", "input", "prompt") if body.get(k) is not None), "messages")
    raw = body.get(key)
    if key != "messages" or is_items(raw):
        items = as_items(body.get("instructions"), "instructions", "system") + as_items(raw, key)
        return ItemReader().read(items).messages
    if bedrock.sniff(body):
        return bedrock.system_of(body.get("system")) + chat_messages(raw)
    if anthropic.sniff(body):
        system = body.get("system")
        messages = [{"role": "system", "content": text_of(system) or as_text(system)}] if system else []
        return messages + [m for i, raw in enumerate(body["messages"]) for m in unblock(raw, f"messages[{i}]")]
    return chat_messages(raw)


def _reply(answer: Any) -> list[Message]:
    if event_streams.is_stream(answer):
        event_streams.join(answer)  # it could not be: this says why
    if isinstance(answer, str):
        return [] if not answer else [{"role": "assistant", "content": answer}]
    if isinstance(answer, list):
        return ItemReader().read(answer).messages if is_items(answer) else chat_messages(answer, "output")
    if not isinstance(answer, dict):
        return []
    if isinstance(choices := answer.get("choices"), list) and choices:
        reply = choices[0].get("message", choices[0].get("text"))
        reply = reply if isinstance(reply, dict) else {"content": reply}
        return [chat_message({"role": "assistant", **reply}, "choices[0].message")]
    if (message := bedrock.reply_of(answer)) is not None:
        return bedrock.unblock(message, "output.message")
    if isinstance(output := answer.get("output"), list):
        return ItemReader().read(output).messages
    return (
        unblock({k: answer.get(k) for k in ("role", "content", "tool_calls")}, "response") if "role" in answer else []
    )


def _rest(answer: Any) -> dict[str, Any]:
    """Return a completion's other choices, and the first one's fields beside its message."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(choices, list) or not choices:
        return {}
    first = {k: v for k, v in choices[0].items() if k not in ("message", "text", "index") and v is not None}
    return first | ({"other_choices": choices[1:]} if len(choices) > 1 else {})


def _envelope(raw: Any, body: Any, used: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of an envelope and its body that are not messages."""
    around = [k for k in ("body", *ENVELOPES) if isinstance(raw, dict) and k in raw]
    outside = {k: v for k, v in raw.items() if k not in around} if around else {}
    inside = {k: v for k, v in body.items() if k not in used and v is not None} if isinstance(body, dict) else {}
    return _without_secrets(outside | inside)


def _without_secrets(value: Any, inside_headers: bool = False) -> Any:
    """Remove keys and cookies at any depth: judged runs may be shown or published.

    Headers may be an object, a list of pairs or of `{name, value}`; an `api_key` is removed anywhere.
    """
    if isinstance(value, list):
        if inside_headers and len(value) == 2 and _is_secret(value[0]):
            return [value[0], REMOVED]
        return [_without_secrets(v, inside_headers) for v in value]
    if not isinstance(value, dict):
        return value
    if inside_headers and "value" in value and _is_secret(value.get("name", value.get("key"))):
        return {**value, "value": REMOVED}
    return {k: _without_secret(k, v, inside_headers) for k, v in value.items()}


def _without_secret(key: str, value: Any, inside_headers: bool) -> Any:
    if isinstance(value, str | list) and (_is_secret(key) if inside_headers else key.lower() in KEYS):
        return REMOVED
    return _without_secrets(value, inside_headers or "headers" in key.lower())


def _is_secret(name: Any) -> bool:
    return isinstance(name, str) and any(s in name.lower() for s in SECRETS)


def _tools(record: dict[str, Any], body: dict[str, Any]) -> list[dict[str, Any]] | None:
    settings = record.get("model_parameters")
    if (tools := bedrock.tools_of(body.get("toolConfig"))) is not None:
        return tools
    raw = body.get("tools") or (settings.get("tools") if isinstance(settings, dict) else None)
    if not isinstance(raw, list) or not all(isinstance(t, dict) for t in raw):
        return None
    if any("input_schema" in t for t in raw):
        return anthropic_tools(raw)
    return response_tools(raw) if any("function" not in t for t in raw) else tool_list(raw)


def _ids(record: dict[str, Any], body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Ids that calls may share: fields of the record, of its metadata, of the request and of its headers."""
    request = record.get("request")
    holders = [record, body, request if isinstance(request, dict) else {}]
    holders += [v for p in list(holders) for k, v in p.items() if isinstance(v, dict) and k in META]
    for name in reversed(IDS):
        for holder in reversed(holders):  # what comes last stays: the record's own before those further in
            for key, value in holder.items():
                word = "".join(c for c in key.lower() if c.isalnum())
                if word.endswith(name) and "parent" not in word and isinstance(value, str | int) and str(value):
                    yield name, str(value)


META = ("metadata", "properties", "request_properties", "attributes", "headers", "extra", "litellm_params")


def _stamp(reply: list[Message], record: dict[str, Any]) -> None:
    """Set the answer's time on its messages."""
    stamp = next((record[k] for k in TIMES if isinstance(record.get(k), str | int | float)), None)
    if stamp is not None and not isinstance(stamp, bool):
        for message in reply:
            message.setdefault("timestamp", stamp)
