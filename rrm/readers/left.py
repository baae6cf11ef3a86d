"""Counts the texts of an item that are lost in reading, and writes the notes at a reading's end.

A text counts where it holds two words or more (an id, a time, a path or a signature is none). It is kept where it stands in the messages,
tools or meta as it is or as the beginning of another, or where nine tenths of its letters belong to words that do: marks of a format
around a text are not content.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers.outcomes import unread

FIELD = "left_behind"
PARENT = "parent"
"""In the meta of a sub-agent's run: what it was started by."""
BESIDE = {
    "taken_back": "messages that were taken back are in no run: they stand beside those",
    "other_conversations": "conversations of traces are in no run: they stand beside those",
}
"""Fields of the meta that hold what was said beside a run, and what is said of them."""
LOST = 0.1
"""Share of a text's letters whose words are lost, from which on it counts as left behind."""
PLACES = 3
_WORD = re.compile(r"\w+")
_MARK = re.compile(r"^[A-Za-z][A-Za-z'’ ]{0,30}+\d{0,4}+:|</?[\w|]{1,40}>", re.MULTILINE)
"""Marks of a format around a text: `Observation 2:`, `Original question:`, `<think>`."""


def left_behind(source: Any, *kept: Any) -> dict[str, Any] | None:
    """`{texts, characters, at}` of the texts in `source` that are not in `kept`, `at` the first places; None where all are.

    Time and memory are linear in both.
    """
    whole = {text for part in kept for _, text in _strings(part)}
    missing = [text for _, text in _strings(source) if _is_text(text) and text not in whole]
    if not missing:
        return None
    words = {word for part in kept for word in _words_of_keys(part)}
    words.update(word for text in whole for piece in _unfolded(text) for word in _WORD.findall(piece.lower()))
    count, characters, lost, ordered = 0, 0, set[str](), sorted(whole)
    for text in missing:
        after = bisect_left(ordered, text)
        if after < len(ordered) and ordered[after].startswith(text):  # it was written on later
            continue
        if (share := _lost(text, words)) >= LOST:
            count, characters = count + 1, characters + round(share * len(text))
            lost.add(text)
    if not count:
        return None
    places = dict.fromkeys(path for path, text in _strings(source, "") if text in lost)
    return {"texts": count, "characters": characters, "at": list(places)[:PLACES]}


SAYS = ("content", "reasoning_content", "tool_calls")


def come_out_empty(messages: list[dict[str, Any]]) -> bool:
    """Whether no message says, thinks or calls anything, or none of the agent's does while a field that nobody reads holds text."""
    agents = [m for m in messages if m["role"] == "assistant"]
    if not any(m.get(key) for m in messages for key in SAYS):
        return True
    silent = agents and not any(m.get(key) for m in agents for key in SAYS)
    return bool(silent) and any(_is_text(text) for m in agents for _, text in _strings(m))


def _is_text(text: str) -> bool:
    return len(text.split(None, 1)) == 2


def _lost(text: str, words: set[str]) -> float:
    """The share of a text's letters whose words are not among those that are kept."""
    pieces = (_MARK.sub(" ", piece) for piece in _unfolded(text) if _is_text(piece))
    found = [w for piece in pieces for w in _WORD.findall(piece.lower())]
    total = sum(map(len, found))
    return sum(len(w) for w in found if w not in words) / total if total else 0.0


def _unfolded(text: str) -> Iterator[str]:
    """The strings in a text that is JSON; any other text itself."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            yield from (found for _, found in _strings(value))
            return
    yield text


def _strings(value: Any, path: str | None = None) -> Iterator[tuple[str, str]]:
    """(place, text) of every string in a value but its keys; places are named only where a path is given (`""`: of the whole)."""
    stack = [(path, value)]
    while stack:
        at, one = stack.pop()
        if isinstance(one, str):
            yield at or ".", one
        elif isinstance(one, dict):
            stack += [(None if at is None else f"{at}.{k}".lstrip("."), v) for k, v in reversed(one.items())]
        elif isinstance(one, list):
            stack += [(None if at is None else f"{at}[]", v) for v in reversed(one)]


def _words_of_keys(value: Any) -> Iterator[str]:
    """The words of every key and number: a text may hold an object's JSON."""
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            yield from (word for key in one for word in _WORD.findall(str(key).lower()))
            stack.extend(one.values())
        elif isinstance(one, list):
            stack.extend(one)
        elif not isinstance(one, str):
            yield from _WORD.findall(json.dumps(one))


def beside(trajectory: Trajectory) -> dict[str, int]:
    """What was said beside a run: the fields of `BESIDE` that its meta has → how many each holds."""
    return {name: len(held) for name in BESIDE if isinstance(held := trajectory.meta.get(name), list) and held}


class Notes:
    """Notes at a reading's end: texts left behind by format, what stands beside runs, sub-agents, and rewards beside which a grader broke."""

    def __init__(self) -> None:
        self.left: dict[str, Counter[str]] = {}
        self._first: dict[str, str] = {}
        self.subagents = self.unscored = 0
        self._beside = {name: Counter[str]() for name in BESIDE}
        self._marks = Counter[str]()
        """Field -> runs without an outcome in which it holds a number that is no label."""
        self._mark: dict[str, str] = {}
        """Field -> the first of them."""

    def add(self, trajectory: Trajectory) -> None:
        """Count one run."""
        self.subagents += PARENT in trajectory.meta
        self.unscored += bool(trajectory.meta.get("unscored"))
        for name, n in beside(trajectory).items():
            self._beside[name].update(runs=1, held=n)
        found, source = trajectory.meta.get(FIELD), trajectory.source
        if trajectory.outcome is None and (mark := unread(trajectory.meta)) is not None:
            self._marks[mark[0]] += 1
            self._mark.setdefault(mark[0], f"{str(mark[1])[:40]!r} of {trajectory.id}")
        if isinstance(found, dict) and source is not None and source.format != "canonical":
            name = source.format or "unknown"
            counts = self.left.setdefault(name, Counter())
            counts.update(runs=1, texts=found["texts"], characters=found["characters"])
            self._first.setdefault(name, f"{source.file}{f':{source.line}' if source.line else ''} at {found['at'][0]}")

    def lines(self) -> Iterator[str]:
        """One sentence each."""
        for name, n in self.left.items():
            yield (
                f"format {name}: {n['texts']:,} texts ({n['characters']:,} characters) of {n['runs']:,} runs stand in no message and no field "
                f"of what was read (`meta.{FIELD}`); the first: {self._first[name]}"
            )
        for name, n in self._beside.items():
            if n:
                yield f"{n['held']:,} {BESIDE[name]} of {n['runs']:,} runs (`meta.{name}`)"
        if self.subagents:
            yield f"{self.subagents:,} runs are sub-agents' (`meta.{PARENT}` names what started them)"
        for name, n in self._marks.items():
            yield (
                f"`{name}` holds a number that is no label in [0, 1] in {n:,} runs, which have no outcome; the first: {self._mark[name]}"
            )
        if self.unscored:
            yield f"{self.unscored:,} runs record that a grader or their surroundings broke beside a reward: they were not scored, and have no outcome"
