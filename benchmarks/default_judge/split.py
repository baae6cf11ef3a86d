"""One split over all sources: questions that are the same in any form, joined, and each on one side.

Two rows share a question where they share its id (InterCode's joins paraphrases) or a normalised form of its text
(HotpotQA's stand in five sources). MINT's questions stay where benchmarks/splits/mint.json has them; a question that a source
held out whole also has is a test question. The file holds ids only, no texts.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import mint
from benchmarks.default_judge.sources import Example

SPLIT = Path(__file__).resolve().parents[1] / "splits" / "default_judge.json"
SHARES = {"test": 0.3, "calibration": 0.1}
"""Of a source's questions; the rest is for training."""
HELD_OUT_PER_SOURCE = 3
HELD_OUT_SHARE = (0.02, 0.1)
"""An agent held out made this much of its source's rows: enough to measure, and no more than the training part can spare."""


def groups_of(rows: Iterable[Sequence[str]]) -> dict[str, str]:
    """Union-find over keys: rows that share a key are one group, which goes by its smallest key. key → group."""
    parent: dict[str, str] = {}

    def root(key: str) -> str:
        parent.setdefault(key, key)
        while parent[key] != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    for keys in rows:
        first = root(keys[0])
        for key in keys[1:]:
            other = root(key)
            low, high = sorted((first, other))
            parent[high] = low
            first = low
    return {key: root(key) for key in parent}


def deal(
    groups: Mapping[str, Collection[str]], fixed: Mapping[str, str], *, seed: int, shares: Mapping[str, float] = SHARES
) -> dict[str, str]:
    """Group → part, so that each source has its shares of groups, the ones dealt before included.

    Args:
        groups: source → its groups.
        fixed: groups whose part is given.
    """
    part_of = dict(fixed)
    for source in sorted(groups, key=lambda s: (len(groups[s]), s)):  # a small source has no room to make up for others
        rng = random.Random(f"{seed}:{source}")
        free = sorted(g for g in groups[source] if g not in part_of)
        rng.shuffle(free)
        for part, share in shares.items():
            have = sum(part_of.get(g) == part for g in groups[source])
            missing = max(0, round(share * len(groups[source])) - have)
            for group in free[:missing]:
                part_of[group] = part
            free = free[missing:]
        part_of |= dict.fromkeys(free, "train")
    return part_of


def held_out_agents(rows: Sequence[Example], n: int, seed: int) -> list[str]:
    """InterCode's agents never trained on: one from each stratum of how often their steps are right."""
    good: dict[str, list[bool]] = defaultdict(list)
    n_rows: dict[str, int] = defaultdict(int)
    chosen = [row for row in rows if row.source.startswith("intercode/")]
    for row in chosen:
        agent = str(row.trajectory.meta["agent"])
        good[agent] += row.steps().values()
        n_rows[agent] += 1
    fitting = [a for a in good if HELD_OUT_SHARE[0] <= n_rows[a] / len(chosen) <= HELD_OUT_SHARE[1]]
    ranked = sorted(fitting, key=lambda a: (sum(good[a]) / max(len(good[a]), 1), a))
    rng, size = random.Random(f"{seed}:agents"), len(ranked) / n
    return sorted(rng.choice(ranked[int(i * size) : int((i + 1) * size)]) for i in range(n) if ranked)


def make_split(rows: Sequence[Example], *, seed: int, mint_split: Mapping[str, Any]) -> dict[str, Any]:
    """Question ids by part (`unseen`: of the sources held out whole), and the agents that only the test part has."""
    group_of = groups_of(row.keys for row in rows)
    of_mint = {f"id:{q}": part for part in ("train", "calibration", "test") for q in mint_split[part]}
    fixed: dict[str, str] = {}
    for part in ("train", "calibration", "test"):  # the later one wins where groups were joined
        fixed |= {group_of[key]: part for key, said in of_mint.items() if said == part and key in group_of}
    fixed |= {group_of[row.keys[0]]: "test" for row in rows if row.unseen}
    groups: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if not row.unseen:
            groups[row.source].add(group_of[row.keys[0]])
    part_of = deal(groups, fixed, seed=seed)
    parts: dict[str, set[str]] = {"train": set(), "calibration": set(), "test": set(), "unseen": set()}
    for row in rows:
        part = "unseen" if row.unseen else part_of[group_of[row.keys[0]]]
        parts[part].add(row.trajectory.question_id or "")
    agents = set(mint_split["held_out_agents"]) | set(held_out_agents(rows, HELD_OUT_PER_SOURCE, seed))
    return {**{part: sorted(ids) for part, ids in parts.items()}, "held_out_agents": sorted(agents)}


def mint_split(path: Path = mint.SPLIT) -> dict[str, Any]:
    """MINT's committed split."""
    return json.loads(path.read_text(encoding="utf-8"))
