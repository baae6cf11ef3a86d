"""What question a transcript is an attempt at: how attempts are grouped, and how a question is known again elsewhere.

| | made of | for |
|---|---|---|
| `question_hash` | a text's words | the `question_id` that readers give where a file has none |
| `question_of` | id, else text | groups of attempts, and splits |
| `question_key` | hashes of text and given id | `judge.json`, which remembers what a judge was trained on |

Judges and splits hold these: a change to one would make strangers of questions that were met.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable

from rrm.data.text import normalise
from rrm.data.trajectory import Trajectory


def question_of(trajectory: Trajectory) -> str:
    """The trajectory's group: its question id, else its task text, else its own id."""
    return trajectory.question_id or trajectory.task or trajectory.id


def question_hash(text: str) -> str | None:
    """A stable id of a question: 12 hex digits over its words, case and Unicode form ignored; None for no words."""
    words = unicodedata.normalize("NFKC", text).casefold().split()
    return _hash(" ".join(words))[:12] if words else None


def text_hash(text: str) -> str:
    """Sixteen hex digits of a question's text: its words alone, so that case, marks and spaces make no other question."""
    return _hash(normalise(text, articles=True) or text)[:16]


def question_key(trajectory: Trajectory) -> str:
    """What a question is known by: `TEXT`, or `TEXT:ID` where its file gave it an id that is not made of its text; hashes."""
    text = text_hash(trajectory.task or trajectory.question_id or trajectory.id)
    given = trajectory.question_id
    if given is None or given in (trajectory.task, question_hash(trajectory.task)):
        return text
    return f"{text}:{_hash(given)[:16]}"


def question_keys(trajectories: Iterable[Trajectory]) -> list[str]:
    """The distinct `question_key`s, sorted: what `JudgeSettings.training_questions` holds."""
    return sorted({question_key(t) for t in trajectories})


def seen_in_training(keys: Iterable[str], trajectories: Iterable[Trajectory]) -> list[str]:
    """Ids of the transcripts whose question is among these `question_key`s: by its id where both sides have one, else its text.

    So tasks that share one text ("Fix the failing test.") are told apart as the split by question tells them apart.
    """
    known = [key.partition(":") for key in keys]
    texts, ids = {text for text, _, _ in known}, {given for _, _, given in known if given}
    texts_alone = {text for text, _, given in known if not given}

    def met(trajectory: Trajectory) -> bool:
        text, _, given = question_key(trajectory).partition(":")
        return (given in ids or text in texts_alone) if given else text in texts

    return [t.id for t in trajectories if met(t)] if known else []


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
