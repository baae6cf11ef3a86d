"""Drills: traces without their transcripts, of which only the verdicts are learned.

Whether what was done is what was needed stands in two short texts side by side. A model from scratch finds out how to
compare them after some hundred thousand verdicts, and only if little else asks for its attention (docs/decisions.md, 33).
"""

from __future__ import annotations

from rrm.lab.transcripts import make_transcripts
from rrm.lab.wanderers import make_wanderers
from rrm.prompting import Prompter
from rrm.seeds import derive_seed
from rrm.train.data import Row

SCRIPTED_SHARE = 0.25


def drill_rows(prompter: Prompter, n: int, seed: int) -> list[Row]:
    """`n` traces, of worlds that no transcript of a seed has; `learned` points at each line's `good` or `bad`."""
    own, scripted = derive_seed("drills", seed), round(SCRIPTED_SHARE * n)
    rows: list[Row] = []
    for _, annotation in [*make_transcripts(scripted, seed=own), *make_wanderers(n - scripted, seed=own)]:
        ids: list[int] = []
        learned: list[int] = []
        for line in (annotation.trace or "").splitlines():
            before, _, verdict = line.rpartition(" ")
            ids += prompter.encode(f"\n{before}")
            said = prompter.encode(f" {verdict}")
            learned += range(len(ids), len(ids) + len(said))
            ids += said
        rows.append(Row([], ids, "full", tuple(learned)))
    return rows
