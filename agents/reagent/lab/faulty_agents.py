"""Scripted agents that do something wrong at most steps, labelled by replaying their runs.

In a run with one fault, what was needed mostly is what was done: a judge that only guesses what a good agent would have
asked is nearly always right, and learns no more. Here such a guess is mostly wrong. Kinds of fault that
`reagent.lab.transcripts` holds out do not occur.
"""

import json
import random
from collections.abc import Mapping, Sequence

from reagent.lab.labels import label
from reagent.lab.scripted import ATTEMPTS, HOPS, TERSE_RATE, TOOL_ERROR_RATE, ScriptedRun, Split, question_of
from reagent.lab.wordings import QUESTION
from reagent.lab.world import RELATIONS
from rrm.data.annotation import Annotation
from rrm.data.trajectory import Trajectory

ODDS = {
    "right": 0.38, "wrong_entity": 0.18, "wrong_relation": 0.15, "anything": 0.06, "repeated": 0.08, "malformed": 0.05,
    "leaves_out": 0.04, "guess": 0.03, "gives_up": 0.03,
}  # fmt: skip
"""What a wanderer does at a step."""
AT_THE_END = {"answer": 0.5, "check": 0.15, "misread": 0.15, "goes_on": 0.2}
"""What it does where it does right and nothing is missing; what is checked is not checked again. Who goes on asks for
something of what was found, as if the question were longer, and answers with that: trained agents do."""
AFTER_ERROR = {"right": 0.7, "wrong_entity": 0.1, "wrong_relation": 0.1, "gives_up": 0.1}
"""What it does after the tool failed. Going on as if it had not is a fault that is held out."""
WANDER_STEPS = 7


def _draw(rng: random.Random, odds: Mapping[str, float]) -> str:
    return rng.choices(list(odds), list(odds.values()))[0]


def _wander(run: ScriptedRun) -> None:
    """Play a run."""
    rng = run.rng
    queries: list[str] = []
    while run.step < WANDER_STEPS:
        failed = bool(run.messages) and run.messages[-1].text() == run.tool_error
        deed = _draw(rng, AFTER_ERROR if failed else ODDS)
        subject, relation = run.progress.subject, run.progress.relation
        if deed == "gives_up":
            run.mark(False, "")
            return run.finish(run.say("give_up"), "unknown")
        if deed == "right" and relation is None:
            if _end(run, subject, checked=subject in queries):
                return None
            queries.append(subject)
            continue
        if deed == "guess" and relation is not None:
            run.mark(False, "")
            kind = RELATIONS[run.question.path[-1]][1]
            return run.finish(run.say("guess"), run.other(kind, run.question.answer, subject))
        if deed == "leaves_out":
            if _leave_out(run, subject):
                return None
            continue
        query = _query(run, deed, queries)
        if query is None:
            continue
        asked, _, of = query.partition(" of ")
        run.mark(True, "")
        said = run.say("need", rel=asked, a=of)
        if deed == "malformed":
            whole = json.dumps({"query": query})
            broken = rng.choice([whole[:-1], whole[:-2], whole.replace('"query"', "query")])
            run.refused(said, query, broken)
        elif rng.random() < TOOL_ERROR_RATE:
            run.call(said, query, result=run.tool_error)
        else:
            queries.append(query)
            run.call(said, query)
            run.read_value(of, asked, run.world.value(of, asked) or "")


def _leave_out(run: ScriptedRun, subject: str) -> bool:
    """Skip the next relation of the path and follow the others to the end; False where that is no mistake of its own."""
    rest = run.question.path[len(run.progress.found) + 1 :]
    if not rest or rest[0] == run.progress.relation or run.step + len(rest) >= WANDER_STEPS:
        return False
    way = [subject]
    for relation in rest:
        value = run.world.value(way[-1], relation)
        if value is None:  # nobody's mayor
            return False
        way.append(value)
    if way[-1] == subject:
        return False
    for of, relation, value in zip(way, rest, way[1:], strict=False):
        run.mark(True, "")
        run.call(run.say("need", rel=relation, a=of), f"{relation} of {of}")
        run.read_value(of, relation, value)
    run.mark(False, "")
    run.finish("" if run.read else run.say("done"), way[-1])
    return True


def _query(run: ScriptedRun, deed: str, queries: Sequence[str]) -> str | None:
    """What is searched; None where the world has nothing to be mistaken about."""
    rng, subject, relation = run.rng, run.progress.subject, run.progress.relation
    if deed == "wrong_entity":
        source = RELATIONS[relation][0] if relation else "person"
        return f"{relation or 'mother'} of {run.other(source, subject)}"
    if deed == "wrong_relation":
        kind = run.world.kind_of(subject)
        fitting = [r for r, kinds in RELATIONS.items() if kinds[0] == kind and r != relation]
        alike = [r for r in fitting if relation and RELATIONS[r] == RELATIONS[relation]]
        return f"{rng.choice(alike if alike and rng.random() < 0.5 else fitting)} of {subject}" if fitting else None
    if deed == "anything":
        asked = rng.choice(list(RELATIONS))
        return f"{asked} of {run.other(RELATIONS[asked][0])}"
    searches = [query for query in queries if " of " in query]
    if deed == "repeated" and searches:
        return rng.choice(searches)
    return None if relation is None else f"{relation} of {subject}"


def _end(run: ScriptedRun, found: str, *, checked: bool) -> bool:
    """Answer, or answer what was not found, or check first. Whether the run is over."""
    deed = _draw(run.rng, AT_THE_END)
    if deed == "check" and not checked:
        run.mark(True, "")
        run.call(run.say("check", b=found), found)
        return False
    answer = found
    if deed == "goes_on":
        kind = run.world.kind_of(found)
        fitting = [r for r, kinds in RELATIONS.items() if kinds[0] == kind]
        value = None
        if fitting:
            asked = run.rng.choice([r for r in run.question.path if r in fitting] or fitting)
            value = run.world.value(found, asked)
            run.mark(False, "")
            run.call(run.say("need", rel=asked, a=found), f"{asked} of {found}")
        answer = value or found
    if deed == "misread":
        kind = RELATIONS[run.question.path[-1]][1]
        alike = [e for e in run.world.entities[kind] if e != found and (e[:2] == found[:2] or e[-2:] == found[-2:])]
        answer = run.rng.choice(alike) if alike and run.rng.random() < 0.7 else run.other(kind, found)
    run.mark(answer == found, "")
    run.finish("" if run.read else run.say("done"), answer)
    return True


def make_wanderers(
    n: int, *, seed: int, split: Split = "train", hops: Sequence[int] = HOPS
) -> list[tuple[Trajectory, Annotation]]:
    """`n` runs, `ATTEMPTS` to a question; other seeds, other worlds. `split` names the wordings."""
    rows: list[tuple[Trajectory, Annotation]] = []
    for number in range(-(-n // ATTEMPTS)):
        question_id = f"lab-wander-{seed}-{number}"
        world, question, rng = question_of(question_id, hops)
        task = rng.choice(QUESTION[split]).format(phrase=question.phrase)
        for attempt in range(ATTEMPTS):
            run = ScriptedRun(world, question, rng, split, False, rng.random() < TERSE_RATE)
            _wander(run)
            trajectory = run.trajectory(task, question_id, attempt)
            annotation = label(trajectory, world, question)
            bad = [f.step for f in annotation.findings or [] if f.verdict == "bad"]
            meta = {**trajectory.meta, "fault": "several" if bad else None, "fault_step": min(bad, default=None)}
            rows.append((trajectory.model_copy(update={"meta": meta}), annotation))
    return rows[:n]
