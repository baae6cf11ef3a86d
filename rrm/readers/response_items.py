"""Read items of OpenAI's Responses API as chat messages.

The model's reasoning, text and calls in a row are one message; it ends where something comes back, or where the model speaks again. A
tool that the server ran (web search, code, MCP) is call and result in one item, and becomes both. Types:
https://platform.openai.com/docs/api-reference/responses.
"""

from __future__ import annotations

from typing import Any

from rrm.readers.chat import ROLES, as_text, chat_message, tool_list
from rrm.readers.turns import Turns

PARTS = {"input_text", "output_text", "input_image", "input_file", "input_audio", "refusal"}
"""Content parts that no other API has."""
SHOWN = PARTS | {"text", "image", "computer_screenshot", "logs"}
"""Parts of a tool's result; a list of anything else is data, and becomes its JSON."""
CALLS = {"program": "program", "mcp_approval_request": ""}
"""Calls whose type does not end in `_call`, and their names (others are named by type: `web_search`)."""
SERVED = {"web_search", "file_search", "code_interpreter", "image_generation", "mcp"}
"""Tools that the server runs: their item holds the result too."""
RESULTS = ("results", "outputs", "output", "result", "error")
SETTINGS = {"item_reference", "compaction", "compaction_trigger", "configuration_update"}
"""Items without content of their own (references, encrypted state)."""
NO_ARGUMENT = {"type", "id", "call_id", "status", "caller", "created_by", "async", "name", "namespace", "server_label"}
OF_A_CALL = ("namespace", "server_label", "caller")
Message = dict[str, Any]


def kind_of(item: dict[str, Any]) -> str:
    """Return the item's type; a message may leave it out."""
    item_type = item.get("type")
    return item_type if isinstance(item_type, str) else "message" if "role" in item else ""


def act_of(item: dict[str, Any]) -> str:
    """Return `call` for an item that calls a tool, `output` for its result, '' for others."""
    item_type = kind_of(item)
    if item_type in CALLS or item_type.endswith("_call"):
        return "call"
    return "output" if item_type == "mcp_approval_response" or item_type.endswith("_output") else ""


def is_items(value: Any) -> bool:
    """Match a list of typed items or messages of which one at least has a mark of this API."""
    if not isinstance(value, list) or not value or not all(isinstance(i, dict) for i in value):
        return False
    typed = SETTINGS | {"reasoning", "mcp_list_tools", "additional_tools"}
    return all("role" in i or act_of(i) or kind_of(i) in typed for i in value) and any(map(_marked, value))


def _marked(item: dict[str, Any]) -> bool:
    """Return whether an item fits neither a plain chat nor Anthropic's blocks."""
    if act_of(item) or (kind_of(item) == "reasoning" and "role" not in item):
        return True
    content = item.get("content")
    kinds = [p.get("type") for p in content if isinstance(p, dict)] if isinstance(content, list) else []
    return "role" in item and any(isinstance(k, str) and k in PARTS for k in kinds)


def as_items(raw: Any, where: str, role: str = "user") -> list[Any]:
    """Return `input`, `output` or `instructions` as items; a text is one message of `role`.

    Raises:
        ValueError: neither a list nor a text.
    """
    if raw is None:
        return []
    if isinstance(raw, str):
        return [{"role": role, "content": raw}]
    if not isinstance(raw, list):
        raise ValueError(f"`{where}` must be a text or a list of items, got {type(raw).__name__}")
    return [{"role": role, "content": i} if isinstance(i, str) else i for i in raw]


def response_tools(raw: Any) -> list[dict[str, Any]] | None:
    """Nest this API's flat function tools; the server's tools by their type; None where unreadable."""
    tools = tool_list(raw)
    return None if tools is None else [_tool(t) for t in tools]


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    if isinstance(tool.get("function"), dict):
        return tool
    if "name" not in tool:
        return {**tool, "name": as_text(tool.get("type", "?"))}
    names = {"input_schema": "parameters"}  # MCP servers list their tools under MCP's own names
    function = {names.get(k, k): v for k, v in tool.items() if k != "type" and v is not None}
    return {"type": "function", "function": function}


class ItemReader(Turns):
    """Reads items in order into `messages`, `tools` that items declare, and `others` that are no message."""

    def __init__(self) -> None:
        super().__init__()
        self.tools: list[dict[str, Any]] = []
        self.others: list[dict[str, Any]] = []

    def read(self, items: list[Any]) -> ItemReader:
        """Read items, after those read before.

        Raises:
            ValueError: an item that is no object, or a message with an unknown role.
        """
        for i, raw in enumerate(items):
            if not isinstance(raw, dict):
                raise ValueError(f"item {i} must be an object, got {type(raw).__name__}")
            item = {k: v for k, v in raw.items() if v is not None}
            item_type, act = kind_of(item), act_of(item)
            if act == "call":
                self._call(item, item_type)
            elif act == "output":
                self._output(item)
            elif item_type == "reasoning" and "role" not in item:
                self._reasoning(item)
            elif item_type in ("mcp_list_tools", "additional_tools"):
                self._declared(item)
            elif "role" in item:
                self._message(item, f"item {i}")
            else:
                self.others.append(raw)
        return self

    def _message(self, item: Message, where: str) -> None:
        message = chat_message({**{k: v for k, v in item.items() if k != "type"}, "content": None}, where)
        content, extra = _content(item.get("content"))
        message |= extra | (
            {} if not content and message["content"] else {"content": content}
        )  # a refusal may be all there is
        if message.get("status") == "completed":
            del message["status"]
        if ROLES[str(item["role"]).strip().lower()] != "assistant":
            self.close()
            self.messages.append(message)
            return
        if self._open is not None and self._open["content"] is not None:
            self.close()
        turn = self.agent()
        turn |= message | {k: turn[k] for k in ("reasoning_content", "tool_calls") if k in turn}

    def _reasoning(self, item: Message) -> None:
        summary, full = _texts(item.get("summary")), _texts(item.get("content"))
        text = full or summary or ("[encrypted reasoning]" if "encrypted_content" in item else "")
        if self._open is not None and self._open["content"] is not None and "tool_calls" not in self._open:
            self.close()
        turn = self.agent()
        turn["reasoning_content"] = "\n".join(t for t in (turn.get("reasoning_content"), text) if t)
        if full and summary:
            turn["reasoning_summary"] = "\n".join(t for t in (turn.get("reasoning_summary"), summary) if t)

    def _call(self, item: Message, item_type: str) -> None:
        tool = CALLS[item_type] if item_type in CALLS else item_type.removesuffix("_call")
        number, more = item.get("call_id", item.get("id")), {k: item.get(k) for k in OF_A_CALL}
        status = None if item.get("status") == "completed" else item.get("status")
        self.called(item.get("name") or tool, _arguments(item), number, **more, status=status)
        if tool in SERVED:
            self._output({**item, "output": _result(item)})

    def _output(self, item: Message) -> None:
        """Add a tool's result, which ends the model's message."""
        self.close()
        if kind_of(item) == "mcp_approval_response":
            item = {
                "call_id": item.get("approval_request_id"),
                "output": {k: item[k] for k in ("approve", "reason") if k in item},
            }
        elif kind_of(item) in ("program_output", "tool_search_output"):
            item = {**item, "output": item.get("result", item.get("tools"))}
        output = item.get("output", "")
        parts = output if isinstance(output, list) else [output]
        are_parts = all(isinstance(p, dict) and str(p.get("type")) in SHOWN for p in parts)
        content, extra = _content(parts) if parts and are_parts else (as_text(output), {})
        message: Message = {"role": "tool", "content": content, **extra}
        number = item.get("call_id", item.get("id"))
        if number is not None:
            message["tool_call_id"] = as_text(number)
        if (name := item.get("name") or self._names.get(as_text(number))) is not None:
            message["name"] = as_text(name)
        if item.get("status") not in (None, "completed"):
            message["status"] = item["status"]
        if item.get("error") is not None:
            message["is_error"] = True
        self.messages.append(message)

    def _declared(self, item: Message) -> None:
        """Add tools that an item declares: an MCP server's list."""
        for tool in response_tools(item.get("tools")) or []:
            self.tools.append({**tool, **({"server_label": item["server_label"]} if "server_label" in item else {})})


def _arguments(item: Message) -> Any:
    """Return a call's arguments: its own, or the fields that are neither its place nor its result."""
    for key in ("arguments", "input"):
        if key in item:
            return item[key] if isinstance(item[key], str | dict) else as_text(item[key])
    inner = item.get("action", item.get("operation"))
    if isinstance(inner, dict):
        return {k: v for k, v in inner.items() if v is not None and k != "sources"}
    return {k: v for k, v in item.items() if k not in NO_ARGUMENT and k not in RESULTS}


def _result(item: Message) -> Any:
    """Return a server tool's result; where the log lacks it, its status."""
    if isinstance(picture := item.get("result"), str) and kind_of(item) == "image_generation_call":
        url = f"data:image/{as_text(item.get('output_format', 'png'))};base64,{picture}"
        return [{"type": "input_image", "image_url": url}]
    action = item.get("action")
    sources = action.get("sources") if isinstance(action, dict) else None
    results = [item[k] for k in RESULTS if item.get(k) not in (None, [])] + ([sources] if sources else [])
    if not results:
        return f"[{as_text(item.get('status', 'done'))}; its result is not in the log]"
    return results[0] if len(results) == 1 else "\n".join(as_text(f) for f in results)


def _texts(parts: Any) -> str:
    if isinstance(parts, str):
        return parts
    texts = [p.get("text") if isinstance(p, dict) else p for p in parts] if isinstance(parts, list) else []
    return "\n".join(t for t in texts if isinstance(t, str) and t)


def _content(raw: Any) -> tuple[str | list[dict[str, Any]] | None, dict[str, Any]]:
    """Return (content, message fields): texts become one text, images the chat API's parts."""
    if raw is None or isinstance(raw, str):
        return raw, {}
    if not isinstance(raw, list) or not all(isinstance(p, dict) and isinstance(p.get("type"), str) for p in raw):
        return as_text(raw), {}
    notes = [n for p in raw for n in (p.get("annotations") or []) if isinstance(p.get("annotations"), list)]
    logprobs = [n for p in raw for n in (p.get("logprobs") or []) if isinstance(p.get("logprobs"), list)]
    refusals = [p["refusal"] for p in raw if p["type"] == "refusal" and isinstance(p.get("refusal"), str)]
    extra = {"annotations": notes, "logprobs": logprobs, "refusal": "\n".join(refusals)}
    parts = [_part(p) for p in raw]
    texts = [p["text"] for p in parts if p.keys() == {"type", "text"} and isinstance(p["text"], str)]
    content = "\n".join(texts) if len(texts) == len(parts) else parts
    return content, {k: v for k, v in extra.items() if v}


def _part(item: dict[str, Any]) -> dict[str, Any]:
    part_type = item["type"]
    if part_type in ("input_text", "output_text", "text", "summary_text", "reasoning_text") and "text" in item:
        return {"type": "text", "text": item["text"]}
    if part_type == "logs" and "logs" in item:
        return {"type": "text", "text": item["logs"]}
    if part_type == "refusal" and "refusal" in item:
        return {"type": "text", "text": item["refusal"]}
    if part_type in ("input_image", "computer_screenshot", "image") and isinstance(
        item.get("image_url", item.get("url")), str
    ):
        detail = {"detail": item["detail"]} if item.get("detail") is not None else {}
        return {"type": "image_url", "image_url": {"url": item.get("image_url", item.get("url")), **detail}}
    return {**{k: v for k, v in item.items() if v is not None}, "type": part_type.removeprefix("input_")}
