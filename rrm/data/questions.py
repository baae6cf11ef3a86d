"""Identity of a transcript's question. Judges and splits store these: a change would break them."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable

from rrm.data.text import normalise
from rrm.data.trajectory import Trajectory


def question_of(trajectory: Trajectory) -> str:
    """Return the trajectory's group: its question id, else its task text, else its own id."""
    return trajectory.question_id or trajectory.task or trajectory.id


def question_hash(text: str) -> str | None:
    """Hash a question's words to 12 hex digits, ignoring case and Unicode form; None without words."""
    words = unicodedata.normalize("NFKC", text).casefold().split()
    return _hash(" ".join(words))[:12] if words else None


def text_hash(text: str) -> str:
    return _hash(normalise(text, articles=True) or text)[:16]


def question_key(trajectory: Trajectory) -> str:
    """Return `TEXT`, or `TEXT:ID` where the id is not made of the text (hashes), as in `judge.json`."""
    text = text_hash(trajectory.task or trajectory.question_id or trajectory.id)
    own_id = trajectory.question_id
    if own_id is None or own_id in (trajectory.task, question_hash(trajectory.task)):
        return text
    return f"{text}:{_hash(own_id)[:16]}"


def question_keys(trajectories: Iterable[Trajectory]) -> list[str]:
    return sorted({question_key(t) for t in trajectories})


def seen_in_training(keys: Iterable[str], trajectories: Iterable[Trajectory]) -> list[str]:
    """Return ids of the transcripts whose question has one of these keys.

    Questions compare by id where both sides have one, else by text.
    """
    split_keys = [key.partition(":") for key in keys]
    texts, ids = {text for text, _, _ in split_keys}, {own_id for _, _, own_id in split_keys if own_id}
    texts_alone = {text for text, _, own_id in split_keys if not own_id}

    def met(trajectory: Trajectory) -> bool:
        text, _, own_id = question_key(trajectory).partition(":")
        return (own_id in ids or text in texts_alone) if own_id else text in texts

    return [t.id for t in trajectories if met(t)] if split_keys else []


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
