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
HELD_OUT = "held_out_agents"  # list of agents, not questions, whose runs are never learned from


def make_split(trajectories: Sequence[Trajectory], data: DataConfig, seed: int) -> dict[str, list[str]]:
    """Shuffle questions by `seed` and deal them by the configured shares; raises `RRMError` for too few."""
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
    """Load a split file: question ids by part; `held_out_agents` is a list of agents' names.

    Args:
        parts: parts it must have, which share no question; other entries are dropped. Empty: any lists of texts.

    Raises:
        ConfigError: unreadable, malformed, a part missing, or a question in two parts.
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
    for name in parts:
        if name not in split:
            raise ConfigError(
                f"split {path}: no list of question ids under {name!r}; there are: {', '.join(split) or 'none'}"
            )
    owners: dict[str, str] = {}
    for name in dict.fromkeys(parts):
        for question in split[name]:
            if owners.setdefault(question, name) != name:
                raise ConfigError(f"split {path}: question {question!r} is in {owners[question]} and in {name}")
    return {name: ids for name, ids in split.items() if not parts or name in (*parts, HELD_OUT)}


def apply_split(
    trajectories: Sequence[Trajectory], split: Mapping[str, Sequence[str]], *, learned: str = "train"
) -> dict[str, list[Trajectory]]:
    """Return trajectories by part, in order; rows of `held_out_agents` (meta.agent) never enter `learned`."""
    parts = [name for name in split if name != HELD_OUT]
    where = {q: name for name in parts for q in split[name]}
    held_out = set(split.get(HELD_OUT, []))
    rows: dict[str, list[Trajectory]] = {name: [] for name in parts}
    for t in trajectories:
        name = where.get(question_of(t))
        if name is not None and not (name == learned and t.meta.get("agent") in held_out):
            rows[name].append(t)
    return rows


class TooFew(RRMError):
    """Fewer rows, or groups of rows, than a fit or its folds need."""


def grouped_folds(groups: Sequence[str], k: int, seed: int) -> np.ndarray:
    """(N,) fold of each row, 0 … k − 1; groups stay together. Raises `TooFew` for fewer groups than folds."""
    order = sorted(set(groups))
    if len(order) < k:
        raise TooFew(f"{k} folds need at least {k} questions, there are {len(order)}")
    random.Random(seed).shuffle(order)
    fold = {group: i % k for i, group in enumerate(order)}
    return np.array([fold[group] for group in groups])
