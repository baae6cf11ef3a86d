"""Parse JSON text into values that can be written back, and arrow values into plain JSON."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

from rrm.data.jsonl import DECODER
from rrm.readers.base import printable

MAX_DEPTH = 100  # containers inside containers; deeper values cannot be written back


def decode(data: bytes) -> str:
    """Decode UTF-8 (lone surrogates accepted); `ValueError` names the first byte that is not."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            i = error.start
            raise ValueError(f"not UTF-8: byte {i + 1} is 0x{data[i]:02x}; convert the file to UTF-8") from error


def parse_json(text: str) -> Any:
    """Parse one JSON value; `ValueError` where it is none, is followed by more, or is nested too deeply."""
    try:
        value = DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(json_problem(error)) from error
    check_depth(value)
    return value


def json_problem(error: json.JSONDecodeError, first: int = 1) -> str:
    """Describe what is wrong with a text that begins on line `first`, and where."""
    line = error.lineno + first - 1
    where = f"line {line} column {error.colno}" if line > 1 else f"column {error.colno}"
    near = printable(error.doc[error.pos : error.pos + 30])
    return f"not JSON: {error.msg} at {where}" + (f", before {near!r}" if near else ": it ends there (cut off?)")


def check_depth(value: Any) -> None:
    """Raise `ValueError` where containers are nested deeper than `MAX_DEPTH` (without recursion)."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"nested more than {MAX_DEPTH} levels deep: not a transcript")
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())
            if isinstance(child, dict | list)
        ]


def plain(value: Any) -> Any:
    """Convert an arrow value to JSON: no empty fields, times as ISO text, bytes as base64, NaN as text."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
