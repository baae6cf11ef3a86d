"""`rrm failures` on runs with known mistakes: are kinds right, do quotes stand in their step, how long do 10,000 runs take?

    python -m benchmarks.studies.failures [--runs 10000]
    python -m benchmarks.studies.failures --judge small       # Who&When alone, failures_who_when.json

A kind is given to a step that is known to be bad, of planted mistakes and of StepShield's runs, whose questions were left out when
the rules were written (`part == "test"`); beside it the commonest kind of the other questions. StepShield has classes of its own: a
false claim of success (DEC) is an unsupported claim, its others break a written constraint. Of each of Who&When's runs one step is known:
how often is it the first mistake of rules, or with `--judge` of the 28 shorter runs, beside the commonest step of the other questions?
Bars: kinds of plants ≥ 0.6, every quote verbatim, 10,000 runs by rules in at most two minutes of one core.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import record
from benchmarks.models.rows import Maker
from benchmarks.models.sources import DATA, FOLDS, WEIGHTS, LabelledRun, load
from rrm.annotate.planted import OPERATORS, plant
from rrm.data.feedback import Feedback
from rrm.data.trajectory import Message, Trajectory, write_jsonl
from rrm.evaluation.failures import failures_of, texts_of
from rrm.judge.agent_rrm import AgentRRM
from rrm.prompt.likely_kinds import likely_kinds
from rrm.readers import read

Pair = tuple[str, str, str]  # known kind, given kind, source


def plants(runs: Sequence[LabelledRun], n: int) -> Iterator[Pair]:
    names, rng = sorted({run.source for run in runs}), random.Random(7)
    maker = Maker(None, list(runs), names)  # pyright: ignore[reportArgumentType]
    by_source = {name: [run for run in runs if run.source == name] for name in names}
    for _ in range(n):
        run = rng.choice(by_source[rng.choices(names, [WEIGHTS[name] for name in names])[0]])
        if (planted := plant(maker.view(run), rng.choice(list(OPERATORS)), rng)) is not None:
            yield planted.kind, likely_kinds(planted.trajectory, {planted.step})[planted.step], run.source


def stepshield(runs: Sequence[LabelledRun]) -> Iterator[Pair]:
    for run in runs:
        if run.source == "stepshield" and 0 in run.labels:
            k = run.labels.index(0) + 1
            known = "unsupported_claim" if "-DEC-" in run.trajectory.id else "broken_instruction"
            yield known, likely_kinds(run.trajectory, {k})[k], run.source


def agreement(pairs: Sequence[Pair], others: Sequence[Pair]) -> dict[str, Any]:
    commonest = Counter(known for known, _, _ in others).most_common(1)[0][0]
    of_kind = {
        kind: [known == given for known, given, _ in pairs if known == kind]
        for kind in sorted({known for known, _, _ in pairs})
    }
    return {
        "steps": len(pairs),
        "agree": round(float(np.mean([known == given for known, given, _ in pairs])), 3),
        "commonest": round(float(np.mean([known == commonest for known, _, _ in pairs])), 3),
        "by_kind": {kind: round(float(np.mean(hits)), 3) for kind, hits in of_kind.items()},
    }


def verbatim(runs: Sequence[LabelledRun]) -> dict[str, int]:
    judge = {"model": "all bad", "prompt_version": "3", "mode": "steps"}
    quotes = standing = 0
    for run in runs:
        t, steps = run.trajectory, run.trajectory.steps
        findings = [{"step": step.index, "verdict": "bad"} for step in steps]
        row = {"id": t.id, "status": "scored", "findings": findings, "judge": judge}
        for m in failures_of(t, Feedback.model_validate(row))["mistakes"]:
            quotes += m["quote"] is not None
            standing += m["quote"] is not None and any(m["quote"] in text for text in texts_of(steps[m["step"] - 1]))
    return {"runs": len(runs), "quotes": quotes, "standing": standing}


def who_and_when(judge: str | None) -> dict[str, Any] | None:
    path = DATA.parent / "bench" / "who_when.jsonl"
    if not path.is_file():
        return None
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    rows = [row for row in rows if judge is None or row["subset"] == "Algorithm-Generated"]
    runs = []
    for row in rows:
        steps = [Message(role="assistant", content=m["content"], name=m.get("name")) for m in row["history"]]
        messages = [Message(role="user", content=row["question"]), *steps]
        runs.append(Trajectory(id=row["id"], task=row["question"], messages=messages))
    known = [int(row["mistake_step"]) + 1 for row in rows]
    loaded = None if judge is None else AgentRRM.from_pretrained(judge, out_of_domain="keep")
    judgements = [None] * len(runs) if loaded is None else loaded.judge(runs, mode="steps")
    first = [failures_of(run, feedback)["first_step"] or 0 for run, feedback in zip(runs, judgements, strict=True)]
    asked = [row["question_id"] for row in rows]
    others = [[k for k, other in zip(known, asked, strict=True) if other != mine] for mine in asked]
    commonest = [Counter(steps).most_common(1)[0][0] for steps in others]

    def hits(guesses: Sequence[int], within: int) -> float:
        return round(float(np.mean([abs(g - k) <= within for g, k in zip(guesses, known, strict=True)])), 3)

    guesses = {"first_mistake": first, "commonest_step": commonest}
    return {"runs": len(runs), "judge": judge} | {
        name: {"exact": hits(steps, 0), "within_one": hits(steps, 1)} for name, steps in guesses.items()
    }


def speed(n: int) -> dict[str, Any]:
    from reagent.lab.transcripts import make_transcripts

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.jsonl"
        write_jsonl(path, (t for t, _ in make_transcripts(n, seed=1)))
        began, cpu = time.perf_counter(), time.process_time()
        steps = sum(failures_of(run)["steps"] for run in read([str(path)]))
        spent = time.perf_counter() - began, time.process_time() - cpu
    return {"runs": n, "steps": steps, "seconds": round(spent[0], 1), "cpu_seconds": round(spent[1], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000, help="generated, timed")
    parser.add_argument("--judge", help="measure this judge on Who&When alone")
    args = parser.parse_args()
    made = {"command": record.command("studies.failures"), "commit": record.commit(), **record.made_with("numpy")}
    if args.judge is not None:
        record.write(record.RESULTS / "failures_who_when.json", {"who_and_when": who_and_when(args.judge), **made})
        return
    runs = load()
    sound = [run for run in runs if run.succeeded and run.source in WEIGHTS and run.ships]
    left_out, others = (
        list(plants([r for r in sound if (r.part == "test") is is_test], 2500)) for is_test in (True, False)
    )
    test_runs, other_runs = ([r for r in runs if (r.part == "test") is is_test] for is_test in (True, False))
    folds = {fold: [p for p in left_out if p[2] in sources] for fold, sources in FOLDS.items()}
    found = {
        "plants": agreement(left_out, others),
        "plants_by_fold": {fold: agreement(pairs, others)["agree"] for fold, pairs in folds.items()},
        "stepshield": agreement(list(stepshield(test_runs)), list(stepshield(other_runs))),
        "quotes": verbatim(random.Random(0).sample(runs, 1000)),
        "who_and_when": who_and_when(args.judge),
        "speed": speed(args.runs),
    }
    record.write(record.RESULTS / "failures.json", found | made)


if __name__ == "__main__":
    main()
