"""Scripted agents that do something wrong at most steps, labelled by replaying their runs.

In a run with one fault, what was needed mostly is what was done: a judge that only guesses what a good agent would have
asked is nearly always right, and learns no more. Here such a guess is mostly wrong. Kinds of fault that
`rrm.lab.transcripts` holds out do not occur.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from rrm.annotation import Annotation
from rrm.lab.labels import label
from rrm.lab.scripted import ATTEMPTS, HOPS, TERSE_RATE, TOOL_ERROR_RATE, Run, question_of
from rrm.lab.wordings import QUESTION
from rrm.lab.world import RELATIONS
from rrm.trajectory import Trajectory

WANDER_RIGHT = 0.35
"""How often a wanderer does what is needed."""
WANDER_STEPS = 7


def _wander(run: Run) -> None:
    """Play a run."""
    rng, world = run.rng, run.world
    queries: list[str] = []
    while run.step < WANDER_STEPS:
        failed = bool(run.messages) and run.messages[-1].text() == run.tool_error
        draw = 0.0 if failed and rng.random() < 0.8 else rng.random()
        subject, relation = run.progress.subject, run.progress.relation
        if (failed and draw >= WANDER_RIGHT) or draw > 0.97:
            run.mark(False, "")
            return run.finish(run.say("give_up"), "unknown")
        if draw < WANDER_RIGHT and relation is None:
            run.mark(True, "")
            return run.finish("" if run.read else run.say("done"), subject)
        if draw > 0.93 and relation is not None:
            run.mark(False, "")
            kind = RELATIONS[run.question.path[-1]][1]
            return run.finish(run.say("guess"), run.other(kind, run.question.answer, subject))
        asked, of = relation, subject
        if draw >= WANDER_RIGHT:
            source = RELATIONS[relation][0] if relation else "person"
            if draw < 0.64:  # the wrong entity
                asked, of = relation or "mother", run.other(source, subject)
            elif draw < 0.74:  # the wrong relation
                asked = rng.choice(
                    [r for r, kinds in RELATIONS.items() if kinds[0] == world.kind_of(subject)] or [None]
                )
            elif draw < 0.82:  # anything
                asked = rng.choice(list(RELATIONS))
                of = run.other(RELATIONS[asked][0])
            elif draw < 0.89 and queries:
                asked, _, of = rng.choice(queries).partition(" of ")
        if asked is None:
            continue
        query = f"{asked} of {of}"
        run.mark(True, "")
        said = run.say("need", rel=asked, a=of)
        if draw >= 0.89:
            whole = json.dumps({"query": query})
            broken = rng.choice([whole[:-1], whole[:-2], whole.replace('"query"', "query")])
            run.refused(said, query, broken)
        elif rng.random() < TOOL_ERROR_RATE:
            run.call(said, query, result=run.tool_error)
        else:
            queries.append(query)
            run.call(said, query)
            run.read_value(of, asked, world.value(of, asked) or "")


def make_wanderers(n: int, *, seed: int, hops: Sequence[int] = HOPS) -> list[tuple[Trajectory, Annotation]]:
    """`n` runs, `ATTEMPTS` to a question; other seeds, other worlds."""
    rows: list[tuple[Trajectory, Annotation]] = []
    for number in range(-(-n // ATTEMPTS)):
        question_id = f"lab-wander-{seed}-{number}"
        world, question, rng = question_of(question_id, hops)
        task = rng.choice(QUESTION["train"]).format(phrase=question.phrase)
        for attempt in range(ATTEMPTS):
            run = Run(world, question, rng, "train", False, rng.random() < TERSE_RATE)
            _wander(run)
            trajectory = run.trajectory(task, question_id, attempt)
            annotation = label(trajectory, world, question)
            bad = [f.step for f in annotation.findings or [] if f.verdict == "bad"]
            meta = {**trajectory.meta, "fault": "several" if bad else None, "fault_step": min(bad, default=None)}
            rows.append((trajectory.model_copy(update={"meta": meta}), annotation))
    return rows[:n]
