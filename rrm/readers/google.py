"""Google's `Content` (`role`, `parts`) of the Gemini API, its CLI and the ADK, in either spelling."""

from __future__ import annotations

from typing import Any

from rrm.readers.chat import as_text
from rrm.readers.turns import Turns, picture

Message = dict[str, Any]


def field(record: Any, name: str) -> Any:
    """Return a field by its name in camelCase or snake_case; None where it has neither."""
    if not isinstance(record, dict):
        return None
    value = record.get(name)
    return value if value is not None else record.get("".join(f"_{c.lower()}" if c.isupper() else c for c in name))


def parts_of(content: Any) -> list[Any]:
    """Return a content's parts: of a text, one part, a list of either, or an object with `parts`."""
    if isinstance(content, dict) and isinstance(content.get("parts"), list):
        content = content["parts"]
    listed = content if isinstance(content, list) else [] if content is None else [content]
    return [p if isinstance(p, dict) else {"text": as_text(p)} for p in listed]


def is_content(value: Any) -> bool:
    """Return whether a value is a content whose parts are Google's, which have no type."""
    parts = value.get("parts") if isinstance(value, dict) else None
    return isinstance(parts, list) and all(
        isinstance(p, dict) and "type" not in p and "part_kind" not in p for p in parts
    )


def add(turns: Turns, role: str, content: Any, **more: Any) -> None:
    """Add a content: function results follow their calls; the model's code is a call and its result."""
    spoken, results = list[Message](), list[Message]()
    is_agent = role in ("model", "assistant")
    for content_part in parts_of(content):
        call, answer = field(content_part, "functionCall"), field(content_part, "functionResponse")
        code, ran = field(content_part, "executableCode"), field(content_part, "codeExecutionResult")
        if isinstance(call, dict):
            turns.agent(**more)
            turns.called(call.get("name", ""), call.get("args"), call.get("id"))
        elif isinstance(answer, dict):
            output, failed = result_of(answer)
            results.append({"content": output, "id": answer.get("id"), "name": answer.get("name"), "failed": failed})
        elif isinstance(code, dict):
            turns.agent(**more)
            turns.called("code_execution", code)
        elif isinstance(ran, dict):
            failed = as_text(ran.get("outcome", "")) not in ("", "OUTCOME_OK")
            turns.came_back(ran.get("output"), name="code_execution", failed=failed)
        elif content_part.get("thought") and "text" in content_part:
            turns.thought(as_text(content_part["text"]), **more)
        elif is_agent:
            turns.said([_part(content_part)], **more)
        else:
            spoken.append(_part(content_part))
    for result in results:
        turns.came_back(**result, timestamp=more.get("timestamp"))
    if spoken:
        turns.add_text(
            "user" if role in ("", "function") else role, spoken, **{k: v for k, v in more.items() if v is not None}
        )


def result_of(answer: Message) -> tuple[Any, bool]:
    """Return (result, failed) of a function: a lone `output` or `result`, else the whole response."""
    response = answer.get("response")
    if isinstance(response, dict) and len(response) == 1:
        key, inner = next(iter(response.items()))
        return (inner, key == "error") if key in ("output", "result", "error") else (response, False)
    return response, False


def _part(content_part: Message) -> Message:
    """A text, or a picture, as a chat part; others as they are."""
    if "text" in content_part:
        return {"type": "text", "text": as_text(content_part["text"])}
    data = field(content_part, "inlineData") or field(content_part, "fileData")
    if isinstance(data, dict):
        media_type, where = as_text(field(data, "mimeType") or ""), data.get("data", field(data, "fileUri"))
        if media_type.startswith("image/") and isinstance(where, str):
            return picture(where, media_type)
    return {"type": next(iter(content_part), "part"), **content_part}


def tools_of(config: Any) -> list[Message] | None:
    """`tools` of `functionDeclarations` as function definitions; None where there is none."""
    listed = config if isinstance(config, list) else []
    functions = [f for t in listed for f in (field(t, "functionDeclarations") or []) if isinstance(f, dict)]
    return [{"type": "function", "function": f} for f in functions] or None
