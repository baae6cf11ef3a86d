"""A handful of an agent's runs that are worth looking at: as many that failed as that succeeded, beside earlier attempts.

    python examples/worth_seeing.py pick AFTER.jsonl AFTER.scored.jsonl BEFORE.jsonl -o runs.jsonl
    rrm score runs.jsonl --model lab -o runs.scored.jsonl --html runs.html
    python examples/worth_seeing.py look runs.jsonl runs.scored.jsonl runs.html

AFTER and BEFORE are what `reagent eval --transcripts` writes of a policy before and after its training, on the same tasks. Drawn by
chance alone, a handful has little of what a judge is read for: so half of either kind are runs in which the judge that the agent learned
from and the outcome are furthest apart, where there are such runs. The handful is then judged by another one, and `look` says where to begin.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

from rrm.data.feedback import Feedback, read_feedback
from rrm.data.trajectory import Trajectory, read_canonical, write_jsonl
from rrm.errors import RRMError

AFTER, BEFORE = "trained/", "before/"
"""In front of ids: both policies' runs are named by their tasks."""
GOOD = 0.5
"""From this outcome on a run is a success, and from this score on a judge calls it one."""
SHOWN = 90
"""Characters of a task or a finding in a line."""


def apart(outcome: float, score: float) -> float:
    """How far outcome and score lie from one another; 0 where both call the run a success, or both a failure."""
    return abs(outcome - score) if (outcome >= GOOD) != (score >= GOOD) else 0.0


def pick(
    after: Sequence[Trajectory], scores: dict[str, float | None], before: Iterable[Trajectory], each: int, seed: int
) -> list[Trajectory]:
    """`each` failures and `each` successes of the trained agent, fewer where there are not so many, every one followed by the attempt
    at the same question before the training.

    Args:
        scores: by id, of the judge that the agent learned from; a run that has none counts as one that it agrees on.
    """
    draw = random.Random(seed)
    graded = [(t, t.outcome) for t in after if t.outcome is not None]
    chosen: set[str] = set()
    for success in (False, True):
        kind = [(t.id, outcome) for t, outcome in graded if (outcome >= GOOD) is success]
        draw.shuffle(kind)  # equals come in the order of the seed
        gaps = {id: apart(outcome, outcome if (s := scores.get(id)) is None else s) for id, outcome in kind}
        odd = sorted((id for id in gaps if gaps[id]), key=gaps.__getitem__, reverse=True)[: each // 2]
        chosen |= {*odd, *[id for id in gaps if id not in odd][: each - len(odd)]}
    earlier = {t.question_id: t for t in before if t.question_id is not None}
    found: list[Trajectory] = []
    for trajectory, _ in graded:
        if trajectory.id in chosen:
            found.append(trajectory.model_copy(update={"id": AFTER + trajectory.id}))
            if (old := earlier.get(trajectory.question_id or "")) is not None:
                found.append(old.model_copy(update={"id": BEFORE + old.id}))
    return found


def look(runs: Iterable[Trajectory], rows: Iterable[Feedback], page: str) -> list[str]:
    """Three lines of what to look at first, of the trained agent's runs: a failure that the judge saw, a success, and the run in which
    judge and outcome are furthest apart. Each ends with the address of its run in the page."""
    outcomes = {t.id: t.outcome for t in runs if t.id.startswith(AFTER)}
    known = [
        (row, outcome, row.score)
        for row in rows
        if row.score is not None and (outcome := outcomes.get(row.id)) is not None
    ]
    alike = [one for one in known if not apart(*one[1:])]
    odd = [one for one in known if apart(*one[1:])]
    seen = min((one for one in alike if one[1] < GOOD), key=lambda one: one[2], default=None)
    won = max((one for one in alike if one[1] >= GOOD), key=lambda one: one[2], default=None)
    most = max(odd, key=lambda one: apart(*one[1:]), default=None)
    return [
        line("a failure that the judge saw", seen, page),
        line("a success that it saw", won, page),
        line(f"judge and outcome disagree in {len(odd)} of {len(known)}", most, page),
    ]


def line(what: str, found: tuple[Feedback, float, float] | None, page: str) -> str:
    """One run: outcome, score, what the judge found (its first fault, where it names one), and where to read it."""
    if found is None:
        return f"{what}: none here"
    row, outcome, score = found
    finding = next((f for f in row.findings if f.verdict == "bad"), row.findings[0] if row.findings else None)
    said = "" if finding is None else f"; step {finding.step} {finding.verdict}: {finding.text[:SHOWN]}"
    return f"{what}: outcome {outcome:g}, score {score:.2f}{said}\n    {page}#{quote(row.id, safe='')}"


def parser() -> argparse.ArgumentParser:
    """The two commands."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = found.add_subparsers(dest="command", required=True)
    picks = commands.add_parser("pick", help="write the handful")
    for name in ("after", "scored", "before"):
        picks.add_argument(name, type=Path)
    picks.add_argument("-o", "--output", type=Path, required=True)
    picks.add_argument("--each", type=int, default=6, help="failures, and successes")
    picks.add_argument("--seed", type=int, default=0, help="draws those that no disagreement chose")
    looks = commands.add_parser("look", help="say what to look at")
    for name in ("runs", "scored"):
        looks.add_argument(name, type=Path)
    looks.add_argument("page", help="the report of `rrm score --html`")
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Either command."""
    args = parser().parse_args(argv)
    rows = read_feedback(args.scored)
    if args.command == "pick":
        scores = {row.id: row.score for row in rows}
        found = pick(list(read_canonical(args.after)), scores, read_canonical(args.before), args.each, args.seed)
        if not found:
            raise RRMError(f"{args.after}: no run has an outcome, so none can be called good or bad")
        write_jsonl(args.output, found)
    else:
        sys.stdout.write("".join(f"{text}\n" for text in look(read_canonical(args.runs), rows, args.page)))


if __name__ == "__main__":
    try:
        main()
    except (RRMError, OSError) as error:  # a file or a folder that is not there, a run without an outcome
        sys.exit(f"error: {error}")
