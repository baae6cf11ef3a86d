"""`rrm label --choose`: draw runs to label with known chances, for `rrm estimate`.

LABELS.chosen.jsonl has a line for each chosen run.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from rrm.annotate.label_pool import TranscriptPool
from rrm.data.jsonl import read_lines
from rrm.data.output import write_lines
from rrm.data.seeds import derive_seed
from rrm.errors import ConfigError
from rrm.evaluation.share_estimate import chances_of, drawn

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChosenRun:
    digest: str
    id: str
    chance: float
    """Probability of being chosen, in (0, 1]."""
    n_runs: int


def chosen_path(labels: Path) -> Path:
    return labels.with_name(f"{labels.name.removesuffix('.jsonl')}.chosen.jsonl")


def read_chosen(path: Path) -> list[ChosenRun]:
    """Read the chosen runs; raises ReadError for a line of another form."""
    return list(read_lines(path, _chosen, "a run that `rrm label --choose` chose"))


def _chosen(line: str) -> ChosenRun:
    run = ChosenRun(**json.loads(line))
    if not 0 < run.chance <= 1:
        raise ValueError("its chance is not in (0, 1]")
    return run


def choose_runs(
    pool: TranscriptPool, scores: Mapping[str, float], kinds: Mapping[str, str], n: int, seed: int
) -> list[ChosenRun]:
    """Draw `n` runs of a pool.
    `scores`: digest → the judge's score in [0, 1]; runs without one count as unsure. `kinds`: digest → source or format; each is drawn
    in its share, and in it each length and each score."""
    values = np.array([scores.get(item.digest, np.nan) for item in pool.items])
    chances = chances_of(values, n)
    thirds = np.quantile([item.steps for item in pool.items], [1 / 3, 2 / 3])
    filled = np.nan_to_num(values, nan=0.5)

    def key(index: int) -> tuple[str, int, float]:
        item = pool.items[index]
        return kinds.get(item.digest, ""), int(np.searchsorted(thirds, item.steps)), filled[index]

    places = drawn(chances, sorted(range(len(pool)), key=key), seed)
    random.Random(derive_seed("label order", seed)).shuffle(places)  # who stops early has labelled a random part
    items = [pool.items[index] for index in places]
    return [
        ChosenRun(item.digest, item.id, float(chances[index]), len(pool))
        for item, index in zip(items, places, strict=True)
    ]


def keep_chosen(
    pool: TranscriptPool, path: Path, scores: Mapping[str, float], kinds: Mapping[str, str], n: int, seed: int
) -> list[ChosenRun]:
    """Choose runs and store them, or read earlier ones, and leave only those in the pool.
    Raises ConfigError where another number was chosen before, some are not here, or no run has a row among the scores."""
    unscored = sum(item.digest not in kinds for item in pool.items)
    if unscored == len(pool):
        raise ConfigError("--scores has no row of these transcripts: were others scored, or did they change since?")
    if unscored:
        log.warning("--scores has no row of %d of %d transcripts: the estimate leaves them out", unscored, len(pool))
    if path.is_file():
        chosen = read_chosen(path)
        if len(chosen) != min(n, len(pool)) or chosen[0].n_runs != len(pool):
            raise ConfigError(
                f"{path} holds {len(chosen)} runs chosen from {chosen[0].n_runs if chosen else 0}, and now {n} of {len(pool)} are asked for: "
                "choose another -o, or the same number from the same runs"
            )
    else:
        chosen = choose_runs(pool, scores, kinds, n, seed)
        write_lines(path, (json.dumps(asdict(run)) for run in chosen))
    pool.keep([run.digest for run in chosen])
    return chosen


def chances_by_digest(chosen: Sequence[ChosenRun]) -> dict[str, float]:
    return {run.digest: run.chance for run in chosen}
