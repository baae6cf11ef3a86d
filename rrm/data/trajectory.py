"""The canonical Trajectory: one agent run as OpenAI chat messages, whatever framework recorded it.

Everything else in this package reads Trajectory and nothing else. Readers (`rrm.readers`) make it; a step is a derived
view, never stored.
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
Objects = Annotated[list[dict[str, Any]], Field(fail_fast=True)]
"""The first that is none is told: an error for each would take minutes and gigabytes of a file that holds millions."""


class ToolCall(BaseModel):
    """One call the agent asked for. `arguments` stays text when the agent wrote something that is not JSON."""

    model_config = ConfigDict(extra="allow")

    name: str
    arguments: dict[str, Any] | str = Field(default_factory=dict)
    """Parsed arguments, or the raw text where it does not parse as a JSON object (a malformed call is evidence); NaN is no JSON."""
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
        """The arguments as the agent's text: JSON for a dict, the raw string otherwise."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments, ensure_ascii=False)


class Message(BaseModel):
    """One OpenAI chat message; unknown keys are kept (they travel through a round trip unchanged)."""

    model_config = ConfigDict(extra="allow")

    role: Role
    content: str | Objects | None = None
    """Text, or content parts (`{"type": "text"|"image_url"|…}`), or None for a message that only calls tools."""
    reasoning_content: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(fail_fast=True)] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    timestamp: str | float | None = None
    """When the message was made (ISO 8601 or seconds): the audit trail."""
    duration_s: float | None = None
    """Seconds a tool call took, on tool results."""

    def text(self) -> str:
        """The message's visible text; parts are joined, a part that is not text becomes `[image]`, `[audio]`, …"""
        if self.content is None:
            return ""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(p["text"] if isinstance(p.get("text"), str) else f"[{_kind(p)}]" for p in self.content)

    def other_parts(self) -> list[str]:
        """The kinds of the parts that are no text, as `text` names them in brackets."""
        parts = self.content if isinstance(self.content, list) else []
        return [_kind(part) for part in parts if not isinstance(part.get("text"), str)]


def _kind(part: dict[str, Any]) -> str:
    return str(part.get("type", "part")).removesuffix("_url")


class Source(BaseModel):
    """Where a trajectory came from."""

    file: str
    line: int | None = None
    """1-based line, or item number in a JSON array."""
    format: str | None = None
    outcome_field: str | None = None
    """The field that the outcome was read from, as a path in the record."""


class Step(BaseModel):
    """Step k: one assistant message and what answered it (k counts from 1)."""

    index: int
    message_index: int
    """Index of the assistant message in `Trajectory.messages`."""
    message: Message
    observations: list[Message]
    """Tool results, and user turns that answer this message, in order."""


class Trajectory(BaseModel):
    """One agent run. Fields nobody knows are kept in `meta`, so reading loses nothing."""

    schema_version: int = SCHEMA_VERSION
    id: str
    task: str = ""
    """The question's text, as the agent was asked."""
    question_id: str | None = None
    """Groups attempts at the same question; splits are made by it, never by row."""
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
        kept = {k: v for k, v in value.items() if k in cls.model_fields}
        if not isinstance(value.get("meta") or {}, dict):
            return kept  # the field's own validation says what is wrong with it
        kept["meta"] = {**unknown, **(value.get("meta") or {})}
        return kept

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
        """The id its file gives it; `id` differs where the readers renamed a repeated one (`x#2`, by order of reading)."""
        return self.id if self._own_id is None else self._own_id

    def rename(self, id: str) -> None:
        """Give it another id, as the readers do to a repeated one; `own_id` and `meta["original_id"]` keep the first."""
        self.meta.setdefault("original_id", self.id)
        self._own_id, self.id = self.own_id, id

    @property
    def digest(self) -> str:
        """16 hex digits over what a judge may see: task, messages and tools; not id, outcome, meta or source."""
        seen = self.model_dump(include={"task", "messages", "tools"}, exclude_none=True)
        return hashlib.sha256(json.dumps(seen, sort_keys=True).encode("ascii")).hexdigest()[:16]

    @property
    def steps(self) -> list[Step]:
        """The derived view: assistant messages with their observations, numbered from 1."""
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
        """One ASCII-only line of JSON (lone surrogates survive as escapes)."""
        return json.dumps(self.model_dump(exclude_none=True), ensure_ascii=True)

    @classmethod
    def from_json(cls, line: str) -> Trajectory:
        """The inverse of `to_json`; raises `pydantic.ValidationError` or `ValueError` on a bad line."""
        return cls.model_validate(json.loads(line))


def write_jsonl(path: str | Path, trajectories: Iterable[Trajectory]) -> int:
    """Write one canonical line a trajectory; returns how many were written."""
    return write_lines(path, (t.to_json() for t in trajectories))


def read_canonical(path: str | Path) -> Iterator[Trajectory]:
    """Read what `write_jsonl` wrote. For any other format use `rrm.readers.read`.

    Raises:
        ReadError: as `rrm.data.jsonl.read_lines`.
    """
    return read_lines(path, Trajectory.from_json, "a canonical trajectory")
