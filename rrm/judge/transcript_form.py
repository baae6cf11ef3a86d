"""Counts of a transcript's form (`rrm.judge.domain`): its log, its canonical steps, its words."""

from __future__ import annotations

import re
from collections import Counter

from rrm.data.text import STOP_WORDS
from rrm.data.trajectory import Message, Trajectory
from rrm.prompt.canonical import canonical_step

_CHARACTERS, _LINES, _TAGS = 20_000, 200, 200  # of a message that are examined
_ROLES = {"tool": "o", "user": "u", "system": "s", "developer": "s", "assistant": "a"}
_WORD = re.compile(r"[^\W\d_]+")
_LATIN = "\u024f"  # last letter of the Latin blocks
_MARK = re.compile(r"[^\W\d_]{1,24}|\d+|[^\w\s]")
_TAG = re.compile(r"</?\w{1,24}>?")


def features(trajectory: Trajectory) -> Counter[str]:
    """Count elements of form, in time linear in the messages and bounded for each."""
    counts: Counter[str] = Counter()
    roles = "^" + "".join(_ROLES[m.role] for m in trajectory.messages) + "$"
    counts.update(f"turns:{roles[i : i + 3]}" for i in range(len(roles) - 2))
    for message in trajectory.messages:
        _add_message(counts, message)
    return counts


def _add_message(counts: Counter[str], message: Message) -> None:
    role = _ROLES[message.role]
    if message.reasoning_content:
        counts[f"{role}:reasoning"] += 1
    if message.name:
        counts[f"{role}:name:{message.name[:60]}"] += 1
    for call in message.tool_calls or []:
        name = call.name[:60]
        counts[f"call:{name}"] += 1
        if isinstance(call.arguments, dict):
            counts.update(f"argument:{name}.{key[:20]}" for key in call.arguments)
    full = message.text()
    text = full[:_CHARACTERS]
    lines = [line for line in text.split("\n") if line.strip()]
    for line in lines[:_LINES]:
        marks = _MARK.findall(line[:60].lower())[:2]
        counts[f"{role}:line:" + " ".join("0" if mark.isdigit() else mark for mark in marks)] += 1
    counts.update(f"{role}:tag:{tag}" for tag in _TAG.findall(text)[:_TAGS])
    counts[f"{role}:lines:{min(len(lines), 50).bit_length()}"] += 1
    counts[f"{role}:characters:{len(full).bit_length()}"] += 1


def step_features(trajectory: Trajectory) -> Counter[str]:
    """Count shapes of canonical steps (prompt version 3): parts, lengths and language, no words."""
    counts: Counter[str] = Counter()
    before, texts = "^", [trajectory.task]
    steps = [canonical_step(step) for step in trajectory.steps]
    for step in steps:
        returned = "".join(sorted({label[0] for label, _ in step.returns}))
        shape = "t" * bool(step.thought) + "c" * min(len(step.calls), 3) + "a" * (step.answer is not None) + returned
        counts.update((f"step:{shape}", f"steps:{before}>{shape}"))
        before = shape
        sizes = {"thought": len(step.thought), "call": sum(len(call.text) for call in step.calls)}
        sizes["return"] = sum(len(text) for _, text in step.returns)
        counts.update(f"{name}:{size.bit_length() // 2}" for name, size in sizes.items())
        texts += [step.thought, *(text for _, text in step.returns)]
    joined = " ".join(texts)[:_CHARACTERS].lower()
    words = _WORD.findall(joined)
    english = sum(word in STOP_WORDS for word in words) / max(len(words), 1)
    foreign = sum(c.isalpha() and c > _LATIN for c in joined) / max(len(joined), 1)
    for name in (
        f"english:{min(int(10 * english), 4)}",
        f"foreign:{min(int(20 * foreign), 4)}",
        f"length:{len(steps).bit_length()}",
    ):
        counts[name] += max(len(steps), 1)
    return counts


def words_of(trajectory: Trajectory) -> Counter[str]:
    """Count lower-case words of the agent and to it, without tool results."""
    texts = [trajectory.task]
    for step in map(canonical_step, trajectory.steps):
        texts += [step.thought, step.answer or "", *(text for label, text in step.returns if label == "user")]
    return Counter(_WORD.findall(" ".join(texts)[:_CHARACTERS].lower()))
