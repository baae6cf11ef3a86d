"""Splits and folds by question: a question's attempts never stand on both sides."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rrm.config import DataConfig
from rrm.data.questions import question_of
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError, RRMError

PARTS = ("train", "calibration", "test")
HELD_OUT = "held_out_agents"
"""A split's list that holds no questions: agents whose runs are never learned from."""


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


def load_split(path: str | Path, parts: Sequence[str] = PARTS) -> dict[str, list[str]]:
    """A split file: question ids by part; `held_out_agents`, where it is there, are agents' names.

    Args:
        parts: those it must have, no two of which may share a question; anything else in the file (a seed) is left out. With
            none, any lists of texts will do.

    Raises:
        ConfigError: unreadable, not of that form, a part missing, or a question in two parts.
    """
    try:
        split = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"split {path}: cannot be read: {error}") from error
    if isinstance(split, dict) and parts:
        split = {name: ids for name, ids in split.items() if name in (*parts, HELD_OUT) or isinstance(ids, list)}
    if not isinstance(split, dict) or not all(
        isinstance(ids, list) and all(isinstance(i, str) for i in ids) for ids in split.values()
    ):
        raise ConfigError(f'split {path}: must be {{"train": [question ids], "test": […], …}}, all ids as texts')
    for part in parts:
        if part not in split:
            raise ConfigError(
                f"split {path}: no list of question ids under {part!r}; there are: {', '.join(split) or 'none'}"
            )
    seen: dict[str, str] = {}
    for part in dict.fromkeys(parts):
        for question in split[part]:
            if seen.setdefault(question, part) != part:
                raise ConfigError(f"split {path}: question {question!r} is in {seen[question]} and in {part}")
    return {name: ids for name, ids in split.items() if not parts or name in (*parts, HELD_OUT)}


def apply_split(
    trajectories: Sequence[Trajectory], split: Mapping[str, Sequence[str]], *, learned: str = "train"
) -> dict[str, list[Trajectory]]:
    """Trajectories by part, in order.

    Args:
        learned: the part that is learned from: rows of `held_out_agents` (meta.agent) never enter it.
    """
    parts = [part for part in split if part != HELD_OUT]
    where = {q: part for part in parts for q in split[part]}
    held_out = set(split.get(HELD_OUT, []))
    found: dict[str, list[Trajectory]] = {part: [] for part in parts}
    for t in trajectories:
        part = where.get(question_of(t))
        if part is not None and not (part == learned and t.meta.get("agent") in held_out):
            found[part].append(t)
    return found


class TooFew(RRMError):
    """Fewer rows, or groups of rows, than a fit or its folds need."""


def grouped_folds(groups: Sequence[str], k: int, seed: int) -> np.ndarray:
    """(N,) fold of each row, 0 … k − 1; all rows of a group share one, and folds differ by at most one group.

    Raises:
        TooFew: fewer groups than folds.
    """
    order = sorted(set(groups))
    if len(order) < k:
        raise TooFew(f"{k} folds need at least {k} questions, there are {len(order)}")
    random.Random(seed).shuffle(order)
    fold = {group: i % k for i, group in enumerate(order)}
    return np.array([fold[group] for group in groups])
