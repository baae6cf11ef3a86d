"""Steps that a judge speaks of and the run does not have: what is said of them is cut, and the row says so.

A trace or critique goes on to people, to training labels and into an agent's prompt; a finding about step 5 of a run of two
steps is made up.
"""

from __future__ import annotations

import re

from rrm.verdicts import anchors, named_steps

_TRACE_LINE = re.compile(r"^[ \t*_>•-]*\[[ \t]*step[ \t]+#?(\d{1,6})[ \t]*\]", re.IGNORECASE | re.MULTILINE)
_SAID = re.compile(r"[^\n]*(?:\n[ \t]+\S[^\n]*)*\n?")
"""A line and the indented ones under it."""


def cut_from_critique(critique: str, n_steps: int) -> tuple[str, set[int]]:
    """The critique without the lines about steps that do not exist, and which steps these were."""
    gone = set[int]()
    while True:  # what is an anchor depends on the others: without the bracketed ones `Step 7:` heads a part
        critique, more = _cut(critique, anchors(critique), n_steps)
        if not more:
            return critique, gone
        gone |= more


def cut_from_trace(trace: str, n_steps: int) -> tuple[str, set[int]]:
    """The trace without its `[step k]` lines of steps that do not exist; prose ("Step 5: conclude") stays, it is thought."""
    return _cut(trace, [(m.start(), m[1]) for m in _TRACE_LINE.finditer(trace)], n_steps)


def _cut(text: str, places: list[tuple[int, str]], n_steps: int) -> tuple[str, set[int]]:
    """Cut from each anchor that names no step of the run to the end of what it says, at most to the next anchor."""
    kept, at, gone = [], 0, set[int]()
    for i, (start, listed) in enumerate(places):
        stop = places[i + 1][0] if i + 1 < len(places) else len(text)
        if not named_steps(listed, n_steps):
            said = _SAID.match(text, start, stop)
            kept.append(text[at:start])
            at = said.end() if said else stop
            gone |= {int(k) for k in re.findall(r"\d+", listed)}
    return ("".join([*kept, text[at:]]).strip(), gone) if gone else (text, gone)


def said_of(gone: set[int]) -> str | None:
    """What the row says of the steps that were cut; None where none was."""
    if not gone:
        return None
    named = ", ".join(map(str, sorted(gone)[:5])) + (", …" if len(gone) > 5 else "")
    return f"the judge spoke of steps that the run does not have, and these lines were cut: {named}"
