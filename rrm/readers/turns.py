"""Build a run's messages from pieces in order; the agent's thoughts, texts and calls in a row are one."""

from __future__ import annotations

from typing import Any

from rrm.readers.chat import as_text, chat_content, chat_message, result_content, text_of, tool_call

Message = dict[str, Any]


class Turns:
    """Builds `messages`. None fields are left out; others (`timestamp`, `usage`, …) stay on their message."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._open: Message | None = None
        self._names: dict[str, str] = {}

    def close(self) -> None:
        """End the agent's message; the next piece begins another."""
        self._open = None

    def add_text(self, role: str, content: Any, **more: Any) -> None:
        """Add a complete message of a role that `rrm.readers.chat` knows."""
        self.close()
        self.messages.append(chat_message({"role": role, "content": shown(content), **more}, "a message"))

    def agent(self, **more: Any) -> Message:
        """Return the agent's open message, with its missing fields filled."""
        if self._open is None:
            self._open = {"role": "assistant", "content": None}
            self.messages.append(self._open)
        for key, value in more.items():
            if value is not None:
                self._open.setdefault(key, value)
        return self._open

    def thought(self, text: str, **more: Any) -> None:
        """Add the agent's thought; after its text it begins a message."""
        if self._open is not None and self._open["content"] and "tool_calls" not in self._open:
            self.close()
        message = self.agent(**more)
        if text:
            message["reasoning_content"] = joined(message.get("reasoning_content"), text)

    def said(self, content: Any, **more: Any) -> None:
        """Add the agent's words: text, or a list of parts."""
        message, content = self.agent(**more), shown(content)
        before = message["content"]
        if isinstance(content, str) and not isinstance(before, list):
            message["content"] = joined(before, content) if content else before
        else:
            message["content"] = [*_parts(before), *_parts(content)]

    def called(self, name: Any, arguments: Any = None, id: Any = None, **more: Any) -> None:
        """Add a call to the agent's open message; further fields are the call's."""
        call = tool_call({"name": as_text(name), "arguments": arguments, "id": id})
        if id is not None:
            self._names[call["id"]] = call["name"]
        self.agent().setdefault("tool_calls", []).append(call | {k: v for k, v in more.items() if v is not None})

    def came_back(self, content: Any, id: Any = None, name: Any = None, failed: bool = False, **more: Any) -> None:
        """Add a tool's result, which ends the agent's message."""
        self.close()
        message: Message = {"role": "tool", "content": shown(result_content(content))}
        if id is not None:
            message["tool_call_id"] = as_text(id)
            name = self._names.get(message["tool_call_id"]) if name is None else name
        if name is not None:
            message["name"] = as_text(name)
        message |= {"is_error": True} if failed else {}
        self.messages.append(message | {k: v for k, v in more.items() if v is not None})


def shown(content: Any) -> str | list[Message]:
    """Return a message's content: a text, parts of which one is no text, or JSON; '' of None."""
    if content is None or isinstance(content, str):
        return content or ""
    if (
        isinstance(content, list)
        and content
        and all(isinstance(p, dict) and isinstance(p.get("type"), str) for p in content)
    ):
        parts = chat_content(content)
        texts = isinstance(parts, list) and all(isinstance(p.get("text"), str) for p in parts)
        return text_of(parts) if texts else parts if isinstance(parts, list) else as_text(content)
    return as_text(content)


def joined(before: str | None, text: str) -> str:
    return f"{before}\n{text}" if before else text


def picture(data: str, mime: Any) -> Message:
    """Convert an image's base64 (or its address) to the chat API's part."""
    url = (
        data if data.startswith(("http:", "https:", "data:")) else f"data:{as_text(mime or 'image/png')};base64,{data}"
    )
    return {"type": "image_url", "image_url": {"url": url}}


def _parts(content: Any) -> list[Message]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
