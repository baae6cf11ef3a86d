"""Splits by question: a question's attempts never stand on both sides."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

from rrm.config import DataConfig
from rrm.errors import RRMError
from rrm.trajectory import Trajectory

PARTS = ("train", "calibration", "test")


def question_of(trajectory: Trajectory) -> str:
    """The trajectory's group: its question id, else its task text, else its own id."""
    return trajectory.question_id or trajectory.task or trajectory.id


def make_split(trajectories: Sequence[Trajectory], data: DataConfig, seed: int) -> dict[str, list[str]]:
    """Questions shuffled by `seed` and dealt to test, calibration and train by the configured shares.

    Raises:
        RRMError: too few questions to give each part one.
    """
    questions = sorted({question_of(t) for t in trajectories})
    if len(questions) < 3:
        raise RRMError(f"{len(questions)} distinct question(s): train, calibration and test need one each at least")
    random.Random(seed).shuffle(questions)
    n_test = max(1, round(data.test_share * len(questions)))
    n_cal = max(1, round(data.calibration_share * len(questions)))
    return {
        "test": sorted(questions[:n_test]),
        "calibration": sorted(questions[n_test : n_test + n_cal]),
        "train": sorted(questions[n_test + n_cal :]),
    }


def load_split(path: str | Path) -> dict[str, list[str]]:
    """A split file: question ids under `train`, `calibration`, `test`; optionally `held_out_agents`.

    Raises:
        RRMError: unreadable, a part missing, or a question in two parts.
    """
    try:
        split = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RRMError(f"split {path}: {error}") from error
    missing = [p for p in PARTS if not isinstance(split.get(p), list)]
    if missing:
        raise RRMError(f"split {path}: needs a list of question ids under {', '.join(missing)}")
    seen: dict[str, str] = {}
    for part in PARTS:
        for question in split[part]:
            if seen.setdefault(question, part) != part:
                raise RRMError(f"split {path}: question {question!r} is in {seen[question]} and in {part}")
    return split


def apply_split(trajectories: Sequence[Trajectory], split: dict[str, list[str]]) -> dict[str, list[Trajectory]]:
    """Trajectories by part, in order; rows of `held_out_agents` (meta.agent) never enter `train`."""
    where = {q: part for part in PARTS for q in split[part]}
    held_out = set(split.get("held_out_agents", []))
    parts: dict[str, list[Trajectory]] = {part: [] for part in PARTS}
    for t in trajectories:
        part = where.get(question_of(t))
        if part is not None and not (part == "train" and t.meta.get("agent") in held_out):
            parts[part].append(t)
    return parts
