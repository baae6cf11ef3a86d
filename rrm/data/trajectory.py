"""The canonical Trajectory: one agent run as OpenAI chat messages, whatever framework recorded it.

Readers (`rrm.readers`) make it; all other code reads only it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator, model_validator

from rrm.data.jsonl import read_lines, strict
from rrm.data.output import write_lines

SCHEMA_VERSION = 1
Role = Literal["system", "developer", "user", "assistant", "tool"]
# fails at the first invalid item: an error for each of millions would take minutes and gigabytes
Objects = Annotated[list[dict[str, Any]], Field(fail_fast=True)]


class ToolCall(BaseModel):
    """One call of a tool. `arguments` stays text where the agent's text is not JSON."""

    model_config = ConfigDict(extra="allow")

    name: str
    arguments: dict[str, Any] | str = Field(default_factory=dict)
    """Parsed arguments, or the raw text where it is no JSON object (a malformed call is evidence)."""
    id: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _accept_openai_nesting(cls, value: Any) -> Any:
        """Accept `{"type": "function", "function": {"name", "arguments"}}` beside the flat form."""
        if isinstance(value, dict) and isinstance(value.get("function"), dict):
            rest = {k: v for k, v in value.items() if k not in ("function", "type")}
            value = {**rest, **value["function"]}
        if isinstance(value, dict) and isinstance(value.get("arguments"), str):
            try:
                parsed = strict(value["arguments"])
            except (ValueError, RecursionError):
                parsed = None
            if isinstance(parsed, dict):
                value = {**value, "arguments": parsed}
        if isinstance(value, dict) and value.get("arguments") is None:
            value = {**value, "arguments": {}}
        return value

    def arguments_text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments, ensure_ascii=False)


class Message(BaseModel):
    """One OpenAI chat message; unknown keys are kept."""

    model_config = ConfigDict(extra="allow")

    role: Role
    content: str | Objects | None = None
    """Text, content parts (`{"type": "text"|"image_url"|…}`), or None for a message that only calls tools."""
    reasoning_content: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(fail_fast=True)] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    timestamp: str | float | None = None  # ISO 8601 or seconds
    duration_s: float | None = None  # of a tool call, on its result

    def text(self) -> str:
        """Join the visible text; a part that is not text becomes `[image]`, `[audio]`, …"""
        if self.content is None:
            return ""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(p["text"] if isinstance(p.get("text"), str) else f"[{_kind(p)}]" for p in self.content)

    def other_parts(self) -> list[str]:
        parts = self.content if isinstance(self.content, list) else []
        return [_kind(content_part) for content_part in parts if not isinstance(content_part.get("text"), str)]


def _kind(content_part: dict[str, Any]) -> str:
    return str(content_part.get("type", "part")).removesuffix("_url")


class Source(BaseModel):
    file: str
    line: int | None = None  # from 1, or item number in a JSON array
    format: str | None = None
    outcome_field: str | None = None  # as a path


class Step(BaseModel):
    """Step k, from 1: an assistant message and the answers to it."""

    index: int
    message_index: int
    message: Message
    observations: list[Message]  # tool results and user turns, in order


class Trajectory(BaseModel):
    """One agent run. Unknown fields are kept in `meta`."""

    schema_version: int = SCHEMA_VERSION
    id: str
    task: str = ""
    """The question's text, as the agent was asked."""
    question_id: str | None = None
    """Groups attempts at the same question; splits go by it."""
    messages: Annotated[list[Message], Field(fail_fast=True)]
    tools: Objects | None = None
    outcome: float | None = None
    """Success in [0, 1] where known. The judge never sees it."""
    meta: dict[str, Any] = Field(default_factory=dict)
    source: Source | None = None
    _own_id: str | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _keep_unknown_fields(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        unknown = {k: v for k, v in value.items() if k not in cls.model_fields}
        if not unknown:
            return value
        fields = {k: v for k, v in value.items() if k in cls.model_fields}
        if not isinstance(value.get("meta") or {}, dict):
            return fields  # the field's own validation says what is wrong with it
        fields["meta"] = {**unknown, **(value.get("meta") or {})}
        return fields

    @field_validator("outcome", mode="before")
    @classmethod
    def _outcome_in_range(cls, value: Any) -> float | None:
        if value is None:
            return None
        if isinstance(value, str):
            raise ValueError(f"outcome must be a number or boolean, got the string {value!r}")
        try:
            number = float(value)
        except (TypeError, OverflowError) as error:
            raise ValueError(f"outcome must be a number or boolean, got {type(value).__name__}: {error}") from error
        if not 0.0 <= number <= 1.0:
            raise ValueError(f"outcome must lie in [0, 1], got {number}")
        return number

    @property
    def own_id(self) -> str:
        """The id in its file; `id` differs where the readers renamed a repeated one (`x#2`)."""
        return self.id if self._own_id is None else self._own_id

    def rename(self, id: str) -> None:
        """Set another id; `own_id` and `meta["original_id"]` keep the first."""
        self.meta.setdefault("original_id", self.id)
        self._own_id, self.id = self.own_id, id

    @property
    def digest(self) -> str:
        """16 hex digits over task, messages and tools; not id, outcome, meta or source."""
        visible = self.model_dump(include={"task", "messages", "tools"}, exclude_none=True)
        return hashlib.sha256(json.dumps(visible, sort_keys=True).encode("ascii")).hexdigest()[:16]

    @property
    def steps(self) -> list[Step]:
        """Assistant messages with their observations, numbered from 1."""
        steps: list[Step] = []
        for i, message in enumerate(self.messages):
            if message.role == "assistant":
                steps.append(Step(index=len(steps) + 1, message_index=i, message=message, observations=[]))
            elif steps:
                steps[-1].observations.append(message)
        return steps

    @property
    def prelude(self) -> list[Message]:
        """The messages before the agent's first one (system prompt, task)."""
        first = next((i for i, m in enumerate(self.messages) if m.role == "assistant"), len(self.messages))
        return self.messages[:first]

    def to_json(self) -> str:
        return json.dumps(self.model_dump(exclude_none=True), ensure_ascii=True)

    @classmethod
    def from_json(cls, line: str) -> Trajectory:
        """Parse `to_json`'s line; raises `pydantic.ValidationError` or `ValueError`."""
        return cls.model_validate(json.loads(line))


def write_jsonl(path: str | Path, trajectories: Iterable[Trajectory]) -> int:
    return write_lines(path, (t.to_json() for t in trajectories))


def read_canonical(path: str | Path) -> Iterator[Trajectory]:
    """Read `write_jsonl`'s file; for other formats use `rrm.readers.read`."""
    return read_lines(path, Trajectory.from_json, "a canonical trajectory")
