"""Text of others as a console or a log can hold it: what a line holds, and what was wrong with one."""

from __future__ import annotations

from pydantic import ValidationError


def describe(error: ValueError | RecursionError | TypeError) -> str:
    """One printable sentence for an error record."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        text = f"{where}: {first['msg']}" if where else first["msg"]
    elif isinstance(error, RecursionError):
        text = "nested too deeply to be a transcript"
    else:
        text = str(error)
    return printable(text)


def printable(text: str, limit: int = 500) -> str:
    """Text that any console or log can hold: control characters and lone surrogates escaped, one line, bounded."""
    words = " ".join(text[: 2 * limit].split())
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in words)
    return text if len(text) <= limit else text[: limit - 1] + "…"
