"""What an evaluation would read, before it reads: rows, outcomes, pairs and tokens of each source (`evaluate --dry-run`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.default_judge.drawing import counted, named, to_read
from benchmarks.default_judge.mixture import token_counter
from benchmarks.default_judge.scorers import Parts
from benchmarks.default_judge.sources import Example
from rrm.data.feedback import Mode
from rrm.judge.agent_rrm import AgentRRM


def plan(judge: AgentRRM, mode: Mode, parts: Parts, paired: Sequence[Example]) -> dict[str, Any]:
    """What a run in this mode reads: of each source and part rows, questions, outcomes and pairs of each draw, and tokens.

    `tokens` are the transcripts' own, `read` those of all prompts (`Reads.tokens`), each row once; `new` the rows that only the
    draw in pairs brings.
    """
    tokens = token_counter(judge.settings.base or "smollm2")
    found: dict[str, Any] = {}
    for part, rows in to_read(parts, paired).items():
        of_pairs, by_question = named(paired if part == "test" else ()), named(parts[part])
        for name, mine in named(rows).items():
            entry: dict[str, Any] = {"by_question": counted(by_question.get(name, ()))}
            if name in of_pairs:
                entry["in_pairs"] = counted(of_pairs[name])
                entry["new"] = len(mine) - len(by_question.get(name, ()))
            reads = judge.measure([row.trajectory for row in mine], mode)
            found[f"{part}/{name}"] = entry | {
                "rows": len(mine), "tokens": sum(map(tokens, mine)), "read": sum(r.tokens for r in reads)
            }  # fmt: skip
    total = {key: sum(entry[key] for entry in found.values()) for key in ("rows", "tokens", "read")}
    return {**found, "all": total}


def plan_lines(found: Mapping[str, Any]) -> list[str]:
    """The plan as text: rows (successes of those with an outcome) by question, rows and pairs in pairs, tokens."""
    lines = [f"{'part/source':34s} {'by question':>16s} {'in pairs':>26s} {'rows':>6s} {'tokens':>8s} {'read':>8s}"]
    for name, entry in found.items():
        asked, two = entry.get("by_question"), entry.get("in_pairs")
        left = f"{asked['rows']:5d} ({asked['successes']}/{asked['graded']})" if asked else ""
        right = f"{two['rows']} rows {two['pairs']} pairs {two['pair_questions']} q" if two else ""
        lines.append(f"{name:34s} {left:>16s} {right:>26s} {entry['rows']:6d} {entry['tokens']:8d} {entry['read']:8d}")
    return lines
