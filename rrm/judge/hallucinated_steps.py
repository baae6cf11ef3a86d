"""Cut text about steps that the run does not have, and name these steps in the row."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from rrm.data.verdicts import anchors, named_steps, read_findings

_TRACE_LINE = re.compile(r"^[ \t*_>•-]*\[[ \t]*step[ \t]+#?(\d{1,6})[ \t]*\]", re.IGNORECASE | re.MULTILINE)
_PARAGRAPH = re.compile(r"[^\n]*(?:\n[ \t]+\S[^\n]*)*\n?")  # a line and the indented ones under it


def cut_from_critique(critique: str, n_steps: int) -> tuple[str, set[int]]:
    """Return the critique without lines about missing steps, and these steps."""
    gone, findings = set[int](), _steps_found(critique, n_steps)
    while True:  # what is an anchor depends on the others: without the bracketed ones `Step 7:` heads a part
        places = anchors(critique)
        cut, more = _cut(critique, places, lambda listed: bool(named_steps(listed, n_steps)))
        if not more:
            return critique, gone
        left = iter(_steps_found(cut, n_steps))
        if not all(
            step in left for step in findings
        ):  # prose under what was cut would run on behind another step's verdict
            cut, _ = _cut(critique, places, lambda listed: bool(named_steps(listed, n_steps)), to_next=True)
        critique, gone = cut, gone | more


def cut_from_trace(trace: str, n_steps: int) -> tuple[str, set[int]]:
    """Cut `[step k]` lines of missing steps; prose ("Step 5: conclude") stays, as it is thought."""
    return _cut(trace, _trace_lines(trace), lambda listed: bool(named_steps(listed, n_steps)))


def only_critique(critique: str, n_steps: int, steps: Collection[int]) -> str:
    """Return the critique without parts about other steps of the run; missing steps' parts stay."""
    return _cut(critique, anchors(critique), lambda listed: _about(listed, n_steps, steps))[0]


def only_trace(trace: str, n_steps: int, steps: Collection[int]) -> str:
    return _cut(trace, _trace_lines(trace), lambda listed: _about(listed, n_steps, steps))[0]


def _about(listed: str, n_steps: int, steps: Collection[int]) -> bool:
    named = named_steps(listed, n_steps)
    return not named or any(k in steps for k in named)


def _trace_lines(trace: str) -> list[tuple[int, str]]:
    return [(m.start(), m[1]) for m in _TRACE_LINE.finditer(trace)]


def _steps_found(critique: str, n_steps: int) -> list[int]:
    return [finding.step for finding in read_findings(critique, n_steps)]


def _cut(
    text: str, places: list[tuple[int, str]], stays: Callable[[str], bool], *, to_next: bool = False
) -> tuple[str, set[int]]:
    """Cut text from each anchor whose steps do not stay, within (`to_next`: up to) the next anchor."""
    pieces, position, gone = [], 0, set[int]()
    for i, (start, listed) in enumerate(places):
        stop = places[i + 1][0] if i + 1 < len(places) else len(text)
        if not stays(listed):
            match = None if to_next else _PARAGRAPH.match(text, start, stop)
            pieces.append(text[position:start])
            position = match.end() if match else stop
            gone |= {int(k) for k in re.findall(r"\d+", listed)}
    return ("".join([*pieces, text[position:]]).strip(), gone) if gone else (text, gone)


def cut_notice(gone: set[int]) -> str | None:
    if not gone:
        return None
    named = ", ".join(map(str, sorted(gone)[:5])) + (", …" if len(gone) > 5 else "")
    return f"the judge spoke of steps that the run does not have, and these lines were cut: {named}"
