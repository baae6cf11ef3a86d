"""Text in which the environment tells the verdict: a judge trained on it learns to read, not to judge."""

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
"""MINT ("Your answer is wrong."), fireact ("Episode finished, reward = True"), knowagent ("Answer is CORRECT"), …"""


_GOOD = re.compile(r"\b(?:correct|right|true|success\w*|succeeded)\b|[=:] ?1(?:\.0*)?(?![.\d])", re.IGNORECASE)
_BAD = re.compile(r"\b(?:incorrect|wrong|false|fail\w*)\b|[=:] ?0(?:\.0*)?(?![.\d])", re.IGNORECASE)
_SENTENCE = re.compile(r"\n|[.!?]\s+")
_LABEL_ONLY = re.compile(r"\W*+(?:observation ?\d*+:\W*+)?+", re.IGNORECASE)


def reveals_verdict(text: str) -> bool:
    """Whether the text states how the run was graded."""
    return VERDICT.search(text) is not None


def outcome_leaks(messages: list[dict[str, Any]]) -> list[int]:
    """Indices of the tool and user messages after the agent's first that reveal the verdict."""
    found: list[int] = []
    started = False
    for i, message in enumerate(messages):
        if message["role"] == "assistant":
            started = True
        elif started and message["role"] in ("tool", "user") and reveals_verdict(text_of(message.get("content"))):
            found.append(i)
    return found


def cut_verdicts(trajectory: Trajectory) -> Trajectory:
    """The transcript up to the first verdict of the environment, without it; the very trajectory where there is none.

    What the message said before the verdict stays. The outcome is the whole run's: where the agent went on after the verdict
    and that does not agree with it (told it was wrong, it succeeded later), the outcome of the cut run is unknown, and the
    whole run's is kept in `meta["whole_outcome"]`. `meta["cut_at"]` is the index of the message that was cut.
    """
    messages = trajectory.messages
    first = next((i for i, m in enumerate(messages) if m.role == "assistant"), len(messages))
    heard = range(first + 1, len(messages))
    at = next((i for i in heard if messages[i].role in ("tool", "user") and reveals_verdict(messages[i].text())), None)
    if at is None:
        return trajectory
    before, said = _split(messages[at].text())
    kept = messages[:at]
    if isinstance(messages[at].content, str) and not _LABEL_ONLY.fullmatch(before):
        kept = [*kept, messages[at].model_copy(update={"content": before})]
    meta = {k: v for k, v in trajectory.meta.items() if k != "outcome_leaks"} | {"cut_at": at}
    outcome = trajectory.outcome
    went_on = any(m.role == "assistant" for m in messages[at + 1 :])
    if outcome is not None and went_on and _grade(said) != outcome:
        meta["whole_outcome"], outcome = outcome, None
    return trajectory.model_copy(update={"messages": kept, "meta": meta, "outcome": outcome})


def _split(text: str) -> tuple[str, str]:
    """What comes before the sentence with the first verdict, and the verdict, its number whole."""
    found = VERDICT.search(text)
    if found is None:
        return text, ""
    end = re.compile(r"[\d.]*").match(text, found.end())
    sentences = [m.end() for m in _SENTENCE.finditer(text, 0, found.start())]
    return text[: sentences[-1] if sentences else 0].rstrip(), text[found.start() : end.end() if end else found.end()]


def _grade(verdict: str) -> float | None:
    """1 or 0 where a verdict says right or wrong in so many words, else None."""
    good, bad = _GOOD.search(verdict) is not None, _BAD.search(verdict) is not None
    return None if good == bad else float(good)
