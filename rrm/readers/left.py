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
"""Field of a sub-agent's meta: its starter."""
BESIDE = {
    "taken_back": "messages that were taken back are in no run: they stand beside those",
    "other_conversations": "conversations of traces are in no run: they stand beside those",
}
"""Fields of the meta with messages beside a run, and their notes."""
LOST = 0.1
"""Share of a text's letters in lost words from which it counts as left behind."""
PLACES = 3
_WORD = re.compile(r"\w+")
_MARK = re.compile(r"^[A-Za-z][A-Za-z'’ ]{0,30}+\d{0,4}+:|</?[\w|]{1,40}>", re.MULTILINE)
"""Marks of a format around a text: `Observation 2:`, `Original question:`, `<think>`."""


def left_behind(source: Any, *outputs: Any) -> dict[str, Any] | None:
    """Count texts in `source` missing from `outputs`: `{texts, characters, at (first places)}` or None.

    Time and memory are linear in both.
    """
    texts = {text for output in outputs for _, text in _strings(output)}
    missing = [text for _, text in _strings(source) if _is_text(text) and text not in texts]
    if not missing:
        return None
    words = {word for output in outputs for word in _words_of_keys(output)}
    words.update(word for text in texts for piece in _unfolded(text) for word in _WORD.findall(piece.lower()))
    count, characters, lost, ordered = 0, 0, set[str](), sorted(texts)
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
    """Return whether no message says anything, or no agent's does while its other fields hold text."""
    agents = [m for m in messages if m["role"] == "assistant"]
    if not any(m.get(key) for m in messages for key in SAYS):
        return True
    silent = agents and not any(m.get(key) for m in agents for key in SAYS)
    return bool(silent) and any(_is_text(text) for m in agents for _, text in _strings(m))


def _is_text(text: str) -> bool:
    return len(text.split(None, 1)) == 2


def _lost(text: str, words: set[str]) -> float:
    """Return the share of a text's letters whose words are not kept."""
    pieces = (_MARK.sub(" ", piece) for piece in _unfolded(text) if _is_text(piece))
    tokens = [w for piece in pieces for w in _WORD.findall(piece.lower())]
    total = sum(map(len, tokens))
    return sum(len(w) for w in tokens if w not in words) / total if total else 0.0


def _unfolded(text: str) -> Iterator[str]:
    """Yield the strings of a text that is JSON; any other text itself."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            yield from (string for _, string in _strings(value))
            return
    yield text


def _strings(value: Any, path: str | None = None) -> Iterator[tuple[str, str]]:
    """Yield (path, text) of every string but keys; paths only where one is given (`""`: the root)."""
    stack = [(path, value)]
    while stack:
        where, node = stack.pop()
        if isinstance(node, str):
            yield where or ".", node
        elif isinstance(node, dict):
            stack += [(None if where is None else f"{where}.{k}".lstrip("."), v) for k, v in reversed(node.items())]
        elif isinstance(node, list):
            stack += [(None if where is None else f"{where}[]", v) for v in reversed(node)]


def _words_of_keys(value: Any) -> Iterator[str]:
    """Yield the words of every key and number: a text may hold an object's JSON."""
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            yield from (word for key in node for word in _WORD.findall(str(key).lower()))
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
        elif not isinstance(node, str):
            yield from _WORD.findall(json.dumps(node))


def beside(trajectory: Trajectory) -> dict[str, int]:
    """Count the messages beside a run: fields of `BESIDE` in its meta → number of entries."""
    return {name: len(entries) for name in BESIDE if isinstance(entries := trajectory.meta.get(name), list) and entries}


class Notes:
    """Collects notes for a reading's end: lost texts, messages beside runs, sub-agents, broken graders."""

    def __init__(self) -> None:
        self.left: dict[str, Counter[str]] = {}
        self._first: dict[str, str] = {}
        self.subagents = self.unscored = 0
        self._beside = {name: Counter[str]() for name in BESIDE}
        self._marks = Counter[str]()
        """Field -> runs without an outcome whose number in it is no label."""
        self._mark: dict[str, str] = {}
        """Field -> the first of them."""

    def add(self, trajectory: Trajectory) -> None:
        self.subagents += PARENT in trajectory.meta
        self.unscored += bool(trajectory.meta.get("unscored"))
        for name, n in beside(trajectory).items():
            self._beside[name].update(runs=1, held=n)
        left, source = trajectory.meta.get(FIELD), trajectory.source
        if trajectory.outcome is None and (mark := unread(trajectory.meta)) is not None:
            self._marks[mark[0]] += 1
            self._mark.setdefault(mark[0], f"{str(mark[1])[:40]!r} of {trajectory.id}")
        if isinstance(left, dict) and source is not None and source.format != "canonical":
            name = source.format or "unknown"
            counts = self.left.setdefault(name, Counter())
            counts.update(runs=1, texts=left["texts"], characters=left["characters"])
            self._first.setdefault(name, f"{source.file}{f':{source.line}' if source.line else ''} at {left['at'][0]}")

    def lines(self) -> Iterator[str]:
        """Yield one sentence per note."""
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
