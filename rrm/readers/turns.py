"""Messages of a run from pieces in their order: what the agent thinks, says and calls until something comes back is one message."""

from __future__ import annotations

from typing import Any

from rrm.readers.chat import as_text, chat_content, chat_message, result_content, text_of

Message = dict[str, Any]


class Turns:
    """Builds `messages`. Fields that are None are left out; further ones (`timestamp`, `usage`, …) are kept on their message."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._open: Message | None = None
        self._names: dict[str, str] = {}

    def close(self) -> None:
        """End the agent's message: what follows begins another."""
        self._open = None

    def add_text(self, role: str, content: Any, **more: Any) -> None:
        """A whole message of a role that `rrm.readers.chat` knows."""
        self.close()
        self.messages.append(chat_message({"role": role, "content": shown(content), **more}, "a message"))

    def agent(self, **more: Any) -> Message:
        """The agent's open message, with fields that it has not yet."""
        if self._open is None:
            self._open = {"role": "assistant", "content": None}
            self.messages.append(self._open)
        for key, value in more.items():
            if value is not None:
                self._open.setdefault(key, value)
        return self._open

    def thought(self, text: str, **more: Any) -> None:
        """What the agent thought; after what it said it begins a message."""
        if self._open is not None and self._open["content"] and "tool_calls" not in self._open:
            self.close()
        message = self.agent(**more)
        if text:
            message["reasoning_content"] = joined(message.get("reasoning_content"), text)

    def said(self, content: Any, **more: Any) -> None:
        """What the agent said: text, or a list of parts."""
        message, content = self.agent(**more), shown(content)
        before = message["content"]
        if isinstance(content, str) and not isinstance(before, list):
            message["content"] = joined(before, content) if content else before
        else:
            message["content"] = [*_parts(before), *_parts(content)]

    def called(self, name: Any, arguments: Any = None, id: Any = None, **more: Any) -> None:
        """A call in the agent's open message; further fields are the call's."""
        arguments = {} if arguments is None else arguments
        call: Message = {"name": as_text(name), "arguments": arguments}
        if not isinstance(arguments, dict | str):
            call["arguments"] = as_text(arguments)
        if id is not None:
            call["id"] = as_text(id)
            self._names[call["id"]] = call["name"]
        self.agent().setdefault("tool_calls", []).append(call | {k: v for k, v in more.items() if v is not None})

    def came_back(self, content: Any, id: Any = None, name: Any = None, failed: bool = False, **more: Any) -> None:
        """A tool's result; it ends the agent's message."""
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
    """Content as a message has it: a text, parts of which one is no text, or the JSON of anything else; '' of None."""
    if content is None or isinstance(content, str):
        return content or ""
    if (
        isinstance(content, list)
        and content
        and all(isinstance(p, dict) and isinstance(p.get("type"), str) for p in content)
    ):
        found = chat_content(content)
        texts = isinstance(found, list) and all(isinstance(p.get("text"), str) for p in found)
        return text_of(found) if texts else found if isinstance(found, list) else as_text(content)
    return as_text(content)


def joined(before: str | None, text: str) -> str:
    """Two texts in two lines."""
    return f"{before}\n{text}" if before else text


def picture(data: str, kind: Any) -> Message:
    """An image's base64 (or its address) as the chat API's part."""
    url = (
        data if data.startswith(("http:", "https:", "data:")) else f"data:{as_text(kind or 'image/png')};base64,{data}"
    )
    return {"type": "image_url", "image_url": {"url": url}}


def _parts(content: Any) -> list[Message]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
