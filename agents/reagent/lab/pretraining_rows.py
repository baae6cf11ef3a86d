"""Drills: rows of which only verdicts are learned.

Whether what was done is what was needed stands in two short texts side by side. A model from scratch finds out how to
compare them after some hundred thousand verdicts, and only if little else asks for its attention (docs/decisions.md, ADR 10):
`drill_rows`, traces without their transcripts. That the critique is to say what the trace has found it learns worse, for in
its data the transcript alone tells as well; with a kind of fault it never met it then writes the right verdict into the trace
and another into the critique (45): `follow_row`.
"""

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
"""Of the verdicts of a row that must be followed."""
_TRACE_LINE = re.compile(r"(\[step (\d+)\] .*) (good|bad)")


def drill_rows(prompter: Prompter, n: int, seed: int) -> list[TrainingRow]:
    """`n` traces, of worlds that no transcript of a seed has; `learned` points at each line's `good` or `bad`."""
    own, scripted = derive_seed("drills", seed), round(SCRIPTED_SHARE * n)
    rows: list[TrainingRow] = []
    for _, annotation in [*make_transcripts(scripted, seed=own), *make_wanderers(n - scripted, seed=own)]:
        ids: list[int] = []
        learned: list[int] = []
        for line in (annotation.trace or "").splitlines():
            before, _, verdict = line.rpartition(" ")
            ids += prompter.encode(f"\n{before}")
            said = prompter.encode(f" {verdict}")
            learned += range(len(ids), len(ids) + len(said))
            ids += said
        rows.append(TrainingRow([], ids, "full", tuple(learned)))
    return rows


def follow_row(
    prompter: Prompter, trajectory: Trajectory, annotation: Annotation, rng: random.Random
) -> TrainingRow | None:
    """A full row with verdicts of its trace turned at random and a critique that says the same; `learned` points at the
    critique's verdicts. None where the trace is not the lab's."""
    lines = [_TRACE_LINE.fullmatch(line) for line in (annotation.trace or "").splitlines()]
    said = {f.step: f for f in annotation.findings or []}
    if not lines or any(m is None or int(m[2]) not in said for m in lines):
        return None
    trace: list[str] = []
    critique, ends = "", list[int]()
    for m in lines:
        assert m is not None
        verdict = m[3] if rng.random() >= TURNED else "bad" if m[3] == "good" else "good"
        trace.append(f"{m[1]} {verdict}")
        critique += f"[step {m[2]}] {verdict}"
        ends.append(len(critique))
        critique += f": {said[int(m[2])].text if verdict == m[3] else 'look at this step again'}\n"
    before = "\n".join(trace) + "</think><critique>"
    encoded = prompter.tokenizer(before + critique, add_special_tokens=False, return_offsets_mapping=True)
    last = {len(before) + end for end in ends}
    learned = tuple(i for i, (_, stop) in enumerate(encoded["offset_mapping"]) if stop in last)
    prompt, _ = prompter.text(trajectory, "full")
    return TrainingRow(prompter.encode(prompt), encoded["input_ids"], "full", learned)
