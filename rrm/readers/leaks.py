"""Text in which the environment tells the verdict: a judge trained on it learns to read, not to judge."""

from __future__ import annotations

import re
from typing import Any

from rrm.readers.chat import text_of

VERDICT = re.compile(
    r"\byour (?:final )?(?:answer|solution|submission) (?:is|was) (?:wrong|incorrect|correct|right)\b"
    r"|^\W*(?:observation ?\d*:)?\s*(?:answer|solution) is (?:in)?correct\W*$"
    r"|\breward ?[=:] ?(?:true\b|false\b|-?\d)"
    r"|\bepisode (?:finished|ended)\b.{0,40}\b(?:success|fail)"
    r"|\btask (?:was )?(?:completed successfully|failed|succeeded)\b"
    r"|\byour score\b.{0,40}\d",
    re.IGNORECASE | re.MULTILINE,
)
"""MINT ("Your answer is wrong."), fireact ("Episode finished, reward = True"), knowagent ("Answer is CORRECT"), …"""


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
