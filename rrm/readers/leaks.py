"""Find and cut the environment's verdicts, which a judge would learn to read instead of judging."""

from __future__ import annotations

import re
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers.chat import text_of

VERDICT = re.compile(
    r"\byour (?:final )?(?:answer|solution|submission) (?:is|was) (?:wrong|incorrect|correct|right)\b"
    r"|^[^\w\n]*+(?:observation ?\d{0,6}:)?[^\S\n]*+(?:answer|solution) is (?:in)?correct\b[^\w\n]*+$"
    r"|\breward ?[=:] ?(?:true\b|false\b|-?\d)"
    r"|\bepisode (?:finished|ended)\b.{0,40}\b(?:success|fail)"
    r"|\btask (?:was )?(?:completed successfully|failed|succeeded)\b"
    r"|\byour score\b.{0,40}\d",
    re.IGNORECASE | re.MULTILINE,
)
"""Verdicts that environments write: MINT ("Your answer is wrong."), fireact ("reward = True"), knowagent ("Answer is CORRECT"), …"""


_GOOD = re.compile(r"\b(?:correct|right|true|success\w*|succeeded)\b|[=:] ?1(?:\.0*)?(?![.\d])", re.IGNORECASE)
_BAD = re.compile(r"\b(?:incorrect|wrong|false|fail\w*)\b|[=:] ?0(?:\.0*)?(?![.\d])", re.IGNORECASE)
_SENTENCE = re.compile(r"\n|[.!?]\s+")
_LABEL_ONLY = re.compile(r"\W*+(?:observation ?\d*+:\W*+)?+", re.IGNORECASE)


def reveals_verdict(text: str) -> bool:
    """Return whether the text states how the run was graded."""
    return VERDICT.search(text) is not None


def outcome_leaks(messages: list[dict[str, Any]]) -> list[int]:
    """Return indices of tool and user messages after the agent's first that reveal the verdict."""
    indices: list[int] = []
    started = False
    for i, message in enumerate(messages):
        if message["role"] == "assistant":
            started = True
        elif started and message["role"] in ("tool", "user") and reveals_verdict(text_of(message.get("content"))):
            indices.append(i)
    return indices


def cut_verdicts(trajectory: Trajectory) -> Trajectory:
    """Cut the transcript before the environment's first verdict; without one return the same trajectory.

    The message's text before the verdict stays. The outcome is the uncut run's: where the agent went on after the verdict
    and that disagrees with it (told it was wrong, it succeeded later), the outcome of the cut run is unknown, and the
    uncut run's is kept in `meta["whole_outcome"]`. `meta["cut_at"]` is the index of the message that was cut.
    """
    messages = trajectory.messages
    first = next((i for i, m in enumerate(messages) if m.role == "assistant"), len(messages))
    heard = range(first + 1, len(messages))
    cut = next((i for i in heard if messages[i].role in ("tool", "user") and reveals_verdict(messages[i].text())), None)
    if cut is None:
        return trajectory
    before, verdict = _split(messages[cut].text())
    remaining = messages[:cut]
    if isinstance(messages[cut].content, str) and not _LABEL_ONLY.fullmatch(before):
        remaining = [*remaining, messages[cut].model_copy(update={"content": before})]
    meta = {k: v for k, v in trajectory.meta.items() if k != "outcome_leaks"} | {"cut_at": cut}
    outcome = trajectory.outcome
    went_on = any(m.role == "assistant" for m in messages[cut + 1 :])
    if outcome is not None and went_on and _grade(verdict) != outcome:
        meta["whole_outcome"], outcome = outcome, None
    return trajectory.model_copy(update={"messages": remaining, "meta": meta, "outcome": outcome})


def _split(text: str) -> tuple[str, str]:
    """Split before the sentence of the first verdict: (text before, verdict with its whole number)."""
    match = VERDICT.search(text)
    if match is None:
        return text, ""
    end = re.compile(r"[\d.]*").match(text, match.end())
    sentences = [m.end() for m in _SENTENCE.finditer(text, 0, match.start())]
    return text[: sentences[-1] if sentences else 0].rstrip(), text[match.start() : end.end() if end else match.end()]


def _grade(verdict: str) -> float | None:
    """Return 1 or 0 where a verdict says right or wrong in so many words, else None."""
    good, bad = _GOOD.search(verdict) is not None, _BAD.search(verdict) is not None
    return None if good == bad else float(good)
