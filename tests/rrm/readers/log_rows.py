"""What the tests of agents' logs share: one task as every format holds it, and a run as rows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers import read, read_value

SAMPLES = Path(__file__).parent / "samples"


WIDER = [
    ("user", "Which is wider, the door or the gate?", "", []),
    ("assistant", "Both widths are needed.", "", [("width", "door", "c1"), ("width", "gate", "c2")]),
    ("tool", "the door is 4 feet wide", "c1", []),
    ("tool", "no gate is known, only a gateway", "c2 failed", []),
    ("assistant", "The gate is called gateway.", "", [("width", "gateway", "c3")]),
    ("tool", "the gateway is 7 feet wide", "c3", []),
    ("assistant", "The gateway is wider than the door.", "", []),
]
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


def lines(tmp_path: Path, values: Iterable[Any]) -> list[Trajectory]:
    """The runs of a file of lines."""
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, values)))
    return list(read(tmp_path / "log.jsonl"))
