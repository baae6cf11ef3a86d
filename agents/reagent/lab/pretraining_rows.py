"""Pretraining rows of which only verdicts are learned (docs/decisions.md, ADR 10).

A model from scratch learns to compare deed and need after some hundred thousand verdicts: `drill_rows`, traces alone. It
learns to copy the trace's verdict into the critique from traces whose verdicts are turned: `follow_row` (ADR 45)."""

import random
import re

from reagent.lab.faulty_agents import make_wanderers
from reagent.lab.transcripts import make_transcripts
from rrm.data.annotation import Annotation
from rrm.data.seeds import derive_seed
from rrm.data.trajectory import Trajectory
from rrm.prompt.prompter import Prompter
from rrm.train.data import TrainingRow

SCRIPTED_SHARE = 0.25
TURNED = 0.3
"""Share of turned verdicts in a `follow_row`."""
_TRACE_LINE = re.compile(r"(\[step (\d+)\] .*) (good|bad)")


def drill_rows(prompter: Prompter, n: int, seed: int) -> list[TrainingRow]:
    """`n` traces, of worlds that no transcript has; `learned` points at each line's `good` or `bad`."""
    own, scripted = derive_seed("drills", seed), round(SCRIPTED_SHARE * n)
    rows: list[TrainingRow] = []
    for _, annotation in [*make_transcripts(scripted, seed=own), *make_wanderers(n - scripted, seed=own)]:
        ids: list[int] = []
        learned: list[int] = []
        for line in (annotation.trace or "").splitlines():
            before, _, verdict = line.rpartition(" ")
            ids += prompter.encode(f"\n{before}")
            tokens = prompter.encode(f" {verdict}")
            learned += range(len(ids), len(ids) + len(tokens))
            ids += tokens
        rows.append(TrainingRow([], ids, "full", tuple(learned)))
    return rows


def follow_row(
    prompter: Prompter, trajectory: Trajectory, annotation: Annotation, rng: random.Random
) -> TrainingRow | None:
    """A full row with verdicts turned at random in trace and critique; None of a foreign trace.

    `learned` points at the critique's verdicts."""
    lines = [_TRACE_LINE.fullmatch(line) for line in (annotation.trace or "").splitlines()]
    findings = {f.step: f for f in annotation.findings or []}
    if not lines or any(m is None or int(m[2]) not in findings for m in lines):
        return None
    trace: list[str] = []
    critique, ends = "", list[int]()
    for m in lines:
        assert m is not None
        verdict = m[3] if rng.random() >= TURNED else "bad" if m[3] == "good" else "good"
        trace.append(f"{m[1]} {verdict}")
        critique += f"[step {m[2]}] {verdict}"
        ends.append(len(critique))
        critique += f": {findings[int(m[2])].text if verdict == m[3] else 'look at this step again'}\n"
    before = "\n".join(trace) + "</think><critique>"
    encoded = prompter.tokenizer(before + critique, add_special_tokens=False, return_offsets_mapping=True)
    last = {len(before) + end for end in ends}
    learned = tuple(i for i, (_, stop) in enumerate(encoded["offset_mapping"]) if stop in last)
    prompt, _ = prompter.text(trajectory, "full")
    return TrainingRow(prompter.encode(prompt), encoded["input_ids"], "full", learned)
