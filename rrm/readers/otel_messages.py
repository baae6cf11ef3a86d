"""Chat messages of one OpenTelemetry span, in each convention of its instrumentations.

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
"""The oldest events -> the attribute with their messages."""
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
    """Return (messages the model read, messages it wrote) of a span in `rrm.readers.otel`'s shape.

    Raises:
        ValueError: a message without a known role.
    """
    attributes = span["attributes"]
    for event in span["events"]:
        if event["name"] == DETAILS:
            attributes = {**event["attributes"], **attributes}
    history = _semantic(attributes.get("gen_ai.input.messages"), "gen_ai.input.messages", "user")
    wrote = _semantic(attributes.get("gen_ai.output.messages"), "gen_ai.output.messages", "assistant")
    if history or wrote:
        return _instructions(attributes.get("gen_ai.system_instructions")) + history, wrote
    history = [_open_inference(m) for m in _flat(attributes, "llm.input_messages")]
    wrote = [_open_inference(m) for m in _flat(attributes, "llm.output_messages")]
    if history or wrote:
        return history, wrote
    history = [_loose(m, "gen_ai.prompt", "user") for m in _flat(attributes, "gen_ai.prompt")]
    wrote = [_loose(m, "gen_ai.completion", "assistant") for m in _flat(attributes, "gen_ai.completion")]
    return (history, wrote) if history or wrote else _events(span["events"])


def tools_of(attributes: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return the tools that a span offered the model; None where it names none."""
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
    """Read messages of `{role, parts}` or of the OpenAI shape; a bare text is one message."""
    raw = from_json(raw)
    if raw is None or raw == "":
        return []
    messages = list[Message]()
    for i, entry in enumerate(raw if isinstance(raw, list) else [raw]):
        entry = {"role": role, "content": entry} if isinstance(entry, str) else entry
        if isinstance(entry, dict) and isinstance(entry.get("parts"), list):
            messages += _parts(entry, f"{where}[{i}]", role)
        else:
            messages.append(_loose(entry, f"{where}[{i}]", role))
    return messages


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
    """Split a message of parts; each tool result becomes a message of its own."""
    content, calls, thoughts, results = list[Any](), list[Message](), list[str](), list[Message]()
    for item in raw["parts"]:
        item = {"type": "text", "content": item} if isinstance(item, str) else item
        part_type = item.get("type") if isinstance(item, dict) else None
        if not isinstance(item, dict):
            content.append({"type": "text", "text": as_text(item)})
        elif part_type == "text":
            content.append({"type": "text", "text": as_text(item.get("content", item.get("text", "")))})
        elif part_type in ("reasoning", "thinking"):
            thoughts.append(as_text(item.get("content", "")))
        elif part_type in ("tool_call", "server_tool_call"):
            calls.append(_call(item))
        elif part_type in ("tool_call_response", "server_tool_call_response"):
            results.append(_result(item))
        else:
            content.append(_picture(item))
    fields = {k: v for k, v in raw.items() if k not in ("parts", "role", "content")}
    text: Any = content
    if all(p.get("type") == "text" for p in content):
        text = "\n".join(p["text"] for p in content)
    message = chat_message({**fields, "role": raw.get("role", role), "content": text}, where)
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return results + ([message] if content or calls or thoughts or not results else [])


def _call(item: Message) -> Message:
    number = {"id": as_text(item["id"])} if item.get("id") is not None else {}
    inner = item.get("server_tool_call", {})
    return tool_call({"name": item.get("name", ""), "arguments": item.get("arguments", inner)}) | number


def _result(item: Message) -> Message:
    output = next((item[k] for k in ("response", "result", "content", "server_tool_call_response") if k in item), "")
    message: Message = {"role": "tool", "content": "" if output is None else as_text(output)}
    more = (("tool_call_id", item.get("id")), ("name", item.get("name")))
    return message | {k: as_text(v) for k, v in more if v is not None}


def _picture(item: Message) -> Message:
    """Convert a picture to the chat API's part; other parts stay."""
    part_type, mime = item.get("type"), as_text(item.get("mime_type", item.get("media_type", "")))
    is_image = item.get("modality") == "image" or mime.startswith("image/") or part_type in ("image-url", "image_url")
    if not is_image:
        return item
    if isinstance(data := item.get("content", item.get("data")), str):
        return {"type": "image_url", "image_url": {"url": f"data:{mime or 'image/png'};base64,{data}"}}
    url = item.get("uri", item.get("url"))
    return {"type": "image_url", "image_url": {"url": url}} if isinstance(url, str) else item


def _loose(raw: Any, where: str, role: str) -> Message:
    """Read an OpenAI message; its place gives a missing role, and JSON in its call fields is parsed."""
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
    item = flat["message_content"] if isinstance(flat.get("message_content"), dict) else flat
    image = item.get("image")
    inner = image.get("image") if isinstance(image, dict) else None
    url = inner.get("url") if isinstance(inner, dict) else None
    return {"type": "image_url", "image_url": {"url": url}} if isinstance(url, str) else item


def _events(events: list[dict[str, Any]]) -> tuple[list[Message], list[Message]]:
    """Read the older form, one event per message; of several choices the first counts."""
    history, wrote = list[Message](), list[Message]()
    for event in events:
        name, data = event["name"], event["attributes"]
        if name in ROLES:
            fields = {k: data[k] for k in ("role", "content", "tool_calls", "name") if data.get(k) is not None}
            number = data.get("id", data.get("tool_call_id"))
            answers = {"tool_call_id": number} if ROLES[name] == "tool" and number is not None else {}
            history.append(_loose({**fields, **answers}, name, ROLES[name]))
        elif name == "gen_ai.choice":
            message = from_json(data.get("message"))
            inner = (
                message
                if isinstance(message, dict)
                else {"content": message if message is not None else data.get("content")}
            )
            more = {k: data[k] for k in ("tool_calls", "finish_reason") if data.get(k) is not None}
            if not wrote or data.get("index", 0) in (0, "0"):
                wrote = [_loose({**more, **inner}, name, "assistant")]
        elif name in OLD_CONTENT:
            role = "user" if name.endswith("prompt") else "assistant"
            (history if role == "user" else wrote).extend(_semantic(data.get(OLD_CONTENT[name]), name, role))
    return history, wrote


def _flat(attributes: dict[str, Any], prefix: str) -> list[Any]:
    """Turn `prefix.0.a.b: v`, … into a list of nested objects; numbered names become sorted lists."""
    tree: dict[str, Any] = {}
    for key, value in attributes.items():
        if not key.startswith(prefix + "."):
            continue
        segments = key[len(prefix) + 1 :].split(".", LONGEST_KEY)
        node = tree
        for segment in segments[:-1]:
            node = node[segment] if isinstance(node.get(segment), dict) else node.setdefault(segment, {})
            if not isinstance(node, dict):
                break  # one name says both a value and what is inside it: the value stands
        else:
            node.setdefault(segments[-1], value)
    numbered = _lists(tree)
    return numbered if isinstance(numbered, list) else []


def _lists(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    if node and all(k.isascii() and k.isdigit() for k in node):
        return [_lists(node[k]) for k in sorted(node, key=lambda k: (len(k), k))]
    return {k: _lists(v) for k, v in node.items()}
