"""Scripted agents' labelled transcripts in lab worlds, clean or with one planted fault.

Every question has a world of its own and several attempts: a split by `question_id` shares no name. `meta` holds what the
judge never sees: `reference, fault, fault_step, fault_kind_heldout, recovered, hops, terse`. A step is `bad` where the fault
happens and where later steps build on it."""

import json
import random
from collections.abc import Callable, Sequence
from typing import Literal

from reagent.lab.faulty_agents import make_wanderers
from reagent.lab.score import process_score
from reagent.lab.scripted import ATTEMPTS, HOPS, TERSE_RATE, ScriptedRun, Split, question_of
from reagent.lab.trace import trace_of
from reagent.lab.wordings import QUESTION
from reagent.lab.world import RELATIONS, World, WorldQuestion
from rrm.data.annotation import Annotation
from rrm.data.feedback import format_findings
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError

CHECK_RATE = 0.15
CLEAN_RATE = 0.35
RECOVER_RATE = 0.45
SILENT_END_RATE = 0.5
"""Rate at which a terse agent that repeats itself ends without an answer."""


# ---- faults: each plays hop `hop` from `subject` with one mistake, and returns the value it goes on with ---------------
# None: the run is over.


def _after_wrong_search(run: ScriptedRun, hop: int, subject: str, relation: str, searched: str) -> str:
    """Correct a wrong search at once, or go on with its result."""
    relation_needed, wrong_step = run.question.path[hop], run.step
    if run.recover:
        phrase = run.say("sorry_search", rel=relation_needed, a=subject)
        return run.look_up(hop, subject, phrase=phrase, finding=run.finding("recover", k=wrong_step))
    run.wrong_since = wrong_step
    value = run.world.value(searched, relation)
    assert value is not None
    return run.read_value(subject, relation_needed, value)


def wrong_entity(run: ScriptedRun, hop: int, subject: str) -> str:
    relation = run.question.path[hop]
    wrong = run.other(RELATIONS[relation][0], subject, run.question.answer)
    run.mark(False, run.finding("wrong_entity", a=subject, c=wrong, rel=relation))
    run.call(run.say("need", rel=relation, a=subject), f"{relation} of {wrong}")
    return _after_wrong_search(run, hop, subject, relation, wrong)


def wrong_relation(run: ScriptedRun, hop: int, subject: str) -> str:
    relation = run.question.path[hop]
    other = run.rng.choice([r for r, kinds in RELATIONS.items() if kinds == RELATIONS[relation] and r != relation])
    run.mark(False, run.finding("wrong_relation", a=subject, other=other, rel=relation))
    run.call(run.say("need", rel=other, a=subject), f"{other} of {subject}")
    return _after_wrong_search(run, hop, subject, other, subject)


def _repeat(run: ScriptedRun, hop: int, subject: str, value: str, first: int) -> None:
    relation = run.question.path[hop]
    last = hop == len(run.question.path) - 1
    advice = "answer now" if last else f"search for {value}'s {run.question.path[hop + 1]}"
    run.mark(False, run.finding("repeated_call", k=first, next=advice))
    run.call(run.say("again", rel=relation, a=subject), f"{relation} of {subject}")


def repeated_call(run: ScriptedRun, hop: int, subject: str) -> str | None:
    """Repeats a call whose result is already there: once, or until it stops without an answer."""
    value = run.look_up(hop, subject)
    run.reading, first = "", run.step
    _repeat(run, hop, subject, value, first)
    if run.recover:
        return run.read_value(subject, run.question.path[hop], value)
    for _ in range(run.rng.randint(1, 2)):
        _repeat(run, hop, subject, value, first)
    if run.terse and run.rng.random() < SILENT_END_RATE:
        return None
    run.mark(False, "stops without an answer after repeating itself")
    run.finish(run.say("give_up"), "unknown")
    return None


def malformed(run: ScriptedRun, hop: int, subject: str) -> str | None:
    """Writes arguments that are not JSON: corrected, or followed by giving up."""
    relation = run.question.path[hop]
    query = f"{relation} of {subject}"
    valid = json.dumps({"query": query})
    broken = run.rng.choice([valid[:-1], valid[:-2], valid.replace('"query"', "query"), query])
    text = run.finding("malformed", a=subject, rel=relation)
    run.mark(False, text)
    run.refused(run.say("need", rel=relation, a=subject), query, broken)
    wrong_step = run.step
    if run.recover:
        phrase = run.say("sorry_arguments")
        return run.look_up(hop, subject, phrase=phrase, finding=run.finding("recover", k=wrong_step))
    run.mark(False, run.finding("gave_up", a=subject, rel=relation))
    run.finish(run.say("give_up"), "unknown")
    return None


def _assume(run: ScriptedRun, hop: int, subject: str, wrong: str, finding: str) -> None:
    """Go on with a wrong value; `finding` is of the step that first does."""
    run.next_bad = finding
    run.read_value(subject, run.question.path[hop], wrong)
    run.wrong_since = run.step + 1
    if run.recover:
        run.look_up(hop + 1, wrong)
        run.reading, run.wrong_since = "", None


def misread(run: ScriptedRun, hop: int, subject: str) -> str:
    """Takes the object of another fact from the result; a recovering run reads it again."""
    relation = run.question.path[hop]
    value = run.look_up(hop, subject)
    facts = run.world.find(f"{relation} of {subject}")
    wrong = next(f.object for f in facts if f.relation == relation and f.subject != subject)
    if wrong == value:
        wrong = run.other(RELATIONS[relation][1], value, subject)
    first = run.step
    _assume(run, hop, subject, wrong, run.finding("misread", k=first, rel=relation, a=subject))
    if not run.recover:
        return wrong
    run.next_good = run.say("sorry_read", rel=relation, a=subject), run.finding("recover", k=first + 1)
    return value


def ignored_error(run: ScriptedRun, hop: int, subject: str) -> str:
    """Goes on with a made-up value after the tool failed; a recovering run searches again."""
    relation = run.question.path[hop]
    run.mark(True, run.finding("tool_error"))
    run.call(run.say("need", rel=relation, a=subject), f"{relation} of {subject}", result=run.tool_error)
    wrong = run.other(RELATIONS[relation][1], run.question.values[hop], subject)
    first = run.step
    _assume(run, hop, subject, wrong, run.finding("ignored_error", k=first))
    if not run.recover:
        return wrong
    phrase = run.say("sorry_read", rel=relation, a=subject)
    return run.look_up(hop, subject, phrase=phrase, finding=run.finding("recover", k=first + 1))


def unsupported(run: ScriptedRun, hop: int, subject: str) -> None:
    relation = run.question.path[hop]
    guess = run.other(RELATIONS[run.question.path[-1]][1], run.question.answer, subject)
    run.mark(False, run.finding("unsupported", a=subject, rel=relation))
    run.finish(run.say("guess"), guess)


def gave_up(run: ScriptedRun, hop: int, subject: str) -> None:
    relation = run.question.path[hop]
    run.mark(False, run.finding("gave_up", a=subject, rel=relation))
    run.finish(run.say("give_up"), "unknown")


def stops_early(run: ScriptedRun, hop: int, subject: str) -> None:
    """Answers with the value of the hop before the last."""
    relation = run.question.path[hop]
    run.mark(False, run.finding("stops_early", a=subject, rel=relation))
    run.finish(run.say("done"), subject)


Fault = Callable[[ScriptedRun, int, str], str | None]
TRAIN_FAULTS: tuple[Fault, ...] = (
    wrong_entity, repeated_call, misread, malformed, unsupported, gave_up, wrong_relation,
)  # fmt: skip
HELDOUT_FAULTS: tuple[Fault, ...] = (stops_early, ignored_error)


def _fault_hop(fault: Fault, hops: int, recover: bool, rng: random.Random) -> int:
    """A hop at which a fault can happen: the last for `stops_early`, not the last where it shows later."""
    if fault is stops_early:
        return hops - 1
    if recover and fault in (misread, ignored_error):
        return rng.randrange(hops - 1)
    return rng.randrange(hops)


def _play(run: ScriptedRun, fault: Fault | None, fault_hop: int) -> None:
    value: str | None = run.question.start
    for hop in range(len(run.question.path)):
        value = fault(run, hop, value) if fault and hop == fault_hop else run.look_up(hop, value)
        if value is None:
            return
    if run.rng.random() < CHECK_RATE and not run.next_bad:
        phrase = run.say("check", b=value)
        run.mark_hop(run.finding("check"))
        run.call(phrase, value)
    run.mark_hop(run.finding("answer"))
    run.finish("" if run.reading else run.say("done"), value)


def _draw_fault(split: Split, hops: int, rng: random.Random) -> tuple[Fault | None, bool]:
    """A fault, or None for a clean run, and whether the run recovers from it."""
    if rng.random() < CLEAN_RATE:
        return None, False
    pool = TRAIN_FAULTS if split != "heldout" or rng.random() < 0.5 else HELDOUT_FAULTS
    fault = rng.choice([f for f in pool if f is not stops_early or hops > 1])
    can_recover = fault not in (unsupported, gave_up, stops_early) and (
        hops > 1 or fault not in (misread, ignored_error)
    )
    return fault, can_recover and rng.random() < RECOVER_RATE


def _attempt(
    world: World, question: WorldQuestion, split: Split, rng: random.Random
) -> tuple[ScriptedRun, Fault | None]:
    """Play one attempt; one whose mistake ends in the right answer by accident is drawn again."""
    hops = len(question.path)
    while True:
        fault, recover = _draw_fault(split, hops, rng)
        run = ScriptedRun(world, question, rng, split, recover, rng.random() < TERSE_RATE)
        _play(run, fault, _fault_hop(fault, hops, recover, rng) if fault else 0)
        if (run.answer == question.answer) == (fault is None or recover):
            return run, fault


def make_transcripts(
    n: int, *, seed: int, split: Split = "train", hops: Sequence[int] = HOPS
) -> list[tuple[Trajectory, Annotation]]:
    """`n` labelled transcripts, `ATTEMPTS` to a question.

    `seed` names the worlds: other seeds share none, and a longer list begins with the shorter one. `split` `heldout` has
    wordings, and in half of the faulty runs faults, that `train` never has. `hops`: hop counts to draw from."""
    rows: list[tuple[Trajectory, Annotation]] = []
    for number in range(-(-n // ATTEMPTS)):
        question_id = f"lab-{'heldout' if split == 'heldout' else 'train'}-{seed}-{number}"
        world, question, rng = question_of(question_id, hops)
        task = rng.choice(QUESTION[split]).format(phrase=question.phrase)
        for attempt in range(ATTEMPTS):
            run, fault = _attempt(world, question, split, rng)
            rows.append(_row(run, fault, task, question_id, attempt))
    return rows[:n]


def _row(
    run: ScriptedRun, fault: Fault | None, task: str, question_id: str, attempt: int
) -> tuple[Trajectory, Annotation]:
    name = getattr(fault, "__name__", None)
    trajectory = run.trajectory(task, question_id, attempt)
    trajectory.meta.update(
        fault=name,
        fault_step=run.fault_step,
        fault_kind_heldout=fault in HELDOUT_FAULTS,
        recovered=fault is not None and trajectory.outcome == 1.0,
    )
    annotation = Annotation(
        trajectory_id=trajectory.id,
        score=process_score(run.progress, run.answer, {name} if name else (), run.messages),
        trace=trace_of(run.trace, run.question.path),
        critique=format_findings(run.findings),
        findings=run.findings,
        annotator="lab",
        kind="rules",
    )
    return trajectory, annotation


def generate(
    *, seed: int, transcripts: int = 0, wanderers: int = 0, wordings: Literal["few", "many"] = "many"
) -> list[tuple[Trajectory, Annotation]]:
    """A judge's training data: transcripts, then wanderers' (a config's `data.generate`).

    `wanderers`: runs with many mistakes (`reagent.lab.faulty_agents`). Raises ConfigError: `wordings` is neither few nor many."""
    if wordings not in ("few", "many"):
        raise ConfigError(f"data.generate_options.wordings is {wordings!r}: few or many")
    split: Split = "few" if wordings == "few" else "train"
    return [*make_transcripts(transcripts, seed=seed, split=split), *make_wanderers(wanderers, seed=seed, split=split)]
