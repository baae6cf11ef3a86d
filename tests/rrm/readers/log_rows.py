"""What the tests of agents' logs share: one task as every format holds it, and a run as rows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers import read, read_value

SAMPLES = Path(__file__).parent / "samples"


WIDER = [
    ("user", "Which is wider, the door or the gate?", "", []),
    ("assistant", "Both widths are needed.", "", [("width", "door", "c1"), ("width", "gate", "c2")]),
    ("tool", "the door is 4 feet wide", "c1", []), ("tool", "no gate is known, only a gateway", "c2 failed", []),
    ("assistant", "The gate is called gateway.", "", [("width", "gateway", "c3")]),
    ("tool", "the gateway is 7 feet wide", "c3", []), ("assistant", "The gateway is wider than the door.", "", []),
]  # fmt: skip
"""The task of most samples: role, text or thought, a result's call and whether it failed, calls."""


def rows(trajectory: Trajectory) -> list[tuple[Any, ...]]:
    """The messages in the form of `WIDER`; system messages are left out."""
    found = list[tuple[Any, ...]]()
    for message in trajectory.messages:
        calls = [
            (c.name, next(iter(c.arguments.values()), "") if isinstance(c.arguments, dict) else "", c.id)
            for c in message.tool_calls or []
        ]
        failed = " failed" if message.model_dump().get("is_error") else ""
        if message.role != "system":
            said = message.reasoning_content or message.text()
            found.append((message.role, said, (message.tool_call_id or "") + failed, calls))
    return found


def one(value: Any, **options: Any) -> Trajectory:
    """The only run in a value."""
    (found,) = read_value(value, "x", **options)
    assert isinstance(found, Trajectory), found
    return found


def in_file(path: Path, value: Any, **options: Any) -> Trajectory:
    """The only run of a file of this JSON, which survives its own JSON."""
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    (found,) = read(path, **options)
    assert Trajectory.from_json(found.to_json()) == found
    return found


def lines(tmp_path: Path, values: Iterable[Any]) -> list[Trajectory]:
    """The runs of a file of lines."""
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, values)))
    return list(read(tmp_path / "log.jsonl"))


def read_text(path: Path, text: str, **options: Any) -> tuple[list[Trajectory], list[ReadError]]:
    """The runs and the errors of a file of this text."""
    errors: list[ReadError] = []
    path.write_text(text)
    return list(read(path, on_error=errors.append, **options)), errors


def read_lines(path: Path, *values: Any, **options: Any) -> tuple[list[Trajectory], list[ReadError]]:
    """The runs and the errors of a file with a line for each value."""
    return read_text(path, "".join(json.dumps(value) + "\n" for value in values), **options)


def talk(*texts: Any) -> list[dict[str, Any]]:
    """Messages of a user and an assistant in turn."""
    return [{"role": ("user", "assistant")[k % 2], "content": text} for k, text in enumerate(texts)]


def sent(trajectory: Trajectory) -> list[dict[str, Any]]:
    return [m.model_dump(exclude_none=True) for m in trajectory.messages]


def turns(trajectory: Trajectory) -> list[tuple[str, Any]]:
    return [(m.role, m.content) for m in trajectory.messages]
