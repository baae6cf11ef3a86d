"""JSON whose numbers are numbers: Python reads and writes NaN and Infinity, which are no JSON and which other readers refuse."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn


def _float(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


def _refused(text: str) -> NoReturn:
    raise ValueError(f"{text[:20]} is no JSON number")


def _finite(text: str) -> float:
    return number if math.isfinite(number := float(text)) else _refused(text)


DECODER = json.JSONDecoder(parse_constant=str, parse_float=_float)
"""NaN, Infinity and numbers beyond a double are kept as text: they are not JSON and would poison what we write."""
_STRICT = json.JSONDecoder(parse_constant=_refused, parse_float=_finite)


def strict(text: str) -> Any:
    """One JSON value; `ValueError` where it is none, or holds NaN, Infinity or a number beyond a double."""
    return _STRICT.decode(text)
