"""Scripted agents that err at most steps, labelled by replaying their runs.

Here a judge cannot guess what was done from what was needed. Faults that `reagent.lab.transcripts` holds out do not occur."""

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
AT_THE_END = {"answer": 0.5, "check": 0.15, "misread": 0.15, "goes_on": 0.2}
"""Odds where nothing is missing; `goes_on` asks for more, and answers with that."""
AFTER_ERROR = {"right": 0.7, "wrong_entity": 0.1, "wrong_relation": 0.1, "gives_up": 0.1}
WANDER_STEPS = 7


def _draw(rng: random.Random, odds: Mapping[str, float]) -> str:
    return rng.choices(list(odds), list(odds.values()))[0]


def _wander(run: ScriptedRun) -> None:
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
            entity_type = RELATIONS[run.question.path[-1]][1]
            return run.finish(run.say("guess"), run.other(entity_type, run.question.answer, subject))
        if deed == "leaves_out":
            if _leave_out(run, subject):
                return None
            continue
        query = _query(run, deed, queries)
        if query is None:
            continue
        needed, _, entity = query.partition(" of ")
        run.mark(True, "")
        phrase = run.say("need", rel=needed, a=entity)
        if deed == "malformed":
            valid = json.dumps({"query": query})
            broken = rng.choice([valid[:-1], valid[:-2], valid.replace('"query"', "query")])
            run.refused(phrase, query, broken)
        elif rng.random() < TOOL_ERROR_RATE:
            run.call(phrase, query, result=run.tool_error)
        else:
            queries.append(query)
            run.call(phrase, query)
            run.read_value(entity, needed, run.world.value(entity, needed) or "")


def _leave_out(run: ScriptedRun, subject: str) -> bool:
    """Skip the next relation of the path and follow the others; False where that is no mistake of its own."""
    rest = run.question.path[len(run.progress.values) + 1 :]
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
    for entity, relation, value in zip(way, rest, way[1:], strict=False):
        run.mark(True, "")
        run.call(run.say("need", rel=relation, a=entity), f"{relation} of {entity}")
        run.read_value(entity, relation, value)
    run.mark(False, "")
    run.finish("" if run.reading else run.say("done"), way[-1])
    return True


def _query(run: ScriptedRun, deed: str, queries: Sequence[str]) -> str | None:
    """The next query; None where the world has nothing to be mistaken about."""
    rng, subject, relation = run.rng, run.progress.subject, run.progress.relation
    if deed == "wrong_entity":
        source = RELATIONS[relation][0] if relation else "person"
        return f"{relation or 'mother'} of {run.other(source, subject)}"
    if deed == "wrong_relation":
        entity_type = run.world.kind_of(subject)
        fitting = [r for r, kinds in RELATIONS.items() if kinds[0] == entity_type and r != relation]
        alike = [r for r in fitting if relation and RELATIONS[r] == RELATIONS[relation]]
        return f"{rng.choice(alike if alike and rng.random() < 0.5 else fitting)} of {subject}" if fitting else None
    if deed == "anything":
        any_relation = rng.choice(list(RELATIONS))
        return f"{any_relation} of {run.other(RELATIONS[any_relation][0])}"
    searches = [query for query in queries if " of " in query]
    if deed == "repeated" and searches:
        return rng.choice(searches)
    return None if relation is None else f"{relation} of {subject}"


def _end(run: ScriptedRun, entity: str, *, checked: bool) -> bool:
    """Answer, misread, or check first; returns whether the run is over."""
    deed = _draw(run.rng, AT_THE_END)
    if deed == "check" and not checked:
        run.mark(True, "")
        run.call(run.say("check", b=entity), entity)
        return False
    answer = entity
    if deed == "goes_on":
        entity_type = run.world.kind_of(entity)
        fitting = [r for r, kinds in RELATIONS.items() if kinds[0] == entity_type]
        value = None
        if fitting:
            relation = run.rng.choice([r for r in run.question.path if r in fitting] or fitting)
            value = run.world.value(entity, relation)
            run.mark(False, "")
            run.call(run.say("need", rel=relation, a=entity), f"{relation} of {entity}")
        answer = value or entity
    if deed == "misread":
        entity_type = RELATIONS[run.question.path[-1]][1]
        alike = [
            e for e in run.world.entities[entity_type] if e != entity and (e[:2] == entity[:2] or e[-2:] == entity[-2:])
        ]
        answer = run.rng.choice(alike) if alike and run.rng.random() < 0.7 else run.other(entity_type, entity)
    run.mark(answer == entity, "")
    run.finish("" if run.reading else run.say("done"), answer)
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
