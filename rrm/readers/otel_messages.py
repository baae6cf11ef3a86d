"""The chat messages that one OpenTelemetry span holds, in each of the conventions that instrumentations write.

Attributes `gen_ai.input.messages` and `gen_ai.output.messages` (JSON), the older events `gen_ai.user.message`, …, `gen_ai.choice`,
and two flat ones: OpenInference's `llm.input_messages.0.message.role` and OpenLLMetry's `gen_ai.prompt.0.role`.
Fields: https://opentelemetry.io/docs/specs/semconv/gen-ai/, https://arize-ai.github.io/openinference/spec/semantic_conventions.html.
"""

from __future__ import annotations

from typing import Any

from rrm.readers.chat import as_text, chat_message, tool_call, tool_list
from rrm.readers.jsontext import parse_json

Message = dict[str, Any]
DETAILS = "gen_ai.client.inference.operation.details"
"""The event that carries the message attributes where spans may not."""
ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
OLD_CONTENT = {"gen_ai.content.prompt": "gen_ai.prompt", "gen_ai.content.completion": "gen_ai.completion"}
"""The oldest events, and the attribute in which each holds its messages."""
LONGEST_KEY = 12  # parts of a flat attribute's name; deeper ones are no message's


def from_json(value: Any) -> Any:
    """JSON text as its value, where it is an object or a list; anything else as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return parse_json(value)
        except (ValueError, RecursionError):
            return value
    return value


def messages_of(span: dict[str, Any]) -> tuple[list[Message], list[Message]]:
    """(messages the model read, messages it wrote) of a span as `rrm.readers.otel` brings it to one shape.

    Raises:
        ValueError: a message without a role that is known.
    """
    attributes = span["attributes"]
    for event in span["events"]:
        if event["name"] == DETAILS:
            attributes = {**event["attributes"], **attributes}
    read = _semantic(attributes.get("gen_ai.input.messages"), "gen_ai.input.messages", "user")
    wrote = _semantic(attributes.get("gen_ai.output.messages"), "gen_ai.output.messages", "assistant")
    if read or wrote:
        return _instructions(attributes.get("gen_ai.system_instructions")) + read, wrote
    read = [_open_inference(m) for m in _flat(attributes, "llm.input_messages")]
    wrote = [_open_inference(m) for m in _flat(attributes, "llm.output_messages")]
    if read or wrote:
        return read, wrote
    read = [_loose(m, "gen_ai.prompt", "user") for m in _flat(attributes, "gen_ai.prompt")]
    wrote = [_loose(m, "gen_ai.completion", "assistant") for m in _flat(attributes, "gen_ai.completion")]
    return (read, wrote) if read or wrote else _events(span["events"])


def tools_of(attributes: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The tools that the model was offered, as the span says; None where it does not."""
    listed = from_json(attributes.get("gen_ai.tool.definitions"))
    if listed is None:
        listed = [_offered(t) for t in _flat(attributes, "llm.tools")] or None
    if listed is None:
        listed = [from_json(t) for t in _flat(attributes, "llm.request.functions")] or None
    if (tools := tool_list(listed)) is None:
        return None
    for k, tool in enumerate(tools):
        if "function" not in tool and "name" in tool:
            inner = {k: v for k, v in tool.items() if k != "type"}
            inner["parameters"] = from_json(inner.get("parameters", {}))
            tools[k] = {"type": "function", "function": inner}
    return tools


def _offered(flat: Any) -> Any:
    tool = flat.get("tool") if isinstance(flat, dict) else None
    schema = from_json(tool.get("json_schema")) if isinstance(tool, dict) else None
    return schema if isinstance(schema, dict) else tool


def _semantic(raw: Any, where: str, role: str) -> list[Message]:
    """Messages of `{role, parts}`, or of the OpenAI shape, which some instrumentations put there; a bare text is one message."""
    raw = from_json(raw)
    if raw is None or raw == "":
        return []
    made = list[Message]()
    for i, one in enumerate(raw if isinstance(raw, list) else [raw]):
        one = {"role": role, "content": one} if isinstance(one, str) else one
        if isinstance(one, dict) and isinstance(one.get("parts"), list):
            made += _parts(one, f"{where}[{i}]", role)
        else:
            made.append(_loose(one, f"{where}[{i}]", role))
    return made


def _instructions(raw: Any) -> list[Message]:
    """System instructions: a text, or a list of parts."""
    raw = from_json(raw)
    if raw is None or raw in ("", []):
        return []
    if isinstance(raw, dict) and "parts" in raw:
        raw = raw["parts"]
    return _parts(
        {"role": "system", "parts": raw if isinstance(raw, list) else [raw]}, "gen_ai.system_instructions", "system"
    )


def _parts(raw: Message, where: str, role: str) -> list[Message]:
    """One message of parts; each tool result in it becomes a message of its own."""
    content, calls, thoughts, results = list[Any](), list[Message](), list[str](), list[Message]()
    for part in raw["parts"]:
        part = {"type": "text", "content": part} if isinstance(part, str) else part
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(part, dict):
            content.append({"type": "text", "text": as_text(part)})
        elif kind == "text":
            content.append({"type": "text", "text": as_text(part.get("content", part.get("text", "")))})
        elif kind in ("reasoning", "thinking"):
            thoughts.append(as_text(part.get("content", "")))
        elif kind in ("tool_call", "server_tool_call"):
            calls.append(_call(part))
        elif kind in ("tool_call_response", "server_tool_call_response"):
            results.append(_result(part))
        else:
            content.append(_picture(part))
    kept = {k: v for k, v in raw.items() if k not in ("parts", "role", "content")}
    said: Any = content
    if all(p.get("type") == "text" for p in content):
        said = "\n".join(p["text"] for p in content)
    message = chat_message({**kept, "role": raw.get("role", role), "content": said}, where)
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return results + ([message] if content or calls or thoughts or not results else [])


def _call(part: Message) -> Message:
    number = {"id": as_text(part["id"])} if part.get("id") is not None else {}
    inner = part.get("server_tool_call", {})
    return tool_call({"name": part.get("name", ""), "arguments": part.get("arguments", inner)}) | number


def _result(part: Message) -> Message:
    said = next((part[k] for k in ("response", "result", "content", "server_tool_call_response") if k in part), "")
    message: Message = {"role": "tool", "content": "" if said is None else as_text(said)}
    more = (("tool_call_id", part.get("id")), ("name", part.get("name")))
    return message | {k: as_text(v) for k, v in more if v is not None}


def _picture(part: Message) -> Message:
    """A picture as the chat API has it; other parts as they are."""
    kind, mime = part.get("type"), as_text(part.get("mime_type", part.get("media_type", "")))
    is_image = part.get("modality") == "image" or mime.startswith("image/") or kind in ("image-url", "image_url")
    if not is_image:
        return part
    if isinstance(data := part.get("content", part.get("data")), str):
        return {"type": "image_url", "image_url": {"url": f"data:{mime or 'image/png'};base64,{data}"}}
    url = part.get("uri", part.get("url"))
    return {"type": "image_url", "image_url": {"url": url}} if isinstance(url, str) else part


def _loose(raw: Any, where: str, role: str) -> Message:
    """A message of the OpenAI shape, its role known from its place where it says none; JSON inside its text fields is read."""
    if not isinstance(raw, dict):
        return chat_message({"role": role, "content": raw}, where)
    message = {"role": role, **{k: v for k, v in raw.items() if v is not None}}
    for key in ("tool_calls", "function_call"):
        if key in message:
            message[key] = from_json(message[key])
    return chat_message(message, where)


def _open_inference(flat: Any) -> Message:
    """`{message: {role, content | contents, tool_calls}}`, as the flat names unfold."""
    inner = flat.get("message") if isinstance(flat, dict) else None
    raw = dict(inner) if isinstance(inner, dict) else {}
    calls = raw.pop("tool_calls", None)
    listed = [c.get("tool_call", c) if isinstance(c, dict) else c for c in calls] if isinstance(calls, list) else []
    parts = [_content_part(p) for p in raw.pop("contents", None) or [] if isinstance(p, dict)]
    message = _loose(raw, "llm message", "user")
    if parts and not message.get("content"):
        texts = all(p.get("type") == "text" for p in parts)
        message["content"] = "\n".join(as_text(p.get("text", "")) for p in parts) if texts else parts
    if listed:
        message["tool_calls"] = [tool_call(c) for c in listed]
    return message


def _content_part(flat: Message) -> Message:
    part = flat["message_content"] if isinstance(flat.get("message_content"), dict) else flat
    image = part.get("image")
    inner = image.get("image") if isinstance(image, dict) else None
    url = inner.get("url") if isinstance(inner, dict) else None
    return {"type": "image_url", "image_url": {"url": url}} if isinstance(url, str) else part


def _events(events: list[dict[str, Any]]) -> tuple[list[Message], list[Message]]:
    """Messages of the older form: an event each; the choice is what the model wrote (the first, where it wrote several)."""
    read, wrote = list[Message](), list[Message]()
    for event in events:
        name, said = event["name"], event["attributes"]
        if name in ROLES:
            known = {k: said[k] for k in ("role", "content", "tool_calls", "name") if said.get(k) is not None}
            number = said.get("id", said.get("tool_call_id"))
            answers = {"tool_call_id": number} if ROLES[name] == "tool" and number is not None else {}
            read.append(_loose({**known, **answers}, name, ROLES[name]))
        elif name == "gen_ai.choice":
            message = from_json(said.get("message"))
            inner = (
                message
                if isinstance(message, dict)
                else {"content": message if message is not None else said.get("content")}
            )
            more = {k: said[k] for k in ("tool_calls", "finish_reason") if said.get(k) is not None}
            if not wrote or said.get("index", 0) in (0, "0"):
                wrote = [_loose({**more, **inner}, name, "assistant")]
        elif name in OLD_CONTENT:
            role = "user" if name.endswith("prompt") else "assistant"
            (read if role == "user" else wrote).extend(_semantic(said.get(OLD_CONTENT[name]), name, role))
    return read, wrote


def _flat(attributes: dict[str, Any], prefix: str) -> list[Any]:
    """`prefix.0.a.b: v`, … as a list of nested objects; numbered names become lists, in the order of their numbers."""
    tree: dict[str, Any] = {}
    for key, value in attributes.items():
        if not key.startswith(prefix + "."):
            continue
        parts = key[len(prefix) + 1 :].split(".", LONGEST_KEY)
        node = tree
        for part in parts[:-1]:
            node = node[part] if isinstance(node.get(part), dict) else node.setdefault(part, {})
            if not isinstance(node, dict):
                break  # one name says both a value and what is inside it: the value stands
        else:
            node.setdefault(parts[-1], value)
    numbered = _lists(tree)
    return numbered if isinstance(numbered, list) else []


def _lists(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    if node and all(k.isascii() and k.isdigit() for k in node):
        return [_lists(node[k]) for k in sorted(node, key=lambda k: (len(k), k))]
    return {k: _lists(v) for k, v in node.items()}
